"""Prove log files: every rule of one segment, batch by batch, and with `deep` record by record.

A verify is a fold. A file is cut into ranges; `scan` turns each into a Summary; `join` puts neighbours together in log order. A cut is only a hint: two
neighbours join when the right one began where the left one ended and its rules would have said the same with the left one's state; where not, the right range
is scanned again from there. So every cutting gives the same result as none.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kdump import checks
from kdump.checks import framing, offsets, records
from kdump.engine import Engine, Serial
from kdump.errors import SourceError
from kdump.findings import KEPT, Finding, Severity
from kdump.format import codec
from kdump.format.batch import CODEC_MASK
from kdump.format.kafka07 import Message
from kdump.format.naming import Kind
from kdump.kernel.scan import BATCH_COLUMNS, OPEN, Scanner
from kdump.kernel.scan07 import Scanner07
from kdump.partition import LogFile
from kdump.segment import MAX_BATCH_BYTES, BatchChunk, Walk
from kdump.segment07 import walk_of
from kdump.source import Source, Told

RANGE_BYTES = 64 << 20
_SUSPECT, _MAGIC, _ATTRIBUTES, _PAYLOAD_AT, _PAYLOAD_SIZE = (
    BATCH_COLUMNS.index(name) for name in ("suspect", "magic", "attributes", "payload_at", "payload_size")
)
assert BATCH_COLUMNS[0] == "position"
_WIDTH = len(BATCH_COLUMNS)


class Options(NamedTuple):
    """What to prove. `compacted` is None where each segment shows by itself whether a cleaner went over it."""

    deep: bool = False
    compacted: bool | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES


class Range(NamedTuple):
    """A piece of work: the batches of a file that begin in [start, stop)."""

    file: LogFile
    start: int
    stop: int | None
    options: Options


@dataclass(slots=True)
class Summary:
    """What a range showed. `start` and `end` are the batch borders it really covered; start is None when no batch was found to begin with."""

    start: int | None
    end: int
    seen: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, Severity]] = field(default_factory=Counter)
    error: SourceError | None = None

    def add(self, finding: Finding) -> None:
        self.counts[finding.code, finding.severity] += 1
        if sum(count for (code, _), count in self.counts.items() if code == finding.code) <= KEPT:
            self.findings.append(finding)


@dataclass(slots=True)
class FileReport:
    """What verify says of one file. `records` is None where wrappers were not opened, so that nobody knows."""

    file: LogFile
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[tuple[str, Severity]] = field(default_factory=Counter)
    batches: int = 0
    records: int | None = 0
    bytes: int = 0
    valid_bytes: int = 0
    error: SourceError | None = None


def verify(
    files: Iterable[LogFile],
    options: Options | None = None,
    engine: Engine | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> Iterator[FileReport]:
    """One report a file, in the order of the files. `on_bytes` is told the size of each piece of work that is done."""
    options = options or Options()
    engine = engine or Serial()
    tasks = (task for file in files for task in ranges(file, options, engine.slots))
    pending: list[tuple[Range, Summary]] = []
    inside = on_bytes is not None and engine.slots == 1  # otherwise the work is done where nobody can be told
    for task, summary in engine.map(partial(_scan_task, on_bytes=on_bytes) if inside else _scan_task, tasks):
        pending.append((task, summary))
        if on_bytes is not None and not inside:
            on_bytes((task.file.size if task.stop is None else task.stop) - task.start)
        if task.stop is None:
            yield conclude(task.file, options, fold(pending))
            pending = []


def ranges(file: LogFile, options: Options, slots: int) -> Iterator[Range]:
    """The pieces of a file; the last one has no stop. With one worker, or where a piece would be small, it is the whole file."""
    start = 0
    if slots > 1 and file.kind is Kind.LOG:
        while file.size - start > 2 * RANGE_BYTES:
            yield Range(file, start, start + RANGE_BYTES, options)
            start += RANGE_BYTES
    yield Range(file, start, None, options)


def fold(parts: list[tuple[Range, Summary]]) -> Summary:
    """The summaries of neighbouring ranges as one."""
    whole = parts[0][1]
    for task, part in parts[1:]:
        whole = join(whole, task, part)
    return whole


def join(left: Summary, task: Range, right: Summary) -> Summary:
    """`left` and the range right of it, scanned again where it began at another place or would have said something else."""
    if left.error:
        return left
    if right.error or right.start != left.end or not _agrees(left.seen, right.seen):
        right = scan(task._replace(start=left.end), carry=_state(left.seen))
    else:
        _link(left.seen, right.seen)
    for finding in right.findings:
        if sum(1 for kept in left.findings if kept.code == finding.code) < KEPT:
            left.findings.append(finding)
    left.counts.update(right.counts)
    if right.seen:
        left.seen = _merged(left.seen, right.seen)
    left.end = right.end
    left.error = right.error
    return left


def scan(
    task: Range, carry: tuple[int, bool, int, bool] | None = None, on_bytes: Callable[[int], None] | None = None
) -> Summary:
    """Walk over one range. Without `carry` a start inside the file is taken for a hint and the first batch behind it is looked for."""
    file, options = task.file, task.options
    try:
        with file.open() as source:
            told = source if on_bytes is None else Told(source, on_bytes)
            return scan_source(told, file, options, task.start, task.stop, carry)
    except SourceError as error:
        return Summary(None, task.start, {}, error=error)


def scan_source(
    source: Source,
    file: LogFile,
    options: Options,
    start: int = 0,
    stop: int | None = None,
    carry: tuple[int, bool, int, bool] | None = None,
) -> Summary:
    """`scan` over an open source."""
    walk = walk_of(
        file.kind,
        source,
        base_offset=file.base_offset,
        start=start,
        stop=stop,
        carry=carry,
        deep=options.deep,
        max_batch_bytes=options.max_batch_bytes,
    )
    summary = Summary(None, start, {})
    try:
        if carry is not None or walk.sync():
            summary.start = walk.position
            for item in walk:
                if isinstance(item, BatchChunk):
                    for finding in _chunk(walk, item, file, options):
                        summary.add(finding)
                else:
                    summary.add(framing.other(file.path, item, file.preallocated))
    except SourceError as error:
        # What was found before the disk failed is worth having.
        summary.error = error
    summary.end = walk.position
    summary.seen = walk.scanner.state()
    if summary.error is not None:
        return summary
    if file.kind is Kind.CHECKPOINT:
        from kdump.checks import kraft  # brings the record decoder, which plain verify does without

        for finding in kraft.snapshot(file.path, source, summary.seen, options.max_batch_bytes):
            summary.add(finding)
    if stop is None and (grown := source.size_now() - source.size) > 0:
        summary.add(framing.grown(file.path, source.size, grown))
    return summary


def _scan_task(task: Range, on_bytes: Callable[[int], None] | None = None) -> tuple[Range, Summary]:
    return task, scan(task, on_bytes=on_bytes)


def _chunk(walk: Walk, chunk: BatchChunk, file: LogFile, options: Options) -> Iterator[Finding]:
    scanner, rows, decompress = walk.scanner, walk.scanner.rows, codec.decompress
    for index in range(chunk.batches):
        bits = rows[index * _WIDTH + _SUSPECT]
        if bits & OPEN and isinstance(scanner, Scanner07):
            bits = yield from _unwrap(scanner, index, chunk, file, options)
        elif bits & OPEN and isinstance(scanner, Scanner):
            # Cells instead of a Batch: at a few microseconds a batch, making one would show.
            cell = index * _WIDTH
            payload = walk.bytes_at(rows[cell] + rows[cell + _PAYLOAD_AT], rows[cell + _PAYLOAD_SIZE])
            try:
                opened, note = decompress(
                    rows[cell + _ATTRIBUTES] & CODEC_MASK, payload, rows[cell + _MAGIC], options.max_batch_bytes
                )
            except codec.LimitExceeded:
                yield framing.limit(file.path, chunk.row(index), options.max_batch_bytes, decompressed=True)
            except codec.CodecError as error:
                yield framing.codec("batch/codec", file.path, chunk.row(index), error.reason)
            else:
                bits = scanner.open(index, opened)
                if note is not None:
                    yield framing.codec("batch/codec-odd", file.path, chunk.row(index), note)
        if bits & ~OPEN:
            yield from checks.explain(file.path, chunk.row(index), file.base_offset)


def _unwrap(
    scanner: Scanner07, index: int, chunk: BatchChunk, file: LogFile, options: Options
) -> Generator[Finding, None, int]:
    """Open a compressed message of Kafka 0.7; its suspect bits."""
    from kdump.records07 import unwrap

    batch = chunk.row(index)
    assert isinstance(batch, Message)
    inside = unwrap(batch, chunk.body(batch), options.max_batch_bytes, keep=False)
    if inside.problem == "batch/limit":
        yield framing.limit(file.path, batch, options.max_batch_bytes, decompressed=True)
    elif inside.problem == "batch/codec":
        yield framing.codec("batch/codec", file.path, batch, inside.reason)
    else:
        if inside.note is not None:
            yield framing.codec("batch/codec-odd", file.path, batch, inside.note)
        return scanner.opened(index, inside.messages, inside.status, inside.status_at, inside.inner_crc, inside.partial)
    return batch.suspect


def conclude(file: LogFile, options: Options, summary: Summary) -> FileReport:
    """What shows only over the whole file, and the report."""
    seen = summary.seen
    if not seen:
        return FileReport(file, error=summary.error)
    if seen["gaps"]:
        # Damage may have taken the only sign of a cleaner with it.
        compacted = bool(seen["compacted"] or seen["broken"]) if options.compacted is None else options.compacted
        summary.add(
            offsets.gaps(
                file.path,
                seen["gap_position"],
                seen["gap_previous"],
                seen["gap_first"],
                seen["gaps"],
                seen["gap_offsets"],
                seen["gap_largest"],
                compacted,
            )
        )
    if seen["inner_magic"]:
        summary.add(records.inner_magic(file.path, seen["inner_magic_position"], seen["inner_magic"]))
    return FileReport(
        file,
        sorted(summary.findings, key=lambda finding: finding.position),
        summary.counts,
        seen["batches"],
        None if seen["unopened"] else seen["records"],
        file.size,
        seen["valid_bytes"],
        summary.error,
    )


# ---- the state of neighbours

_FIRST = ("first_position", "first_offset", "first_epoch", "first_spans")
_LAST = ("last_position", "last_offset", "known_last", "has_last")
_SUM = (
    "batches",
    "records",
    "unopened",
    "valid_bytes",
    "gaps",
    "gap_offsets",
    "inner_magic",
    "control",
    "transactional",
    "broken",
)
_FIRST_GAP = ("gap_position", "gap_first", "gap_previous")


def _state(seen: dict[str, Any]) -> tuple[int, bool, int, bool]:
    return seen["known_last"], seen["has_last"], seen["known_epoch"], seen["linked"]


def _agrees(left: dict[str, Any], right: dict[str, Any]) -> bool:
    """Whether the right walk, which knew nothing of the left one, said all that it had to say."""
    if not left["batches"] or not right["batches"] or not left["linked"]:
        return False
    if left["known_epoch"] != -1 and not 0 <= left["known_epoch"] <= right["first_epoch"]:
        return False
    return bool(right["first_offset"] > left["known_last"])


def _link(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Count the offset gap between two walks, which neither could see."""
    missing = right["first_offset"] - left["known_last"] - 1
    if missing and right["first_spans"]:
        if not left["gaps"]:
            left.update(
                gap_position=right["first_position"], gap_first=right["first_offset"], gap_previous=left["known_last"]
            )
        left["gaps"] += 1
        left["gap_offsets"] += missing
        left["gap_largest"] = max(left["gap_largest"], missing)


def _merged(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    whole = dict(left)
    for name in _SUM:
        whole[name] += right[name]
    if right["batches"]:
        whole.update({name: right[name] for name in _LAST})
    if not left["batches"]:
        whole.update({name: right[name] for name in _FIRST})
    if not left["gaps"]:
        whole.update({name: right[name] for name in _FIRST_GAP})
    if not left["inner_magic"]:
        whole["inner_magic_position"] = right["inner_magic_position"]
    whole["linked"] = right["linked"]
    whole["known_epoch"] = right["known_epoch"] if right["known_epoch"] >= 0 else left["known_epoch"]
    whole["compacted"] = left["compacted"] or right["compacted"]
    for name in ("gap_largest", "max_timestamp"):
        whole[name] = max(left[name], right[name])
    for name in ("codecs", "magics"):
        whole[name] = [a + b for a, b in zip(left[name], right[name], strict=True)]
    return whole
