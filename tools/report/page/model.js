// Data of the page: facts of the plan, and timelines as docs/trace-json.md defines them.

const ROLES = ["producer", "poller", "consumer", "epilogue"];
const roleOfWarp = warp => warp === 0 ? 0 : warp === 1 ? 1 : warp === 10 ? 3 : 2;

function readJson(id) {
  const text = document.getElementById(id).textContent.trim();
  return text ? JSON.parse(text) : null;
}

// Stages keep their colour in all kernels and both timelines.
const HUES = ["#7f8c8d", "#3d5a98", "#1b8a7a", "#c9a227", "#7b52ab", "#58a15a", "#c25b8f", "#2f7fd0", "#2bb0c4", "#8c5a3c"];
const hueOf = new Map();
function colour(stage) {
  if (!hueOf.has(stage)) hueOf.set(stage, HUES[hueOf.size % HUES.length]);
  return hueOf.get(stage);
}
function mix(hex, other, part) {
  const a = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)), b = [1, 3, 5].map(i => parseInt(other.slice(i, i + 2), 16));
  return "#" + a.map((v, i) => Math.round(v * (1 - part) + b[i] * part).toString(16).padStart(2, "0")).join("");
}
const tints = new Map();
function shades(stage) {
  if (!tints.has(stage)) {
    const base = colour(stage);
    tints.set(stage, {work: base, wait: mix(base, "#ffffff", 0.8), passive: mix(base, "#ffffff", 0.42)});
  }
  return tints.get(stage);
}
const STREAM = "#e2703a", BOUNDARY = "#9aa5b1";

const median = values => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : 0;
};

// The parts of a warp's stage, in order: what it waited for others, for the ring, and its own work. Only the
// end of the last wait is known, and the first piece: waits and stalls are drawn before them.
function partsOf(bar) {
  const parts = [], push = (kind, begin, end) => { if (end > begin) parts.push({kind, begin, end}); };
  let from = bar.begin;
  if (bar.role === 3 && bar.ready !== null) {
    push("wait", bar.begin, bar.ready);
    push("work", Math.max(bar.ready, bar.begin), bar.end);
    return parts;
  }
  if (bar.role < 2 || bar.role === 3) {
    push("passive", bar.begin, bar.end);
    return parts;
  }
  if (bar.ready !== null && bar.waited > 0) {
    const ready = Math.min(Math.max(bar.ready, bar.begin), bar.end);
    push("work", bar.begin, Math.max(bar.begin, ready - bar.waited));
    push("wait", Math.max(bar.begin, ready - bar.waited), ready);
    from = ready;
  }
  const stalled = Math.min(bar.stalled, bar.end - from);
  const until = bar.first !== null ? Math.min(Math.max(bar.first, from + stalled), bar.end) : from + stalled;
  push("work", from, until - stalled);
  push("stream", until - stalled, until);
  push("work", until, bar.end);
  return parts;
}

// A timeline, with rows by role and SM. A bar is a warp's stage; the eight warps of a consumer make one row and
// have a bar each, beside one that sums them up for small rows.
class Timeline {
  constructor(json, facts) {
    this.json = json;
    this.sms = json.sms;
    this.predicted = json.source === "predicted";
    this.rows = ROLES.map(() => Array.from({length: json.sms}, () => []));
    this.launches = [];
    this.tasks = 0;
    const info = this.infoOf(json);
    for (const [index, launch] of json.launches.entries()) {
      const begin = median(launch.warps.map(w => w.begin)), end = Math.max(...launch.warps.map(w => w.end));
      this.launches.push({kernel: launch.kernel, number: launch.number, layer: launch.layer, begin, end});
      const names = json.names[launch.kernel].stages;
      const groups = new Map();
      for (const warp of launch.warps) {
        const role = roleOfWarp(warp.warp);
        for (const [stage, begin, end, waited, stalled, ready, first, last] of warp.stages) {
          ++this.tasks;
          const bar = {launch: index, kernel: launch.kernel, sm: warp.sm, warp: warp.warp, role, stage: names[stage],
                       begin, end, waited, stalled, ready, first, last, waits: info.waits(launch.kernel, role, names[stage])};
          const key = warp.sm * 64 + role * 16 + stage;
          if (!groups.has(key)) groups.set(key, []);
          groups.get(key).push(bar);
        }
      }
      for (const bars of groups.values())
        this.rows[bars[0].role][bars[0].sm].push(bars.length === 1 ? {...bars[0], warps: bars} : this.sumOf(bars));
    }
    for (const role of this.rows) for (const row of role) row.sort((a, b) => a.begin - b.begin);
    this.startAt(0);
    this.span = Math.max(...this.launches.map(l => l.end)) - this.origin;
    this.early = this.rows.flat(2).reduce((least, b) => Math.min(least, b.begin - this.origin), 0);
    this.path = json.path || null;
  }

  // Time zero is the begin of that launch.
  startAt(index) {
    this.start = Math.min(index, this.launches.length - 1);
    this.origin = this.launches[this.start].begin;
  }

  sumOf(bars) {
    const mean = key => bars.reduce((sum, b) => sum + b[key], 0) / bars.length;
    const some = (key, pick) => { const known = bars.map(b => b[key]).filter(v => v !== null); return known.length ? pick(known) : null; };
    const sum = {...bars[0], warp: -1, warps: bars, begin: mean("begin"), end: mean("end"), waited: mean("waited"), stalled: mean("stalled"),
                 ready: some("ready", median), first: some("first", median), last: some("last", v => Math.max(...v))};
    return sum;
  }

  infoOf(json) {
    const waits = new Map();
    for (const kernel of json.summary.kernels)
      for (const stage of kernel.stages) waits.set(kernel.kernel + "/" + stage.role + "/" + stage.stage, stage.waits);
    return {waits: (kernel, role, stage) => waits.get(kernel + "/" + ROLES[role] + "/" + stage) || []};
  }

  summary(kernel) { return this.json.summary.kernels.find(k => k.kernel === kernel) || null; }
}

const us = (ns, digits = 2) => (ns / 1000).toFixed(digits);
const number = value => Math.round(value).toLocaleString("en-US");
const bytes = value => value >= 1e6 ? (value / 1e6).toFixed(2) + " MB" : value >= 1e4 ? (value / 1024).toFixed(1) + " KB" : number(value) + " B";

// DOM: element("td", {className: "n"}, "text", child…)
function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter(c => c !== null && c !== undefined));
  return made;
}
function table(heads, rows) {
  const head = element("tr", {}, ...heads.map(h => element("th", {className: h.startsWith("#") ? "n" : ""}, h.replace("#", ""))));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr", row.properties || {});
    (row.cells || row).forEach((cell, i) => line.append(element("td", {className: heads[i].startsWith("#") ? "n" : ""}, cell ?? "")));
    body.append(line);
  }
  return element("table", {}, element("thead", {}, head), body);
}
function definitions(pairs) {
  const list = element("dl");
  for (const [key, value] of pairs) if (value !== null && value !== undefined && value !== "") list.append(element("dt", {}, key), element("dd", {}, value));
  return list;
}
function reasons(why) {
  if (!why || !why.length) return "";
  const box = element("div", {className: "why"});
  for (const reason of why)
    box.append(element("div", {title: reason.by}, element("b", {}, reason.what + ": " + reason.chose), " — " + reason.because));
  return box;
}
