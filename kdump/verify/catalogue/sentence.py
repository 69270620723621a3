"""The sentence of a finding: the template of the catalogue with the values of the finding."""

from collections.abc import Mapping
from string import Formatter
from typing import Final

from kdump.verify.catalogue import CATALOGUE

PROBLEMS: Final = {
    "record-length": "its length is negative or reaches past the end of the records",
    "varint": "a varint has no end",
    "key-length": "its key reaches past its end",
    "value-length": "its value reaches past its end",
    "header-count": "its header count is negative or more than its bytes can hold",
    "header-key": "a header key has a negative length or reaches past its end",
    "header-value": "a header value reaches past its end",
    "body-end": "its fields do not end where its length says",
    "missing": "the records end before it",
    "leftover": "bytes follow the last record",
    "control-key": "its key is not a version and a type",
    "control-value": "its value is not a version and a coordinator epoch",
    "control-type": "its type is not a transaction marker",
    "message-fields": "its key or value reaches past its end",
    "wrapper-size": "the size of an entry is less than 14",
    "wrapper-size-07": "the size of an entry is negative, too small or, in the first entry, more than there is",
    "wrapper-magic": "an entry has a magic other than 0 and 1",
    "wrapper-nested": "an entry is itself compressed",
    "wrapper-nested-07": "compressed messages are nested more than 16 deep",
    "wrapper-empty": "there are none",
    "wrapper-offset": "the wrapper's offset is below the last inner one",
}
"""What is wrong with records, as a clause, by the words of kdump.kernel.records.STATUSES."""

CLAUSES: Final[Mapping[str, Mapping[str, str]]] = {
    "records": PROBLEMS,
    "snapshot": {
        "missing": "the snapshot does not have it",
        "surplus": "the log does not have it",
        "differs": "the snapshot and the log disagree",
    },
    "hanging": {
        "idle": "its producer has been silent for longer than a transaction may last",
        "ended": "the transaction log says that it has ended",
        "elsewhere": "the transaction log does not list this partition for it",
        "unknown": "the transaction log does not know the producer",
    },
    "leftover": {
        "deleted": "the file is marked for deletion",
        "cleaned": "the log cleaner did not finish writing it",
        "swap": "it was about to replace segments; the next start replaces everything in its range with it",
        "swap-dropped": (
            "it was about to replace segments, "
            "but a .cleaned file at or below its offset makes the next start delete it"
        ),
        "tmp": "the checkpoint was not written to its end",
        "part": "the snapshot was not written to its end",
    },
    "orphan": {
        "index": "an index without its log file",
    },
    "name": {
        "number": "the part before the first dot is not a number that fits into 63 bits: a broker does not start",
        "short": (
            "the number does not have 20 digits: a broker does not read this file "
            "and creates an empty segment with that base offset"
        ),
        "negative": "the number is negative: a broker creates an empty segment with that base offset",
        "partition": "the directory name is not a topic and a partition: a broker does not start",
        "duplicate": "another directory of the same partition is here: a broker does not start",
    },
}
"""The clause for each short word in the data of a finding, by the table that the sentence names.

The tables `codec` and `odd` are REASONS and NOTES of kdump.format.codec.
"""


def _clause(table: str, problem: str) -> str:
    if table in CLAUSES:
        return CLAUSES[table][problem]
    from kdump.format import codec  # only findings about compressed data need it

    return (codec.REASONS if table == "codec" else codec.NOTES)[problem]


class _Sentence(Formatter):
    """Fills a sentence of the catalogue. Adds two forms to those of `str.format`.

    `{name:?text|other}`: `text`, with the value in place of #, where the value is true; else `other` or nothing.
    `{name:@table}`: the clause of that table for the value, a short word.
    """

    def format_field(self, value: object, spec: str) -> str:
        if spec.startswith("@"):
            return _clause(spec[1:], str(value))
        if not spec.startswith("?"):
            return str(super().format_field(value, spec))
        text, _, other = spec[1:].partition("|")
        return text.replace("#", str(value)) if value else other


_SENTENCE: Final = _Sentence()


def sentence_of(code: str, values: Mapping[str, int | bool | str | None]) -> str:
    """The sentence of a finding with this code and these values."""
    return _SENTENCE.vformat(CATALOGUE[code].sentence, (), values)
