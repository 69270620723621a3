// Copies of a topic-partition: a strip for each, on one scale of offsets, on one canvas.
const VERDICTS = { agree: "good", diverged: "bad", undecided: "doubtful" };
const STRIP = { label: 16, bar: 16, gap: 8, foot: 16 };
function drawCopies(of, context, width, height, cursor) {
  const low = Math.min(...of.extents.map((each) => each.start)), high = Math.max(...of.extents.map((each) => each.end), low + 1);
  const at = (offset) => Math.min(width, Math.max(0, width * (offset - low) / (high - low)));
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  of.extents.forEach((copy, number) => {
    const top = number * (STRIP.label + STRIP.bar + STRIP.gap), bar = top + STRIP.label;
    context.fillStyle = color("soft");
    context.fillText(`${copy.path === of.stale ? "stale: " : ""}${copy.path}`, 0, top);
    hatch(context, "hole", "line", 0, bar, width, STRIP.bar);
    fill(context, "data", at(copy.start), bar, Math.max(1, at(copy.end) - at(copy.start)), STRIP.bar);
    for (const pair of of.pairs) {
      const side = pair.left === copy.path ? pair.missing_left : pair.right === copy.path ? pair.missing_right : null;
      if (!side) continue;
      for (const [start, stop] of side) hatch(context, "hole", "soft", at(start), bar, Math.max(2, at(stop) - at(start)), STRIP.bar);
      for (const [start, stop] of pair.differs) fill(context, "doubtful", at(start), bar + STRIP.bar - 5, Math.max(2, at(stop) - at(start)), 5);
      if (pair.fork !== null && (of.stale === null || of.stale === copy.path)) {
        hatch(context, null, "bad", at(pair.fork), bar, Math.max(2, at(copy.end) - at(pair.fork)), STRIP.bar);
        fill(context, "bad", at(pair.fork) - 1, bar - 3, 2, STRIP.bar + 6);
      }
    }
    for (const [start, stop] of copy.damage) fill(context, "bad", at(start), bar, Math.max(2, at(stop) - at(start)), STRIP.bar);
    for (const [from, start, stop] of of.merged) if (of.copies[from] === copy.path) fill(context, "good", at(start), bar + STRIP.bar + 1, Math.max(2, at(stop) - at(start)), 3);
    if (copy.high_watermark !== null) fill(context, "mark", Math.min(at(copy.high_watermark), width - 1.5), bar - 3, 1.5, STRIP.bar + 6);
  });
  context.fillStyle = color("soft");
  context.fillText(count(low), 0, height - STRIP.foot + 2);
  context.fillText(count(high), width - context.measureText(count(high)).width, height - STRIP.foot + 2);
  if (cursor !== null) fill(context, "ink", at(cursor), 0, 1, height - STRIP.foot);
}
function copiesAt(of, offset) {
  const said = [`offset ${count(offset)}`];
  for (const copy of of.extents) {
    const inside = (ranges) => ranges.some(([start, stop]) => offset >= start && offset < stop);
    const missing = of.pairs.some((pair) => (pair.left === copy.path && inside(pair.missing_left)) || (pair.right === copy.path && inside(pair.missing_right)));
    const what = offset < copy.start ? "before its start" : offset >= copy.end ? "after its end" : inside(copy.damage) ? "damaged" : missing ? "missing" : "there";
    said.push(`${copy.path}: ${what}`);
  }
  if (of.pairs.some((pair) => pair.differs.some(([start, stop]) => offset >= start && offset < stop))) said.push("the copies differ here");
  const taken = of.merged.find(([, start, stop]) => offset >= start && offset < stop);
  if (of.merged.length) said.push(taken ? `a merge takes it from ${of.copies[taken[0]]}` : "no merge has it");
  return said.join("\n");
}
sections.copies = (to) => {
  const keys = [["there", (c, w, h) => fill(c, "data", 0, 0, w, h)], ["missing", (c, w, h) => hatch(c, "hole", "soft", 0, 0, w, h)], ["differs", (c, w, h) => { fill(c, "data", 0, 0, w, h); fill(c, "doubtful", 0, h - 5, w, 5); }],
    ["after a fork", (c, w, h) => { fill(c, "data", 0, 0, w, h); hatch(c, null, "bad", 0, 0, w, h); }], ["damaged", (c, w, h) => fill(c, "bad", 0, 0, w, h)], ["high watermark", (c, w, h) => fill(c, "mark", w / 2, 0, 2, h)],
    ["a merge takes it", (c, w, h) => { fill(c, "data", 0, 0, w, h - 4); fill(c, "good", 0, h - 3, w, 3); }]];
  to.append(make("ul", { class: "legend" }, ...keys.map(([label, draw]) => make("li", {}, drawn(make("canvas", { "aria-hidden": "true" }), (c, w, h) => { c.clearRect(0, 0, w, h); draw(c, w, h); }), label))));
  const block = (of) => {
    const block = make("div", { class: "of" }, make("h3", {}, of.name, " ", make("span", { class: `sev ${VERDICTS[of.verdict]}`, text: of.verdict })));
    if (of.extents.length) {
      let cursor = null;
      const low = Math.min(...of.extents.map((each) => each.start)), high = Math.max(...of.extents.map((each) => each.end), low + 1);
      const canvas = make("canvas", { role: "img", tabindex: 0, "aria-label": `Strips of ${of.extents.length} copies of ${of.name}: ${of.extents.map((each) => `${each.path} has offsets ${each.start} to ${each.end - 1}`).join("; ")}. Arrow keys move over the offsets.` });
      canvas.style.height = `${of.extents.length * (STRIP.label + STRIP.bar + STRIP.gap) + STRIP.foot}px`;
      drawn(canvas, (context, width, height) => drawCopies(of, context, width, height, cursor));
      const move = (offset) => { cursor = offset; paint(canvas); };
      canvas.addEventListener("pointermove", (event) => {
        move(Math.min(high - 1, low + Math.floor((high - low) * event.offsetX / canvas.clientWidth)));
        showTip(copiesAt(of, cursor), event.clientX, event.clientY);
      });
      canvas.addEventListener("pointerleave", () => { move(null); showTip(""); });
      canvas.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 }[event.key];
        if (!step) return;
        event.preventDefault();
        move(Math.max(low, Math.min(high - 1, (cursor === null ? low : cursor) + step * Math.max(1, Math.round((high - low) / 200)))));
        say(copiesAt(of, cursor).replaceAll("\n", ", "));
      });
      canvas.addEventListener("click", () => sections.showFindings && sections.showFindings((finding) => of.copies.some((copy) => under(finding, copy))));
      block.append(make("figure", { class: "map" }, canvas));
    }
    block.append(make("dl", { class: "lines" }, ...of.sentences.map((sentence) => {
      const at = sentence.indexOf(": ");
      return make("div", {}, make("dt", { text: sentence.slice(0, at) }), make("dd", { text: sentence.slice(at + 2) }));
    })));
    return block;
  };
  const pairs = (verdict) => data.copies.map((of) => of[verdict]);
  blocks(to, "Topic-partitions", data.copies, block, [["", "Topic-partition", "text"], ["", "Verdict", "text"], ["", "Copies", "count"], ["", "Diverged pairs", "count"], ["", "Undecided pairs", "count"]],
    [data.copies.map((of) => of.name), data.copies.map((of) => of.verdict), data.copies.map((of) => of.copies.length), pairs("diverged"), pairs("undecided")]);
};
// A few blocks as they are; of many a table, and the block of the row that was chosen.
const MOST_BLOCKS = 6;
function blocks(to, label, several, block, columns, values) {
  if (several.length <= MOST_BLOCKS) { to.append(...several.map(block)); return; }
  const shown = make("div", { class: "chosen" }, block(several[0]));
  to.append(rowsTable(label, columns, values, (row) => { shown.replaceChildren(block(several[row])); say(`${several[row].name} is shown below`); }).element, shown);
}

// Recoveries: what each strategy gives up, then what is or was done.
sections.recoveries = (to) => {
  const block = (of) => {
    const block = make("div", { class: "of" }, make("h3", { text: of.name }));
    const cards = () => of.cards.map((card) => make("div", { class: `choice ${card.better ? "better" : ""}` },
      make("h4", {}, card.strategy, card.better ? make("span", { class: "badge", text: "gives up less" }) : null),
      make("dl", {}, ...[
        ["Records", card.batches === 0 ? "none" : card.records === null ? "not known" : count(card.records)],
        ["Batches", card.batches === null ? "not known" : card.batches === 0 ? "none" : `${count(card.batches)}, ${bytes(card.bytes)}`],
        ["Time span", card.to > 0 || card.from > 0 ? `${time(card.from)} to ${time(card.to)}` : "–"],
        ["Committed offsets", card.committed],
        ["Log end offset", card.end === null ? "not known" : count(card.end)],
      ].map(([label, value]) => make("div", {}, make("dt", { text: label }), make("dd", { text: value }))))));
    if (of.cards.length) {
      const pair = make("div", { class: "pair" }, ...cards());
      onLook(() => pair.replaceChildren(...cards()));
      block.append(pair);
    }
    block.append(make("dl", { class: "lines" }, ...of.lines.map(([label, text]) => make("div", {}, make("dt", { text: label }), make("dd", { text }))),
      ...of.actions.map(([name, text]) => make("div", {}, make("dt", {}, make("code", { text: name.replace(/^0{4,}(?=\d)/, "…") })), make("dd", { text }))),
      of.more ? make("div", {}, make("dt", { text: "more" }), make("dd", { text: `${count(of.more)} more actions` })) : null));
    if (of.undo && !document.getElementById("undo")) {
      const undo = make("code", { text: of.undo }), button = make("button", { type: "button", text: "Copy", onclick: () => copyText(of.undo, button) });
      block.append(make("div", { class: "next" }, make("span", { class: "label", text: "Undo" }), undo, button));
    }
    return block;
  };
  const card = (number, name) => data.recoveries.map((of) => (of.cards[number] ? of.cards[number][name] : null));
  blocks(to, "Partitions", data.recoveries, block, [["", "Partition", "text"], ["", "Records", "count"], ["", "Bytes", "bytes"], ["", "Committed offsets", "text"], ["", "Log end", "offset"], ["", "Salvage: records", "count"]],
    [data.recoveries.map((of) => of.name), card(0, "records"), card(0, "bytes"), card(0, "committed"), card(0, "end"), card(1, "records")]);
};

// Numbers: a treemap of the space, the write rate, mixes as bars, disks, keys, and the rows as tables.
const TINTS = ["#3b76c4", "#2f8f83", "#8a63b8", "#b5652d", "#5d7f2f", "#a8487f", "#4b6584", "#8d7322"];
const tints = new Map();
const tint = (name) => { if (!tints.has(name)) tints.set(name, TINTS[tints.size % TINTS.length]); return tints.get(name); };

// Squarified: rows of tiles along the shorter side, so that tiles are nearly square.
function squarify(items, x, y, width, height, to) {
  const total = items.reduce((sum, item) => sum + item.size, 0);
  if (!total) return;
  const scale = width * height / total;
  let at = 0;
  while (at < items.length && width > 0 && height > 0) {
    const side = Math.min(width, height), row = [];
    let area = 0, worst = Infinity;
    while (at < items.length) {
      const size = Math.max(items[at].size * scale, 1e-9), sum = area + size;
      const large = Math.max(size, ...(row.length ? [row[0].size * scale] : [])), length = sum / side;
      const next = Math.max(large / (length * length), (length * length) / size);
      if (row.length && next > worst) break;
      row.push(items[at]); area = sum; worst = next; at += 1;
    }
    const thick = area / side;
    let along = 0;
    for (const item of row) {
      const long = item.size * scale / thick;
      to(item, ...(width <= height ? [x + along, y, long, thick] : [x, y + along, thick, long]));
      along += long;
    }
    if (width <= height) { y += thick; height -= thick; } else { x += thick; width -= thick; }
  }
}
function treemap(of) {
  const topics = new Map();
  for (const [number, name, size] of of.tiles) {
    const topic = of.topics[number];
    if (!topics.has(topic)) topics.set(topic, { name: topic, size: 0, parts: [] });
    const one = topics.get(topic);
    one.size += size;
    one.parts.push({ name, size, topic });
  }
  if (of.more) {
    const others = `${count(of.more)} others`;
    topics.set("", { name: others, size: of.rest, parts: [{ name: others, size: of.rest, topic: others }] });
  }
  const sorted = [...topics.values()].sort((one, other) => other.size - one.size), total = sorted.reduce((sum, one) => sum + one.size, 0);
  for (const one of sorted) tint(one.name);
  let boxes = [], chosen = null;
  const canvas = make("canvas", { class: "treemap", role: "img", tabindex: 0, "aria-label": `Treemap of ${sorted.length} topics, ${bytes(total)}: ${sorted.slice(0, 8).map((one) => `${one.name} ${share(one.size, total)}`).join(", ")}. Arrow keys move over the partitions.` });
  const draw = (context, width, height) => {
    boxes = [];
    context.clearRect(0, 0, width, height);
    const label = (text, x, y, w, h, font) => {
      if (h < 15 || w < 28) return;
      context.font = font;
      let short = text;
      while (short.length > 1 && context.measureText(short).width > w - 8) short = short.slice(0, -2);
      if (short.length < 2) return;
      context.fillStyle = "#fff";
      context.textBaseline = "top";
      context.fillText(short === text ? text : `${short}…`, x + 4, y + 3);
    };
    squarify(sorted, 0, 0, width, height, (topic, x, y, w, h) => {
      const title = topic.parts.length > 1 && h > 40 && w > 60 ? 17 : 0;
      context.fillStyle = tint(topic.name);
      context.fillRect(x + .5, y + .5, Math.max(w - 1, .5), Math.max(h - 1, .5));
      squarify([...topic.parts].sort((one, other) => other.size - one.size), x + 1, y + 1 + title, Math.max(w - 2, .5), Math.max(h - 2 - title, .5), (part, px, py, pw, ph) => {
        boxes.push({ ...part, x: px, y: py, w: pw, h: ph });
        if (topic.parts.length > 1) {
          context.fillStyle = "rgb(255 255 255 / .1)";
          context.fillRect(px + .5, py + .5, Math.max(pw - 1, .3), Math.max(ph - 1, .3));
          label(part.name.split("/").pop(), px, py, pw, ph, "11px system-ui, sans-serif");
        }
      });
      if (title || topic.parts.length === 1) label(topic.name, x, y, w, h, "600 12px system-ui, sans-serif");
    });
    if (chosen !== null && boxes[chosen]) {
      const box = boxes[chosen];
      context.strokeStyle = color("mark"); context.lineWidth = 2;
      context.strokeRect(box.x, box.y, box.w, box.h);
    }
  };
  const text = (box) => `${box.name}\n${bytes(box.size)}, ${share(box.size, total)}`;
  canvas.addEventListener("pointermove", (event) => {
    const found = boxes.findIndex((box) => event.offsetX >= box.x && event.offsetX < box.x + box.w && event.offsetY >= box.y && event.offsetY < box.y + box.h);
    if (found !== chosen) { chosen = found < 0 ? null : found; paint(canvas); }
    showTip(found < 0 ? "" : text(boxes[found]), event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => { chosen = null; paint(canvas); showTip(""); });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !boxes.length) return;
    event.preventDefault();
    chosen = Math.max(0, Math.min(boxes.length - 1, (chosen === null ? -1 : chosen) + step));
    paint(canvas);
    say(text(boxes[chosen]).replace("\n", ", "));
  });
  return drawn(canvas, draw);
}
function rateChart(rate) {
  const box = make("div", { class: "chart rate" }, make("h3", { text: `Bytes written in ${span(rate.bucket_ms)}` })), hold = make("div", {});
  const many = rate.bytes.length, from = rate.end_ms - many * rate.bucket_ms;
  const xs = rate.bytes.map((_, number) => (from + number * rate.bucket_ms) / 1000);
  box.append(hold, make("p", { class: "sr", text: `At most ${bytes(Math.max(...rate.bytes))} in ${span(rate.bucket_ms)}, the last bucket ends at ${time(rate.end_ms)}.` }));
  let chart = null;
  const build = () => {
    if (chart) chart.destroy();
    const steps = look.units === "iec" ? Array.from({ length: 50 }, (_, power) => 2 ** power) : undefined;
    const axis = { stroke: color("soft"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid"), width: 1 }, font: "11px system-ui, sans-serif" };
    chart = new uPlot({
      width: Math.max(200, hold.clientWidth), height: 220, tzDate: (at) => (look.zone === "utc" ? uPlot.tzDate(new Date(at * 1e3), "Etc/UTC") : new Date(at * 1e3)),
      legend: { show: false }, cursor: { y: false },
      scales: { x: { range: [xs[0], rate.end_ms / 1000] } },
      axes: [{ ...axis, space: 95, values: (_, ticks) => ticks.map((tick) => time(tick * 1000).slice(5, 16)) }, { ...axis, size: 70, incrs: steps, values: (_, ticks) => ticks.map((tick) => bytes(tick)) }],
      series: [{}, { fill: color("data"), stroke: color("data"), width: 0, paths: uPlot.paths.bars({ size: [.9, 40], align: 1 }), points: { show: false } }],
      hooks: { setCursor: [(plot) => {
        const at = plot.cursor.idx, where = plot.over.getBoundingClientRect();
        showTip(at === null || at === undefined || plot.cursor.left < 0 ? "" : `${time(xs[at] * 1000)}\n${bytes(rate.bytes[at])}`, where.left + plot.cursor.left, where.top + 20);
      }] },
    }, [xs, rate.bytes], hold);
    chart.over.addEventListener("mouseleave", () => showTip(""));
  };
  new ResizeObserver(() => (chart ? chart.setSize({ width: Math.max(200, hold.clientWidth), height: 220 }) : hold.clientWidth && build())).observe(box);
  onLook(() => chart && build());
  return box;
}
// The batch sizes as a histogram: ranges of equal width inside of a power of two, so that the axis is nearly logarithmic.
function histogram(title, bars, note) {
  const box = make("div", { class: "chart" }, make("h3", { text: title })), hold = make("div", {}), words = make("p", { class: "sr" });
  const range = ([low, high]) => (low === high ? bytes(low) : `${bytes(low)} to ${bytes(high)}`);
  const xs = bars.map((_, number) => number);
  box.append(hold, words, ...note);
  let chart = null;
  const build = () => {
    if (chart) chart.destroy();
    const filled = bars.filter(([, , number]) => number);
    words.textContent = `${title}: ${filled.map((bar) => `${range(bar)}: ${count(bar[2])}`).join("; ")}.`;
    const axis = { stroke: color("soft"), grid: { stroke: color("grid"), width: 1 }, ticks: { stroke: color("grid"), width: 1 }, font: "11px system-ui, sans-serif" };
    chart = new uPlot({
      width: Math.max(200, hold.clientWidth), height: 180, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: false, range: [-.6, bars.length - .4] }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
      axes: [{ ...axis, space: 70, incrs: [1, 2, 4, 8, 16, 32], values: (_, ticks) => ticks.map((tick) => (bars[tick] ? bytes(bars[tick][0]) : "")) }, { ...axis, size: 70, incrs: Array.from({ length: 18 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat(), values: (_, ticks) => ticks.map(count) }],
      series: [{}, { fill: color("data"), stroke: color("data"), width: 0, paths: uPlot.paths.bars({ size: [.92, 60] }), points: { show: false } }],
      hooks: { setCursor: [(plot) => {
        const at = plot.cursor.idx, where = plot.over.getBoundingClientRect();
        showTip(at === null || at === undefined || plot.cursor.left < 0 ? "" : `${range(bars[at])}\n${count(bars[at][2])} batches`, where.left + plot.cursor.left, where.top + 20);
      }] },
    }, [xs, bars.map(([, , number]) => number)], hold);
    chart.over.addEventListener("mouseleave", () => showTip(""));
  };
  new ResizeObserver(() => (chart ? chart.setSize({ width: Math.max(200, hold.clientWidth), height: 180 }) : hold.clientWidth && build())).observe(box);
  onLook(() => chart && build());
  return box;
}
function mix(title, volumes) {
  const total = volumes.reduce((sum, [, size]) => sum + size, 0), list = make("dl", { class: "bars" });
  const fillList = () => list.replaceChildren(...[...volumes].sort((one, other) => other[1] - one[1]).map(([name, size, records]) => {
    const bar = make("span", { class: "bar-of" }), part = make("i", {});
    part.style.width = `${total ? Math.max(.5, 100 * size / total) : 0}%`;
    bar.append(part);
    return make("div", {}, make("dt", { text: name }), make("dd", {}, bar, make("b", { text: `${share(size, total)}` }), make("small", { text: `${bytes(size)}, ${count(records)} records` })));
  }));
  fillList();
  onLook(fillList);
  return make("div", { class: "chart" }, make("h3", { text: title }), list);
}
function marks(of, form) {
  const list = make("dl", { class: "marks" });
  const fillList = () => list.replaceChildren(...[["minimum", "least"], ["p50", "median"], ["mean", "mean"], ["p90", "90 %"], ["p99", "99 %"], ["maximum", "most"]]
    .map(([name, label]) => make("div", {}, make("dt", { text: label }), make("dd", { text: of[name] === null ? "–" : form(name === "mean" ? Math.round(of[name]) : of[name]) }))));
  fillList();
  onLook(fillList);
  return list;
}
function quantiles(title, of, form) {
  return make("div", { class: "chart" }, make("h3", { text: of.estimate ? `${title} (estimated)` : title }), marks(of, form));
}
sections.space = (to) => {
  const of = data.space;
  if (of.tiles.tiles.length) to.append(treemap(of.tiles));
  const charts = make("div", { class: "charts" });
  if (of.rate && of.rate.bytes.length) charts.append(rateChart(of.rate));
  charts.append(mix("Codecs, by bytes of batches", of.codecs), mix("Magic", of.magic), mix("Timestamp types", of.timestamp_types),
    of.batch_size_bars.length ? histogram("Batch sizes", of.batch_size_bars, [marks(of.batch_sizes, bytes)]) : quantiles("Batch sizes", of.batch_sizes, bytes),
    quantiles("Records a batch", of.records_per_batch, count));
  to.append(charts);
};
sections.disks = (to) => {
  const draw = () => to.replaceChildren(...data.disks.slice(0, 50).map((disk) => {
    const whole = disk.used === null ? disk.own : disk.used + disk.free;
    const bar = make("div", { class: "stack", role: "img", "aria-label": `${disk.name}: ${disk.used === null ? "" : `${share(disk.used, whole)} used`}` });
    for (const [size, name] of [[disk.own, "own"], [disk.foreign, "foreign"]]) {
      if (!size) continue;
      const part = make("span", { class: name });
      part.style.width = `${100 * size / (whole || 1)}%`;
      bar.append(part);
    }
    const words = disk.used === null ? `${bytes(disk.own)} of logs` : `${bytes(disk.own)} of logs, ${disk.foreign === null ? "others not known" : `${bytes(disk.foreign)} of others`}, ${bytes(disk.free)} free of ${bytes(whole)}`;
    return make("div", { class: "disk" }, make("p", {}, make("strong", { text: disk.name }), " ", make("span", { text: words }), disk.full ? make("span", { class: "sev bad", text: " nearly full" }) : null), bar);
  }));
  draw();
  onLook(draw);
};
function rowsTable(label, columns, values, open) {
  const total = values[0].length;
  return grid({
    label, total, open,
    columns: columns.map(([, name, unit], number) => ({
      name, number: unit !== "text", kind: number === 0 ? "full name" : number > 7 ? "wide" : number > 4 ? "rest" : "",
      width: number === 0 ? "minmax(9rem, 2.5fr)" : unit === "time" ? "minmax(11.8rem, 1fr)" : unit === "bytes" ? "minmax(5.6rem, 1fr)" : "minmax(5rem, 1fr)",
      show: (row) => { const value = values[number][row]; return value === null ? "" : FORMS[unit](value); }, key: (row) => values[number][row],
    })),
  });
}
for (const name of Object.keys(data)) {
  if (name.startsWith("rows-")) sections[name] = (to) => to.append(rowsTable(name.slice(5), data[name].columns, data[name].values).element);
}
sections.keys = (to) => {
  const column = (number) => data.keys.map((row) => row[number]);
  to.append(rowsTable("Heaviest keys", [["", "Partition", "text"], ["", "Key", "text"], ["", "Bytes", "bytes"], ["", "First offset", "offset"]], [0, 1, 2, 3].map(column)).element);
};
