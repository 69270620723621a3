"""Which messages of a wrapper message a new log can have: their offsets rise, and the last one has that of the wrapper.

In magic 0 the messages have offsets of their own, which nothing else shows.
"""

from typing import NamedTuple

from kdump.format.batch import Batch
from kdump.log.damage import MISPLACED, DamagedRange
from kdump.log.ranges import OffsetRange, united, without
from kdump.storage.records import DecodedBatch, chosen_rows
from kdump.verify.findings import Severity


class MessagesInPlace(NamedTuple):
    """Messages that a new log can have.

    `damaged` says what is wrong with the others, or with the wrapper; `hole` are offsets that no message has.
    """

    inside: DecodedBatch
    damaged: DamagedRange | None = None
    hole: OffsetRange | None = None


def messages_in_place(
    path: str, batch: Batch, opened: DecodedBatch, lowest: int, highest: int, following: int
) -> MessagesInPlace:
    """The messages from `lowest` to `highest`, and from `following` on, before which other records were written."""
    begin, last = max(lowest, following), min(highest, batch.last_offset)
    is_behind = lowest <= opened.first_offset < following or opened.first_offset > batch.last_offset
    is_right = opened.last_offset == batch.last_offset and not is_behind
    if opened.problem is not None or not opened.records or is_right:
        # What comes after a bad message would show its offsets wrong. Where they do not rise, the encoder says so.
        if opened.first_offset >= begin and batch.last_offset <= highest and opened.problem is None:
            return MessagesInPlace(opened)
        return MessagesInPlace(opened.select(begin, (last if opened.problem is not None else highest) + 1, None))
    found, kept, before = opened.offsets(), list[int](), begin - 1
    for number, offset in enumerate(found):
        if before < offset <= last:
            kept.append(number)
            before = offset
    first = begin if following > lowest else max(lowest, min(found))
    own = united(OffsetRange(found[number], found[number] + 1) for number in kept)
    absent = without([OffsetRange(first, last + 1)], own) if first <= last else []
    hole = OffsetRange(absent[0].start, absent[-1].stop) if absent else None
    damaged = None
    if len(kept) < sum(lowest <= offset <= highest for offset in found):
        damaged = DamagedRange(path, batch.position, batch.size, "offset/backwards")
    elif hole is not None:
        damaged = DamagedRange(path, batch.position, 0, MISPLACED, Severity.ERROR, hole.start, hole.last)
    return MessagesInPlace(opened.choose(lambda of: chosen_rows(of.rows, kept), None), damaged, hole)
