"""What was found wrong: Finding, and how its sentence is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Final

from kdump.format import naming
from kdump.verify.catalogue import CATALOGUE, CatalogueEntry, Severity

__all__ = ["CATALOGUE", "KEPT", "PROBLEMS", "CatalogueEntry", "Finding", "Severity", "found"]

PROBLEMS: Final = {
    "record-length": "its length is negative or reaches past the end of the records",
    "varint": "a number has no end",
    "key-length": "its key reaches past its end",
    "value-length": "its value reaches past its end",
    "header-count": "its number of headers is negative or more than its bytes can hold",
    "header-key": "a header key has a negative length or reaches past its end",
    "header-value": "a header value reaches past its end",
    "body-end": "its fields do not end where its length says",
    "missing": "the records end before it",
    "leftover": "bytes follow the last record",
    "control-key": "its key is no version and type",
    "control-value": "its value is no version and coordinator epoch",
    "control-type": "its type is no marker of a transaction's end",
    "message-fields": "its key or value reaches past its end",
    "wrapper-size": "the size of an entry is less than 14",
    "wrapper-size-07": "the size of an entry is negative, too small or, in the first one, more than there is",
    "wrapper-magic": "an entry has a magic other than 0 and 1",
    "wrapper-nested": "an entry is compressed itself",
    "wrapper-nested-07": "compressed messages lie more than 16 deep in one another",
    "wrapper-empty": "there is none",
    "wrapper-offset": "the wrapper's offset is below the last inner one",
}
"""What is wrong with records, as a clause; the words are those of kdump.kernel.records.STATUSES."""


CLAUSES: Final[Mapping[str, Mapping[str, str]]] = {
    "records": PROBLEMS,
    "snapshot": {
        "missing": "the snapshot lacks it",
        "surplus": "the log does not have it",
        "differs": "it is not as the log has it",
    },
    "hanging": {
        "idle": "its producer has been silent for longer than a transaction may last",
        "ended": "the transaction log says that it has ended",
        "elsewhere": "the transaction log does not have this partition in it",
        "unknown": "the transaction log does not know the producer",
    },
    "leftover": {
        "deleted": "it was marked for deletion",
        "cleaned": "the cleaner had not finished writing it",
        "swap": "it was about to replace segments, and the next start puts it in the place of everything in its range",
        "swap-dropped": "it was about to replace segments, but a .cleaned file at or below its offset makes the next start delete it",
        "tmp": "a checkpoint had not been written to its end",
        "part": "a snapshot had not been written to its end",
    },
    "orphan": {
        "index": "an index without its log file",
    },
    "name": {
        "number": "the part before the first dot is no number that fits into 63 bits: a broker does not start",
        "short": "the number has not 20 digits: a broker does not read this file and creates an empty segment of that number",
        "negative": "the number is negative: a broker creates an empty segment of that number",
        "partition": "the directory's name is no topic and partition: a broker does not start",
        "duplicate": "another directory here is of the same partition: a broker does not start",
    },
}
"""What a short word in the data of a finding stands for, by the table that the sentence names; codec and odd stand in kdump.format.codec."""


def _clause(table: str, problem: str) -> str:
    if table in CLAUSES:
        return CLAUSES[table][problem]
    from kdump.format import codec  # only findings of compressed data need it

    return (codec.REASONS if table == "codec" else codec.NOTES)[problem]


class _Sentence(Formatter):
    """Two forms beyond the usual: `{name:?text|other}` is the text, with the value for #, where there is a value, else the other one or nothing.

    `{name:@table}` is the clause that the value, a short word, stands for.
    """

    def format_field(self, value: Any, spec: str) -> str:
        if spec.startswith("@"):
            return _clause(spec[1:], value)
        if not spec.startswith("?"):
            return str(super().format_field(value, spec))
        text, _, other = spec[1:].partition("|")
        return text.replace("#", str(value)) if value else other


_SENTENCE: Final = _Sentence()


@dataclass(frozen=True, slots=True)
class Finding:
    """One observed defect. `data` holds numbers and short words, never prose; `offset` is None where no record offset is known.

    `broker` says what the next unclean start of Kafka does about it, None for a file without its directory.
    """

    code: str
    severity: Severity
    path: str
    position: int
    length: int
    offset: int | None = None
    broker: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The catalogue's sentence with this finding's values in it."""
        values = {"position": self.position, "length": self.length, "offset": self.offset, **self.data}
        return _SENTENCE.vformat(CATALOGUE[self.code].sentence, (), values)

    @property
    def topic_partition(self) -> naming.TopicPartition | None:
        return naming.topic_partition_of_file(self.path)

    @property
    def segment(self) -> int | None:
        """The base offset that the file's name says."""
        return naming.base_offset_of(self.path)


KEPT: Final = 1000
"""How many findings of one code and file are kept; the counts stay exact."""


def found(
    code: str,
    path: str,
    position: int,
    length: int,
    *,
    offset: int | None = None,
    severity: Severity | None = None,
    **data: Any,
) -> Finding:
    """A finding of this code, with the catalogue's severity unless another one is given."""
    return Finding(
        code, CATALOGUE[code].severity if severity is None else severity, path, position, length, offset, None, data
    )
