"""The checks `metadata/*` but `metadata/format`: whether a broker in KRaft mode finds a directory to be a stray."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kdump.format import naming
from kdump.log.severity import Severity
from kdump.storage.file_store import directory_above, store_of
from kdump.storage.lock import is_locked
from kdump.verify.report import Report

if TYPE_CHECKING:
    from kdump.broker.log_manager import KraftDirectory
    from kdump.verify.findings import Finding

_STRAYS: Final = frozenset(("metadata/missing", "metadata/topic-id", "metadata/topic", "metadata/replica"))
"""With these a broker renames the directory."""


class ReplicaChecker:
    """Checks whole topic-partition directories. Reads the metadata log of each log directory once.

    Of a running broker nothing is said: it makes directories before their files.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._directory: KraftDirectory | None = None
        self._is_running = False

    def check(self, report: Report, above: str | None = None) -> None:
        """Add the findings about a partition, which lies in the directory `above`, to its report."""
        name = report.topic_partition
        if (
            not report.whole
            or name is None
            or name.topic == naming.METADATA_TOPIC
            or report.state in ("future", "delete")
        ):
            return
        above = above or directory_above(report.path)
        if above != self._path:
            from kdump.broker.log_manager import kraft_directory

            self._path, self._directory = above, kraft_directory(above)
            local = store_of(above).is_local
            self._is_running = local and is_locked(os.path.join(above, naming.LOCK_FILE))
        if self._directory is None or self._is_running:
            return
        finding = _stray(report, name) if report.state == "stray" else _placement(report, name, self._directory)
        if finding is not None:
            broker = "renames" if finding.code in _STRAYS else "ignores"
            report.add([replace(finding, broker=broker)])
            report.sort()


def _stray(report: Report, name: naming.TopicPartition) -> "Finding | None":
    """What is said of a directory that a broker has renamed; nothing where it has no records."""
    first, end = report.first_offset, report.log_end_offset
    if first is None or end is None or end <= first:
        return None
    from kdump.verify.findings import make_finding

    text = f"{name.topic}-{name.partition}"
    return make_finding("metadata/stray", report.path, 0, 0, **name._asdict(), name=text, first=first, last=end - 1)


def _placement(report: Report, name: naming.TopicPartition, directory: "KraftDirectory") -> "Finding | None":
    from kdump.verify.findings import make_finding

    found = directory.placement(name)
    topic_id = None if found is None else found.topic_id
    file = os.path.join(report.path, naming.PARTITION_METADATA)
    if not report.has_metadata:
        empty = report.log_end_offset is not None and report.log_end_offset == report.first_offset
        severity = Severity.WARNING if empty else None
        return make_finding(
            "metadata/missing", report.path, 0, 0, severity=severity, topic=name.topic, topic_id=topic_id
        )
    if found is None or report.topic_id is None:
        return None
    if topic_id is not None and report.topic_id != topic_id:
        return make_finding("metadata/topic-id", file, 0, 0, stored=report.topic_id, found=topic_id, topic=name.topic)
    if topic_id is None or found.brokers is None:
        return make_finding("metadata/topic", file, 0, 0, **name._asdict())
    meta = directory.meta
    if meta.node_id is not None and meta.node_id not in found.brokers:
        brokers = ", ".join(map(str, found.brokers))
        return make_finding("metadata/replica", file, 0, 0, **name._asdict(), brokers=brokers, broker=meta.node_id)
    if None not in (found.directory, meta.directory_id) and found.directory != meta.directory_id:
        return make_finding(
            "metadata/directory", file, 0, 0, **name._asdict(), stored=found.directory, found=meta.directory_id
        )
    return None
