"""The search for the next batch of a log after bytes that are not a valid batch.

The bad frame at `start` claims to end at some position. Four things can show where it ends.

1. The claimed end, where it is a message whose checksum is right with another magic: only the magic is wrong.
2. The claimed end, where a header is there whose offset continues the last offset of the bad frame. A wrong length can
   lead into a value, so where it may, the checksum counts before it.
3. Its checksum, which does not cover the length: the first position up to which it is right, and where an offset that
   can follow, a valid batch, zeros or the end are. Then only the length was wrong.
4. The claimed end, where a valid batch with a higher offset is there, unless valid frames without a gap between the
   offsets fill the bytes before it.

Else the frames after `start` are searched. One counts if its checksum is right, its offset lies above the last valid
one and within the segment, its leader epoch does not go back, and it is linked: the valid frames from it on lead to the
end, to zeros, to a torn batch, to a header that can follow, or over CHAIN_BYTES. But the batches before `start` may be
those of a block that was written to the wrong place: a frame of the segment with a lower offset or leader epoch counts
as well, where the frames from it on lead further without a gap (`_leads_on`). The value of a record can contain whole
batches. So a frame before the claimed end of a plausible header has to show more (`_is_of_log`). All other valid frames
are foreign, or undecided where the bytes around do not show whose they are. The search gives up when it has checksummed
SEARCH_FACTOR times the bytes that it passed.
"""

from typing import TYPE_CHECKING, Final

from kdump.errors import SourceError
from kdump.format.batch import (
    CODEC_MASK,
    LAST_OFFSET_DELTA_AT,
    LOG_OVERHEAD,
    MINIMUM_SIZE,
    UP_TO_MAGIC,
    header_at,
    last_offset_delta_at,
)
from kdump.format.legacy import KEY_LENGTH_AT
from kdump.format.record import record_fields
from kdump.kernel.crc import crc32, until
from kdump.kernel.records import count_records
from kdump.kernel.scan import HEADER_BYTES, find, is_zero, stored
from kdump.named_tuple import NamedTuple
from kdump.storage.chains import CHAIN_BYTES, LARGE, NO_EPOCH, Chain, ChainWindow
from kdump.storage.frames import FOREIGN_KEPT, LENGTH, SEARCH_ALLOWANCE, SEARCH_FACTOR, SHORT, VALID, Frame
from kdump.storage.window import BUFFER_BYTES, SourceWindow

if TYPE_CHECKING:
    from kdump.kernel.scanner import BatchScanner

FOREIGN_FACTOR = 8
END_BYTES = (1 << 20) + (64 << 10)
"""So far an end is searched by checksum."""

_WINDOW_BYTES: Final = 512 << 10
_FIRST_BYTES: Final = 128 << 10
_OFFSET_BYTES: Final = 8
_SLACK: Final = 9  # a batch ends with at most so many zeros of its own: a count of headers, the end mark of lz4
_SECTOR: Final = 512
_SPAN: Final = (1 << 31) - 1


class PassedFrame(NamedTuple):
    """A valid frame that is not of the log, or `undecided`: nothing shows whether it is."""

    position: int
    length: int
    offset: int
    undecided: bool


class NextBatch(NamedTuple):
    """Where the log goes on, None where nothing was found.

    `by_checksum`: the checksum of the bad frame shows that it ends there. `unsearched`: where the search gave up, or
    where it found more undecided frames than are kept. `goes_back`: the offset of the batch is not above the last one.
    """

    position: int | None
    by_checksum: bool
    foreign: list[PassedFrame]
    unsearched: int | None = None
    goes_back: bool = False


class BadHeader(NamedTuple):
    """The header of a bad frame. `lasts`: what its last offset can be, by the layouts of magic 0 and 2.

    `end`: where it claims to end; None where the header is not plausible. `batch_follows`: a valid batch with a higher
    offset is there.
    """

    start: int
    frame: Frame
    magic: int
    lasts: tuple[int, ...]
    end: int | None
    batch_follows: bool = False

    def last_by(self, magic: int) -> int:
        """The last offset by the layout of this magic."""
        return self.lasts[-1] if magic >= 2 else self.lasts[0]


class MessageValue(NamedTuple):
    """Where the value of a message begins, and its length."""

    begin: int
    length: int


class Verdict(NamedTuple):
    """Whether a valid frame is the next batch, up to where others are judged alike, and whether it may be one."""

    of_log: bool
    stop: int
    undecided: bool = False


class NextBatchSearch(ChainWindow):
    """Searches the next batch of a log, through the window of the walk `beside` as far as it goes, and one of its own.

    `scanner` is that of the walk, and knows the last offset and the last leader epoch.
    """

    def __init__(
        self,
        beside: SourceWindow,
        scanner: "BatchScanner",
        max_batch_bytes: int,
        buffer_bytes: int = BUFFER_BYTES,
        base_offset: int = 0,
    ) -> None:
        super().__init__(beside.source, min(buffer_bytes, _WINDOW_BYTES), beside)
        self._beside, self._own = beside, memoryview(bytearray())  # most searches need no buffer of their own
        self._ahead = _FIRST_BYTES
        self.scanner = scanner
        self._base = base_offset
        self._max_batch_bytes = max_batch_bytes

    def next_batch(self, start: int, frame: Frame) -> NextBatch:
        """Where the log goes on after the bad frame at `start`, and what was passed before that."""
        try:
            across = self._frames_across(start)  # first: the window that it reads has the bad frame
            found = self._next_batch(self._bad_header(start, frame))
        finally:
            self._leave_window()
        return found._replace(foreign=[*across, *found.foreign]) if across else found

    def _next_batch(self, bad: BadHeader) -> NextBatch:
        start, frame = bad.start, bad.frame
        end: int | None = start + frame.total
        by_checksum = False
        if not self._is_other_magic(bad):
            end, by_checksum = self._confirmed_end(bad)
        if end is None:
            end = self._checksum_end(bad)
            by_checksum = end not in (None, start + frame.total)
        if end is not None:
            passed = self._search(bad._replace(end=end), end, False)
            return NextBatch(end, by_checksum, passed.foreign)
        if bad.end is not None and self._batch_follows(bad, bad.end):
            found = self._search(bad._replace(batch_follows=True), bad.end, True)
            return NextBatch(bad.end if found.position is None else found.position, False, found.foreign)
        return self._search(bad, self._end, True)

    # ---- what is read

    def _load(self, position: int, need: int) -> int:
        """As SourceWindow has it. Little is read at first: most searches end soon."""
        at = position - self._origin
        if 0 <= at and at + need <= self._filled:
            return at
        window, origin, filled = self._beside.window
        if 0 <= position - origin and position - origin + need <= filled:
            self._window, self._origin, self._filled = window, origin, filled
            return position - origin
        goes_on = self._window is self._own and self._origin < position <= self._origin + self._filled
        self._ahead = min(2 * self._ahead, self._buffer_bytes) if goes_on else _FIRST_BYTES
        size = max(need, min(self._ahead, self._end - position))
        if size > len(self._own) or len(self._own) > self._buffer_bytes >= size:
            self._own = memoryview(bytearray(max(size, self._buffer_bytes)))
        self._window, self._origin = self._own, position
        self._filled = self._read(position, self._own[: max(0, min(size, self._end - position))])
        return 0

    def _read(self, position: int, buffer: memoryview) -> int:
        """What the window beside has is not read again."""
        window, origin, filled = self._beside.window
        at = position - origin
        known = window[at : min(filled, at + len(buffer))] if 0 <= at < filled else window[:0]
        buffer[: len(known)] = known
        if len(known) == len(buffer):
            return len(known)
        ahead = self._beside.read_ahead or self.source
        return len(known) + ahead.readinto(position + len(known), buffer[len(known) :])

    def _leave_window(self) -> None:
        """The walk reads into its window again."""
        if self._window is not self._own:
            self._window, self._filled = self._own, 0

    # ---- the end of the bad frame

    def _bad_header(self, start: int, frame: Frame) -> BadHeader:
        at = self._load(start, min(HEADER_BYTES, self._end - start))
        header = bytes(self._window[at : min(at + HEADER_BYTES, self._filled)])
        magic = header[UP_TO_MAGIC - 1] if len(header) >= UP_TO_MAGIC else 0
        lasts: tuple[int, ...] = (frame.offset,)
        if len(header) >= LAST_OFFSET_DELTA_AT + 4:
            delta = last_offset_delta_at(header)
            lasts += (frame.offset + delta,) if delta >= 0 else ()
        lowest, highest = self.scanner.offset_bounds()
        end = start + frame.total if lowest <= frame.offset <= highest and frame.kind not in (LENGTH, SHORT) else None
        return BadHeader(start, frame, magic, lasts, end)

    def _is_other_magic(self, bad: BadHeader) -> bool:
        """Whether the checksum of a message is right once its magic, which it covers, is that of its lengths."""
        start, total = bad.start, bad.frame.total
        magics = [magic for magic in self._valid_layouts(bad) if magic != bad.magic and magic < 2]
        if not magics or total > min(END_BYTES, self._end - start):
            return False
        message = bytearray(self.bytes_at(start, total))
        for magic in magics if len(message) == total else ():  # else the file has shrunk
            message[UP_TO_MAGIC - 1] = magic
            expected, begin = stored(message, 0)
            if crc32(memoryview(message)[begin:]) == expected:
                return True
        return False

    def _confirmed_end(self, bad: BadHeader) -> tuple[int | None, bool]:
        """The claimed end where a header is there whose offset continues, and whether the checksum shows another."""
        end = bad.start + bad.frame.total
        if bad.frame.total < LOG_OVERHEAD + MINIMUM_SIZE[0] or bad.frame.offset < 0 or self._end - end < UP_TO_MAGIC:
            return None, False
        at = self._load(end, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return None, False
        _, _, offset, _, possible = self.scanner.look(self._window, at, self._end - end)
        if self._window[at + UP_TO_MAGIC - 1] > 2 or not possible or offset - 1 not in bad.lasts:
            return None, False
        try:
            if self._ends_with_records(bad):
                return end, False
            # No checksum is searched further than END_BYTES, so a longer chain shows no more.
            chain = self._chain(end, offset - 1, NO_EPOCH, end + END_BYTES)
            doubtful = chain.end > end and self._may_lie_in_value(bad, chain)
        except SourceError:
            return end, False  # the walk reports it where it comes to these bytes
        if doubtful and (other := self._checksum_end(bad)) is not None:
            return other, other != end
        return end, False

    def _ends_with_records(self, bad: BadHeader) -> bool:
        """Whether a message, or the records of a batch that is not compressed, end exactly where its length says.

        No value reaches over this end then, so that the frames there are not in a value of it.
        """
        if bad.magic < 2:
            return bad.magic in self._valid_layouts(bad)
        size = bad.frame.total - HEADER_BYTES
        if bad.magic > 2 or not 0 < size <= END_BYTES:
            return False
        at = self._load(bad.start, HEADER_BYTES)  # first: it may change the window
        if self._filled - at < HEADER_BYTES:
            return False  # the file has shrunk
        header = header_at(self._window, at)
        if header.attributes & CODEC_MASK or header.records_count <= 0:
            return False
        records, status = count_records(self.bytes_at(bad.start + HEADER_BYTES, size), header.records_count)
        return records == header.records_count and status == 0

    def _may_lie_in_value(self, bad: BadHeader, chain: Chain) -> bool:
        """Whether the valid frames at the claimed end can be in a value of the bad frame, whose length is wrong then.

        A value of magic 0 or 1 ends where its message does, so that frames in it lead to the next message.
        """
        at_tail = not chain.cut and (self._end - chain.end < UP_TO_MAGIC or self._zeros(chain.end))
        return bad.magic < 2 or at_tail or not self._is_linked(chain)

    def _checksum_end(self, bad: BadHeader) -> int | None:
        """The first position up to which the checksum of the bad frame is right, where a batch or a tail can begin."""
        start, legacy = bad.start, bad.magic < 2
        least = start + LOG_OVERHEAD + MINIMUM_SIZE[min(bad.magic, 2)]
        if not self._in_segment(bad.frame.offset) or self._end < least:
            return None  # more than the length is wrong
        at = self._load(start, min(HEADER_BYTES, self._end - start))
        if self._filled - at < min(HEADER_BYTES, self._end - start):
            return None
        wanted, begin = stored(self._window, at)
        if wanted == bad.frame.offset == 0 == bad.frame.total - LOG_OVERHEAD:
            return None  # zeros
        position, value = start + begin, 0
        stop = min(self._end, start + END_BYTES)
        while position < stop:
            at = self._load(position, 1)
            index, value = until(self._window, at, min(self._filled, at + stop - position), value, wanted, legacy)
            if index == at:  # the file has shrunk
                return None
            position += index - at
            if value == wanted and position >= least and self._can_follow(bad, position):
                return position
        return None

    def _in_segment(self, offset: int) -> bool:
        """Whether the segment can have the offset, be it above the last one or not."""
        lowest, highest = self.scanner.offset_bounds()
        return offset >= 0 and (offset >= lowest or lowest - offset <= _SPAN) and offset <= max(highest, lowest)

    def _can_follow(self, bad: BadHeader, position: int) -> bool:
        if self._end - position < UP_TO_MAGIC or self._zeros(position):
            return True
        at = self._load(position, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return False
        offset = self.scanner.look(self._window, at, self._end - position).offset
        # The length or the magic of that header can be wrong as well, or its offset.
        return bad.frame.offset < offset <= bad.frame.offset + _SPAN or self._frame(position).kind == VALID

    def _batch_follows(self, bad: BadHeader, end: int) -> bool:
        frame = self._frame(end)
        return (
            frame.kind == VALID
            and frame.plausible
            and frame.epoch >= self.scanner.known_epoch
            and frame.offset > bad.frame.offset
        )

    # ---- frames across its beginning, and after it

    def _frames_across(self, start: int) -> list[PassedFrame]:
        """The valid frames that begin a few bytes before the bad one: a block may end with bytes that are the same."""
        lowest, highest, found = self._base, self.scanner.offset_bounds()[1], []
        for position in range(max(0, start - _OFFSET_BYTES), start):
            if self._end - position < UP_TO_MAGIC:
                break
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                break
            total, _, offset, _, possible = self.scanner.look(self._window, at, self._end - position)
            fits = possible and position + total > start and total <= min(LARGE, self._end - position)
            if fits and lowest <= offset <= highest and self._frame(position).kind == VALID:
                found.append(PassedFrame(position, total, offset, True))
        return found

    def _search(self, bad: BadHeader, stop: int, wanted: bool) -> NextBatch:
        """The first frame before `stop` that is of the log; none where it is not `wanted`."""
        known_epoch, bounds = self.scanner.known_epoch, self.scanner.offset_bounds()
        foreign: list[PassedFrame] = []
        sought = (min(self._base, bounds[0]) if wanted else bounds[0], bounds[1])
        work, lower_work, foreign_work, any_offset, position = 0, 0, 0, True, bad.start + 1
        verdict, known, unsearched = Verdict(False, 0), 0, None
        while position < stop and (left := self._end - position) >= UP_TO_MAGIC:
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                break
            found = find(self._window, at, self._filled, left, *sought, self._max_batch_bytes, any_offset)
            if found < 0:
                position = self._after_window(position, at)
                continue
            position += found - at
            if position >= stop:
                break
            total, plausible, offset, *_ = self.scanner.look(self._window, found, self._end - position)
            if not wanted and total > LARGE and position + total > stop:
                position += 1  # it is in no value of the bad frame, and to prove it would take long
                continue
            if not plausible and wanted and self._base <= offset < bounds[0]:
                is_within = lower_work <= FOREIGN_FACTOR * (position - bad.start + SEARCH_ALLOWANCE)
                lower_work += total
                if not is_within or (frame := self._frame(position)).kind != VALID:
                    position += 1
                    continue
            elif not plausible:
                # Zeros look like such a header every few bytes, so these have a budget of their own.
                any_offset = foreign_work <= FOREIGN_FACTOR * (position - bad.start) + SEARCH_ALLOWANCE
                foreign_work += total
                if not any_offset or (frame := self._frame(position)).kind != VALID:
                    position += 1
                    continue
            else:
                if work > SEARCH_FACTOR * (position - bad.start + SEARCH_ALLOWANCE):
                    return NextBatch(None, False, foreign, position)
                frame = self._frame(position)
                work += frame.total
                if frame.kind != VALID:
                    position += 1
                    continue
            undecided = False
            if wanted and (plausible or self._base <= frame.offset < bounds[0]):
                if position >= verdict.stop:
                    is_earlier = not plausible or frame.epoch < known_epoch
                    verdict = self._is_of_log(bad, position, frame, is_earlier=is_earlier)
                    if verdict.of_log:
                        return NextBatch(position, False, foreign, unsearched, goes_back=not plausible)
                # Those inside another one are in a value of it.
                undecided = verdict.undecided and position >= known
                known = position + frame.total if undecided else known
            if len(foreign) < FOREIGN_KEPT:
                foreign.append(PassedFrame(position, frame.total, frame.offset, undecided))
            elif undecided and unsearched is None:
                unsearched = position
            position += 1
        return NextBatch(None, False, foreign, unsearched)

    def _after_window(self, position: int, at: int) -> int:
        """The next position to search, after nothing was found in the window from index `at` on."""
        following = position + self._filled - at - UP_TO_MAGIC + 1
        if is_zero(self._window, at, self._filled):
            return max(following, self.source.data_from(position + self._filled - at) - UP_TO_MAGIC + 1)
        return following

    def _is_of_log(self, bad: BadHeader, position: int, frame: Frame, *, is_earlier: bool) -> Verdict:
        """Whether a valid frame is the next batch.

        `is_earlier`: its offset is not above the last one, or its leader epoch is lower, so that the batches before the
        damage contradict it.
        """
        inside = bad.end is not None and position < bad.end
        if position == bad.end:
            return Verdict(True, position)
        if bad.end is not None and inside and not bad.batch_follows and self._ends_at_tail(bad.end):
            return Verdict(False, position)
        stop = position + CHAIN_BYTES
        if bad.end is not None and inside and bad.end <= self._end:
            stop = bad.end if bad.batch_follows else max(stop, bad.end)
        chain = self._chain(position, frame.offset - 1, NO_EPOCH if is_earlier else self.scanner.known_epoch, stop)
        leads_on = not is_earlier or self._leads_on(chain)
        if bad.end is None or not inside:
            of_log = leads_on and self._is_linked(chain)
            return Verdict(of_log, chain.end, undecided=not of_log)
        if bad.batch_follows:
            fills = bad.magic == 2 and chain.end == bad.end and frame.offset == bad.last_by(2) + 1 and not is_earlier
            return Verdict(fills and self._frame(bad.end).offset == chain.last + 1, chain.end)
        of_log = leads_on and (chain.end > bad.end or self._is_outside(bad, position, frame, chain))
        return Verdict(of_log, position if of_log else chain.end, undecided=not of_log and self._ends_log(chain))

    def _is_outside(self, bad: BadHeader, position: int, frame: Frame, chain: Chain) -> bool:
        """Whether a frame before the claimed end of a bad one is in no value of it, by all that its header says."""
        assert bad.end is not None
        if not self._is_linked(chain) or self._lies_in_value(bad, position):
            return False
        if frame.offset <= bad.frame.offset and self._is_header(bad):
            return False
        for magic in self._valid_layouts(bad):
            last = bad.last_by(magic)
            if frame.offset <= last:
                return False
            if bad.end > self._end or self._zeros(bad.end):
                # The bad frame is torn, or bytes of it are missing. Disks lose whole sectors.
                torn = not (chain.cut or self._zeros(chain.end))
                if torn or (frame.offset == last + 1 and (bad.end - position) % _SECTOR):
                    return False
        return True

    def _ends_at_tail(self, end: int) -> bool:
        """Whether a batch that ends there is the last one: the file ends there, or its zeros begin there."""
        return end == self._end or (end < self._end and self._zeros(end) and not self._zeros(end - _SLACK))

    def _valid_layouts(self, bad: BadHeader) -> list[int]:
        """The magics by whose layouts the fields of the header agree with each other."""
        valid = []
        for magic in (0, 1):
            value = self._legacy_value(bad, magic)
            if value is not None and value.begin + max(value.length, 0) == bad.start + bad.frame.total:
                valid.append(magic)
        at = self._load(bad.start, min(HEADER_BYTES, self._end - bad.start))
        if self._filled - at >= HEADER_BYTES and bad.frame.total >= HEADER_BYTES:
            header = header_at(self._window, at)
            if header.attributes & 0xFF80 == 0 and 0 <= header.records_count <= header.last_offset_delta + 1:
                valid.append(2)
        return valid

    def _is_header(self, bad: BadHeader) -> bool:
        """Whether the bad frame has a header of this log, though some field of it may be wrong.

        Zeros and small numbers in records look like magic 0 and 1.
        """
        if bad.magic == 2 or bad.frame.offset == self.scanner.offset_bounds()[0] or self._valid_layouts(bad):
            return True
        return bad.magic < 2 and self._legacy_value(bad, bad.magic) is not None

    def _legacy_value(self, bad: BadHeader, magic: int) -> MessageValue | None:
        """The value of a message of magic 0 or 1, where its length is in the file."""
        position = bad.start + KEY_LENGTH_AT[magic]
        lengths: list[int] = []
        for _ in ("key", "value"):
            if self._end - position < 4:
                return None
            at = self._load(position, 4)
            if self._filled - at < 4:
                return None
            lengths.append(int.from_bytes(self._window[at : at + 4], signed=True))
            position += 4 + (max(lengths[0], 0) if len(lengths) == 1 else 0)
        return MessageValue(position, lengths[1])

    def _lies_in_value(self, bad: BadHeader, position: int) -> bool:
        """Whether the frame at `position` begins a value of the bad frame, or follows frames that do."""
        assert bad.end is not None
        for magic in (0, 1):
            value = self._legacy_value(bad, magic)
            if value is not None and self._leads_to(value.begin, position):
                return True
        if position - bad.start >= KEY_LENGTH_AT[0] + 4:
            at = self._load(position - 4, 4)
            if position + int.from_bytes(self._window[at : at + 4]) == bad.end:
                return True  # the length of a value of magic 0 or 1, up to the claimed end
        begin = bad.start + HEADER_BYTES
        if position <= begin or not (bad.magic == 2 or 2 in self._valid_layouts(bad)):
            return False
        if position - begin > LARGE:
            return True  # not known
        fields = record_fields(bytes(self.bytes_at(begin, position - begin)))
        return any(self._leads_to(begin + field, position) for field in fields)

    def _leads_to(self, begin: int, position: int) -> bool:
        """Whether frames lead from `begin` to the position, or to a bad one that has the header of a batch."""
        while begin < position:
            frame = self._frame(begin)
            if frame.kind != VALID and (frame.plausible or not self._steps_over(frame, begin)):
                return frame.plausible
            begin += frame.total
        return begin == position

    # ---- the first batch of a range

    def first_batch(self, start: int, stop: int) -> int | None:
        """The first batch in [start, stop) of a range whose batches before are not known. It is a hint."""
        try:
            return self._first_batch(start, stop)
        finally:
            self._leave_window()

    def _first_batch(self, start: int, stop: int) -> int | None:
        known_epoch, bounds = self.scanner.known_epoch, self.scanner.offset_bounds()
        work, position = 0, start
        while position < stop and self._end - position >= UP_TO_MAGIC:
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                return None
            found = find(self._window, at, self._filled, self._end - position, *bounds, self._max_batch_bytes, False)
            if found < 0:
                position = self._after_window(position, at)
                continue
            position += found - at
            total, plausible, *_ = self.scanner.look(self._window, found, self._end - position)
            # A frame that no header follows is skipped before its checksum is computed.
            if plausible and self._leads_to_header(position + total):
                if work > SEARCH_FACTOR * (position - start + SEARCH_ALLOWANCE):
                    return None
                frame = self._frame(position)
                work += frame.total
                if frame.kind == VALID and frame.epoch >= known_epoch:
                    following = self._frame(position + total)
                    short = self._end - position - total < UP_TO_MAGIC
                    if short or following.kind == VALID or following.plausible or self._zeros(position + total):
                        return position if position < stop else None
            position += 1
        return None

    def _leads_to_header(self, position: int) -> bool:
        """Whether a header of this log, or its end, is there."""
        left = self._end - position
        if left < UP_TO_MAGIC:
            return left >= 0
        at = self._load(position, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return False
        _, plausible, _, _, possible = self.scanner.look(self._window, at, left)
        return (plausible and possible) or self._zeros(position)
