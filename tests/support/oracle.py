"""The reference decoder and verifier: plain, slow and obvious.

It shares nothing with the package under test but the codecs, which have tests of their own. `walk` cuts the bytes of a
segment into batches, damaged batches, gaps and a tail that tile them exactly; `records` decodes one batch as Kafka's
own reader does; `verify` applies every rule of one segment.

How a frame is checked, with n bytes left at its position:

    SHORT     n < 17: no magic byte
    BADLEN    size field below the minimum of the magic (0: 14, 1: 22, any other: 49)
    OVERRUN   12 + size > n
    LIMIT     12 + size > max_batch_bytes: not checked
    BADCRC    checksum wrong (magic 0 and 1: CRC-32 over [16:]; any other: CRC-32C over [21:])
    BADMAGIC  checksum right, magic not 0, 1 or 2
    VALID
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import crc32c

from kdump.format import codec as codecs

MIN_SIZE = {0: 14, 1: 22}
FITTING = ("BADCRC", "BADMAGIC", "LIMIT")
SMALLEST = 14  # the least size of any frame: below it a length leads nowhere
CODE_OF = {"BADCRC": "batch/crc", "BADMAGIC": "batch/magic", "LIMIT": "batch/limit"}
CHAIN_BYTES = 2**22  # valid frames over so many bytes are no value
END_BYTES = 2**20 + 2**16  # so far the checksum of a frame is tried
FOREIGN_KEPT = 1000
DECOMPRESSED_BYTES = 2**30  # what one batch may hold before it is given up
FOREIGN_FACTOR = 8  # the same, for frames that can only be foreign
SEARCH_FACTOR = 64  # bytes put through a checksum for each byte searched
SEARCH_ALLOWANCE = 2**20
FOREIGN_BYTES = 2**20  # a frame that cannot be taken is only checked (to be foreign) up to this size
FINDINGS_PER_CODE = 1000
SPAN = 2**31 - 1  # the furthest an offset may lie above the base offset of its segment

_V2 = struct.Struct(">qiiBIHiqqqhii")


def wrap(value: int, bits: int = 64) -> int:
    """Two's complement: what is left of a sum in an int of that width."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# -------------------------------------------------------------------------------------------------------------------
# values


class Batch(NamedTuple):
    """A frame's header fields as stored. Of a magic 0 or 1 message, what the format does not have is -1 or None.

    `size` is the whole frame in bytes. A compressed message's base offset and count are inside it, so None here.
    """

    position: int
    size: int
    magic: int
    base_offset: int | None
    last_offset: int
    count: int | None  # type: ignore[assignment]  # the column's name, not tuple.count
    partition_leader_epoch: int | None
    crc: int
    computed_crc: int | None
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_offset_delta: int

    @property
    def is_legacy(self) -> bool:
        return self.magic in (0, 1)

    @property
    def codec(self) -> int:
        return self.attributes & 7

    @property
    def append_time(self) -> bool:
        return self.magic != 0 and bool(self.attributes & 8)

    @property
    def control(self) -> bool:
        return not self.is_legacy and bool(self.attributes & 0x20)

    @property
    def delete_horizon(self) -> bool:
        return not self.is_legacy and bool(self.attributes & 0x40)

    @property
    def offset(self) -> int:
        """The first eight bytes: the base offset, or a message's own."""
        return self.last_offset if self.base_offset is None else self.base_offset

    @property
    def furthest(self) -> int:
        """The offset that the next batch has to be above: the last one, unless its delta is nonsense."""
        return max(self.offset, self.last_offset)


class Damaged(NamedTuple):
    """A frame that ends where it says, but is not valid."""

    position: int
    length: int
    reason: str
    batch: Batch


class Gap(NamedTuple):
    """Bytes between batches that are not a batch."""

    position: int
    length: int
    reason: str


class Tail(NamedTuple):
    """Bytes after the last batch."""

    position: int
    length: int
    reason: str


Item = Batch | Damaged | Gap | Tail


class Walked(NamedTuple):
    """The tiles of a segment, what was seen inside gaps, damaged batches and the tail, where a search gave up, and the
    positions of what may be of the log though nothing shows it.
    """

    items: list[Item]
    foreign: list[Batch]
    unsearched: list[int]
    undecided: list[int]


class Record(NamedTuple):
    """One record or inner message as a consumer would get it."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    batch_offset: int
    sequence: int
    magic: int
    crc: int | None


class Finding(NamedTuple):
    """One observed defect."""

    code: str
    severity: str
    position: int
    length: int
    offset: int | None
    data: dict[str, Any]


class Malformed(Exception):
    """A batch that Kafka's reader refuses. `code` is the finding it deserves, `record` the index of the first bad
    record."""

    def __init__(self, code: str, reason: str, record: int | None = None) -> None:
        super().__init__(f"{code}: {reason}" + ("" if record is None else f" (record {record})"))
        self.code = code
        self.reason = reason
        self.record = record


# ------------------------------------------------------------------------------------------------------------------
# framing


def checksum(data: bytes, position: int, total: int) -> int:
    """The checksum that the frame should carry, by its magic."""
    if data[position + 16] in (0, 1):
        return zlib.crc32(data[position + 16 : position + total])
    return crc32c.crc32c(data[position + 21 : position + total])


def header(data: bytes, position: int, *, checked: bool = True) -> Batch:
    """The header of the whole frame at `position`; without `checked` its checksum is left uncomputed."""
    total = 12 + int(struct.unpack_from(">i", data, position + 8)[0])
    computed = checksum(data, position, total) if checked else None
    if data[position + 16] in (0, 1):
        offset, _, crc, magic, attributes = struct.unpack_from(">qiIBB", data, position)
        timestamp = struct.unpack_from(">q", data, position + 18)[0] if magic == 1 else -1
        plain = attributes & 7 == 0
        return Batch(
            position, total, magic, offset if plain else None, offset, 1 if plain else None, None, crc, computed, attributes,  # noqa: E501
            timestamp, timestamp, -1, -1, -1, 0,
        )  # fmt: skip
    (base, _, epoch, magic, crc, attributes, delta, base_timestamp, max_timestamp, pid, pid_epoch, sequence, count) = (
        _V2.unpack_from(data, position)
    )
    return Batch(
        position, total, magic, base, wrap(base + delta), count, epoch, crc, computed, attributes,
        base_timestamp, max_timestamp, pid, pid_epoch, sequence, delta,
    )  # fmt: skip


class _Walk:
    """The state of one walk: the last offset and the leader epoch of the last valid batch."""

    def __init__(self, data: bytes, base_offset: int | None, max_batch_bytes: int) -> None:
        self.data = data
        self.end = len(data)
        self.base_offset = base_offset
        self.max_batch_bytes = max_batch_bytes
        self.known_last: int | None = None
        self.known_epoch = -1
        self.zeros_from = len(data.rstrip(b"\0"))
        self.items: list[Item] = []
        self.foreign: list[Batch] = []
        self.undecided: list[int] = []
        self.unsearched: list[int] = []
        self.work = 0

    # One frame.

    def total(self, position: int) -> int:
        return 12 + int(struct.unpack_from(">i", self.data, position + 8)[0])

    def offset(self, position: int) -> int:
        return int(struct.unpack_from(">q", self.data, position)[0])

    def frame(self, position: int) -> str:
        left = self.end - position
        if left < 17:
            return "SHORT"
        magic = self.data[position + 16]
        total = self.total(position)
        if total - 12 < MIN_SIZE.get(magic, 49):
            return "BADLEN"
        if total > left:
            return "OVERRUN"
        if total > self.max_batch_bytes:
            return "LIMIT"
        stored = struct.unpack_from(">I", self.data, position + (12 if magic in (0, 1) else 17))[0]
        if checksum(self.data, position, total) != stored:
            return "BADCRC"
        return "VALID" if magic <= 2 else "BADMAGIC"

    def in_range(self, position: int) -> bool:
        """plausible() without its test of the size."""
        return self.plausible_offset(position)

    def plausible(self, position: int) -> bool:
        return self.in_range(position) and self.total(position) - 12 >= MIN_SIZE.get(self.data[position + 16], 49)

    def torn(self, position: int) -> bool:
        """A plausible frame that the file is too short for."""
        return self.plausible(position) and self.total(position) > self.end - position

    # The way on from a frame that is not valid.

    def sized(self, position: int) -> bool:
        """Not valid, but with a stored length that ends inside the file: it may be stepped over."""
        status = self.frame(position)
        if status == "BADLEN":  # a flipped magic makes a sound size too small
            return SMALLEST <= self.total(position) - 12 <= self.end - position - 12
        return status in FITTING

    def known(self) -> int | None:
        """The last offset, if the segment can have it."""
        if self.known_last is not None and self.base_offset is not None:
            return self.known_last if 0 <= self.known_last - self.base_offset <= SPAN else None
        return self.known_last

    def lowest(self) -> int:
        """The lowest offset that the next batch can have."""
        known = self.known()
        return max(
            0, 0 if known in (None, 2**63 - 1) else known + 1, 0 if self.base_offset is None else self.base_offset
        )

    def highest(self) -> int:
        """The highest one."""
        known = self.known()
        if known == 2**63 - 1:
            return -1
        start = self.base_offset if self.base_offset is not None else known
        return 2**63 - 1 if start is None else min(start + SPAN, 2**63 - 1)

    def last_offsets(self, bad: int) -> list[int]:
        """What the last offset of a bad frame may be: that of a message, that of a batch of magic 2."""
        found = [self.offset(bad)]
        if self.end - bad >= 27:
            (delta,) = struct.unpack_from(">i", self.data, bad + 23)
            if delta >= 0:
                found.append(self.offset(bad) + delta)
        return found

    def last_offset(self, bad: int, magic: int) -> int:
        return self.last_offsets(bad)[-1 if magic >= 2 else 0]

    def claimed_end(self, bad: int) -> int | None:
        """Where a bad frame says that it ends, if its offset can be believed."""
        if self.end - bad < 17 or self.frame(bad) == "BADLEN":
            return None
        return bad + self.total(bad) if self.lowest() <= self.offset(bad) <= self.highest() else None

    def is_header(self, position: int) -> bool:
        """A magic and a length of a batch, whatever its offset."""
        if self.end - position < 17 or self.data[position + 16] > 2:
            return False
        return self.total(position) - 12 >= MIN_SIZE.get(self.data[position + 16], 49)

    def chain(self, position: int, above: int, epoch: int, stop: int) -> tuple[int, int, bool]:
        """Valid frames whose offsets rise: where they end, the last offset, and whether they reach `stop`."""
        while position < stop and self.end - position >= 17 and self.frame(position) == "VALID":
            found = header(self.data, position, checked=False)
            delta = max(found.last_offset_delta, 0)
            own = found.partition_leader_epoch
            if not above < found.offset <= self.highest() - delta or (own is not None and own < epoch):
                break
            above = found.offset + delta
            epoch = epoch if own is None else own
            position += found.size
        return position, above, position >= stop

    def linked(self, chain: tuple[int, int, bool]) -> bool:
        """Whether a chain leads on like a log: to its end or zeros, or to a header that can be the next."""
        position, last, reached = chain
        if reached or self.end - position < 17 or position >= self.zeros_from:
            return True
        if self.offset(position) == last + 1:
            return True
        return self.is_header(position) and last < self.offset(position) <= self.highest()

    def end_by_checksum(self, bad: int) -> int | None:
        """Where the checksum of a bad frame says that it ends: it does not cover the length."""
        if self.end - bad < 17 or not self.in_segment(self.offset(bad)):
            return None
        magic = self.data[bad + 16]
        begin, at = (bad + 16, bad + 12) if magic < 2 else (bad + 21, bad + 17)
        least = bad + 12 + MIN_SIZE.get(magic, 49)
        if self.end < least:
            return None
        (stored,) = struct.unpack_from(">I", self.data, at)
        if (stored, self.offset(bad), self.total(bad)) == (0, 0, 12):
            return None
        value = 0
        for position in range(begin + 1, min(self.end, bad + END_BYTES) + 1):
            byte = self.data[position - 1 : position]
            value = zlib.crc32(byte, value) if magic < 2 else crc32c.crc32c(byte, value)
            if value == stored and position >= least and self.may_follow(bad, position):
                return position
        return None

    def in_segment(self, offset: int) -> bool:
        """Not below zero, not above what can come next, and not further below that than a segment reaches."""
        near = offset >= self.lowest() - SPAN
        return offset >= 0 and near and offset <= max(self.highest(), self.lowest())

    def may_follow(self, bad: int, position: int) -> bool:
        if self.end - position < 17 or position >= self.zeros_from:
            return True
        return 0 < self.offset(position) - self.offset(bad) <= SPAN or self.frame(position) == "VALID"

    def continued(self, bad: int) -> bool:
        """Whether a header at the claimed end goes on with the next offset."""
        end = bad + self.total(bad)
        if self.total(bad) < 26 or self.offset(bad) < 0 or not self.is_header(end):
            return False
        return self.offset(end) - 1 in self.last_offsets(bad)

    def followed(self, bad: int, end: int) -> bool:
        """Whether a valid batch with a higher offset is at the claimed end."""
        if self.frame(end) != "VALID" or not self.plausible(end):
            return False
        epoch = header(self.data, end, checked=False).partition_leader_epoch
        return (epoch is None or epoch >= self.known_epoch) and self.offset(end) > self.offset(bad)

    def next_batch(self, bad: int) -> tuple[int | None, bool]:
        """Where the log goes on, and whether the checksum of the bad frame shows that."""
        self.across(bad)
        if self.has_other_magic(bad):
            end = bad + self.total(bad)
            self.search(bad, end, wanted=False)
            return end, False
        if self.end - bad >= 17 and self.continued(bad):
            end = bad + self.total(bad)
            chain = self.chain(end, self.offset(end) - 1, -(2**31), end + CHAIN_BYTES)
            if chain[0] > end and self.doubtful(bad, chain):
                other = self.end_by_checksum(bad)
                if other is not None:
                    self.search(bad, other, wanted=False)
                    return other, other != end
            self.search(bad, end, wanted=False)
            return end, False
        shown = self.end_by_checksum(bad)
        if shown is not None:
            self.search(bad, shown, wanted=False)
            return shown, shown != bad + self.total(bad)
        claimed = self.claimed_end(bad)
        if claimed is not None and self.followed(bad, claimed):
            found = self.search(bad, claimed, follows=True)
            limits = self.unsearched[:]
            self.unsearched = [each for each in limits if each < bad]
            return (claimed if found is None else found), False
        return self.search(bad, self.end), False

    def has_other_magic(self, bad: int) -> bool:
        """Whether a bad frame is a message of which only the magic is wrong, which its checksum covers."""
        if self.end - bad < 17 or self.total(bad) > min(END_BYTES, self.end - bad):
            return False
        (stored,) = struct.unpack_from(">I", self.data, bad + 12)
        rest = self.data[bad + 17 : bad + self.total(bad)]
        magics = [magic for magic in self.agreeing(bad) if magic < 2 and magic != self.data[bad + 16]]
        return any(zlib.crc32(bytes((magic,)) + rest) == stored for magic in magics)

    def doubtful(self, bad: int, chain: tuple[int, int, bool]) -> bool:
        """Whether valid frames at a claimed end may be those of a value, to which a wrong length leads."""
        if not chain[2] and (self.end - chain[0] < 17 or chain[0] >= self.zeros_from):
            return True
        magic = self.data[bad + 16]
        return not self.linked(chain) or (magic < 2 and magic not in self.agreeing(bad))

    def search(self, bad: int, stop: int, *, wanted: bool = True, follows: bool = False) -> int | None:
        """The next frame before `stop` that may be taken for a batch of this log; the sound ones that may not are
        foreign.
        """
        self.work = 0
        foreign_work, lower_work, foreign_spent, kept, inside = 0, 0, False, 0, 0
        taken, passed, maybe = False, 0, False
        for candidate in range(bad + 1, min(stop, self.end - 16)):
            if not self.may_be_frame(candidate):
                continue
            if not wanted and self.total(candidate) > FOREIGN_BYTES and candidate + self.total(candidate) > stop:
                continue
            before = max(self.base_offset or 0, 0) <= self.offset(candidate) < self.lowest()
            if before and wanted and not self.plausible(candidate):
                within = lower_work <= FOREIGN_FACTOR * (candidate - bad + SEARCH_ALLOWANCE)
                lower_work += self.total(candidate)
                if not within or self.frame(candidate) != "VALID":
                    continue
            elif not self.plausible(candidate):
                if self.total(candidate) > FOREIGN_BYTES or foreign_spent:
                    continue
                foreign_spent = foreign_work > FOREIGN_FACTOR * (candidate - bad) + SEARCH_ALLOWANCE
                foreign_work += self.total(candidate)
                if foreign_spent or self.frame(candidate) != "VALID":
                    continue
            else:
                if self.work > SEARCH_FACTOR * (candidate - bad + SEARCH_ALLOWANCE):
                    if wanted:
                        self.unsearched.append(candidate)
                    return None
                self.work += self.total(candidate)
                if self.frame(candidate) != "VALID":
                    continue
            undecided = False
            if wanted and (before or self.plausible(candidate)):
                if candidate >= passed:
                    epoch = header(self.data, candidate, checked=False).partition_leader_epoch
                    earlier = before or (epoch is not None and epoch < self.known_epoch)
                    taken, passed, maybe = self.of_log(bad, candidate, follows, earlier)
                    if taken:
                        return candidate
                undecided = maybe and candidate >= inside
            kept += 1
            if undecided:
                inside = candidate + self.total(candidate)
            if kept <= FOREIGN_KEPT:
                self.foreign.append(header(self.data, candidate))
                if undecided:
                    self.undecided.append(candidate)
            elif undecided and not any(each > bad for each in self.unsearched):
                self.unsearched.append(candidate)
        return None

    def across(self, bad: int) -> None:
        """Append the frames that begin in the last bytes before a bad one."""
        for position in range(max(0, bad - 8), bad):
            if self.end - position < 17 or not self.is_header(position):
                continue
            fits = bad < position + self.total(position) <= min(self.end, position + 2**20)
            in_range = max(self.base_offset or 0, 0) <= self.offset(position) <= self.highest()
            if fits and in_range and self.frame(position) == "VALID":
                self.foreign.append(header(self.data, position))
                self.undecided.append(position)

    def of_log(self, bad: int, position: int, follows: bool, earlier: bool) -> tuple[bool, int, bool]:
        """Whether a valid frame is a batch of the log and not of a value in the bad frame; else how far nothing is, and
        whether nothing shows it.

        `earlier`: the batch before the damage is of a later place of the log.
        """
        end = self.claimed_end(bad)
        offset = self.offset(position)
        epoch = -(2**31) if earlier else self.known_epoch
        if end is None or position > end:
            chain = self.chain(position, offset - 1, epoch, position + CHAIN_BYTES)
            taken = self.linked(chain) and (not earlier or self.leads_on(chain))
            return taken, chain[0], not taken
        if position == end:
            return True, position, False
        if not follows and self.last_of_file(end):
            return False, position, False
        stop = position + CHAIN_BYTES if end > self.end else end if follows else max(end, position + CHAIN_BYTES)
        chain = self.chain(position, offset - 1, epoch, stop)
        if follows:  # frames that fill the offsets and the bytes up to the batch at the claimed end
            fills = offset == self.last_offset(bad, 2) + 1 and chain[1] + 1 == self.offset(end) and chain[0] == end
            return fills and self.data[bad + 16] == 2 and not earlier, chain[0], False
        if (not earlier or self.leads_on(chain)) and (chain[0] > end or self.outside(bad, position, end, chain)):
            return True, position, False
        return False, chain[0], self.ends_log(chain)

    def outside(self, bad: int, position: int, end: int, chain: tuple[int, int, bool]) -> bool:
        """Whether the header of a bad frame shows that one before its claimed end is in no value of it."""
        offset = self.offset(position)
        if not self.linked(chain) or self.in_value(bad, position):
            return False
        if offset <= self.offset(bad) and self.has_header(bad):
            return False
        for magic in self.agreeing(bad):
            last = self.last_offset(bad, magic)
            sectors = (end - position) % 512 == 0
            if offset <= last:
                return False
            if end <= self.end and end < self.zeros_from:
                continue
            if not chain[2] and chain[0] < self.zeros_from:
                return False
            if offset == last + 1 and not sectors:
                return False
        return True

    def leads_on(self, chain: tuple[int, int, bool]) -> bool:
        """Whether a chain of offsets that were passed already leads on where a value would not."""
        position, last, _ = chain
        if self.ends_log(chain) or last >= self.lowest():
            return True
        return self.end - position >= 17 and self.offset(position) == last + 1

    def ends_log(self, chain: tuple[int, int, bool]) -> bool:
        """Whether a chain ends at the last byte of the log, or is long."""
        position, _, reached = chain
        return reached or position == self.end or (self.end - position >= 17 and position >= self.zeros_from)

    def last_of_file(self, end: int) -> bool:
        """Whether the data of the file ends where a batch does, short of zeros of its own."""
        return end == self.end or (self.zeros_from <= end < self.end and end - 9 < self.zeros_from)

    def value_of(self, bad: int, magic: int) -> tuple[int, int] | None:
        """Where the value of a message begins, and its length."""
        at = bad + (18, 26)[magic]
        if self.end - at < 4:
            return None
        at += 4 + max(struct.unpack_from(">i", self.data, at)[0], 0)
        if self.end - at < 4:
            return None
        return at + 4, int(struct.unpack_from(">i", self.data, at)[0])

    def agreeing(self, bad: int) -> list[int]:
        """The magics in whose layout the fields of a bad frame agree."""
        found = []
        for magic in (0, 1):
            value = self.value_of(bad, magic)
            if value is not None and value[0] + max(value[1], 0) == bad + self.total(bad):
                found.append(magic)
        if self.end - bad >= 61 and self.total(bad) >= 61:
            fields = _V2.unpack_from(self.data, bad)
            attributes, delta, count = fields[5], fields[6], fields[-1]
            if not attributes & 0xFF80 and 0 <= count <= delta + 1:
                found.append(2)
        return found

    def has_header(self, bad: int) -> bool:
        """Whether the bad frame most likely is a damaged batch of this log, and no chance bytes."""
        magic = self.data[bad + 16]
        if magic == 2 or self.offset(bad) == self.lowest() or self.agreeing(bad):
            return True
        return magic < 2 and self.value_of(bad, magic) is not None

    def in_value(self, bad: int, position: int) -> bool:
        """Whether frames from the beginning of a value of the bad frame on lead to this one."""
        begins = [value[0] for magic in (0, 1) if (value := self.value_of(bad, magic)) is not None]
        if any(self.frames_lead(begin, position) for begin in begins):
            return True
        if position - bad >= 22:
            (length,) = struct.unpack_from(">I", self.data, position - 4)
            if position + length == bad + self.total(bad):
                return True
        if position <= bad + 61 or not (self.data[bad + 16] == 2 or 2 in self.agreeing(bad)):
            return False
        if position - bad - 61 > 2**20:
            return True
        fields = cut_record(self.data[bad + 61 : position])
        return any(self.frames_lead(bad + 61 + field, position) for field in fields)

    def frames_lead(self, begin: int, position: int) -> bool:
        while begin < position:
            if self.frame(begin) != "VALID":
                if self.plausible_offset(begin):
                    return True
                if not self.sized(begin):
                    return False
            begin += self.total(begin)
        return begin == position

    def plausible_offset(self, position: int) -> bool:
        """A magic that is known and an offset that the next batch can have."""
        if self.end - position < 17 or self.data[position + 16] > 2:
            return False
        return self.lowest() <= self.offset(position) <= self.highest()

    def may_be_frame(self, position: int) -> bool:
        """What can be said of a frame at a place of no account before its checksum."""
        if self.data[position + 16] > 2:
            return False
        total = self.total(position)
        fits = (
            12 + MIN_SIZE.get(self.data[position + 16], 49) <= total <= min(self.end - position, self.max_batch_bytes)
        )
        return fits and self.offset(position) >= 0

    def damaged(self, position: int) -> int:
        """Append the damaged batch at `position`; where it ends."""
        status = self.frame(position)
        batch = header(self.data, position, checked=status != "LIMIT")
        self.items.append(Damaged(position, batch.size, CODE_OF[status], batch))
        return position + batch.size

    def gap(self, position: int, end: int) -> int:
        """Append what looks like a batch of this log whose length is wrong, or like nothing; where it ends."""
        reason = "batch/length" if self.in_range(position) else "gap/bytes"
        self.items.append(Gap(position, end - position, reason))
        return end

    def recover(self, position: int) -> int:
        """Append what the bytes from `position` on are, up to where the log goes on or the end; where that is."""
        if self.end - position < 17 or position >= self.zeros_from:
            self.items.append(Tail(position, self.end - position, self.tail_reason(position)))
            return self.end
        found, by_checksum = self.next_batch(position)
        if found is not None and by_checksum:
            return self.gap(position, found)
        end = self.end if found is None else found
        following = position
        while following < end and self.sized(following) and following + self.total(following) <= end:
            following += self.total(following)
        tail = found is None and (self.end - following < 17 or following >= self.zeros_from or self.torn(following))
        whole = self.frame(position) in FITTING and self.plausible(position)
        if following == end or tail:
            while position < following:
                sized = self.frame(position) in FITTING
                position = self.damaged(position) if sized else self.gap(position, position + self.total(position))
        elif whole and position + self.total(position) <= end:
            position = self.damaged(position)
            if position < end and found is not None:
                self.items.append(Gap(position, end - position, "gap/bytes"))
        elif found is not None:
            self.gap(position, end)
        if position < end and found is None:
            self.items.append(Tail(position, end - position, self.tail_reason(position)))
        return end

    def tail_reason(self, position: int) -> str:
        if position >= self.zeros_from:
            return "tail/zeros"
        if self.end - position <= 17 or self.torn(position):
            return "tail/torn"
        return "tail/garbage"

    def run(self) -> Walked:
        position = 0
        while position < self.end:
            if self.frame(position) == "VALID":
                batch = header(self.data, position)
                self.items.append(batch)
                self.known_last = batch.furthest
                if batch.partition_leader_epoch is not None and batch.partition_leader_epoch >= 0:
                    self.known_epoch = batch.partition_leader_epoch
                position += batch.size
            else:
                position = self.recover(position)
        return Walked(self.items, self.foreign, self.unsearched, self.undecided)


def cut_record(data: bytes) -> list[int]:
    """Where the key and the value begin in the record that the end of the data cuts."""
    reader = _Reader(data)
    try:
        while True:
            length, begin = reader.varint64(), reader.position
            if length < 0 or begin + length > len(data):
                break
            reader.position = begin + length
            if reader.position == len(data):
                return []
    except Malformed:
        return []
    found = []
    try:
        reader.take(1)
        reader.varint64()
        reader.varint64()
        for _ in ("key", "value"):
            length = reader.varint64()
            found.append(reader.position)
            reader.position += max(length, 0)
            if reader.position > len(data):
                break
    except Malformed:
        pass
    return found


def survey(data: bytes, *, base_offset: int | None = None, max_batch_bytes: int = 2**30) -> Walked:
    """The tiles of a segment, with the foreign batches and the places where a search gave up."""
    return _Walk(bytes(data), base_offset, max_batch_bytes).run()


def walk(data: bytes, *, base_offset: int | None = None, max_batch_bytes: int = 2**30) -> list[Item]:
    """The tiles of a segment: batches, damaged batches, gaps and at most one tail, in order, without a hole or an
    overlap."""
    return survey(data, base_offset=base_offset, max_batch_bytes=max_batch_bytes).items


# ------------------------------------------------------------------------------------------------------------------
# records


class _Opened(NamedTuple):
    """What decompression gave: the bytes, and what Kafka lets pass though the codec's own specification does not."""

    payload: bytes
    note: str | None = None


def decompress(codec: int, data: bytes, magic: int, limit: int = DECOMPRESSED_BYTES) -> _Opened:
    """What Kafka's reader makes of compressed data; Malformed where it refuses, or where there is more than `limit`."""
    if codec > (3 if magic < 2 else 4):
        raise Malformed("batch/codec", "codec-unknown")
    try:
        payload, note = codecs.decompress(codec, data, magic, limit)
    except codecs.LimitExceeded as error:
        raise Malformed("batch/limit", error.reason) from error
    except codecs.CodecError as error:
        raise Malformed("batch/codec", error.reason) from error
    return _Opened(bytes(payload), note)


class _Reader:
    """Reads the fields of records from `data[position:end]`; whether every varint so far was canonical."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.end = len(data)
        self.canonical = True

    def take(self, length: int) -> bytes:
        if length > self.end - self.position:
            raise Malformed("record/structure", "field past the end")
        self.position += length
        return self.data[self.position - length : self.position]

    def _varint(self, longest: int, bits: int) -> int:
        raw = 0
        for number in range(longest):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                break
        else:
            raise Malformed("record/structure", "varint too long")
        # Not canonical: a last byte that adds nothing, or bits that do not fit and are dropped.
        if (number > 0 and byte == 0) or raw >> bits:
            self.canonical = False
        raw &= (1 << bits) - 1
        return (raw >> 1) ^ -(raw & 1)

    def varint(self) -> int:
        return self._varint(5, 32)

    def varlong(self) -> int:
        return self._varint(10, 64)

    def varint64(self) -> int:
        """A varint of any length up to 10 bytes, with all its bits."""
        return self._varint(10, 70)

    def nullable(self) -> bytes | None:
        length = self.varint()
        return None if length < 0 else self.take(length)


class _Raw(NamedTuple):
    """A record of a magic 2 batch as stored."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    canonical: bool


def _read_record(reader: _Reader, batch_end: int) -> _Raw:
    reader.canonical = True
    reader.end = batch_end
    length = reader.varint()
    if not 0 <= length <= batch_end - reader.position:
        raise Malformed("record/structure", "record length")
    reader.end = reader.position + length
    reader.take(1)  # attributes: no value is wrong
    timestamp_delta = reader.varlong()
    offset_delta = reader.varint()
    key = reader.nullable()
    value = reader.nullable()
    count = reader.varint()
    if not 0 <= count <= batch_end - reader.position:
        raise Malformed("record/structure", "headers count")
    headers = []
    for _ in range(count):
        name = reader.nullable()
        if name is None:
            raise Malformed("record/structure", "header key length")
        headers.append((name, reader.nullable()))
    if reader.position != reader.end:
        raise Malformed("record/structure", "bytes left in the record")
    return _Raw(timestamp_delta, offset_delta, key, value, tuple(headers), reader.canonical)


def _open_batch(batch: Batch, body: bytes, limit: int) -> _Opened:
    """The encoded records of a magic 2 batch. A count of 0 has none; a consumer begins to decompress even where nothing
    follows the header."""
    if batch.count is not None and batch.count < 0:
        raise Malformed("batch/count", "negative count")
    if batch.count == 0 and len(body) > 61:
        return _Opened(b"")  # batch/count says that these bytes are hidden
    return decompress(batch.codec, body[61:], 2, limit) if batch.codec else _Opened(body[61:])


def _raw_records(payload: bytes, count: int) -> list[_Raw]:
    """The records of a magic 2 batch as stored."""
    reader = _Reader(payload)
    out: list[_Raw] = []
    for number in range(count):
        try:
            out.append(_read_record(reader, len(payload)))
        except Malformed as error:
            raise Malformed(error.code, error.reason, number) from None
    if reader.position != len(payload):
        raise Malformed("record/structure", "bytes after the last record", count)
    return out


class _Message(NamedTuple):
    """A magic 0 or 1 message as stored. `trailing` counts the bytes after its value."""

    offset: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    trailing: int
    crc_ok: bool


def _read_message(entry: bytes) -> _Message:
    """One whole entry; Malformed when its key or value does not fit."""
    offset, _, crc, magic, attributes = struct.unpack_from(">qiIBB", entry)
    position = 26 if magic == 1 else 18
    timestamp = -1
    if magic == 1:
        if len(entry) < 12 + MIN_SIZE[1]:
            raise Malformed("record/structure", "message size")
        timestamp = struct.unpack_from(">q", entry, 18)[0]
    fields: list[bytes | None] = []
    for name in ("key", "value"):
        if position + 4 > len(entry):
            raise Malformed("record/structure", f"{name} length")
        (length,) = struct.unpack_from(">i", entry, position)
        position += 4
        if length > len(entry) - position:
            raise Malformed("record/structure", f"{name} length")
        fields.append(None if length < 0 else entry[position : position + length])
        position += max(length, 0)
    crc_ok = zlib.crc32(entry[16:]) == crc
    return _Message(offset, crc, magic, attributes, timestamp, fields[0], fields[1], len(entry) - position, crc_ok)


def _open_wrapper(wrapper: _Message, limit: int) -> _Opened:
    """The encoded entries of a compressed message."""
    codec = wrapper.attributes & 7
    if not wrapper.value and codec <= 3:
        raise Malformed("legacy/wrapper", "no value")
    return decompress(codec, wrapper.value or b"", wrapper.magic, limit)


def _inner_messages(wrapper: _Message, payload: bytes) -> tuple[list[_Message], int]:
    """The messages inside a compressed one, and how many bytes of a partial last entry follow them."""
    out: list[_Message] = []
    position = 0
    while len(payload) - position >= 12:
        (size,) = struct.unpack_from(">i", payload, position + 8)
        if size < 14:
            raise Malformed("legacy/wrapper", "inner size", len(out))
        if size > len(payload) - position - 12:
            break
        entry = payload[position : position + 12 + size]
        if entry[16] > 1:
            raise Malformed("legacy/wrapper", "inner magic", len(out))
        if entry[17] & 7:
            raise Malformed("legacy/wrapper", "nested compression", len(out))
        try:
            out.append(_read_message(entry))
        except Malformed as error:
            raise Malformed(error.code, error.reason, len(out)) from None
        position += 12 + size
    if not out:
        raise Malformed("legacy/wrapper", "no inner message")
    if wrapper.magic == 1 and wrapper.offset != 0 and wrapper.offset < out[-1].offset:
        raise Malformed("legacy/wrapper", "offset below the last inner offset")
    return out, len(payload) - position


def _sequence(batch: Batch, offset_delta: int) -> int:
    """Sequences go from 2147483647 on to 0; below 0 there is none. A delta that no producer writes overflows Java's
    ints."""
    if batch.base_sequence < 0:
        return -1
    if batch.base_sequence > wrap(2**31 - 1 - offset_delta, 32):
        return wrap(offset_delta - (2**31 - 1 - batch.base_sequence) - 1, 32)
    return wrap(batch.base_sequence + offset_delta, 32)


def _records_v2(batch: Batch, body: bytes, limit: int) -> list[Record]:
    stamp_type = "LogAppendTime" if batch.append_time else "CreateTime"
    base = batch.offset
    return [
        Record(
            wrap(base + raw.offset_delta),
            batch.max_timestamp if batch.append_time else wrap(batch.base_timestamp + raw.timestamp_delta),
            stamp_type,
            raw.key,
            raw.value,
            raw.headers,
            base,
            _sequence(batch, raw.offset_delta),
            batch.magic,
            None,
        )
        for raw in _raw_records(_open_batch(batch, body, limit).payload, batch.count or 0)
    ]


def _records_legacy(body: bytes, limit: int) -> list[Record]:
    outer = _read_message(body)
    append_time = outer.magic == 1 and bool(outer.attributes & 8)
    if outer.attributes & 7 == 0:
        messages, base = [outer], 0
    else:
        messages, _ = _inner_messages(outer, _open_wrapper(outer, limit).payload)
        # Inner offsets of magic 1 are relative, counted back from the wrapper's. At 0 the wrapper says nothing: an old
        # librdkafka left it so.
        base = outer.offset - messages[-1].offset if outer.magic == 1 and outer.offset != 0 else 0
    out = []
    for message in messages:
        if message.magic == 0:
            timestamp, stamp_type = -1, "NoTimestampType"
        else:
            timestamp = outer.timestamp if append_time else message.timestamp
            stamp_type = "NoTimestampType" if outer.magic == 0 else "LogAppendTime" if append_time else "CreateTime"
        offset = wrap(base + message.offset)
        out.append(
            Record(
                offset,
                timestamp,
                stamp_type,
                message.key,
                message.value,
                (),
                outer.offset,
                -1,
                message.magic,
                message.crc,
            )
        )
    return out


def records(data: bytes, position: int = 0, *, limit: int = DECOMPRESSED_BYTES) -> list[Record]:
    """The records of the batch or message at `position`, whose checksum is not looked at; Malformed where a reader
    stops."""
    batch = header(data, position, checked=False)
    body = data[position : position + batch.size]
    return _records_legacy(body, limit) if batch.is_legacy else _records_v2(batch, body, limit)


class FirstRecord(NamedTuple):
    """The first record of a batch, which is read before those after it."""

    key: bytes | None
    value: bytes | None


def first_record(data: bytes, batch: Batch) -> FirstRecord:
    """The first record of an uncompressed batch of magic 2. Raises Malformed.

    Bytes after it are wrong where it is the only one.
    """
    body = data[batch.position + 61 : batch.position + batch.size]
    if (batch.count or 0) < 1:
        raise Malformed("record/structure", "no record")
    raw = _raw_records(body, 1)[0] if batch.count == 1 else _read_record(_Reader(body), len(body))
    return FirstRecord(raw.key, raw.value)


class Entry07(NamedTuple):
    """A message of a `.kafka` log. `offset` is what 0.7 gave its consumers; `crc_ok` covers the message alone."""

    offset: int
    payload: bytes
    crc_ok: bool


def entries07(data: bytes, start: int = 0) -> tuple[list[Entry07], int]:
    """The messages of a `.kafka` log whose file name is `start`, and where the whole entries end.

    A message's offset is the position after it. Inside a compressed one all messages but the last have the position
    where the outermost one begins. Wrappers may hold wrappers.
    """
    out: list[Entry07] = []
    position = 0
    while len(data) - position >= 4:
        (size,) = struct.unpack_from(">i", data, position)
        if size < 5 or size > len(data) - position - 4:
            break
        magic = data[position + 4]
        if magic > 1 or size < 5 + magic:
            break
        codec = data[position + 5] & 3 if magic == 1 else 0
        (crc,) = struct.unpack_from(">I", data, position + 5 + magic)
        payload = data[position + 9 + magic : position + 4 + size]
        crc_ok = zlib.crc32(payload) == crc
        following = position + 4 + size
        if codec:
            inner, _ = entries07(decompress(codec, payload, 0).payload)
            moved = [each._replace(offset=start + position) for each in inner]
            if moved:
                moved[-1] = moved[-1]._replace(offset=start + following)
            out += moved
        else:
            out.append(Entry07(start + following, payload, crc_ok))
        position = following
    return out, position


# ------------------------------------------------------------------------------------------------------------------
# verify


class _Rules:
    """The rules of one segment, fed with its items in order."""

    def __init__(self, data: bytes, deep: bool, base_offset: int | None, newest: bool, limit: int) -> None:
        self.data = data
        self.deep = deep
        self.base_offset = base_offset
        self.newest = newest
        self.limit = limit
        self.findings: list[Finding] = []
        self.linked = False
        self.known_last = 0
        self.known_epoch = -1
        self.compaction_seen = False
        self.damage_seen = False  # and with it, maybe, what would have shown compaction
        self.gaps: list[tuple[int, int, int]] = []  # position, offset, offsets left out
        self.inner_magics: list[tuple[int, int, int]] = []  # position, offset, messages

    def add(self, code: str, severity: str, batch: Batch, **data: Any) -> None:
        self.findings.append(Finding(code, severity, batch.position, batch.size, batch.offset, data))

    # Every valid batch.

    def batch(self, batch: Batch) -> None:
        self.header_rules(batch)
        self.offset_rules(batch)
        self.epoch_rules(batch)
        self.evidence(batch)
        if self.deep or batch.control:
            body = self.data[batch.position : batch.position + batch.size]
            try:
                if batch.is_legacy and self.codec_unknown(batch):
                    pass  # nothing in it can be checked
                elif batch.is_legacy:
                    self.legacy_rules(batch, body)
                else:
                    self.record_rules(batch, body)
            except Malformed as error:
                # What the header shows has been said already: an unknown codec, a negative count.
                shown = error.code == "batch/count" or (error.code == "batch/codec" and self.codec_unknown(batch))
                if not shown:
                    severity = "warning" if error.code == "batch/limit" else "error"
                    self.add(error.code, severity, batch, reason=error.reason, record=error.record)
        self.linked = True
        self.known_last = batch.furthest

    @staticmethod
    def codec_unknown(batch: Batch) -> bool:
        return batch.codec > (3 if batch.is_legacy else 4)

    def header_rules(self, batch: Batch) -> None:
        unused = batch.attributes & {0: 0xF8, 1: 0xF0, 2: 0xFF80}[batch.magic]
        if unused:
            self.add("batch/attributes", "warning", batch, unused=unused)
        if self.codec_unknown(batch):
            self.add("batch/codec", "error", batch, codec=batch.codec)
        if batch.is_legacy or batch.count is None:
            return
        hidden = batch.count == 0 and batch.size > 61
        if batch.count < 0 or batch.count > batch.last_offset_delta + 1 or hidden:
            self.add("batch/count", "error", batch, count=batch.count, last_offset_delta=batch.last_offset_delta)

    def offset_rules(self, batch: Batch) -> None:
        first, last = batch.offset, batch.offset + batch.last_offset_delta
        out = first < 0 or batch.last_offset_delta < 0 or last >= 2**63 - 1
        if self.base_offset is not None:
            out = out or first < self.base_offset or last - self.base_offset > SPAN
        if out:
            self.add("offset/range", "error", batch, last_offset=batch.last_offset, base_offset=self.base_offset)
        if self.linked and first <= self.known_last:
            self.add("offset/backwards", "error", batch, last_offset=self.known_last)
        if self.linked and first > self.known_last + 1 and batch.base_offset is not None:
            self.gaps.append((batch.position, first, first - self.known_last - 1))

    def epoch_rules(self, batch: Batch) -> None:
        epoch = batch.partition_leader_epoch
        if epoch is None:
            return
        if epoch < -1 or (self.linked and 0 <= epoch < self.known_epoch):
            self.add("epoch/backwards", "warning", batch, epoch=epoch, known_epoch=self.known_epoch)
        if epoch >= 0:
            self.known_epoch = epoch

    def evidence(self, batch: Batch) -> None:
        """Whether this batch shows that the log was compacted."""
        if not batch.is_legacy and batch.count is not None and batch.count < batch.last_offset_delta + 1:
            self.compaction_seen = True
        if batch.delete_horizon:
            self.compaction_seen = True
        first = batch.base_offset if batch.position == 0 else None
        if first is not None and self.base_offset is not None and first > self.base_offset:
            self.compaction_seen = True

    # The records inside.

    def note(self, batch: Batch, opened: _Opened) -> None:
        if opened.note is not None:
            self.add("batch/codec-odd", "warning", batch, note=opened.note)

    def record_rules(self, batch: Batch, body: bytes) -> None:
        opened = _open_batch(batch, body, self.limit)
        self.note(batch, opened)
        raws = _raw_records(opened.payload, batch.count or 0)
        if batch.control:
            for number, raw in enumerate(raws):
                if reason := control_fault(raw.key, raw.value, ends=number == 0 and batch.producer_id >= 0):
                    self.add("control/structure", "error", batch, reason=reason, record=number)
                    break
        for number, raw in enumerate(raws):
            if not raw.canonical:
                self.add("record/varint", "warning", batch, record=number)
                break
        previous = -1
        for number, raw in enumerate(raws):
            if not previous < raw.offset_delta <= batch.last_offset_delta:
                self.add("record/delta", "warning", batch, record=number, delta=raw.offset_delta)
                break
            previous = raw.offset_delta
        if raws and not batch.append_time:
            newest = max(wrap(batch.base_timestamp + raw.timestamp_delta) for raw in raws)
            if newest != batch.max_timestamp:
                self.add("time/max", "warning", batch, max_timestamp=batch.max_timestamp, newest=newest)

    def legacy_rules(self, batch: Batch, body: bytes) -> None:
        outer = _read_message(body)
        inner: list[_Message] = []
        try:
            if batch.codec:
                opened = _open_wrapper(outer, self.limit)
                self.note(batch, opened)
                inner, partial = _inner_messages(outer, opened.payload)
                self.wrapper_rules(batch, outer, inner, partial)
        finally:  # bytes after a wrapper's value are seen without opening it
            if outer.trailing or any(message.trailing for message in inner):
                self.add(
                    "legacy/trailing",
                    "warning",
                    batch,
                    bytes=outer.trailing + sum(message.trailing for message in inner),
                )

    def wrapper_rules(self, batch: Batch, outer: _Message, inner: list[_Message], partial: int) -> None:
        for number, message in enumerate(inner):
            if not message.crc_ok:
                self.add("legacy/inner-crc", "error", batch, record=number)
                break
        if any(right.offset > left.offset + 1 for left, right in pairwise(inner)):
            self.compaction_seen = True
        others = sum(message.magic != outer.magic for message in inner)
        if others:
            self.inner_magics.append((batch.position, batch.offset, others))
        if partial:
            self.add("legacy/partial", "warning", batch, bytes=partial)
        previous = -1
        for number, message in enumerate(inner):
            misplaced = outer.magic == 0 and number == len(inner) - 1 and message.offset != outer.offset
            if message.offset <= previous or misplaced:
                self.add("record/delta", "warning", batch, record=number, delta=message.offset)
                break
            previous = message.offset
        else:
            shift = outer.offset - inner[-1].offset if outer.magic == 1 and outer.offset else 0
            if self.linked and wrap(inner[0].offset + shift) <= self.known_last < batch.offset:
                self.add("offset/backwards", "error", batch, last_offset=self.known_last)
        stamps = [message.timestamp for message in inner if message.magic == 1]
        if outer.magic == 1 and not batch.append_time and stamps and max(stamps) != outer.timestamp:
            self.add("time/max", "warning", batch, max_timestamp=outer.timestamp, newest=max(stamps))

    # What is not a batch, and what is said once per file.

    def other(self, item: Damaged | Gap | Tail) -> None:
        self.linked = False
        self.damage_seen = self.damage_seen or not isinstance(item, Tail)
        if isinstance(item, Damaged):
            self.add(item.reason, "warning" if item.reason == "batch/limit" else "error", item.batch)
            return
        severity = "error"
        if item.reason == "tail/zeros" and item.length > 17 and self.newest:
            severity = "warning"
        self.findings.append(Finding(item.reason, severity, item.position, item.length, None, {}))

    def once(self, compacted: str) -> None:
        if self.gaps:
            position, offset, _ = self.gaps[0]
            info = compacted == "yes" or (compacted == "auto" and (self.compaction_seen or self.damage_seen))
            data = {"count": len(self.gaps), "largest": max(missing for _, _, missing in self.gaps)}
            self.findings.append(Finding("offset/gap", "info" if info else "warning", position, 0, offset, data))
        if self.inner_magics:
            position, offset, _ = self.inner_magics[0]
            data = {"count": sum(messages for _, _, messages in self.inner_magics)}
            self.findings.append(Finding("legacy/inner-magic", "info", position, 0, offset, data))


def control_fault(key: bytes | None, value: bytes | None, *, ends: bool = False) -> str | None:
    """Why a control record is none; None when it is sound. With `ends` it has to end a transaction."""
    if key is None or len(key) < 4:
        return "key"
    version, control_type = struct.unpack_from(">hh", key)
    if version < 0:
        return "key version"
    if control_type in (0, 1):
        if value is None or len(value) < 6:
            return "value"
        if struct.unpack_from(">h", value)[0] < 0:
            return "value version"
    elif ends:
        return "type"
    return None


def _is_control(data: bytes, item: Item, which: int, control_type: int) -> bool:
    """Whether record `which` of the batch is a control record of that type."""
    if not isinstance(item, Batch) or not item.control:
        return False
    try:
        key = records(data, item.position)[which].key
    except (Malformed, IndexError):
        return False
    return key is not None and len(key) >= 4 and struct.unpack_from(">h", key, 2)[0] == control_type


def _snapshot_rules(data: bytes, items: list[Item]) -> Iterator[Finding]:
    """What a `.checkpoint` file must begin and end with, when that end is framed at all."""
    rules = (("kraft/snapshot-header", 0, 3), ("kraft/snapshot-footer", -1, 4))
    for code, which, control_type in rules:
        if not items:
            yield Finding(code, "error", 0, 0, None, {})
        elif isinstance(item := items[which], Batch) and not _is_control(data, item, which, control_type):
            yield Finding(code, "error", item.position, item.size, item.offset, {})


def _first_of_each(findings: list[Finding], limit: int) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for finding in findings:
        seen[finding.code] = seen.get(finding.code, 0) + 1
        if seen[finding.code] <= limit:
            yield finding


def verify(
    data: bytes,
    *,
    deep: bool = False,
    base_offset: int | None = None,
    newest: bool = True,
    compacted: str = "auto",
    checkpoint: bool = False,
    max_batch_bytes: int = 2**30,
    limit: int = FINDINGS_PER_CODE,
) -> list[Finding]:
    """Everything wrong with one segment, by position; at most `limit` findings of a code.

    `newest` is whether this is the last segment of its log, `compacted` is `yes`, `no` or `auto` (decide by the segment
    itself),
    `checkpoint` applies the rules of a KRaft snapshot as well, `max_batch_bytes` bounds a batch, as stored and
    decompressed.
    """
    data = bytes(data)
    walked = survey(data, base_offset=base_offset, max_batch_bytes=max_batch_bytes)
    rules = _Rules(data, deep, base_offset, newest, max_batch_bytes)
    for item in walked.items:
        if isinstance(item, Batch):
            rules.batch(item)
        else:
            rules.other(item)
    rules.once(compacted)
    for batch in walked.foreign:
        rules.add("gap/foreign-batch", "info", batch, undecided=batch.position in walked.undecided)
    for position in walked.unsearched:
        later = (item.position for item in walked.items if isinstance(item, Batch) and item.position > position)
        rules.findings.append(
            Finding("gap/unsearched", "warning", position, next(later, len(data)) - position, None, {})
        )
    if checkpoint:
        rules.findings += _snapshot_rules(data, walked.items)
    return list(_first_of_each(sorted(rules.findings, key=lambda finding: finding.position), limit))
