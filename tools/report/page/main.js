// Sets the page up. `megalithReport` tells tests what is shown.

const view = new View();

function legend(names) {
  const box = element("div", {className: "legend"});
  const entry = (colour, text) => { const i = element("i"); i.style.background = colour; box.append(element("span", {}, i, text)); };
  for (const name of names) entry(colour(name), name);
  entry("#dfe6ee", "waits (pale)");
  entry(STREAM, "stream stall");
  return box;
}

// The trace as ui.perfetto.dev and chrome://tracing take it: a process an SM, a thread a warp.
function perfettoOf(timeline) {
  const events = [], named = new Set();
  const warpName = w => w === 0 ? "producer" : w === 1 ? "poller" : w === 10 ? "epilogue" : "consumer " + (w - 2);
  for (const role of timeline.rows) for (const row of role) for (const group of row) for (const bar of group.warps) {
    const key = bar.sm * 16 + bar.warp, place = {pid: bar.sm, tid: bar.warp};
    if (!named.has(key)) {
      named.add(key);
      events.push({ph: "M", name: "process_name", ...place, args: {name: "SM " + bar.sm}}, {ph: "M", name: "thread_name", ...place, args: {name: warpName(bar.warp)}});
    }
    const event = (name, cat, begin, end) => events.push({name, cat, ph: "X", ...place, ts: begin / 1000, dur: (end - begin) / 1000});
    event(bar.stage, "stage", bar.begin, bar.end);
    for (const part of partsOf(bar)) if (part.kind === "wait" || part.kind === "stream") event(part.kind === "wait" ? bar.waits.join(", ") || "wait" : "stream", part.kind, part.begin, part.end);
  }
  return {displayTimeUnit: "ns", traceEvents: events};
}

function save(timeline, name) {
  const link = element("a", {href: URL.createObjectURL(new Blob([JSON.stringify(perfettoOf(timeline))], {type: "application/json"})), download: name});
  link.click();
  URL.revokeObjectURL(link.href);
}

function controls() {
  const box = document.getElementById("controls");
  const button = (text, on, act) => { const made = element("button", {onclick: () => { act(); controls(); view.draw(); }}, text); made.classList.toggle("on", on); return made; };
  const group = (label, ...buttons) => element("div", {className: "group"}, element("label", {}, label), ...buttons);
  const toggle = role => () => {
    const next = view.roles.includes(role) ? view.roles.filter(r => r !== role) : [...view.roles, role].sort();
    if (next.length) view.roles = next;
  };
  const main = view.panes[0]?.timeline;
  const launches = main ? main.launches.map((l, i) => button(`launch ${i + 1}`, false, () => view.launch(i))) : [];
  box.replaceChildren(
    group("roles", ...ROLES.map((name, role) => button(name, view.roles.includes(role), toggle(role)))),
    group("rows by", button("role", !view.bySm, () => { view.bySm = false; view.height = null; }), button("SM", view.bySm, () => { view.bySm = true; view.height = 12; })),
    group("zoom", button("fit all", false, () => view.fit()), ...launches, button("+", false, () => view.zoom(0.6)), button("−", false, () => view.zoom(1.6)),
          button("taller", false, () => view.panes[0]?.zoomRows(1.8, AXIS)), button("flatter", false, () => view.panes[0]?.zoomRows(1 / 1.8, AXIS))),
    group("", button("critical path", view.showPath, () => { view.showPath = !view.showPath; })),
    group("Perfetto trace", ...bothTimelines().map(which => button("save " + which, false, () => save(timelines[which], which + ".perfetto.json")))));
}

function show(kernel) {
  current = kernel;
  for (const button of document.getElementById("kernels").children) button.classList.toggle("on", button.dataset.kernel === kernel);
  cards();
  pathSection();
  stagesSection();
  exchangesSection();
  edgesSection();
  resourcesSection();
  decisionsSection();
}

function start() {
  facts = readJson("facts");
  for (const which of ["predicted", "measured"]) {
    const json = readJson(which);
    if (json) timelines[which] = new Timeline(json, facts);
  }
  const mode = {fused: "a launch a layer", "per-stage": "a launch a stage", step: "one launch a step"}[facts.launch_mode] || facts.launch_mode;
  document.title = `${facts.model}, ${facts.target}, rows ${facts.rows}`;
  document.getElementById("title").textContent = facts.model;
  document.getElementById("subtitle").textContent = `${facts.target}, ${facts.sms} SMs, at most ${facts.rows} row${facts.rows === 1 ? "" : "s"}; ${mode}, ${facts.launches} launches a step`;

  const panes = document.getElementById("panes");
  const names = [];
  for (const k of facts.kernels) for (const s of k.stages) if (!names.includes(s.name)) { names.push(s.name); colour(s.name); }
  const both = bothTimelines().length === 2;
  for (const [which, title, missing] of [["predicted", "Predicted", "No predicted timeline in this page."], ["measured", "Measured", "No measured timeline: record one with megalith bench or run --trace trace.json, then megalith report … --trace trace.json."]]) {
    if (timelines[which]) panes.append(new Pane(view, title, timelines[which], both ? 430 : 560).root);
    else panes.append(element("div", {className: "pane"}, element("h3", {}, title), element("p", {className: "empty"}, missing)));
  }
  panes.append(legend(names.filter(n => bothTimelines().some(w => Object.values(timelines[w].json.names).some(k => k.stages.includes(n))))));

  const nav = document.getElementById("kernels");
  for (const kernel of facts.kernels) {
    const button = element("button", {onclick: () => show(kernel.name)}, `${kernel.name} (${kernel.launches})`);
    button.dataset.kernel = kernel.name;
    nav.append(button);
  }
  // The kernel that most launches are of.
  show(facts.kernels.reduce((a, b) => b.launches > a.launches ? b : a).name);
  controls();
  view.fit();
  addEventListener("resize", () => view.draw());
  addEventListener("keydown", e => {
    const pane = View.under;
    if (!pane || e.ctrlKey || e.metaKey || e.altKey || e.target.tagName === "INPUT") return;
    const at = pane.time(pane.pointer ?? LABELS);
    const act = {w: () => view.zoom(0.7, at), s: () => view.zoom(1.4, at), a: () => view.pan(-0.15), d: () => view.pan(0.15), f: () => view.fit()}[e.key.toLowerCase()];
    if (act) act();
  });
  window.megalithReport = {
    kernels: facts.kernels.map(k => k.name),
    timelines: Object.fromEntries(bothTimelines().map(which => [which, {tasks: timelines[which].tasks, launches: timelines[which].launches.length,
      bars: timelines[which].rows.flat(2).reduce((sum, bar) => sum + bar.warps.length, 0)}])),
    view,
  };
}

start();
