"""The value that reports one defect: Finding, and how its sentence comes from the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.format import naming
from kdump.verify.catalogue import CATALOGUE, CatalogueEntry, Severity

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

__all__ = ["CATALOGUE", "KEPT", "PROBLEMS", "CatalogueEntry", "Finding", "Severity", "finding_fields", "make_finding"]

FindingValue: TypeAlias = int | bool | str | None
"""A value in the data of a finding: a number, a flag or a short word, None where it is not known."""
FindingData: TypeAlias = Mapping[str, FindingValue]

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


@dataclass(frozen=True, slots=True)
class Finding:
    """One observed defect.

    `position` and `length` are bytes in the file at `path`. `offset` is None where no record offset is known.
    `broker` is what the next unclean start of Kafka 4.3 does about it, None for a file without its directory.
    `later_broker` is what Kafka 4.4.0 does, where that decides otherwise whether a broker starts.
    `data` holds numbers and short words, never prose. Neither it nor the sentence depends on the time of the check.
    `of` is the topic-partition where the path is not that of a file of it.
    """

    code: str
    severity: Severity
    path: str
    position: int
    length: int
    offset: int | None = None
    broker: str | None = None
    data: FindingData = field(default_factory=dict)
    later_broker: str | None = None
    of: naming.TopicPartition | None = None

    @property
    def message(self) -> str:
        """The sentence of the catalogue with the values of this finding."""
        values = {"position": self.position, "length": self.length, "offset": self.offset, **self.data}
        return _SENTENCE.vformat(CATALOGUE[self.code].sentence, (), values)

    @property
    def topic_partition(self) -> naming.TopicPartition | None:
        """The topic-partition: `of`, or what the name of the directory of a file says; None without one."""
        return self.of or naming.topic_partition_of_file(self.path)

    @property
    def segment(self) -> int | None:
        """The base offset that the file name says, None without one."""
        return naming.base_offset_of(self.path)

    @property
    def identity(self) -> str:
        """The same for the same defect of a topic-partition in every run, wherever its files lie.

        It is the beginning of the SHA-256 of code, topic, partition, segment, position and data as JSON.
        """
        # text and terminal do not show it
        import json
        from hashlib import sha256

        topic, partition = self.topic_partition or (None, None)
        named = [self.code, topic, partition, self.segment, self.position, dict(self.data)]
        text = json.dumps(named, sort_keys=True, separators=(",", ":"))  # \u escapes, so that any name has bytes
        return sha256(text.encode()).hexdigest()[:IDENTITY_DIGITS]


IDENTITY_DIGITS: Final = 16
"""The hexadecimal digits of the identity of a finding."""
KEPT: Final = 1000
"""The largest number of findings of one code and file that are kept. Counts stay exact."""


def make_finding(
    code: str,
    path: str,
    position: int,
    length: int,
    *,
    offset: int | None = None,
    severity: Severity | None = None,
    **data: FindingValue,
) -> Finding:
    """A finding with this code. Its severity is that of the catalogue unless another one is given."""
    return Finding(
        code, CATALOGUE[code].severity if severity is None else severity, path, position, length, offset, None, data
    )


def finding_fields(finding: Finding) -> "Fields":
    """The fields of a finding in JSON, in order."""
    topic_partition = finding.topic_partition
    return {
        "code": finding.code,
        "severity": finding.severity.word,
        "topic": None if topic_partition is None else topic_partition.topic,
        "partition": None if topic_partition is None else topic_partition.partition,
        "segment": finding.segment,
        "position": finding.position,
        "length": finding.length,
        "offset": finding.offset,
        "broker": finding.broker,
        "later_broker": finding.later_broker,
        "message": finding.message,
        "data": finding.data,
        "identity": finding.identity,
    }
