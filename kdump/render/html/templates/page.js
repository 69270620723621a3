// The parts of the page.
const SEVERITIES = [["info", "plain"], ["warning", "doubtful"], ["error", "bad"]];


sections.findings = (to) => {
  const found = data.findings, total = found.code.length, files = found.files, names = found.partitions;
  const file = (row) => found.file[row], partition = (row) => files.partition[file(row)];
  const severity = (row) => make("span", { class: `sev ${SEVERITIES[found.severity[row]][1]}`, text: SEVERITIES[found.severity[row]][0] });
  const code = (row) => found.codes[found.code[row]];
  const name = (row) => (partition(row) < 0 ? files.name[file(row)] : names[partition(row)]);
  const base = (row) => files.name[file(row)].split("/").pop().replace(/^0{4,}(?=\d)/, "…");
  const lower = (texts) => texts.map((text) => text.toLowerCase());
  const search = { text: null, file: lower(files.name), code: found.codes.map((each) => `${each.code} ${each.title}`.toLowerCase()) };
  const detail = make("aside", { class: "detail", hidden: true, tabindex: -1, "aria-label": "The finding" });
  const table = grid({
    label: "Findings",
    total,
    order: [0, true],
    open: show,
    columns: [
      { name: "Severity", width: "6.6rem", kind: "severity", show: severity, key: (row) => found.severity[row], number: false },
      { name: "Code", width: "minmax(7.5rem, 11rem)", kind: "code mono", show: (row) => code(row).code, key: (row) => code(row).code },
      { name: "Topic-partition", width: "minmax(7rem, 14rem)", kind: "name", show: name, key: name },
      { name: "File", width: "minmax(6rem, 11rem)", kind: "file mono rest", show: base, key: (row) => files.name[file(row)] },
      { name: "Position", width: "minmax(5.5rem, 8rem)", number: true, kind: "rest", show: (row) => count(found.position[row]), key: (row) => found.position[row] },
      { name: "Offset", width: "minmax(5rem, 8rem)", number: true, kind: "wide", show: (row) => count(found.offset[row]), key: (row) => found.offset[row] },
      { name: "What", width: "minmax(14rem, 8fr)", kind: "full", show: (row) => found.text[row], key: (row) => found.text[row] },
    ],
  });
  const chosen = { severities: new Set([0, 1, 2]), code: -1, text: "", topic: "", segment: "", only: null };
  const shown = make("p", { class: "shown", role: "status" });
  function apply() {
    const text = chosen.text.toLowerCase(), topic = chosen.topic.toLowerCase(), segment = chosen.segment.replace(/^0+(?=.)/, "");
    if (text && !search.text) search.text = lower(found.text);
    const topics = topic ? names.map((each) => each.toLowerCase().includes(topic)) : null;
    const segments = segment ? files.segment.map((each) => each !== null && String(each).startsWith(segment)) : null;
    const left = table.filter((row) => chosen.severities.has(found.severity[row])
      && (chosen.code < 0 || found.code[row] === chosen.code)
      && (!topics || topics[partition(row)]) && (!segments || segments[file(row)])
      && (!chosen.only || chosen.only(row))
      && (!text || search.text[row].includes(text) || search.file[file(row)].includes(text) || search.code[found.code[row]].includes(text)));
    shown.textContent = left === total ? `${count(total)} ${total === 1 ? "finding" : "findings"}` : `${count(left)} of ${count(total)} findings`;
    all.hidden = left === total;
  }
  const counts = [0, 0, 0];
  for (const each of found.severity) counts[each] += 1;
  const chips = make("div", { class: "chips", role: "group", "aria-label": "Severity" }, ...[2, 1, 0].map((each) => make("button", {
    type: "button", class: SEVERITIES[each][1], "aria-pressed": "true", disabled: !counts[each], text: `${SEVERITIES[each][0]} ${count(counts[each])}`,
    onclick: (event) => {
      const on = !chosen.severities.delete(each);
      if (on) chosen.severities.add(each);
      event.currentTarget.setAttribute("aria-pressed", on);
      apply();
    },
  })));
  const field = (label, name, kind, hint) => make("label", { class: kind }, label, make("input", {
    type: "search", placeholder: hint, name, autocomplete: "off", spellcheck: "false", oninput: (event) => { chosen[name] = event.target.value.trim(); later(); },
  }));
  let timer = 0;
  const later = () => { clearTimeout(timer); timer = setTimeout(apply, 120); };
  const codes = make("select", { name: "code", onchange: (event) => { chosen.code = Number(event.target.value); apply(); } }, make("option", { value: -1, text: "all codes" }),
    ...found.codes.map((each, number) => [each.code, number]).sort().map(([each, number]) => make("option", { value: number, text: each })));
  const all = make("button", {
    type: "button", class: "clear", hidden: true, text: "Show all", onclick: () => {
      Object.assign(chosen, { severities: new Set([0, 1, 2]), code: -1, text: "", topic: "", segment: "", only: null });
      for (const input of tools.querySelectorAll("input")) input.value = "";
      for (const chip of chips.children) chip.setAttribute("aria-pressed", "true");
      codes.value = -1;
      apply();
    },
  });
  const tools = make("div", { class: "tools", role: "search", "aria-label": "Filter the findings" },
    field("Search", "text", "wide", "words, file, code"), make("label", {}, "Code", codes),
    field("Topic-partition", "topic", "", "orders-3"), field("Segment", "segment", "", "base offset"), chips, all, shown);
  const split = make("div", { class: "split" }, table.element, detail);
  to.append(tools, split);
  apply();

  function show(row) {
    const about = code(row);
    const facts = [["File", make("code", { text: files.name[file(row)] })], ["Position", `${count(found.position[row])}, ${bytes(found.length[row])}`]];
    if (found.offset[row] !== null) facts.push(["Offset", count(found.offset[row])]);
    const broker = found.brokers[found.broker[row]];
    if (broker) facts.push(["Broker", broker]);
    facts.push(["Recovery", about.recover], ["Command", make("code", { text: about.command })], ["Source", about.source]);
    detail.replaceChildren(
      make("button", { type: "button", class: "close", "aria-label": "Close the details", text: "✕", onclick: close }),
      make("h3", { text: about.title }),
      make("p", { class: "code" }, severity(row), " ", make("code", { text: about.code })),
      make("p", { text: found.text[row] }), make("p", { text: about.why }),
      make("dl", {}, ...facts.map(([label, value]) => make("div", {}, make("dt", { text: label }), make("dd", {}, value)))),
    );
    detail.hidden = false;
    split.classList.add("open");
    say(found.text[row]);
  }
  function close() {
    detail.hidden = true;
    split.classList.remove("open");
    table.render();
  }
  detail.addEventListener("keydown", (event) => { if (event.key === "Escape") close(); });
  sections.showFindings = (only) => {
    chosen.only = only;
    apply();
    document.getElementById("findings").scrollIntoView({ block: "start" });
  };
};

sections.partitions = (to) => {
  const of = data.partitions, total = of.path.length;
  const BROKER = ["serves it", "truncates it", "does not start"];
  const name = (row) => of.paths[of.path[row]];
  const number = (label, column, form, kind = "rest") => ({ name: label, width: form === bytes ? "minmax(5.6rem, 1fr)" : "minmax(5rem, 1fr)", number: true, kind, show: (row) => form(of[column][row]), key: (row) => of[column][row] });
  const table = grid({
    label: "Partitions with errors or warnings",
    total,
    order: [1, true],
    open: (row) => sections.showFindings && sections.showFindings((finding) => under(finding, name(row))),
    columns: [
      { name: "Partition", width: "minmax(9rem, 3fr)", kind: "full name", show: name, key: name },
      number("Errors", "errors", count, ""), number("Warnings", "warnings", count, ""),
      number("Segments", "segments", count, "wide"), number("Bytes", "bytes", bytes, ""), number("Not valid", "damaged", bytes, ""),
      number("Log start", "start", count, "wide"), number("Log end", "end", count), number("Then end", "broker_end", count),
      { name: "Broker", width: "minmax(8rem, 1fr)", kind: "rest", show: (row) => (of.broker[row] === null ? "not known" : BROKER[of.broker[row]]), key: (row) => of.broker[row] },
    ],
  });
  to.append(make("p", { class: "about", text: "A row shows its findings." }), table.element);
};
function under(finding, directory) {
  const name = data.findings.files.name[data.findings.file[finding]];
  return name === directory || name.startsWith(`${directory}/`);
}

startSwitches();
startCopies();
applyLook();
// Each part in a task of its own, so that the first one is on the screen at once.
const waiting = [...document.querySelectorAll("[data-section]")].map((each) => each.dataset.section).filter((name) => sections[name]);
function startNext() {
  const name = waiting.shift();
  if (!name) { document.documentElement.dataset.ready = "true"; return; }
  sections[name](host(name));
  setTimeout(startNext, 0);
}
setTimeout(startNext, 0);
