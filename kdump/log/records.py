"""The records of a log from an offset on, as an iterator that reports the damage it skips."""

from collections.abc import Callable, Iterator
from typing import Final, Self

from kdump.errors import OffsetOutOfRange
from kdump.format.record import Record
from kdump.log.damage import DamagedRange
from kdump.log.segment_readers import SegmentReaders

READ_BYTES: Final = 1 << 20
"""The most bytes that a read returns, unless the caller says otherwise."""


class DamageWarning(UserWarning):
    """An iteration over the records of a log skipped damage, and the caller gave no `on_damage`."""


class Records(Iterator[Record]):
    """An iterator over the records of a log, in the order of their offsets. It can be iterated over once.

    `damage` lists the skipped bytes in the order of the log, as FetchDataInfo.damage does for one read; it grows during
    the iteration.
    """

    __slots__ = ("_iterator", "_report")

    def __init__(
        self,
        segments: SegmentReaders,
        offset: int,
        max_message_bytes: int,
        *,
        control: bool,
        on_damage: Callable[[DamagedRange], object] | None,
    ) -> None:
        start, end = segments.start_offset, segments.end_offset
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        self._report = _DamageReport(on_damage)
        # The generator does not refer to this object: in a reference cycle, files would stay open until the next
        # garbage collection.
        self._iterator = _iterate(segments, offset, max_message_bytes, control, self._report)

    @property
    def damage(self) -> list[DamagedRange]:
        """The ranges that were skipped so far."""
        return self._report.damage

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        return next(self._iterator)


class _DamageReport:
    """Collects skipped ranges, and hands each to the caller's function.

    Without one, the first range gives a warning.
    """

    def __init__(self, on_damage: Callable[[DamagedRange], object] | None) -> None:
        self.damage: list[DamagedRange] = []
        self._on_damage = on_damage

    def add(self, skipped: DamagedRange) -> None:
        self.damage.append(skipped)
        if self._on_damage is not None:
            self._on_damage(skipped)
        elif len(self.damage) == 1:
            import warnings  # not needed for a valid log

            end = skipped.position + skipped.length
            warnings.warn(
                f"{skipped.path}: bytes {skipped.position} to {end} are skipped: {skipped.code}; the attribute damage "
                f"of Log.records() lists every skipped range",
                DamageWarning,
                stacklevel=4,  # where the caller asks for the next record
            )


def _iterate(
    segments: SegmentReaders, offset: int, max_message_bytes: int, control: bool, report: _DamageReport
) -> Iterator[Record]:
    while offset < segments.end_offset:
        fetched = segments.read(offset, READ_BYTES, max_message_bytes)
        reported = 0
        for batch, body in fetched.lazy_batches():
            if control or not batch.control:
                found = fetched.records_of(batch, body)
                for each in fetched.damage[reported:]:
                    report.add(each)
                reported = len(fetched.damage)
                yield from found
        for each in fetched.damage[reported:]:
            report.add(each)
        offset = fetched.next_offset
    for each in segments.damage_at_end():
        if each not in report.damage:
            report.add(each)
