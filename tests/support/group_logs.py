"""Log directories with the log of a coordinator, and the groups that kdump stat finds there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kdump.stat.group_rows import GroupPartitionRow, GroupRow
from kdump.stat.row_collector import RowCollector
from kdump.stat.row_sections import RowOptions, StatResult
from kdump.stat.rows import RowKind
from kdump.stat.stat import stat_logs
from kdump.stat.values import StatOptions
from kdump.storage.discovery import discover
from support import build
from support.coordinator_records import commit_key, commit_value

NOW_MS = 10_000_000


def log(directory: Path, name: str, *batches: bytes, topic_id: str | None = None) -> Path:
    """A directory of a topic-partition with one segment."""
    folder = directory / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    if topic_id is not None:
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return folder


def plain(count: int, epoch: int = 0) -> bytes:
    """A batch of so many records."""
    return build.batch([build.record(b"k", b"v")] * count, epoch=epoch)


def commits(
    *offsets: tuple[str, str, int, int | None], at: int = 0, epoch: int = 0, producer: int = -1, **how: Any
) -> bytes:
    """A batch of commits at the offset `at`: group, topic, partition, offset; with a `producer` in a transaction."""
    records = [
        build.record(commit_key(group, topic, partition), None if offset is None else commit_value(offset, **how))
        for group, topic, partition, offset in offsets
    ]
    epochs = {"epoch": epoch, "producer_epoch": -1 if producer < 0 else 0}
    return build.batch(records, base_offset=at, producer_id=producer, transactional=producer >= 0, **epochs)


def checkpoint(directory: Path, offsets: Mapping[str, int], name: str = "replication-offset-checkpoint") -> None:
    """A checkpoint of a log directory: an offset for each topic-partition."""
    lines = [f"{of.rpartition('-')[0]} {of.rpartition('-')[2]} {offset}\n" for of, offset in offsets.items()]
    (directory / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def measured(*paths: Path, kind: RowKind = RowKind.GROUP, **options: Any) -> StatResult:
    """What kdump stat measures for --by group."""
    rows = RowCollector(RowOptions((kind,), now_ms=NOW_MS, **options))
    for item in stat_logs(discover(paths), StatOptions(groups=True)):
        assert rows.add(item) == ()
    return rows.result()


def groups(*paths: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """The fields of each group."""
    result = measured(*paths, **options)
    return {row.source.group_id: dict(row.fields()) for row in result.sections[0].rows if isinstance(row, GroupRow)}


def partitions(*paths: Path, **options: Any) -> Iterator[dict[str, Any]]:
    """The fields of each topic-partition of a group."""
    result = measured(*paths, kind=RowKind.GROUP_PARTITION, **options)
    for row in result.sections[0].rows:
        assert isinstance(row, GroupPartitionRow)
        yield dict(row.fields())
