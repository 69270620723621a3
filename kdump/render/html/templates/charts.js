// Copies of a topic-partition: a strip for each, on one scale of offsets.
const VERDICTS = { agree: "good", diverged: "bad", undecided: "doubtful" };
sections.copies = (to) => {
  for (const of of data.copies) {
    const block = make("div", { class: "of" }, make("h3", {}, of.name, " ", make("span", { class: `sev ${VERDICTS[of.verdict]}`, text: of.verdict })));
    block.append(make("dl", { class: "lines" }, ...of.sentences.map((sentence) => {
      const at = sentence.indexOf(": ");
      return make("div", {}, make("dt", { text: sentence.slice(0, at) }), make("dd", { text: sentence.slice(at + 2) }));
    })));
    to.append(block);
  }
};

// Recoveries: what each strategy gives up, then what is or was done.
sections.recoveries = (to) => {
  for (const of of data.recoveries) {
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
    to.append(block);
  }
};
