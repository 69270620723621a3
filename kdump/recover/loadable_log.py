"""What has to go before a broker loads a topic-partition directory.

Its start is predicted again and again, each time without what it refused. Nothing is written.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.broker.file_records import CorruptRecord, FileRecords, ReadBuffer, UncaughtReadError
from kdump.broker.predict import predict_start, recover_segment
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import DirectoryState, LoadResult, Refusal
from kdump.broker.valid_segment import ValidSegment
from kdump.errors import SourceError
from kdump.format.index import MAX_SEGMENT_BYTES
from kdump.format.naming import (
    COMPANION_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    Kind,
    number_of,
    segment_file_name,
)
from kdump.storage.partition import LogFile, Segment
from kdump.storage.pieces import Piece, PiecesSource, open_pieces
from kdump.storage.ranges import SegmentRange
from kdump.verify.findings import Finding, Severity
from kdump.verify.reaction import is_valid_log
from kdump.verify.scan import ScanOptions, ScanTask, scan

_MOST_ATTEMPTS: Final = 10_000

_CODES: Final[Mapping[RefusalReason, str]] = {
    RefusalReason.FILE_NAME: "file/name",
    RefusalReason.FILE_SIZE: "tail/garbage",
    RefusalReason.LEADER_EPOCHS: "epoch/format",
    RefusalReason.PARTITION_METADATA: "metadata/format",
    RefusalReason.TRANSACTION_INDEX: "txnindex/version",
    RefusalReason.SEGMENT_SPLIT: "offset/range",
    RefusalReason.TRANSACTION_STATE: "txn/state",
    RefusalReason.TRANSACTION_MARKER: "offset/backwards",
    RefusalReason.CONTROL_RECORD: "control/structure",
    RefusalReason.OFFSET_ORDER: "offset/backwards",
    RefusalReason.BATCH_SIZE: "batch/length",
    RefusalReason.WRAPPER_MESSAGE: "legacy/wrapper",
}
"""The code of the finding about a refusal, by its reason."""


class LogView:
    """A directory as it would be: its files by name, each as pieces of the files on disk.

    `reasons` has the code of the finding about each file that differs from the one on disk.
    """

    def __init__(self, directory: str, sizes: Mapping[str, int]) -> None:
        self.directory = directory
        self.pieces: dict[str, tuple[Piece, ...]] = {
            name: (Piece(name, 0, size),) if size else () for name, size in sizes.items()
        }
        self.reasons: dict[str, str] = {}

    def size(self, name: str) -> int:
        return sum(piece.stop - piece.start for piece in self.pieces[name])

    def open(self, name: str) -> PiecesSource:
        """Raises SourceError."""
        return open_pieces(self.directory, self.pieces[name], name)

    def part(self, name: str, start: int, size: int) -> tuple[Piece, ...]:
        """The pieces of [start, start + size) of a file."""
        found = []
        for piece in self.pieces[name]:
            length = piece.stop - piece.start
            begin, end = max(0, start), min(length, start + size)
            if begin < end:
                found.append(Piece(piece.name, piece.start + begin, piece.start + end))
            start -= length
        return tuple(found)

    def remove(self, name: str, code: str) -> None:
        if self.pieces.pop(name, None) is not None:
            self.reasons[name] = code

    def cut(self, name: str, position: int, code: str) -> None:
        self.pieces[name] = self.part(name, 0, position)
        self.reasons[name] = code

    def rename(self, name: str, target: str, code: str) -> None:
        self.pieces[target] = self.pieces.pop(name)
        self.reasons[name] = self.reasons[target] = code

    def untouched(self, name: str, size: int) -> bool:
        return self.pieces.get(name) == ((Piece(name, 0, size),) if size else ())


class LoadableLog:
    """A view that a broker loads, and the `result` of its start.

    `refusals` and `later_refusals` are those of the directory as it is. `valid_pieces` are segments of the view that
    are known to be valid, each as its pieces, `valid_prefixes` those of which the first `valid_bytes` are left.
    """

    def __init__(
        self,
        view: LogView,
        valid_segments: Mapping[str, ValidSegment],
        findings: Iterable[Finding],
        start: DirectoryState,
        valid_pieces: Mapping[str, tuple[tuple[Piece, ...], ValidSegment]],
        valid_prefixes: Mapping[str, Sequence[ValidSegment]],
    ) -> None:
        self.view = view
        self._valid_prefixes = valid_prefixes
        self._valid_pieces = valid_pieces
        self._sizes = start.files
        self._valid_segments = valid_segments
        self._findings = [finding for finding in findings if finding.severity >= Severity.WARNING]
        self._start = start
        self.epochs_are_lost = False
        first = self.predict(start.recovery_point)
        self.refusals, self.later_refusals = first.refusals, first.later_refusals
        self._remove_harmful()
        # Where nothing was left out, the first prediction holds.
        self.result = self._without_refused() if first.refuses or view.reasons else first

    def is_valid(self, name: str, pieces: tuple[Piece, ...]) -> bool:
        """Whether the segment that has these pieces is known to be valid."""
        known = self._valid_pieces.get(name)
        return known is not None and known[0] == pieces

    def predict(self, recovery_point: int) -> LoadResult:
        """What a start leaves of the view. Raises SourceError."""
        view = self.view
        planned = {
            name: valid for name, (pieces, valid) in self._valid_pieces.items() if view.pieces.get(name) == pieces
        }
        untouched = {
            name: valid for name, valid in self._valid_segments.items() if view.untouched(name, self._sizes[name])
        }
        cut = {
            name: valid._replace(valid_bytes=None)
            for name, prefixes in self._valid_prefixes.items()
            for valid in prefixes
            if view.pieces.get(name) == (Piece(name, 0, valid.valid_bytes or 0),)
        }
        return predict_start(
            self._start._replace(
                files={name: view.size(name) for name in view.pieces},
                open=view.open,
                valid_segments=planned | cut | untouched,
                recovery_point=recovery_point,
            )
        )

    def _without_refused(self) -> LoadResult:
        for _ in range(_MOST_ATTEMPTS):
            result = self.predict(self._start.recovery_point)
            if not result.refuses:
                return result
            before = dict(self.view.pieces)
            self._remove(result.refusals)
            if self.view.pieces == before:
                break
        raise SourceError(f"{self.view.directory}: no part of it was found that a broker would load")

    def _remove_harmful(self) -> None:
        """Remove files with which a broker does harm.

        A log with a short name: a broker does not read it, and creates an empty segment in its place. A damaged
        replacement (.swap) beside the segment that it replaces: a broker replaces the segment and truncates.
        """
        for name in sorted(self._sizes):
            number = number_of(name)
            if (
                name.endswith(".log")
                and number is not None
                and (name != segment_file_name(number, ".log") or number < 0)
            ):
                self.view.remove(name, "file/name")
        for name in sorted(self._sizes):
            number = number_of(name)
            if not name.endswith(".log.swap") or number is None or segment_file_name(number, ".log") not in self._sizes:
                continue
            log = LogFile(os.path.join(self.view.directory, name), Kind.LOG, number, False, self._sizes[name])
            summary = scan(ScanTask(SegmentRange(Segment(log)), ScanOptions()))
            if summary.error is not None or not is_valid_log(code for code, _ in summary.counts):
                for other in list(self.view.pieces):
                    if other.endswith(".swap") and number_of(other) == number:
                        self.view.remove(other, "file/leftover")

    def _remove(self, refusals: tuple[Refusal, ...]) -> None:
        """Remove what is refused: files at once, of batches only the first, since others may follow from it."""
        first: Refusal | None = None
        for refusal in refusals:
            code = _CODES[refusal.reason]
            match refusal.reason:
                case RefusalReason.FILE_NAME | RefusalReason.TRANSACTION_INDEX:
                    self.view.remove(refusal.name, code)
                case RefusalReason.LEADER_EPOCHS if refusal.name == LEADER_EPOCH_CHECKPOINT:
                    self.epochs_are_lost = True
                    self.view.remove(LEADER_EPOCH_CHECKPOINT, code)
                case RefusalReason.PARTITION_METADATA:
                    self.view.remove(PARTITION_METADATA, code)
                case _:
                    first = first or refusal
        if first is not None and first.name in self.view.pieces:
            # A batch is refused for its leader epoch where its offset is below zero.
            is_epoch = first.reason is RefusalReason.LEADER_EPOCHS
            self._cut(first, "offset/range" if is_epoch else _CODES[first.reason])

    def _cut(self, refusal: Refusal, code: str) -> None:
        name = refusal.name
        if not name.endswith(".log"):
            self.view.remove(name, code)  # a replacement that a broker cannot use
            return
        position = refusal.position
        if refusal.reason is RefusalReason.FILE_SIZE:
            position = MAX_SEGMENT_BYTES
        elif refusal.reason is RefusalReason.SEGMENT_SPLIT:
            base = number_of(name)
            if base is not None and self._renamed(name, base, code):
                return
            position = None if base is None else self._overflow(name, base)
        if position is None:
            position = self._reported_position(name)
        if position >= self.view.size(name):
            position = 0
        self.view.cut(name, position, code)
        for later in self._later(name):
            self.view.remove(later, code)

    def _overflow(self, name: str, base: int) -> int | None:
        """Where a recovery meets an offset that the segment cannot hold, None where it breaks off before."""
        valid = self._valid_segments.get(name)
        if valid is not None and valid.disorder is not None and self.view.untouched(name, self._sizes[name]):
            overflow, refused = valid.disorder.overflow, valid.disorder.refused
            return overflow if refused is None or (overflow is not None and overflow <= refused) else None
        with self.view.open(name) as source:
            return recover_segment(source, base).overflow

    def _reported_position(self, name: str) -> int:
        """Where verify found a wrong offset, 0 where it found none."""
        of = [
            finding
            for finding in self._findings
            if finding.code in ("offset/backwards", "offset/range") and os.path.basename(finding.path) == name
        ]
        return min((finding.position for finding in of), default=0)

    def _later(self, name: str) -> Iterator[str]:
        """The files of the segments after one: a log ends where it is truncated."""
        base = number_of(name)
        for other in list(self.view.pieces):
            number = number_of(other)
            if base is None or number is None or number <= base:
                continue
            if other.endswith(SEGMENT_SUFFIXES):
                yield other

    def _renamed(self, name: str, base: int, code: str) -> bool:
        """Rename a segment to the offset of its first batch; False where another segment has these offsets."""
        with self.view.open(name) as source:
            file = FileRecords(ReadBuffer(), lambda: source, 0, source.size)
            try:
                first = next(file.batches(0, source.size), None)
                offset = None if first is None else file.first_offset(first)
            except (CorruptRecord, UncaughtReadError):
                return False
            if offset is None or not 0 <= offset < base:
                return False
            end = recover_segment(source, offset).next_offset
        bases = sorted(
            number for other in self.view.pieces if other.endswith(".log") and (number := number_of(other)) is not None
        )
        if offset in bases:
            return False
        bases.remove(base)
        at = bisect_left(bases, offset)
        if at and self._end_of(bases[at - 1]) > offset:
            return False
        if at < len(bases) and bases[at] < base and end > bases[at]:
            return False
        self.view.rename(name, segment_file_name(offset, ".log"), code)
        for suffix in COMPANION_SUFFIXES:
            self.view.remove(segment_file_name(base, suffix), code)
        return True

    def _end_of(self, base: int) -> int:
        """The next offset after the last batch of a segment."""
        name = segment_file_name(base, ".log")
        valid = self._valid_segments.get(name)
        if valid is not None and valid.disorder is None:
            return valid.next_offset
        with self.view.open(name) as source:
            return recover_segment(source, base).next_offset
