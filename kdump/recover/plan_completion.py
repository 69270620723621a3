"""Completes a plan: what a strategy decided becomes actions, losses, the bytes needed, the findings not covered."""

import os
from collections.abc import Iterator, Mapping
from typing import Final

from kdump.errors import SourceError
from kdump.format.index import OFFSET_ENTRY, index_extent
from kdump.format.naming import MAPPED_INDEX_SUFFIXES, number_of
from kdump.recover.actions import actions_of
from kdump.recover.losses import loss_of_plan
from kdump.recover.plan import FileContent, Plan
from kdump.recover.plan_builder import PlanBuilder, Segments
from kdump.recover.plan_input import PlanInput, unchanged
from kdump.storage.file_store import open_source, status_of
from kdump.storage.pieces import Piece
from kdump.storage.source import read_whole, reader_of
from kdump.storage.walk import TailContent
from kdump.storage.zeros import BLOCK_BYTES, filled_bytes

_WITHOUT_BATCH: Final = frozenset(
    {"batch/crc", "batch/length", "batch/limit", "batch/magic", "gap/bytes", "gap/unsearched"}
    | {f"tail/{content}" for content in TailContent}
)
"""The codes of findings about bytes that are no batch."""
_DEPEND_ON_PRODUCERS: Final = (".snapshot", ".txnindex")


def complete_plan(
    builder: PlanBuilder, segments: Segments, log_start_offset: int | None, log_end_offset: int | None
) -> Plan:
    """The plan that leaves these segments. Raises SourceError."""
    given, context = builder.given, builder.given.report.context
    _drop_unchanged(builder, segments)
    removed = {name: list(pieces) for name, pieces in _removed(builder)}
    lost = loss_of_plan(given, builder.ranges, removed)
    point = context.recovery_point
    actions = actions_of(builder, segments)
    plan = unchanged(given, builder.after)._replace(lost=lost)
    if not actions:
        return plan
    lower = point is not None and log_end_offset is not None and point > log_end_offset
    plan = plan._replace(
        actions=actions,
        after=builder.after,
        segments=tuple(segments.values()),
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if lower else None,
        bytes_needed=sum(_bytes_needed(builder, name, content) for name, content in builder.after.items()),
    )
    return plan._replace(rebuild_cache=builder.recorder.cache_for(plan.rebuild_request()))


# ---- what need not be written


def _drop_unchanged(builder: PlanBuilder, segments: Segments) -> None:
    """Leave out files that already hold what would be written, though verify reports something about them."""
    if builder.given.compares and any(name.endswith(builder.given.suffix) for name in builder.after):
        return  # the logs change, so the plan is not empty whatever becomes of their companions
    doubtful = {}
    for name, content in builder.after.items():
        if content is None or content.pieces or name not in builder.given.sizes or name in segments:
            continue
        if content.data is not None or _may_be_right(builder, name, segments):
            doubtful[name] = content
    if all(name.endswith(MAPPED_INDEX_SUFFIXES) and _is_moved(builder, name, segments) for name in doubtful):
        return  # of a transaction index nothing else shows that it changes
    for name, data in _contents(builder, doubtful, segments).items():
        if data is not None and _holds(builder, name, data):
            del builder.after[name]


def _may_be_right(builder: PlanBuilder, name: str, segments: Segments) -> bool:
    """Whether verify may report a companion that a rebuild would leave as it is."""
    if builder.given.options.rebuild_all:
        return False
    log = segments.get(name.partition(".")[0] + builder.given.suffix)
    if log is not None and not (log.valid and builder.given.is_valid(log.pieces)):
        return True
    return any(finding.code == "snapshot/state" for finding in builder.given.findings_of(name))


def _is_moved(builder: PlanBuilder, name: str, segments: Segments) -> bool:
    """Whether batches of a log move to other positions, as its offset index shows without a look at the log.

    An entry that verify found right has the position of a batch. Where that batch moves, the entry changes.
    """
    given, stem = builder.given, name.rpartition(".")[0]
    log, offset_index = segments.get(stem + given.suffix), f"{stem}.index"
    if log is None or not log.valid or offset_index not in given.sizes:
        return False
    first = log.pieces[0]
    if (first.name, first.start) != (stem + given.suffix, 0) or given.findings_of(offset_index):
        return False
    with open_source(os.path.join(given.directory, offset_index)) as source:
        read = reader_of(source)
        size = index_extent(read, source.size, OFFSET_ENTRY.size).entries
        return size > 0 and OFFSET_ENTRY.unpack(read(size - OFFSET_ENTRY.size, OFFSET_ENTRY.size))[1] > first.stop


def _contents(builder: PlanBuilder, files: Mapping[str, FileContent], segments: Segments) -> dict[str, bytes | None]:
    """What these files are to hold."""
    found = {name: content.data for name, content in files.items() if not content.is_rebuilt}
    if len(found) < len(files):
        plan = unchanged(builder.given, builder.after)
        plan = plan._replace(after={**builder.after}, segments=tuple(segments.values()))
        rebuilt = dict(builder.recorder.rebuild(plan.rebuild_request()))
        found.update((name, rebuilt[name]) for name in files if name not in found)
    return found


def _holds(builder: PlanBuilder, name: str, data: bytes) -> bool:
    """Whether a file holds these bytes."""
    if builder.given.sizes[name] != len(data):
        return False
    with open_source(os.path.join(builder.given.directory, name)) as source:
        return read_whole(source, len(data)) == data


# ---- what goes


def _removed(builder: PlanBuilder) -> Iterator[tuple[str, Iterator[Piece]]]:
    """By segment, its bytes that no file holds afterwards; not those of segments that a .swap file replaces."""
    kept: dict[str, list[Piece]] = {}
    replaced: list[tuple[int, int]] = []
    for name, content in builder.after.items():
        for piece in () if content is None else content.pieces:
            kept.setdefault(piece.name, []).append(piece)
            number = number_of(name)
            if piece.name.endswith(".log.swap") and name.endswith(".log") and number is not None:
                replaced.append((number, builder.ranges.within(piece).last_offset or number))
    for name in sorted(builder.given.sizes):
        number = number_of(name)
        if name not in builder.after or not name.endswith(builder.given.suffix):
            continue
        if number is None or not any(first <= number <= last for first, last in replaced):
            yield name, builder.between(name, kept.get(name, []))


def _bytes_needed(builder: PlanBuilder, name: str, content: FileContent | None) -> int:
    """How many bytes are written before anything goes."""
    given = builder.given
    if content is None:
        return 0
    if content.data is not None:
        return len(content.data)
    if not content.is_rebuilt:
        size = sum(piece.stop - piece.start for piece in content.pieces)
        same = len(content.pieces) == 1 and content.pieces[0][:2] == (name, 0)
        moved = content.pieces == given.whole_file(content.pieces[0].name)
        if same and not _is_linked(builder, name):
            return _tail_bytes(builder, name, size)
        return 0 if moved else size
    stem = name.partition(".")[0] + given.suffix
    log = builder.after.get(stem)
    size = given.sizes.get(stem, 0) if log is None else sum(piece.stop - piece.start for piece in log.pieces)
    entries = 20 * (size // max(1, given.options.index_interval_bytes) + 1)
    kind = name[name.rfind(".") :]
    # The number of producers is not known yet. Those before needed as much as the largest file has.
    before = [size for other, size in given.sizes.items() if other.endswith(kind) and kind in _DEPEND_ON_PRODUCERS]
    return max([entries, *before])


def _tail_bytes(builder: PlanBuilder, name: str, start: int) -> int:
    """How many bytes a copy of the end of a file takes, which leaves out zeros; at most, where a batch has many."""
    stop = builder.given.sizes[name]
    ranges = list(_blocks_without_batches(builder.given, name, start))
    try:
        with open_source(os.path.join(builder.given.directory, name)) as source:
            return stop - start - sum(end - begin - filled_bytes(source, begin, end) for begin, end in ranges)
    except (SourceError, OSError, EOFError):
        return stop - start  # it is gone or shorter, which applying reports


def _blocks_without_batches(given: PlanInput, name: str, start: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole blocks, counted from `start`, in which something is no batch. Only these can be zeros."""
    stop = given.sizes[name]
    found = [one for one in given.report.findings if os.path.basename(one.path) == name and one.code in _WITHOUT_BATCH]
    end = start
    for position, length in sorted((finding.position, finding.length) for finding in found):
        first = max(end, start + (position - start) // BLOCK_BYTES * BLOCK_BYTES)
        end = max(end, min(stop, start - (start - position - length) // BLOCK_BYTES * BLOCK_BYTES))
        if first < end:
            yield first, end


def _is_linked(builder: PlanBuilder, name: str) -> bool:
    """Whether a file has a second name: then it is written again instead of being truncated."""
    try:
        return status_of(os.path.join(builder.given.directory, name)).st_nlink > 1
    except OSError:
        return False  # it is gone, which applying reports
