// The map of a partition: its bytes, or its offsets, from left to right, on one canvas.
const FIRST_MAPS = 6;
const map = { by: "position" };
const KEYS = [
  ["valid batches", (c, w, h) => fill(c, "data", 0, 0, w, h)],
  ["transactional batches", (c, w, h) => { fill(c, "data", 0, 0, w, h); fill(c, "open", 0, h - 4, w, 4); }],
  ["open transaction", (c, w, h) => { fill(c, "data", 0, 0, w, h); openMark(c, w / 2, h - 5, 4, false); }],
  ["hanging transaction", (c, w, h) => { fill(c, "data", 0, 0, w, h); openMark(c, w / 2, h - 5, 4, true); }],
  ["damaged bytes", (c, w, h) => fill(c, "bad", 0, 0, w, h)],
  ["no batch, or missing offsets", (c, w, h) => hatch(c, "hole", "soft", 0, 0, w, h)],
  [data.command === "recover" ? "the plan removes it" : "a start removes it", (c, w, h) => { fill(c, "data", 0, 0, w, h); c.globalAlpha = .6; fill(c, "card", 0, 0, w, h); c.globalAlpha = 1; hatch(c, null, "bad", 0, 0, w, h); }],
];
function fill(context, name, x, y, width, height) {
  context.fillStyle = color(name);
  context.fillRect(x, y, width, height);
}
function hatch(context, back, ink, x, y, width, height) {
  if (back) fill(context, back, x, y, width, height);
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = color(ink);
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 6) { context.moveTo(at, y + height); context.lineTo(at + height, y); }
  context.stroke();
  context.restore();
}

// Where a transaction without a marker begins; one that hangs is a cross, as no marker ends it.
function openMark(context, x, y, size, hangs) {
  context.save();
  context.beginPath();
  if (hangs) {
    context.strokeStyle = color("bad");
    context.lineWidth = 2.5;
    context.moveTo(x - size, y - size); context.lineTo(x + size, y + size); context.moveTo(x + size, y - size); context.lineTo(x - size, y + size);
    context.stroke();
  } else {
    context.fillStyle = color("open");
    context.moveTo(x, y - size - 1); context.lineTo(x + size, y); context.lineTo(x, y + size + 1); context.lineTo(x - size, y);
    context.fill();
  }
  context.restore();
}

// The columns of a map as arrays: one value stands for a column of equal ones.
function unfold(of) {
  const many = Math.max(1, ...Object.values(of.cells).map((column) => (Array.isArray(column) ? column.length : 1)));
  for (const [name, column] of Object.entries(of.cells)) if (!Array.isArray(column)) of.cells[name] = Array(many).fill(column);
  let at = 0;
  of.segments.at = of.segments.bytes.map((size) => { at += size; return at - size; });
  of.segments.end = at;
  of.damage = of.damage.map(([segment, position, length, code]) => ({ segment, position, length, code: of.codes[code] }));
  of.cuts = of.cuts.map(([segment, position, length]) => ({ segment, position, length }));
  const hangs = new Set(data.hanging[of.name] || []);
  of.open = of.open.offset.map((offset, number) => ({ offset, producer: of.open.producer[number], hangs: hangs.has(offset) }));
  return of;
}
const segmentName = (of, segment) => `${String(of.segments.base[segment]).padStart(20, "0")}.log`;
function below(values, value) {
  let low = 0, high = values.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (values[middle] <= value) low = middle; else high = middle - 1; }
  return low;
}
// The scale of a map: where a cell begins and ends, from 0 to 1.
function scaleOf(of) {
  const cells = of.cells, total = cells.size.reduce((sum, size) => sum + size, 0);
  const starts = [];
  let at = 0;
  for (const size of cells.size) { starts.push(at); at += size; }
  const known = cells.first.map((first, number) => (first === null ? null : number)).filter((number) => number !== null);
  const low = Math.min(...[of.log_start, of.start, known.length ? cells.first[known[0]] : null].filter((each) => each !== null && each !== undefined));
  let high = 0;
  for (const number of known) high = Math.max(high, cells.last[number] + 1);
  if (of.end) high = Math.max(high, of.end);
  if (of.high_watermark) high = Math.max(high, of.high_watermark);
  const width = Math.max(1, high - low);
  return {
    total, starts, known, low, high,
    span(number) {
      if (map.by === "position") return [starts[number] / (total || 1), (starts[number] + cells.size[number]) / (total || 1)];
      return cells.first[number] === null ? null : [(cells.first[number] - low) / width, (cells.last[number] + 1 - low) / width];
    },
    // Where an offset is: inside of the cell that has it, or at the first one after it.
    offset(offset) {
      if (map.by === "offset") return (offset - low) / width;
      for (const number of known) {
        if (offset > cells.last[number]) continue;
        const inside = Math.max(0, offset - cells.first[number]) / Math.max(1, cells.last[number] + 1 - cells.first[number]);
        return (starts[number] + inside * cells.size[number]) / (total || 1);
      }
      return 1;
    },
    // Where a position of a segment is.
    position(segment, position) {
      const here = of.segments.at[segment] + Math.min(position, of.segments.bytes[segment]);
      if (map.by === "position") return here / (total || 1);
      const number = below(starts, here);
      if (cells.first[number] !== null) {
        const inside = Math.min(1, Math.max(0, here - starts[number]) / (cells.size[number] || 1));
        return (cells.first[number] + inside * (cells.last[number] + 1 - cells.first[number]) - low) / width;
      }
      const before = known.filter((each) => each < number).pop();
      return before === undefined ? 0 : (cells.last[before] + 1 - low) / width;
    },
  };
}
const LANE = { top: 18, bar: 30, txn: 6, bottom: 16 };
const MARKS = [["log_start", "log start"], ["recovery_point", "recovery point"], ["high_watermark", "high watermark"]];

function drawMap(of, scale, context, width, height, cursor) {
  const cells = of.cells, top = LANE.top, bar = LANE.bar, at = (share) => Math.min(width, Math.max(0, share * width));
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  hatch(context, "hole", "line", 0, top, width, bar);
  for (let number = 0; number < cells.size.length; number += 1) {
    const span = scale.span(number);
    if (!span) continue;
    const x = Math.floor(at(span[0])), broad = Math.max(Math.ceil(at(span[1])) - x, 1);
    const whole = map.by === "offset" ? cells.missing[number] / Math.max(1, cells.last[number] + 1 - cells.first[number]) : cells.size[number] ? 1 - Math.min(1, cells.bytes[number] / cells.size[number]) : 0;
    if (cells.batches[number] || cells.bytes[number]) fill(context, "data", x, top + bar * whole, broad, bar * (1 - whole));
    if (cells.damaged[number]) {
      const part = map.by === "offset" ? 1 : Math.min(1, cells.damaged[number] / (cells.size[number] || 1));
      const tall = Math.max(4, bar * part);
      fill(context, "bad", x, top, Math.max(broad, 2), map.by === "offset" ? 6 : tall);
    }
    if (cells.transactional[number]) fill(context, "open", x, top + bar + 2, broad, LANE.txn - 2);
  }
  // what the next start removes
  for (const cut of of.cuts) {
    const x = at(scale.position(cut.segment, cut.position)), end = at(scale.position(cut.segment, cut.position + cut.length));
    context.globalAlpha = .75;
    fill(context, "card", x, top, Math.max(2, end - x), bar);
    context.globalAlpha = 1;
    hatch(context, null, "bad", x, top, Math.max(2, end - x), bar);
  }
  if (of.cuts.length) fill(context, "bad", at(scale.position(of.cuts[0].segment, of.cuts[0].position)) - 1, top - 6, 2, bar + 8);
  for (const damage of of.damage) {
    const x = at(scale.position(damage.segment, damage.position)), end = at(scale.position(damage.segment, damage.position + damage.length));
    // a broker preallocates zeros, and a power loss leaves them: nothing says that they were batches
    if (damage.code === "tail/zeros") { hatch(context, "hole", "soft", x, top, Math.max(2, end - x), bar); continue; }
    fill(context, "bad", x - 1, top - 3, Math.max(3, end - x), 3);
    fill(context, "bad", x, top, Math.max(2, end - x), bar);
  }
  // borders of segments, as many as the eye can tell apart
  let last = -9;
  context.fillStyle = color("card");
  for (let segment = 1; segment < of.segments.base.length; segment += 1) {
    const x = Math.round(at(scale.position(segment, 0)));
    if (x - last >= 5) { context.fillRect(x - .5, top, 1.5, bar); last = x; }
  }
  for (const open of [...of.open].sort((one, other) => one.hangs - other.hangs)) {
    const x = at(scale.offset(open.offset));
    if (open.hangs) hatch(context, "bad", "card", x, top + bar + 2, width - x, LANE.txn - 2);
    else fill(context, "open", x, top + bar + 2, width - x, LANE.txn - 2);
    openMark(context, Math.min(Math.max(x, 5), width - 5), top + bar + 4, 5, open.hangs);
  }
  let free = 3;
  context.textBaseline = "top";
  for (const [name, label] of MARKS.filter(([each]) => of[each] !== null && of[each] !== undefined).sort((one, other) => of[one[0]] - of[other[0]])) {
    const x = at(scale.offset(of[name])), text = label, long = context.measureText(text).width;
    fill(context, "mark", Math.min(x, width - 1.5), top - 5, 1.5, bar + 8);
    const left = Math.max(free, Math.min(x - long / 2, width - long));
    if (left + long <= width + 1) { context.fillStyle = color("ink"); context.fillText(text, left, 0); free = left + long + 8; }
  }
  context.fillStyle = color("soft");
  const low = map.by === "position" ? "0" : count(scale.low), high = map.by === "position" ? bytes(scale.total) : count(scale.high);
  context.fillText(low, 0, top + bar + LANE.txn + 4);
  context.fillText(high, width - context.measureText(high).width, top + bar + LANE.txn + 4);
  if (cursor !== null) {
    const span = scale.span(cursor);
    if (span) { context.strokeStyle = color("mark"); context.lineWidth = 1.5; context.strokeRect(at(span[0]), top - 1, Math.max(2, at(span[1]) - at(span[0])), bar + 2); }
  }
}
const segmentOf = (of, scale, cell) => below(of.segments.at, scale.starts[cell]);
// The names of the first segments are on the page, where they are many.
const isListed = (of, scale, cell) => of.segment_count === of.segments.base.length || scale.starts[cell] < of.segments.end;
function cellText(of, scale, cell) {
  const cells = of.cells, segment = segmentOf(of, scale, cell), from = scale.starts[cell] - of.segments.at[segment];
  const lines = isListed(of, scale, cell) ? [segmentName(of, segment), `positions ${count(from)} to ${count(from + cells.size[cell])}`] : [`after the first ${count(of.segments.base.length)} of ${count(of.segment_count)} segments`];
  if (cells.first[cell] !== null) lines.push(`offsets ${count(cells.first[cell])}..${count(cells.last[cell])}`);
  lines.push(`${count(cells.batches[cell])} batches, ${bytes(cells.bytes[cell])} valid`);
  if (cells.damaged[cell]) lines.push(`${bytes(cells.damaged[cell])} in no valid batch`);
  if (cells.missing[cell]) lines.push(`${count(cells.missing[cell])} offsets missing`);
  if (cells.transactional[cell]) lines.push(`${count(cells.transactional[cell])} transactional batches`);
  if (cells.time[cell] > 0) lines.push(`up to ${time(cells.time[cell])}`);
  const begins = of.open.filter((open) => cells.first[cell] !== null && open.offset >= cells.first[cell] && open.offset <= cells.last[cell]);
  for (const open of begins.slice(0, 3)) lines.push(`${open.hangs ? "a hanging" : "an open"} transaction of producer ${open.producer} begins at offset ${count(open.offset)}`);
  return lines.join("\n");
}

sections.maps = (to) => {
  const maps = data.maps;
  const by = make("div", { class: "seg by", role: "group", "aria-label": "The scale of the maps" }, ...["position", "offset"].map((each) => make("button", {
    type: "button", "aria-pressed": String(each === map.by), text: `by ${each}`, onclick: (event) => {
      map.by = each;
      for (const button of event.currentTarget.parentElement.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
      for (const canvas of to.querySelectorAll(".map canvas")) if (canvas.inSight) paint(canvas);
    },
  })));
  to.append(make("ul", { class: "legend" }, ...KEYS.map(([label, draw]) => make("li", {}, drawn(make("canvas", { "aria-hidden": "true" }), (c, w, h) => { c.clearRect(0, 0, w, h); draw(c, w, h); }), label)), make("li", { class: "by" }, by)));
  for (const of of maps.map(unfold)) {
    const scale = scaleOf(of);
    let cursor = null;
    const canvas = make("canvas", { tabindex: 0, role: "img" });
    canvas.style.height = `${LANE.top + LANE.bar + LANE.txn + LANE.bottom}px`;
    const said = [`${count(of.segment_count)} ${of.segment_count === 1 ? "segment" : "segments"}, ${bytes(scale.total)}`, `offsets ${scale.low} to ${scale.high - 1}`];
    for (const [name, label] of MARKS) if (of[name] !== null && of[name] !== undefined) said.push(`${label} ${of[name]}`);
    if (of.cuts.length) said.push(`${data.command === "recover" ? "the plan" : "a broker"} cuts ${segmentName(of, of.cuts[0].segment)} at position ${of.cuts[0].position}`);
    const hanging = of.open.filter((open) => open.hangs).length, some = (number, what) => `${of.open_is_cut ? "at least " : ""}${count(number)} ${what} ${number === 1 ? "transaction" : "transactions"}`;
    if (of.open.length > hanging) said.push(some(of.open.length - hanging, "open"));
    if (hanging) said.push(some(hanging, "hanging"));
    canvas.setAttribute("aria-label", `Map of ${of.name}: ${said.join("; ")}. Arrow keys move over the cells, Enter shows the findings.`);
    const caption = make("figcaption", {}, make("strong", { text: of.name }), ...said.map((each) => make("span", { text: each })));
    const redo = () => drawMap(of, scale, canvas.getContext("2d"), canvas.clientWidth, canvas.clientHeight, cursor);
    drawn(canvas, (context, width, height) => drawMap(of, scale, context, width, height, cursor));
    const cellAt = (x) => {
      const share = x / canvas.clientWidth;
      let best = null, gap = Infinity;
      for (let cell = 0; cell < of.cells.size.length; cell += 1) {
        const span = scale.span(cell);
        if (!span) continue;
        const far = share < span[0] ? span[0] - share : share > span[1] ? share - span[1] : 0;
        if (far < gap) { best = cell; gap = far; }
        if (!far) break;
      }
      return best;
    };
    canvas.addEventListener("pointermove", (event) => {
      const cell = cellAt(event.offsetX);
      if (cell !== cursor) { cursor = cell; redo(); }
      showTip(cell === null ? "" : cellText(of, scale, cell), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => { cursor = null; redo(); showTip(""); });
    canvas.addEventListener("blur", () => { cursor = null; redo(); });
    const open = (cell) => {
      if (!sections.showFindings) return;
      const segment = cell === null ? -1 : segmentOf(of, scale, cell), base = of.segments.base[segment];
      const near = (finding) => under(finding, of.name);
      const inside = (finding) => near(finding) && cell !== null && isListed(of, scale, cell) && data.findings.files.segment[data.findings.file[finding]] === base;
      const any = data.findings.code.some((_, finding) => inside(finding));
      sections.showFindings(any ? inside : near);
    };
    canvas.addEventListener("click", (event) => open(cellAt(event.offsetX)));
    canvas.addEventListener("keydown", (event) => {
      const many = of.cells.size.length, steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20 };
      if (event.key in steps) { event.preventDefault(); cursor = Math.max(0, Math.min(many - 1, (cursor === null ? -1 : cursor) + steps[event.key])); }
      else if (event.key === "Home") cursor = 0;
      else if (event.key === "End") cursor = many - 1;
      else if (event.key === "Enter") { open(cursor); return; }
      else return;
      redo();
      say(cellText(of, scale, cursor).replaceAll("\n", ", "));
    });
    to.append(make("figure", { class: "map", hidden: maps.indexOf(of) >= FIRST_MAPS }, caption, canvas));
  }
  if (maps.length > FIRST_MAPS) {
    const all = () => { for (const figure of to.querySelectorAll(".map")) figure.hidden = false; more.remove(); };
    const more = make("button", { type: "button", class: "more", text: `Show ${maps.length - FIRST_MAPS} more maps`, onclick: all });
    to.append(more);
    addEventListener("beforeprint", all);
  }
};
