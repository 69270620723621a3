"""A plan carried out in the plainest way: what every file of the directory would hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdump.broker import rebuild
from kdump.recover.plan import Plan, RecoverOptions
from kdump.recover.planner import plan_partition
from kdump.storage.discovery import discover
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.partition import Partition
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions as Proving
from kdump.verify.verify import verify_logs

NOW_MS = 1_900_000_000_000


def report_of(directory: Path, **context: int) -> Report:
    """A verify of one topic-partition directory, with what its log directory's checkpoints would say."""
    (report,) = verify_logs(discover([str(directory)]), Proving(valid_segments=True, now_ms=NOW_MS))
    if context:
        report.context = CheckpointContext(**context)
    return report


def planned(directory: Path, options: RecoverOptions, **context: int) -> Plan:
    report = report_of(directory, **context)
    partition = next(item for item in discover([str(directory)]) if isinstance(item, Partition))
    return plan_partition(report, partition, options)


def read(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def left_by(plan: Plan) -> dict[str, bytes]:
    """Name and bytes of every file afterwards."""
    directory = Path(plan.path)
    before = read(directory)
    after = dict(before)
    for name, content in plan.after.items():
        after.pop(name, None)
        if content is not None and not content.is_rebuilt:
            after[name] = content.data or b""
            for piece in content.pieces:
                after[name] += before[piece.name][piece.start : piece.stop]
    built: Mapping[str, bytes | None] = (
        dict(rebuild.rebuild_companions(plan.rebuild_request()))
        if any(content is not None and content.is_rebuilt for content in plan.after.values())
        else {}
    )
    assert built.keys() == {name for name, content in plan.after.items() if content is not None and content.is_rebuilt}
    after.update({name: data for name, data in built.items() if data is not None})
    return after


def put(directory: Path, files: Mapping[str, bytes]) -> Path:
    directory.mkdir(parents=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory


__all__ = ["NOW_MS", "left_by", "planned", "put", "read", "report_of"]
