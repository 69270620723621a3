"""What has to go before a broker takes a topic-partition directory: its start is foreseen again and again, each time without what it refused.

A View is the directory as it would be, over the files as they are. Nothing is written.
"""

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kdump.broker.file_records import CorruptRecord, FileRecords, ReadBuffer, UncaughtReadError
from kdump.broker.log_loader import EPOCHS, METADATA
from kdump.broker.predict import predict_start, recover_segment
from kdump.broker.result import DirectoryState, LoadResult, Refusal, ValidSegment
from kdump.errors import SourceError
from kdump.format.index import MAX_SEGMENT_BYTES
from kdump.format.naming import COMPANION_SUFFIXES, SEGMENT_SUFFIXES, Kind, file_name, number_of
from kdump.storage.partition import LogFile, Segment
from kdump.storage.pieces import Piece, opened
from kdump.storage.ranges import SegmentRange
from kdump.storage.source import PiecesSource
from kdump.verify.findings import Finding, Severity
from kdump.verify.reaction import is_valid_log
from kdump.verify.scan import ScanTask, VerifyOptions, scan

_MOST_MENDS: Final = 10_000

_CODES: Final[Mapping[str, str]] = {
    "name": "file/name",
    "size": "tail/garbage",
    "epochs": "epoch/format",
    "metadata": "metadata/format",
    "txnindex": "txnindex/version",
    "split": "offset/range",
    "transaction": "txn/state",
    "marker": "offset/backwards",
    "control": "control/structure",
    "backwards": "offset/backwards",
    "walk": "batch/length",
    "wrapper": "legacy/wrapper",
}
"""The finding behind a refusal, by its word."""


class LogView:
    """The files of a directory by name, each as pieces of files as they are. `reasons` says why what is not as it was is not: finding codes by name."""

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
        return opened(self.directory, self.pieces[name], name)

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


class AcceptedLog:
    """A view that a broker loads, and what its start makes of it."""

    def __init__(
        self, view: LogView, proved: Mapping[str, ValidSegment], findings: Iterable[Finding], start: DirectoryState
    ) -> None:
        self.view = view
        self._sizes = start.files
        self._proved = proved
        self._findings = [finding for finding in findings if finding.severity >= Severity.WARNING]
        self._start = start
        self.epochs_are_lost = False
        first = self.foresee(start.recovery_point)
        self.refusals = first.refusals
        self._without_worse()
        # Where nothing was left out, what was foreseen holds.
        self.outcome = self._mend() if first.refuses or view.reasons else first

    def foresee(self, recovery_point: int) -> LoadResult:
        """What a start makes of the view. Raises SourceError."""
        view = self.view
        return predict_start(
            self._start._replace(
                files={name: view.size(name) for name in view.pieces},
                open=view.open,
                proved={
                    name: proved for name, proved in self._proved.items() if view.untouched(name, self._sizes[name])
                },
                recovery_point=recovery_point,
            )
        )

    def _mend(self) -> LoadResult:
        for _ in range(_MOST_MENDS):
            outcome = self.foresee(self._start.recovery_point)
            if not outcome.refuses:
                return outcome
            self._without(outcome.refusals)
        raise SourceError(f"{self.view.directory}: nothing that a broker would load could be made of it")

    def _without_worse(self) -> None:
        """Leave out what a broker would do harm with: a log with a short name, which it does not read but makes an empty segment of, and replacements that are damaged.

        Of a finished replacement (.swap) what it replaces may still be there: a broker would put it in place and cut it.
        """
        for name in sorted(self._sizes):
            number = number_of(name)
            if name.endswith(".log") and number is not None and (name != file_name(number, ".log") or number < 0):
                self.view.remove(name, "file/name")
        for name in sorted(self._sizes):
            number = number_of(name)
            if not name.endswith(".log.swap") or number is None or file_name(number, ".log") not in self._sizes:
                continue
            log = LogFile(os.path.join(self.view.directory, name), Kind.LOG, number, False, self._sizes[name])
            summary = scan(ScanTask(SegmentRange(Segment(log)), VerifyOptions()))
            if summary.error is not None or not is_valid_log(code for code, _ in summary.counts):
                for other in list(self.view.pieces):
                    if other.endswith(".swap") and number_of(other) == number:
                        self.view.remove(other, "file/leftover")

    def _without(self, refusals: tuple[Refusal, ...]) -> None:
        """Take away what is refused. What goes as a whole goes at once; of batches the first one, since what follows may be of its making."""
        first: Refusal | None = None
        for refusal in refusals:
            code = _CODES[refusal.word]
            match refusal.word:
                case "name" | "txnindex":
                    self.view.remove(refusal.name, code)
                case "epochs":
                    self.epochs_are_lost = True
                    self.view.remove(EPOCHS, code)
                case "metadata":
                    self.view.remove(METADATA, code)
                case _:
                    first = first or refusal
        if first is not None and first.name in self.view.pieces:
            self._cut(first, _CODES[first.word])

    def _cut(self, refusal: Refusal, code: str) -> None:
        name = refusal.name
        if not name.endswith(".log"):
            self.view.remove(name, code)  # a replacement that cannot be used
            return
        position = refusal.position
        if refusal.word == "size":
            position = MAX_SEGMENT_BYTES
        elif refusal.word == "split":
            base = number_of(name)
            if base is not None and self._renamed(name, base, code):
                return
            with self.view.open(name) as source:
                position = None if base is None else recover_segment(source, base).overflow
        if position is None:
            position = self._told(name)
        if position >= self.view.size(name):
            position = 0
        self.view.cut(name, position, code)
        for later in self._later(name):
            self.view.remove(later, code)

    def _told(self, name: str) -> int:
        """Where verify saw offsets go wrong; the beginning where it did not."""
        of = [
            finding
            for finding in self._findings
            if finding.code in ("offset/backwards", "offset/range") and os.path.basename(finding.path) == name
        ]
        return min((finding.position for finding in of), default=0)

    def _later(self, name: str) -> Iterator[str]:
        """What belongs to the segments behind one: a log ends where it is cut."""
        base = number_of(name)
        for other in list(self.view.pieces):
            number = number_of(other)
            if base is None or number is None or number <= base:
                continue
            if other.endswith(SEGMENT_SUFFIXES):
                yield other

    def _renamed(self, name: str, base: int, code: str) -> bool:
        """Give a segment the name of its first batch, where no other segment is in the way."""
        with self.view.open(name) as source:
            file = FileRecords(ReadBuffer(), lambda: source, 0, source.size)
            try:
                first = next(file.batches(0, source.size), None)
                offset = None if first is None else file.first_offset(first)
            except (CorruptRecord, UncaughtReadError):
                return False
            end = base if offset is None or offset < 0 else recover_segment(source, offset).next_offset
        bases = sorted(
            number for other in self.view.pieces if other.endswith(".log") and (number := number_of(other)) is not None
        )
        if offset is None or not 0 <= offset < base or offset in bases:
            return False
        bases.remove(base)
        at = bisect_left(bases, offset)
        if at and self._end_of(bases[at - 1]) > offset:
            return False
        if at < len(bases) and bases[at] < base and end > bases[at]:
            return False
        self.view.rename(name, file_name(offset, ".log"), code)
        for suffix in COMPANION_SUFFIXES:
            self.view.remove(file_name(base, suffix), code)
        return True

    def _end_of(self, base: int) -> int:
        """The offset behind the last batch of a segment, as far as that is known."""
        name = file_name(base, ".log")
        proved = self._proved.get(name)
        if proved is not None:
            return proved.next_offset
        with self.view.open(name) as source:
            return recover_segment(source, base).next_offset
