"""The value that reports one defect: Finding, and how its sentence comes from the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.format import naming
from kdump.log.severity import Severity

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

__all__ = ["KEPT", "Finding", "Severity", "finding_fields", "make_finding"]

FindingValue: TypeAlias = int | bool | str | None
"""A value in the data of a finding: a number, a flag or a short word, None where it is not known."""
FindingData: TypeAlias = Mapping[str, FindingValue]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observed defect.

    `position` and `length` are bytes in the file at `path`. `offset` is None where no record offset is known.
    `broker` is what the next unclean start of Kafka 4.3 does about it, None for a file without its directory.
    `later_broker` is what Kafka 4.4.0 does, where that decides otherwise whether a broker starts.
    `data` holds numbers and short words, never prose. Neither it nor the sentence depends on the time of the check.
    `of` is the topic-partition where the path is not that of a file of it. `in_log_directory`: the path lies in a log
    directory itself, whose name is no topic-partition.
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
    in_log_directory: bool = False

    @property
    def message(self) -> str:
        """The sentence of the catalogue with the values of this finding."""
        from kdump.verify.catalogue.sentence import sentence_of  # a valid log needs no catalogue

        where = {"position": self.position, "length": self.length, "offset": self.offset}
        return sentence_of(self.code, {**where, "unproven": False, "begins": False, **self.data})

    @property
    def topic_partition(self) -> naming.TopicPartition | None:
        """The topic-partition: `of`, or what the name of the directory of a file says; None without one."""
        return self.of or (None if self.in_log_directory else naming.topic_partition_of_file(self.path))

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
    if severity is None:
        from kdump.verify.catalogue import CATALOGUE  # a valid log needs no catalogue

        severity = CATALOGUE[code].severity
    return Finding(code, severity, path, position, length, offset, None, data)


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
