// What stands below the timelines, for one kernel.

let facts = null, timelines = {predicted: null, measured: null}, current = null;

const kernelFacts = name => facts.kernels.find(k => k.name === name) || null;
const stageFacts = (kernel, stage) => kernelFacts(kernel)?.stages.find(s => s.name === stage) || null;

function ends(list, kernel) {
  return list.map(e => `${e.stage} (${e.role}${e.kernel !== kernel ? ", kernel " + e.kernel : ""}${e.previous ? ", of the launch before" : ""}${e.pieces ? ", expert by expert" : ""})`).join(", ") || "nobody";
}

function describeEdge(kernel, name) {
  const known = kernelFacts(kernel);
  const edge = known?.edges.find(e => e.name === name);
  if (!edge) return null;
  const exchange = known.exchanges.find(x => x.edge === name);
  if (exchange)
    return `${exchange.word} words, ${exchange.sets} set${exchange.sets === 1 ? "" : "s"} of ${bytes(exchange.set_bytes)}; stored by ${ends(exchange.writers, kernel)}, polled by ${ends(exchange.readers, kernel)}`;
  return `${edge.kind}, ${edge.from} to ${edge.to.join(", ")}, ${edge.slots} slot${edge.slots === 1 ? "" : "s"}` + (edge.guards.length ? `, hands over ${edge.guards.join(", ")}` : "");
}

const bothTimelines = () => ["predicted", "measured"].filter(which => timelines[which]);

// One card a figure: what was measured, beside it what was predicted.
function cards() {
  const box = document.getElementById("cards"), kernel = kernelFacts(current);
  box.replaceChildren();
  const card = (value, what, title = "") => box.append(element("div", {className: "card", title}, element("b", {}, value), element("span", {}, what)));
  const figure = (what, digits, pick, title) => {
    const found = {};
    for (const which of bothTimelines()) {
      const spread = pick(timelines[which].summary(current) || {});
      if (spread) found[which] = spread.median;
    }
    const {measured, predicted} = found;
    if (measured === undefined && predicted === undefined) return undefined;
    const main = measured ?? predicted;
    card(us(main, digits) + " µs", what + (measured !== undefined && predicted !== undefined ? `; predicted ${us(predicted, digits)} (${predicted >= measured ? "+" : "−"}${Math.abs((predicted / measured - 1) * 100).toFixed(1)} %)` : measured !== undefined ? ", measured" : ", predicted"), title);
    return main;
  };
  const period = figure("a launch of " + current, 2, s => s.period, "from a launch's begin to the next one's");
  figure("E, an exchange", 2, s => s.exchange, "last product of the stage before to the first of the stage after, median");
  figure("C", 1, s => s.chain, "last product of the experts to the next launch's first expert byte");
  card(bytes(kernel.bytes), "a launch reads");
  if (kernel.floor_us !== undefined) {
    card(kernel.floor_us.toFixed(2) + " µs", "floor: bytes at the best rate" + (period ? `; ${(kernel.floor_us * 1e5 / period).toFixed(1)} % of it reached` : ""));
    card(`${kernel.chain} × E = ${kernel.hops_us.toFixed(2)} µs`, "exchanges one after another, by the table");
  }
}

//===-- Critical path --------------------------------------------------------------------------------------===//

function reasonOf(segment, before, kernel) {
  const stage = stageFacts(segment.kernel, segment.name);
  switch (segment.kind) {
  case "work":
    return stage && stage.bytes ? `own work; the SM's share is ${bytes(stage.sm_bytes || stage.bytes / stage.sms)} of ${stage.bytes_of}` : "own work";
  case "stream":
    return stage ? `the next piece of ${bytes(stage.piece)} was not there: ${stage.window} under way at most` + (stage.windowed ? `, with which the stage's ${bytes(stage.bytes)} take ${stage.windowed.us.toFixed(2)} µs` : "") : "the next piece was not there";
  case "boundary":
    return "the launch before had ended here; the next began";
  default: {
    const exchange = kernelFacts(segment.kernel)?.exchanges.find(x => x.edge === segment.edge);
    const from = before && before.sm !== segment.sm ? `SM ${before.sm} was the last to have its ${before.name} done; ` : "";
    if (exchange)
      return from + `${bytes(exchange.poll_bytes || exchange.set_bytes)} of ${exchange.word} words from ${ends(exchange.writers, segment.kernel)}` + (exchange.hop ? `; an exchange like it takes ${exchange.hop.us.toFixed(2)} µs` : "");
    return from + (describeEdge(segment.kernel, segment.edge) || "a signal of another role");
  }
  }
}

const kindColour = (kind, stage) => kind === "stream" ? STREAM : kind === "boundary" ? BOUNDARY : kind === "wait" ? shades(stage).wait : shades(stage).work;

// Totals of a path a launch, in the order in which stages come.
function orderedTotals(timeline) {
  const first = new Map();
  for (const segment of timeline.path.segments) {
    const name = timeline.json.names[segment.kernel].stages[segment.stage];
    if (!first.has(name)) first.set(name, first.size);
  }
  const kinds = ["boundary", "wait", "stream", "work"];
  return [...timeline.path.totals].sort((a, b) => first.get(a.stage) - first.get(b.stage) || kinds.indexOf(a.kind) - kinds.indexOf(b.kind));
}

function pathSection() {
  const body = document.getElementById("path-body");
  body.replaceChildren();
  const withPath = bothTimelines().filter(which => timelines[which].path);
  if (!withPath.length) {
    body.append(element("p", {className: "empty"}, "No timeline here tells its critical path: it takes two launches of a kernel, one after the other, and a file of version 2 of docs/trace-json.md."));
  } else {
    body.append(pathBars(withPath), pathTable(withPath));
    for (const which of withPath) body.append(pathSegments(which));
  }
  body.append(consumerTable());
}

function pathBars(which) {
  const longest = Math.max(...which.map(w => timelines[w].path.totals.reduce((s, t) => s + t.ns, 0)));
  const box = element("div", {className: "bars"});
  for (const name of which) {
    const totals = orderedTotals(timelines[name]), sum = totals.reduce((s, t) => s + t.ns, 0);
    const track = element("div", {className: "track"});
    for (const total of totals) {
      const part = element("div", {title: `${total.stage}: ${total.kind}${total.edge ? " for " + total.edge : ""}, ${us(total.ns)} µs`}, total.ns / longest > 0.05 ? `${total.stage} ${us(total.ns, 1)}` : "");
      part.style.width = total.ns / longest * 100 + "%";
      part.style.background = kindColour(total.kind, total.stage);
      if (total.kind === "wait") part.style.color = "#10161f";
      track.append(part);
    }
    box.append(element("div", {className: "row"}, name, track, us(sum) + " µs"));
  }
  return box;
}

function pathTable(which) {
  const keys = new Map();
  for (const name of which)
    for (const total of orderedTotals(timelines[name])) {
      const key = [total.stage, total.kind, total.edge || ""].join("/");
      if (!keys.has(key)) keys.set(key, {total});
      keys.get(key)[name] = total.ns;
    }
  const heads = ["stage", "what", ...which.map(w => "#" + w + ", µs"), ...(which.length > 1 ? ["#difference"] : [])];
  const rows = [...keys.values()].map(entry => {
    const {stage, kind, edge} = entry.total, swatch = element("span", {className: "swatch"});
    swatch.style.background = kindColour(kind, stage);
    const cells = [element("span", {}, swatch, stage), kind + (edge ? " for " + edge : ""), ...which.map(w => entry[w] === undefined ? "–" : us(entry[w]))];
    if (which.length > 1) cells.push(us((entry.predicted || 0) - (entry.measured || 0)));
    return cells;
  });
  const sums = which.map(w => timelines[w].path.totals.reduce((s, t) => s + t.ns, 0));
  rows.push({properties: {className: "sum"}, cells: ["all of a launch", "", ...sums.map(s => us(s)), ...(which.length > 1 ? [us(sums[0] - sums[1])] : [])]});
  const box = element("details", {open: true}, element("summary", {}, "by stage and kind"));
  box.append(table(heads, rows));
  return box;
}

function pathSegments(which) {
  const timeline = timelines[which], rows = [];
  let before = null;
  for (const raw of timeline.path.segments) {
    const segment = {...raw, name: timeline.json.names[raw.kernel].stages[raw.stage]};
    const swatch = element("span", {className: "swatch"});
    swatch.style.background = kindColour(segment.kind, segment.name);
    const from = segment.begin - timeline.origin, to = segment.end - timeline.origin;
    rows.push({properties: {className: "pick", title: "show in the timeline", onclick: () => { const shift = timeline.launches[0].begin - timeline.origin; view.focus(from + shift - (to - from) * 2, to + shift + (to - from) * 2); document.getElementById("timelines").scrollIntoView({behavior: "smooth"}); }},
               cells: [us(from), us(to - from), segment.sm, element("span", {}, swatch, segment.name), segment.kind + (segment.edge ? " for " + segment.edge : ""), element("span", {className: "why"}, reasonOf(segment, before))]});
    before = segment;
  }
  const scroll = element("div", {className: "scroll"});
  scroll.append(table(["#from, µs", "#µs", "#SM", "stage", "what", "reason"], rows));
  const box = element("details", {}, element("summary", {}, `every segment, ${which} (${rows.length} over ${timeline.path.launches} launch${timeline.path.launches === 1 ? "" : "es"})`));
  box.append(scroll);
  return box;
}

// Where consumers spend a launch: means over SMs and launches.
function consumerTable() {
  const which = bothTimelines().filter(w => timelines[w].summary(current));
  if (!which.length) return "";
  const stages = timelines[which[0]].summary(current).stages.filter(s => s.role === "consumer").map(s => s.stage);
  const heads = ["stage", ...which.flatMap(w => [`#${w}: length`, "#waited", "#stream", "#own work"]), ...(which.length > 1 ? ["#length off by"] : [])];
  const rows = stages.map(stage => {
    const found = which.map(w => timelines[w].summary(current).stages.find(s => s.role === "consumer" && s.stage === stage));
    const swatch = element("span", {className: "swatch"});
    swatch.style.background = colour(stage);
    const cells = [element("span", {}, swatch, stage)];
    for (const s of found) cells.push(...(s ? [us(s.length), us(s.waited), us(s.stalled), us(s.length - s.waited - s.stalled)] : ["–", "–", "–", "–"]));
    if (which.length > 1) cells.push(found[0] && found[1] ? ((found[0].length / found[1].length - 1) * 100).toFixed(0) + " %" : "–");
    return cells;
  });
  const box = element("div", {}, element("h3", {}, "Consumers, µs of a launch: means over SMs and launches"));
  box.append(table(heads, rows));
  return box;
}

//===-- Tables of the plan ---------------------------------------------------------------------------------===//

function stagesSection() {
  const kernel = kernelFacts(current), hasTimes = kernel.floor_us !== undefined;
  const heads = ["stage", "op", "#SMs", "#tiles", "reads", "#MB", "#largest share", ...(hasTimes ? ["#floor, µs", "#at its window, µs"] : []), "copies", "why"];
  const rows = kernel.stages.map(s => {
    const swatch = element("span", {className: "swatch"});
    swatch.style.background = colour(s.name);
    return [element("span", {}, swatch, s.name), element("code", {}, s.source || "–"), s.sms, s.tiles ?? "–", s.bytes_of || "–", s.bytes ? (s.bytes / 1e6).toFixed(2) : "–", s.sm_bytes ? bytes(s.sm_bytes) : "–",
            ...(hasTimes ? [s.floor ? element("span", {title: s.floor.cost}, s.floor.us.toFixed(2)) : "–", s.windowed ? element("span", {title: s.windowed.cost}, s.windowed.us.toFixed(2)) : "–"] : []),
            s.piece ? `${s.window} × ${bytes(s.piece)}` : "–", folded(s.why)];
  });
  rows.push({properties: {className: "sum"}, cells: ["all", "", "", "", "", (kernel.bytes / 1e6).toFixed(2), "", ...(hasTimes ? [kernel.floor_us.toFixed(2), kernel.windowed_us.toFixed(2)] : []), "", ""]});
  document.getElementById("stages-body").replaceChildren(table(heads, rows),
    element("p", {className: "hint"}, `Context ${number(facts.context)}, ${facts.experts.toFixed(1)} different experts a layer. ` + (hasTimes ? `Times from the cost table of ${facts.device}; the floor takes its best read rate, "at its window" the rate with as many bytes in flight as the stage may have.` : "No cost table for this target: no times.")));
}

function folded(why) {
  if (!why.length) return "";
  const box = element("details", {}, element("summary", {}, why.length + (why.length === 1 ? " decision" : " decisions")));
  box.append(reasons(why));
  return box;
}

function hopOf(which, exchange) {
  const hop = timelines[which]?.summary(current)?.hops.find(h => h.edge === exchange.edge);
  return hop && hop.all ? `${us(hop.all.median)} (${us(hop.all.p10)} to ${us(hop.all.p90)})` : "–";
}

function exchangesSection() {
  const kernel = kernelFacts(current), used = kernel.exchanges.filter(x => x.readers.length || x.writers.length), others = kernel.exchanges.filter(x => !used.includes(x));
  const heads = ["exchange", "protocol", "shape", "#sets × bytes", "stored by", "polled by", "#bytes a poll", ...(kernel.floor_us !== undefined ? ["#E by the table, µs"] : []), ...bothTimelines().map(w => "#E " + w + ", µs"), "why"];
  const rows = used.map(x => [element("code", {}, x.name), x.word + (x.word === "sentinel" ? " words, re-armed" : x.word === "epoch" ? " words of 16 B" : x.word === "number" ? " words, counted up" : " words, by the end of a launch") + (x.peers ? "; a replica on each rank" : ""), `${x.rows} × ${x.cols} ${x.element}`, `${x.sets} × ${bytes(x.set_bytes)}`,
    ends(x.writers, kernel.name), ends(x.readers, kernel.name), x.poll_bytes ? bytes(x.poll_bytes) : "–", ...(kernel.floor_us !== undefined ? [x.hop ? element("span", {title: x.hop.cost}, x.hop.us.toFixed(2)) : "–"] : []), ...bothTimelines().map(w => hopOf(w, x)), folded(x.why)]);
  const body = document.getElementById("exchanges-body");
  body.replaceChildren(table(heads, rows));
  if (others.length) body.append(element("p", {className: "hint"}, `Only emptied here, for other kernels: ${others.map(x => x.name).join(", ")}.`));
}

function edgesSection() {
  const kernel = kernelFacts(current), rows = kernel.edges.filter(e => !e.exchange).map(e => [e.id, element("code", {}, e.name), e.kind, `${e.from} → ${e.to.join(", ")}`, e.slots, e.arrivals, e.offset ?? "–", e.guards.join(", ") || "–", folded(e.why)]);
  document.getElementById("edges-body").replaceChildren(table(["#id", "edge", "protocol", "from → to", "#slots", "#arrivals", "#first mbarrier at", "hands over", "why"], rows));
}

function resourcesSection() {
  const body = document.getElementById("resources-body");
  const cache = facts.instruction_cache;
  const rows = facts.kernels.map(k => {
    const r = k.resources, over = r && cache && r.code_bytes > cache;
    return {properties: {className: k.name === current ? "sum" : ""}, cells: [k.name, k.launches, k.threads, r ? r.registers : "–", r ? number(r.spill_bytes) : "–", r ? number(r.stack_bytes) : "–", number(k.smem_bytes),
      r ? element("span", {className: over ? "over" : ""}, number(r.code_bytes)) : "–", r && cache ? (r.code_bytes / cache * 100).toFixed(0) + " %" : "–"]};
  });
  body.replaceChildren(table(["kernel", "#launches", "#threads", "#registers", "#bytes spilled", "#bytes of stack", "#shared memory", "#bytes of code", "#of the instruction cache"], rows));
  if (!facts.kernels.some(k => k.resources)) body.append(element("p", {className: "hint"}, "The plan was compiled without cubins: registers, spills and code are not known."));
  else if (cache) body.append(element("p", {className: "hint"}, `The instruction cache of an SM holds about ${number(cache)} bytes; code beyond it is fetched again in every launch.`));
  body.append(codeTable(kernelFacts(current)));
  body.append(element("h3", {}, `Shared memory of ${current}`), memoryMap(kernelFacts(current)));
}

// Bytes of code by stage and role.
function codeTable(kernel) {
  if (!kernel.code) return element("p", {className: "hint"}, "Bytes of code of each role and stage: megalith report --code.");
  const sum = pick => kernel.code.filter(pick).reduce((all, part) => all + part.bytes, 0), most = Math.max(...kernel.code.map(p => p.bytes));
  const cell = (value, shade) => {
    const made = element("span", {}, value ? number(value) : "–");
    if (shade && value) made.style.cssText = `background: rgba(226, 112, 58, ${(0.6 * value / most).toFixed(2)}); padding: 1px 4px; border-radius: 3px`;
    return made;
  };
  const rows = kernel.stages.filter(s => sum(p => p.stage === s.name)).map(s => {
    const swatch = element("span", {className: "swatch"});
    swatch.style.background = colour(s.name);
    return [element("span", {}, swatch, s.name), ...ROLES.map(role => cell(sum(p => p.role === role && p.stage === s.name), true)), cell(sum(p => p.stage === s.name))];
  });
  rows.push({properties: {className: "sum"}, cells: ["all", ...ROLES.map(role => cell(sum(p => p.role === role))), cell(sum(p => ROLES.includes(p.role)))]});
  const box = element("div", {id: "code"}, element("h3", {}, `Bytes of code of ${kernel.name}, by stage and role`));
  box.append(table(["stage", ...ROLES.map(role => "#" + role), "#all"], rows), element("p", {className: "hint"}, `Beside these ${number(sum(p => p.role === ""))} bytes before the roles and ${number(sum(p => p.role === "called"))} of functions that are called.`));
  return box;
}

function memoryMap(kernel) {
  const svg = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const lanes = kernel.memory.some(m => m.alias) ? {attention: 0, dense: 1} : {}, width = 1200, lane = 34;
  const count = Object.keys(lanes).length || 1, map = svg("svg", {class: "map", viewBox: `0 0 ${width} ${count * lane + 22}`, role: "img", "aria-label": "shared memory map"});
  const total = kernel.smem_bytes || 1;
  for (const [i, m] of kernel.memory.entries()) {
    const x = m.offset / total * width, w = Math.max(m.bytes / total * width, 0.6);
    const y = m.alias ? lanes[m.alias] * lane : 0, h = m.alias ? lane - 2 : count * lane - 2;
    const fill = m.kind === "ring" ? "#c9d8ea" : m.kind === "barriers" ? "#333d4b" : HUES[i % HUES.length] + "66";
    const group = svg("g", {});
    group.append(svg("rect", {x, y, width: w, height: h, fill, stroke: "#fff", "stroke-width": 0.6}));
    if (m.kind === "ring") for (let s = 1; s < m.slots; ++s) group.append(svg("line", {x1: x + w * s / m.slots, x2: x + w * s / m.slots, y1: y, y2: y + h, stroke: "#fff"}));
    if (w > 7 * m.name.length) group.append(svg("text", {x: x + 4, y: y + h / 2 + 4, fill: "#10161f"}, m.name));
    group.append(svg("title", {}, `${m.name}: bytes ${number(m.offset)} to ${number(m.offset + m.bytes)}, ${m.slots} slot(s)` + (m.guard ? `, handed over by ${m.guard}` : "") + (m.alias ? `, shared with the other phase (${m.alias})` : "")));
    map.append(group);
  }
  for (let kb = 0; kb * 1024 <= total; kb += 32) map.append(svg("text", {x: kb * 1024 / total * width, y: count * lane + 16, fill: "#5b6675"}, kb + " KB"));
  const rows = kernel.memory.map(m => [element("code", {}, m.name), m.kind, number(m.offset), number(m.bytes), m.slots, m.alias || "–", m.guard || "–"]);
  const list = element("details", {}, element("summary", {}, "as a table"));
  list.append(table(["name", "what", "#offset", "#bytes", "#slots", "shares bytes", "handed over by"], rows));
  return element("div", {}, map, list);
}

function decisionsSection() {
  const kernel = kernelFacts(current), rows = [];
  const add = (kind, name, why) => { for (const reason of why) rows.push([kind, element("code", {}, name), reason.what, reason.chose, element("span", {className: "why"}, reason.because), element("code", {}, reason.by)]); };
  add("kernel", kernel.name, kernel.why);
  for (const s of kernel.stages) add("stage", s.name, s.why);
  for (const x of kernel.exchanges) add("exchange", x.name, x.why);
  for (const e of kernel.edges) if (!e.exchange) add("edge", e.name, e.why);
  for (const m of kernel.memory) if (m.kind !== "ring") add(m.kind, m.name, m.why);
  const made = table(["of", "name", "matter", "chosen", "because", "pass"], rows), box = element("div", {className: "scroll"});
  box.append(made);
  const search = element("input", {type: "search", placeholder: "show those with …", oninput: () => {
    for (const row of made.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(search.value.toLowerCase());
  }});
  document.getElementById("decisions-body").replaceChildren(search, box);
}
