// The two timelines: one canvas each, one view for both.

const LABELS = 92, AXIS = 20; // pixels at the left and on top

class View {
  constructor() { this.panes = []; this.roles = [0, 1, 2, 3]; this.bySm = false; this.showPath = true; }

  fit() {
    const shown = this.panes;
    shown.forEach(p => p.timeline.startAt(0));
    this.begin = Math.min(0, ...shown.map(p => p.timeline.early));
    this.end = Math.max(1, ...shown.map(p => p.timeline.span));
    this.begin -= 0.01 * (this.end - this.begin);
    this.end += 0.01 * (this.end - this.begin);
    this.top = 0;
    this.height = null; // of a row; null: all rows fit
    this.draw();
  }
  // The launch of that place in each timeline, so that they can be compared.
  launch(index) {
    this.panes.forEach(p => p.timeline.startAt(index));
    const main = this.panes[0].timeline, launch = main.launches[index];
    this.focus(0, (main.launches[index + 1]?.begin ?? launch.end) - launch.begin);
  }
  focus(begin, end) {
    const pad = 0.03 * (end - begin);
    this.begin = begin - pad;
    this.end = end + pad;
    this.draw();
  }
  zoom(factor, at) {
    const anchor = at ?? (this.begin + this.end) / 2;
    const span = Math.min(Math.max((this.end - this.begin) * factor, 20), 1e9);
    const part = (anchor - this.begin) / (this.end - this.begin);
    this.begin = anchor - part * span;
    this.end = this.begin + span;
    this.draw();
  }
  pan(part) {
    const by = part * (this.end - this.begin);
    this.begin += by;
    this.end += by;
    this.draw();
  }
  draw() {
    if (!this.pending)
      this.pending = requestAnimationFrame(() => { this.pending = 0; this.panes.forEach(p => p.draw()); });
  }
  // Rows from top to bottom: [role, sm].
  order(sms) {
    const rows = [];
    if (this.bySm) for (let sm = 0; sm < sms; ++sm) for (const role of this.roles) rows.push([role, sm]);
    else for (const role of this.roles) for (let sm = 0; sm < sms; ++sm) rows.push([role, sm]);
    return rows;
  }
}

class Pane {
  constructor(view, title, timeline, height) {
    Object.assign(this, {view, timeline, title});
    this.root = element("div", {className: "pane"});
    this.note = element("small");
    this.root.append(element("h3", {}, title, this.note));
    this.canvas = element("canvas");
    this.canvas.style.height = height + "px";
    this.root.append(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.listen();
    view.panes.push(this);
  }

  get width() { return this.canvas.clientWidth - LABELS; }
  x(time) { return LABELS + (time - this.view.begin) / (this.view.end - this.view.begin) * this.width; }
  time(x) { return this.view.begin + (x - LABELS) / this.width * (this.view.end - this.view.begin); }

  layout() {
    const rows = this.view.order(this.timeline.sms), room = this.canvas.clientHeight - AXIS;
    const gaps = this.view.bySm ? 0 : 3 * (this.view.roles.length - 1);
    const fitting = (room - gaps) / rows.length;
    const height = this.view.height ?? fitting;
    const total = height * rows.length + gaps;
    this.view.top = Math.min(Math.max(this.view.top, 0), Math.max(0, total - room));
    return {rows, height, fitting, y: i => AXIS + i * height - this.view.top + (this.view.bySm ? 0 : 3 * Math.floor(i / this.timeline.sms))};
  }

  draw() {
    const {canvas, context: c, view} = this, scale = window.devicePixelRatio || 1;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (!w) return;
    if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
      canvas.width = Math.round(w * scale);
      canvas.height = Math.round(h * scale);
    }
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.fillStyle = "#fff";
    c.fillRect(0, 0, w, h);
    const layout = this.layout();
    this.drawBars(layout, w, h);
    if (view.showPath) this.drawPath(layout, w, h);
    if (this.marked) this.drawMark(layout);
    this.drawFrame(layout, w, h);
    const first = this.timeline.launches[this.timeline.start];
    this.note.textContent = `${us(view.begin, 1)} to ${us(view.end, 1)} µs after the launch of ${first.kernel}, layer ${first.layer}, began`;
  }

  drawBars({rows, height, y}, w, h) {
    const {context: c, timeline} = this, from = this.view.begin + timeline.origin, to = this.view.end + timeline.origin;
    const gap = height >= 6 ? 1 : 0;
    rows.forEach(([role, sm], i) => {
      const top = y(i);
      if (top + height < AXIS || top > h) return;
      for (const bar of timeline.rows[role][sm]) {
        if (bar.end < from || bar.begin > to) continue;
        if (bar.warps.length > 1 && height >= 24) {
          const lane = (height - gap) / bar.warps.length;
          for (const warp of bar.warps)
            this.drawBar(warp, top + lane * (warp.warp - 2), lane - (lane > 3 ? 0.5 : 0));
        } else {
          this.drawBar(bar, top, Math.max(height - gap, 0.6));
        }
        if (height >= 12) this.drawName(bar, top, height, c);
      }
    });
  }

  drawBar(bar, top, height) {
    const {context: c, timeline} = this, shade = shades(bar.stage);
    for (const part of partsOf(bar)) {
      const x = this.x(part.begin - timeline.origin), end = this.x(part.end - timeline.origin);
      if (end < LABELS) continue;
      c.fillStyle = part.kind === "stream" ? STREAM : shade[part.kind];
      c.fillRect(x, top, Math.max(end - x, 0.5), height);
    }
    if (height >= 4) {
      c.fillStyle = "#ffffffb0";
      c.fillRect(this.x(bar.begin - timeline.origin), top, 1, height);
    }
  }

  drawName(bar, top, height, c) {
    const x = Math.max(this.x(bar.begin - this.timeline.origin), LABELS), end = this.x(bar.end - this.timeline.origin);
    if (end - x < 46 || height >= 24 && bar.warps.length > 1 && height < 60) return;
    c.save();
    c.beginPath();
    c.rect(x, top, end - x - 2, height);
    c.clip();
    c.font = "10px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillStyle = "#10161f";
    c.fillText(bar.stage, x + 4, top + Math.min(height, 16) / 2);
    c.restore();
  }

  drawPath({rows, height, y}) {
    const {context: c, timeline} = this;
    if (!timeline.path) return;
    const place = new Map(rows.map(([role, sm], i) => [role * 4096 + sm, i]));
    const middle = sm => {
      const i = place.get(2 * 4096 + sm) ?? place.get(3 * 4096 + sm);
      return i === undefined ? null : y(i) + height / 2;
    };
    let last = null;
    for (const segment of timeline.path.segments) {
      const at = middle(segment.sm);
      if (at === null) continue;
      const x = this.x(segment.begin - timeline.origin), end = this.x(segment.end - timeline.origin);
      if (last && end > LABELS && x < this.canvas.clientWidth) {
        c.strokeStyle = "#00000066";
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(x, last);
        c.lineTo(x, at);
        c.stroke();
      }
      last = at;
      c.strokeStyle = "#ffffffd0";
      c.lineWidth = Math.min(Math.max(height * 0.5, 2), 4) + 2;
      for (const style of ["#ffffffd0", "#111"]) {
        c.strokeStyle = style;
        c.setLineDash(style === "#111" && segment.kind === "wait" ? [3, 2] : []);
        c.beginPath();
        c.moveTo(Math.max(x, LABELS), at);
        c.lineTo(end, at);
        c.stroke();
        c.lineWidth -= 2;
      }
      c.setLineDash([]);
    }
  }

  drawMark(layout) {
    const i = layout.rows.findIndex(([role, sm]) => role === this.marked.role && sm === this.marked.sm);
    if (i < 0) return;
    const c = this.context, x = this.x(this.marked.begin - this.timeline.origin), end = this.x(this.marked.end - this.timeline.origin);
    c.strokeStyle = "#000";
    c.lineWidth = 1.5;
    c.strokeRect(x, layout.y(i) - 1, Math.max(end - x, 2), layout.height + 2);
  }

  drawFrame({rows, height, y}, w, h) {
    const {context: c, view, timeline} = this;
    c.fillStyle = "#fff";
    c.fillRect(0, 0, LABELS, h);
    c.fillRect(0, 0, w, AXIS);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    c.fillStyle = "#3a4656";
    const step = Math.max(1, Math.ceil(13 / height));
    rows.forEach(([role, sm], i) => {
      const top = y(i);
      if (top < AXIS - 1 || top > h) return;
      const name = `${ROLES[role]} ${sm}`;
      if (height >= 10) c.fillText(view.bySm && role !== view.roles[0] ? ROLES[role] : view.bySm ? `SM ${sm} ${ROLES[role]}` : name, 6, top + Math.min(height, 20) / 2);
      else if ((sm % 16 === 0 || height >= 10) && (view.bySm ? role === view.roles[0] : true)) {
        if (!view.bySm && sm === 0) { c.fillStyle = "#10161f"; c.fillText(ROLES[role], 6, top + 6); c.fillStyle = "#3a4656"; }
        else if (sm && sm % (step > 16 ? 32 : 16) === 0) c.fillText((view.bySm ? "SM " : "") + sm, view.bySm ? 6 : 62, top + height / 2);
      }
    });
    this.drawAxis(c, w, h);
    // Begins of launches.
    c.setLineDash([4, 3]);
    c.strokeStyle = "#00000055";
    c.lineWidth = 1;
    for (const launch of timeline.launches) {
      const x = this.x(launch.begin - timeline.origin);
      if (x < LABELS || x > w) continue;
      c.beginPath();
      c.moveTo(x, AXIS);
      c.lineTo(x, h);
      c.stroke();
      c.fillStyle = "#3a4656";
      c.fillText(`${launch.kernel}, layer ${launch.layer}`, x + 3, AXIS - 4);
    }
    c.setLineDash([]);
  }

  drawAxis(c, w, h) {
    const {view} = this, span = view.end - view.begin, wanted = span / (this.width / 110);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= wanted);
    c.fillStyle = "#7a8696";
    c.strokeStyle = "#e4e8ed66";
    for (let t = Math.ceil(view.begin / step) * step; t <= view.end; t += step) {
      const x = this.x(t);
      if (x < LABELS) continue;
      c.strokeStyle = "#00000012";
      c.beginPath();
      c.moveTo(x + 0.5, AXIS);
      c.lineTo(x + 0.5, h);
      c.stroke();
      c.fillText((t / 1000).toFixed(step >= 1000 ? 0 : step >= 100 ? 1 : 2) + " µs", x + 3, 6);
    }
  }

  // The bar at a place of the canvas, or null; where warps have lanes of their own, the warp's.
  barAt(x, yPixel) {
    if (x < LABELS || yPixel < AXIS) return null;
    const layout = this.layout(), time = this.time(x) + this.timeline.origin;
    const i = layout.rows.findIndex((row, i) => yPixel >= layout.y(i) && yPixel < layout.y(i) + layout.height);
    if (i < 0) return null;
    const [role, sm] = layout.rows[i];
    const slack = (this.view.end - this.view.begin) / this.width;
    const bar = this.timeline.rows[role][sm].find(b => b.begin - slack <= time && time <= b.end + slack);
    if (!bar || bar.warps.length === 1 || layout.height < 24) return bar || null;
    const lane = Math.floor((yPixel - layout.y(i)) / layout.height * 8) + 2;
    return bar.warps.find(w => w.warp === lane) || bar;
  }

  listen() {
    const {canvas, view} = this;
    let drag = null;
    canvas.addEventListener("pointerdown", e => { drag = {x: e.offsetX, y: e.offsetY, begin: view.begin, end: view.end, top: view.top, moved: false}; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", e => {
      View.under = this;
      this.pointer = e.offsetX;
      if (drag) {
        if (Math.abs(e.offsetX - drag.x) + Math.abs(e.offsetY - drag.y) > 3) drag.moved = true;
        const by = (e.offsetX - drag.x) / this.width * (drag.end - drag.begin);
        view.begin = drag.begin - by;
        view.end = drag.end - by;
        view.top = drag.top - (e.offsetY - drag.y);
        view.draw();
        hideTip();
      } else {
        const bar = this.timeline && this.barAt(e.offsetX, e.offsetY);
        bar ? showTip(e, describeBar(bar, this.timeline)) : hideTip();
      }
    });
    canvas.addEventListener("pointerup", e => {
      if (drag && !drag.moved) {
        this.marked = this.barAt(e.offsetX, e.offsetY);
        const detail = document.getElementById("detail");
        detail.replaceChildren(...(this.marked ? [describeBar(this.marked, this.timeline)] : []));
        view.draw();
      }
      drag = null;
    });
    canvas.addEventListener("pointerleave", () => { View.under = null; hideTip(); });
    canvas.addEventListener("dblclick", () => view.fit());
    canvas.addEventListener("wheel", e => {
      if (e.ctrlKey || e.metaKey) {
        view.zoom(Math.exp(e.deltaY * 0.002), this.time(e.offsetX));
      } else if (e.shiftKey) {
        this.zoomRows(Math.exp(-(e.deltaY || e.deltaX) * 0.002), e.offsetY);
      } else return; // the page scrolls
      e.preventDefault();
    }, {passive: false});
  }

  zoomRows(factor, at) {
    const layout = this.layout(), {view} = this;
    const height = Math.min(Math.max(layout.height * factor, layout.fitting), 120);
    view.top = (view.top + at - AXIS) * height / layout.height - (at - AXIS);
    view.height = height <= layout.fitting * 1.001 ? null : height;
    view.draw();
  }
}

function describeBar(bar, timeline) {
  const work = bar.end - bar.begin - bar.waited - bar.stalled, isConsumer = bar.role === 2;
  const at = time => us(time - timeline.origin) + " µs";
  const facts = stageFacts(bar.kernel, bar.stage);
  const box = element("div", {}, element("b", {}, `${bar.stage}, SM ${bar.sm}, ${ROLES[bar.role]}${bar.warps && bar.warps.length > 1 ? " (mean of " + bar.warps.length + " warps)" : isConsumer ? " warp " + (bar.warp - 2) : ""}`));
  box.append(definitions([
    ["op", facts && facts.source], ["in", `${bar.kernel}, layer ${timeline.launches[bar.launch].layer}, ${timeline.predicted ? "predicted" : "measured"}`],
    ["begin, end", `${at(bar.begin)}, ${at(bar.end)}`], ["length", us(bar.end - bar.begin) + " µs"],
    ["waited", isConsumer && bar.ready !== null ? `${us(bar.waited)} µs for ${bar.waits.join(", ")}` : null],
    ["last wait over", bar.ready !== null ? `${at(bar.ready)} (${bar.waits.join(", ")})` : null],
    ["stream stalls", isConsumer ? us(bar.stalled) + " µs for pieces of the ring" : null],
    ["first piece", bar.first !== null ? at(bar.first) : null],
    ["last product", bar.last !== null ? at(bar.last) : null],
    ["own work", isConsumer ? us(work) + " µs" : null],
    ["waits for", bar.ready === null && bar.waits.length ? bar.waits.join(", ") : null],
    ...bar.waits.map(edge => [edge, describeEdge(bar.kernel, edge)]),
    ["stage reads", facts && facts.bytes ? `${bytes(facts.bytes)} of ${facts.bytes_of}` + (facts.floor ? `, at least ${facts.floor.us.toFixed(2)} µs` : "") : null],
  ]));
  return box;
}

const tip = () => document.getElementById("tip");
function showTip(event, content) {
  const box = tip();
  box.replaceChildren(content);
  box.style.display = "block";
  const {width, height} = box.getBoundingClientRect();
  box.style.left = Math.min(event.clientX + 14, innerWidth - width - 8) + "px";
  box.style.top = (event.clientY + height + 24 > innerHeight ? Math.max(4, event.clientY - height - 12) : event.clientY + 16) + "px";
}
function hideTip() { tip().style.display = "none"; }
