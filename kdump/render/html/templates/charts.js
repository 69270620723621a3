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
