"""Named damages: what disks, crashes, bugs and other writers do to a segment.

Each is a function `(data, rng) -> bytes` in `DAMAGES`, and always changes the bytes. Where a damage wants something
that the segment does not have (a wrapper message, a marker, two batches), it first adds it after the last batch.
`codes` are the findings that it can newly cause in a segment that had none; `certain` says that at least one of them
always follows. "Resealed" damages make the checksum right again: only a look at the fields can see them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from support import build, oracle
from support.oracle import Batch

Maker = Callable[[bytes, random.Random], bytes]


class NotApplicable(Exception):
    """The bytes are already as this damage would leave them: only ever after another damage."""


@dataclass(frozen=True)
class Damage:
    """One damage: call it with the bytes and a source of randomness.

    `codes`: what it can cause. `certain`: it always causes one of them. `deep`: some are seen only when records are
    opened.
    """

    name: str
    apply: Maker
    codes: frozenset[str]
    certain: bool
    deep: bool

    def __call__(self, data: bytes, rng: random.Random) -> bytes:
        for _ in range(20):  # a damage that meets an earlier one may, by chance, write what is there
            out = self.apply(data, rng)
            if out != data:
                return out
        raise NotApplicable(f"{self.name} changes nothing")


DAMAGES: dict[str, Damage] = {}


def _named(name: str, *codes: str, certain: bool = True, deep: bool = False) -> Callable[[Maker], Maker]:
    def register(function: Maker) -> Maker:
        DAMAGES[name] = Damage(name, function, frozenset(codes), certain, deep)
        return function

    return register


def damage(data: bytes, rng: random.Random, times: int = 1, names: Sequence[str] | None = None) -> bytes:
    """`times` damages one after the other, chosen among `names` (all by default)."""
    for _ in range(times):
        data = DAMAGES[rng.choice(sorted(DAMAGES) if names is None else names)](data, rng)
    return data


# ------------------------------------------------------------------------------------------------------------- the
# batches


def batches(data: bytes) -> list[Batch]:
    """The valid batches of a segment, in order."""
    return [item for item in oracle.walk(data) if isinstance(item, Batch)]


def _replace(data: bytes, batch: Batch, new: bytes) -> bytes:
    return data[: batch.position] + new + data[batch.position + batch.size :]


FURTHEST = 2**62  # added batches keep below, so that their offsets can be written


def _after_last(data: bytes) -> tuple[int, int, int]:
    """Where the valid batches end, the next offset, the last leader epoch."""
    found = batches(data)
    epoch = max([-1, *(batch.partition_leader_epoch or 0 for batch in found if not batch.is_legacy)])
    if not found:
        return 0, 0, epoch
    return found[-1].position + found[-1].size, min(found[-1].last_offset + 1, FURTHEST), epoch


def _with(
    data: bytes, fits: Callable[[bytes, Batch], bool], make: Callable[[int, int], bytes], *, at_least: int = 1
) -> tuple[bytes, list[Batch]]:
    """The segment with at least that many batches that fit, and those; `make(offset, epoch)` gives one more."""
    while True:
        suitable = [batch for batch in batches(data) if fits(data, batch)]
        if len(suitable) >= at_least:
            return data, suitable
        position, offset, epoch = _after_last(data)
        data = data[:position] + make(offset, epoch) + data[position:]


def _plain_batch(offset: int, epoch: int) -> bytes:
    items = [build.record(b"k%d" % number, b"value", headers=[(b"h", b"x")]) for number in range(3)]
    return build.batch(items, base_offset=offset, epoch=epoch)


def _any(data: bytes, at_least: int = 1) -> tuple[bytes, list[Batch]]:
    return _with(data, lambda data, batch: True, _plain_batch, at_least=at_least)


def _v2(data: bytes) -> tuple[bytes, list[Batch]]:
    return _with(data, lambda data, batch: batch.magic == 2, _plain_batch)


def _data_batches(data: bytes) -> tuple[bytes, list[Batch]]:
    """Magic 2 batches with records that can be read, no control batches."""

    def fits(data: bytes, batch: Batch) -> bool:
        if batch.magic != 2 or batch.control or (batch.count or 0) <= 0:
            return False
        try:
            return bool(oracle.records(data, batch.position))
        except oracle.Malformed:
            return False

    return _with(data, fits, _plain_batch)


def _field(data: bytes, batch: Batch, code: str, at: int, value: int, *, seal: bool = True) -> bytes:
    """The segment with one header field of a batch replaced."""
    size, at = struct.calcsize(code), batch.position + at
    new = (value % 256**size).to_bytes(size)
    out = data[:at] + new + data[at + size :]
    return build.reseal(out, batch.position) if seal else out


def _other(rng: random.Random, choices: Sequence[int], value: int) -> int:
    return rng.choice([choice for choice in choices if choice != value])


def _flip(data: bytes, rng: random.Random, start: int, end: int) -> bytes:
    """One bit of `data[start:end]` turned over."""
    out = bytearray(data)
    out[rng.randrange(start, end)] ^= 1 << rng.randrange(8)
    return bytes(out)


# ------------------------------------------------------------------------------------------------------- bits and bytes

_FRAMING = (
    "batch/crc",
    "batch/magic",
    "batch/length",
    "gap/bytes",
    "gap/foreign-batch",
    "tail/torn",
    "tail/zeros",
    "tail/garbage",
)
# A lost batch may show what it holds: stored messages of a wrapper, whose offsets then do not fit.
_ORDER = ("offset/range", "offset/backwards", "offset/gap")
_MOVED = ("record/delta", "legacy/wrapper")  # a wrapper message's offset no longer fits what is inside
# Snappy and lz4 leave the messages of a wrapper as they are where they cannot compress them: a search for the next
# batch finds them.
_INNER = ("gap/foreign-batch",)
# A flip of a legacy message's magic makes its size too small for its magic, so that the next batch must be searched
# for.
_UNDER_CRC = ("batch/crc", "batch/length", "gap/bytes", "tail/garbage", *_INNER)


def checked_from(batch: Batch) -> int:
    """Where a flipped bit meets the checksum: from the stored checksum on (and, for magic 0 and 1, the magic after
    it)."""
    return batch.position + (12 if batch.is_legacy else 17)


@_named("flip-bit", *_FRAMING, *_ORDER, *_MOVED, "epoch/backwards", certain=False, deep=True)
def _flip_bit(data: bytes, rng: random.Random) -> bytes:
    data, _ = _any(data)
    return _flip(data, rng, 0, len(data))


@_named("flip-under-crc", *_UNDER_CRC)
def _flip_under_crc(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    return _flip(data, rng, checked_from(batch), batch.position + batch.size)


@_named("flip-crc", "batch/crc", *_INNER)
def _flip_crc(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    start = checked_from(rng.choice(found))
    return _flip(data, rng, start, start + 4)


@_named("flip-length", *_FRAMING, *_ORDER)
def _flip_length(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    start = rng.choice(found).position + 8
    return _flip(data, rng, start, start + 4)


@_named("flip-magic", "batch/magic", *_UNDER_CRC)
def _flip_magic(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    start = rng.choice(found).position + 16
    return _flip(data, rng, start, start + 1)


@_named("flip-offset", *_ORDER, *_MOVED, certain=False, deep=True)
def _flip_offset(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    start = rng.choice(found).position
    return _flip(data, rng, start, start + 8)


@_named("flip-epoch", "epoch/backwards", certain=False)
def _flip_epoch(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    start = rng.choice(found).position + 12
    return _flip(data, rng, start, start + 4)


@_named("negative-epoch", "epoch/backwards")
def _negative_epoch(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    return _field(data, rng.choice(found), ">i", 12, rng.choice((-2, -1000, -(2**31))), seal=False)


@_named("zero-body", "batch/crc", *_INNER)
def _zero_body(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    end = batch.position + batch.size
    start = rng.choice([position for position in range(checked_from(batch), end) if data[position]])
    end = rng.randint(start + 1, end)
    return data[:start] + bytes(end - start) + data[end:]


@_named("zero-range", *_FRAMING, *_ORDER, *_MOVED, "epoch/backwards", certain=False, deep=True)
def _zero_range(data: bytes, rng: random.Random) -> bytes:
    data, _ = _any(data)
    start = rng.choice([position for position, byte in enumerate(data) if byte])
    end = rng.randint(start + 1, min(len(data), start + 300))
    return data[:start] + bytes(end - start) + data[end:]


@_named("zero-page", *_FRAMING, *_ORDER, *_MOVED, "epoch/backwards", deep=True)
def _zero_page(data: bytes, rng: random.Random) -> bytes:
    data, _ = _any(data)
    page = 4096 if len(data) > 8192 else 64
    start = rng.choice([start for start in range(0, len(data), page) if data[start : start + page].strip(b"\0")])
    length = min(page, len(data) - start)
    return data[:start] + bytes(length) + data[start + length :]


@_named("zero-end", *_FRAMING, *_ORDER)
def _zero_end(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    last = found[-1]
    start = rng.choice(
        [p for p in range(last.position, last.position + last.size) if data[p] and p != last.position + 16]
    )
    if last.position < start < last.position + 8:
        start = last.position
    return data[:start] + bytes(len(data) - start)


# ----------------------------------------------------------------------------------------------------------- ends of
# files


@_named("cut", "tail/torn", "tail/zeros", "gap/foreign-batch")
def _cut(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    return data[: batch.position + rng.randrange(1, batch.size)]


@_named("cut-at-border", certain=False)
def _cut_at_border(data: bytes, rng: random.Random) -> bytes:
    more, found = _any(data, at_least=2)
    return more[: rng.choice([batch.position for batch in found if more[: batch.position] != data])]


@_named("garbage-tail", "tail/garbage", "tail/torn", "batch/crc")
def _garbage_tail(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(18, 400))


@_named("zero-tail", "tail/zeros")
def _zero_tail(data: bytes, rng: random.Random) -> bytes:
    return data + bytes(rng.choice((1, 16, 17, 18, 100, 4096)))


@_named("short-tail", "tail/torn")
def _short_tail(data: bytes, rng: random.Random) -> bytes:
    return data + bytes([rng.randint(1, 255)]) + rng.randbytes(rng.randint(0, 16))


@_named("torn-then-zeros", "batch/crc", "tail/zeros", "tail/torn")
def _torn_then_zeros(data: bytes, rng: random.Random) -> bytes:
    """What a crash leaves in a preallocated file: half a batch, then zeros."""
    position, offset, epoch = _after_last(data)
    torn = _plain_batch(offset, epoch)
    return data[:position] + torn[: rng.randrange(62, len(torn) - 10)] + bytes(rng.choice((5, 200, 4096)))


# --------------------------------------------------------------------------------------------------------- whole
# batches


@_named("repeat-batch", "offset/backwards")
def _repeat_batch(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    end = batch.position + batch.size
    return data[:end] + data[batch.position : end] + data[end:]


@_named("swap-batches", "offset/backwards", "offset/gap", "epoch/backwards")
def _swap_batches(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data, at_least=2)
    number = rng.randrange(len(found) - 1)
    first, second = found[number], found[number + 1]
    between = data[first.position + first.size : second.position]
    one, two = data[first.position : first.position + first.size], data[second.position : second.position + second.size]
    return data[: first.position] + two + between + one + data[second.position + second.size :]


@_named("remove-batch", "offset/gap", certain=False)
def _remove_batch(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data, at_least=3)
    return _replace(data, rng.choice(found[1:-1]), b"")


@_named("insert-foreign-batch", *_ORDER, "epoch/backwards")
def _insert_foreign_batch(data: bytes, rng: random.Random) -> bytes:
    """A sound batch of another log: before the last batch, so that the offsets cannot fit."""
    data, found = _any(data, at_least=2)
    batch = rng.choice(found[1:])
    offset = min(batch.offset + rng.choice((1000, 10**6, 2**33)), FURTHEST)
    foreign = rng.choice((_plain_batch(offset, 0), build.message_v1(b"k", b"v", offset=offset)))
    return data[: batch.position] + foreign + data[batch.position :]


@_named("insert-garbage", *_FRAMING, *_ORDER)
def _insert_garbage(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    position = rng.choice(found).position
    return data[:position] + rng.randbytes(rng.randint(1, 200)) + data[position:]


@_named("insert-zeros", *_FRAMING, *_ORDER)
def _insert_zeros(data: bytes, rng: random.Random) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    return data[: batch.position] + bytes(rng.choice((17, 61, 500))) + data[batch.position :]


@_named("nested-batch", "batch/length", "gap/bytes", "gap/foreign-batch", "tail/torn", "tail/garbage")
def _nested_batch(data: bytes, rng: random.Random) -> bytes:
    """A batch whose value holds a copy of an older one, and whose length is lost: the copy must not be taken."""
    data, found = _any(data, at_least=2)
    batch = rng.choice(found)
    position, offset, epoch = _after_last(data)
    copy = data[batch.position : batch.position + batch.size]
    outer = bytearray(build.batch([build.record(b"k", copy)], base_offset=offset, epoch=epoch))
    outer[8] = 0x7F
    after = rng.choice((b"", _plain_batch(offset + 1, epoch)))
    return data[:position] + bytes(outer) + after + data[position:]


# -----------------------------------------------------------------------------------------------------------------
# lengths


def _length(data: bytes, rng: random.Random, new: Callable[[int], int]) -> bytes:
    data, found = _any(data)
    batch = rng.choice(found)
    return _field(data, batch, ">i", 8, new(batch.size - 12), seal=False)


@_named("grow-length", *_FRAMING, *_ORDER)
def _grow_length(data: bytes, rng: random.Random) -> bytes:
    return _length(data, rng, lambda size: size + rng.randint(1, 200))


@_named("shrink-length", *_FRAMING, *_ORDER)
def _shrink_length(data: bytes, rng: random.Random) -> bytes:
    return _length(data, rng, lambda size: size - rng.randint(1, size))


@_named("huge-length", *_FRAMING, *_ORDER)
def _huge_length(data: bytes, rng: random.Random) -> bytes:
    return _length(data, rng, lambda size: rng.choice((2**31 - 1, 2**30, 2**24)))


@_named("negative-length", *_FRAMING, *_ORDER)
def _negative_length(data: bytes, rng: random.Random) -> bytes:
    return _length(data, rng, lambda size: rng.choice((-1, -12, -(2**31))))


@_named("length-below-minimum", *_FRAMING, *_ORDER)
def _length_below_minimum(data: bytes, rng: random.Random) -> bytes:
    return _length(data, rng, lambda size: rng.choice((0, 5, 13)))


# ------------------------------------------------------------------------------------------- header fields that lie,
# resealed


@_named("lie-count", "batch/count", "record/structure", deep=True)
def _lie_count(data: bytes, rng: random.Random) -> bytes:
    data, found = _with(data, lambda data, batch: batch.magic == 2 and (batch.count or 0) > 0, _plain_batch)
    batch = rng.choice(found)
    count = batch.count or 0
    return _field(data, batch, ">i", 57, _other(rng, (-1, 0, count - 1, count + 1, 10**6, 2**31 - 1), count))


@_named("lie-last-offset-delta", *_ORDER, "batch/count", "record/delta", certain=False, deep=True)
def _lie_last_offset_delta(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    batch = rng.choice(found)
    delta = batch.last_offset_delta
    return _field(
        data, batch, ">i", 23, _other(rng, (-1, 0, delta - 1, delta + 1, delta + 1000, 2**31 - 1, -(2**31)), delta)
    )


@_named("lie-max-timestamp", "time/max", deep=True)
def _lie_max_timestamp(data: bytes, rng: random.Random) -> bytes:
    data, found = _with(
        data, lambda data, batch: batch.magic == 2 and (batch.count or 0) > 0 and not batch.append_time, _plain_batch
    )
    batch = rng.choice(found)
    return _field(data, batch, ">q", 35, _other(rng, (-1, 0, batch.max_timestamp + 1, 2**62), batch.max_timestamp))


@_named(
    "lie-attributes",
    "batch/attributes",
    "batch/codec",
    "batch/codec-odd",
    "control/structure",
    "record/structure",
    "record/varint",
    "record/delta",
    "time/max",
    certain=False,
    deep=True,
)
def _lie_attributes(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    batch = rng.choice(found)
    return _field(data, batch, ">h", 21, oracle.wrap(batch.attributes ^ 1 << rng.randrange(16), 16))


@_named("unused-attributes", "batch/attributes")
def _unused_attributes(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    batch = rng.choice(found)
    return _field(data, batch, ">h", 21, oracle.wrap(batch.attributes ^ 1 << rng.randrange(7, 16), 16))


@_named("codec-id", "batch/codec", "batch/codec-odd", "record/structure", deep=True)
def _codec_id(data: bytes, rng: random.Random) -> bytes:
    data, found = _data_batches(data)
    batch = rng.choice(found)
    codec = _other(rng, range(8), batch.codec)
    return _field(data, batch, ">H", 21, batch.attributes & ~7 | codec)


@_named("base-offset-below-zero", "offset/range", "offset/backwards", "offset/gap")
def _base_offset_below_zero(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    return _field(data, rng.choice(found), ">q", 0, rng.choice((-1, -1000, -(2**63))), seal=False)


@_named("offset-overflow", *_ORDER)
def _offset_overflow(data: bytes, rng: random.Random) -> bytes:
    """A last offset beyond 2**63 - 1."""
    data, found = _v2(data)
    batch = rng.choice(found)
    data = _field(data, batch, ">q", 0, 2**63 - 1, seal=False)
    return _field(data, batch, ">i", 23, batch.last_offset_delta + 1)


@_named("magic-3", "batch/magic")
def _magic_3(data: bytes, rng: random.Random) -> bytes:
    data, found = _v2(data)
    return _field(data, rng.choice(found), ">b", 16, rng.choice((3, 4, 127, -1)), seal=False)


# ------------------------------------------------------------------------------------------------- record bodies,
# resealed


def _rebuild(data: bytes, batch: Batch, items: Sequence[build.Record | bytes], *, extra: bytes = b"") -> bytes:
    """The segment with other records in a magic 2 batch; every header field stays, `extra` follows the last record."""
    new = build.batch(
        [*items, extra] if extra else items,
        base_offset=batch.offset,
        codec=batch.codec,
        epoch=batch.partition_leader_epoch or 0,
        attributes=batch.attributes,
        last_offset_delta=batch.last_offset_delta,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=len(items),
    )
    return _replace(data, batch, new)


def _records_of(data: bytes, batch: Batch) -> list[build.Record]:
    """Raises NotApplicable where another damage was there before."""
    try:
        return [
            build.record(each.key, each.value, headers=each.headers, timestamp=each.timestamp, offset=each.offset)
            for each in oracle.records(data, batch.position)
        ]
    except oracle.Malformed as error:
        raise NotApplicable(error.reason) from None


def _with_override(
    data: bytes, rng: random.Random, override: Callable[[build.Record, Batch], dict[str, int | bytes]]
) -> bytes:
    """One record of one data batch with fields of `build.RECORD_FIELDS` replaced."""
    data, found = _data_batches(data)
    batch = rng.choice(found)
    items = _records_of(data, batch)
    number = rng.randrange(len(items))
    items[number] = items[number]._replace(overrides=override(items[number], batch))
    return _rebuild(data, batch, items)


def _right_fields(item: build.Record, batch: Batch) -> dict[str, int]:
    """The fields of a record that are varints, with their right values."""
    assert item.offset is not None
    fields = {
        "offset_delta": item.offset - batch.offset,
        "key_length": -1 if item.key is None else len(item.key),
        "value_length": -1 if item.value is None else len(item.value),
        "headers_count": len(item.headers),
    }
    if item.headers:
        fields["header_key_length"] = len(item.headers[0][0])
    return fields


@_named("record-long-varint", "record/structure", deep=True)
def _record_long_varint(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        name = rng.choice((*_right_fields(item, batch), "length", "timestamp_delta"))
        return {name: build.TOO_LONG_VARLONG if name == "timestamp_delta" else build.TOO_LONG_VARINT}

    return _with_override(data, rng, override)


@_named("record-overlong-varint", "record/varint", deep=True)
def _record_overlong_varint(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        name, value = rng.choice(list(_right_fields(item, batch).items()))
        shortest = len(build.varint(value))
        return {
            name: build.varint(value, rng.randint(shortest + 1, 5)) if shortest < 5 else build.spilled_varint(value)
        }

    return _with_override(data, rng, override)


@_named("record-spilled-varint", "record/varint", deep=True)
def _record_spilled_varint(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        if rng.random() < 0.3:
            assert item.timestamp is not None
            return {"timestamp_delta": build.spilled_varlong(item.timestamp - batch.base_timestamp)}
        name, value = rng.choice(list(_right_fields(item, batch).items()))
        return {name: build.spilled_varint(value)}

    return _with_override(data, rng, override)


@_named("record-length", "record/structure", deep=True)
def _record_length(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        assert item.offset is not None
        assert item.timestamp is not None
        encoded = build.encode_record(
            item, offset_delta=item.offset - batch.offset, timestamp_delta=item.timestamp - batch.base_timestamp
        )
        length = next(n for n in range(len(encoded)) if len(encoded) == n + len(build.varint(n)))
        return {"length": _other(rng, (-1, 0, length - 1, length + 1, length + 1000, 2**31 - 1, -(2**31)), length)}

    return _with_override(data, rng, override)


@_named("record-field-length", "record/structure", deep=True)
def _record_field_length(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        return {rng.choice(("key_length", "value_length")): rng.choice((10**6, 2**31 - 1))}

    return _with_override(data, rng, override)


@_named("record-headers-count", "record/structure", deep=True)
def _record_headers_count(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        return {"headers_count": rng.choice((-1, -(2**31), len(item.headers) + 1, 10**6, 2**31 - 1))}

    return _with_override(data, rng, override)


@_named("record-header-key", "record/structure", deep=True)
def _record_header_key(data: bytes, rng: random.Random) -> bytes:
    data, found = _data_batches(data)
    batch = rng.choice(found)
    items = _records_of(data, batch)
    number = rng.randrange(len(items))
    headers = items[number].headers or ((b"h", b"x"),)
    length = rng.choice((-1, -(2**31), 10**6))
    items[number] = items[number]._replace(headers=headers, overrides={"header_key_length": length})
    return _rebuild(data, batch, items)


@_named("record-trailing", "record/structure", deep=True)
def _record_trailing(data: bytes, rng: random.Random) -> bytes:
    return _with_override(data, rng, lambda item, batch: {"trailing": rng.randbytes(rng.randint(1, 20))})


@_named("records-trailing", "record/structure", deep=True)
def _records_trailing(data: bytes, rng: random.Random) -> bytes:
    data, found = _data_batches(data)
    batch = rng.choice(found)
    return _rebuild(data, batch, _records_of(data, batch), extra=rng.randbytes(rng.randint(1, 20)))


@_named("record-delta", "record/delta", deep=True)
def _record_delta(data: bytes, rng: random.Random) -> bytes:
    def override(item: build.Record, batch: Batch) -> dict[str, int | bytes]:
        return {"offset_delta": rng.choice((-1, -(2**31), batch.last_offset_delta + 1, 2**31 - 1))}

    return _with_override(data, rng, override)


# --------------------------------------------------------------------------------------------------------- control
# batches


@_named("bad-control-record", "control/structure")
def _bad_control_record(data: bytes, rng: random.Random) -> bytes:
    data, found = _with(
        data,
        lambda data, batch: batch.control and batch.codec == 0 and (batch.count or 0) > 0,
        lambda offset, epoch: build.marker(base_offset=offset, epoch=epoch),
    )
    batch = rng.choice(found)
    items = _records_of(data, batch)
    number = rng.randrange(len(items))
    key, value = rng.choice(
        (
            (None, b""),
            (b"\0\0\0", b"\0" * 6),
            (build.control_key("COMMIT", version=-1), b"\0" * 6),
            (build.control_key("COMMIT"), None),
            (build.control_key("ABORT"), b"\0" * 5),
            (build.control_key("ABORT"), b"\xff\xff\0\0\0\0"),
        )
    )
    items[number] = items[number]._replace(key=key, value=value)
    return _rebuild(data, batch, items)


# ------------------------------------------------------------------------------------------------------ messages v0 and
# v1


def _legacy(data: bytes) -> tuple[bytes, list[Batch]]:
    return _with(
        data,
        lambda data, batch: batch.is_legacy,
        lambda offset, epoch: build.message_v1(b"key", b"value", offset=offset),
    )


def _three_in_a_wrapper(offset: int, epoch: int) -> bytes:
    items = [build.record(b"k", b"v%d" % number) for number in range(3)]
    return build.wrapper(items, codec="gzip", magic=1, base_offset=offset)


def _entries(data: bytes, batch: Batch) -> list[bytes]:
    """The entries inside a wrapper message, as stored; empty when they cannot be had."""
    body = data[batch.position : batch.position + batch.size]
    at = 18 if batch.magic == 0 else 26
    at += 4 + max(0, struct.unpack_from(">i", body, at)[0])
    if at + 4 > len(body):
        return []
    (value_length,) = struct.unpack_from(">i", body, at)
    try:
        payload = oracle.decompress(batch.codec, body[at + 4 : at + 4 + value_length], batch.magic).payload
    except oracle.Malformed:
        return []
    out = []
    while len(payload) >= 26:
        total = build.total_size(payload, 0)
        if not 26 <= total <= len(payload):
            break
        out.append(payload[:total])
        payload = payload[total:]
    return out


def _wrappers(
    data: bytes, at_least: int = 1, *, magics: Sequence[int] = (0, 1), create_time: bool = False
) -> tuple[bytes, list[Batch]]:
    """Wrapper messages with at least that many messages inside."""

    def fits(data: bytes, batch: Batch) -> bool:
        if batch.magic not in magics or not 0 < batch.codec < 4 or (create_time and batch.append_time):
            return False
        return len(_entries(data, batch)) >= at_least

    return _with(data, fits, _three_in_a_wrapper)


def _rewrap(
    data: bytes, batch: Batch, entries: Sequence[bytes], *, partial: bytes = b"", payload: bytes | None = None
) -> bytes:
    """The segment with other entries in a wrapper; offset, timestamp and attributes stay."""
    new = build.wrapper(
        entries,
        codec=batch.codec,
        magic=batch.magic,
        offset=batch.last_offset,
        timestamp=batch.max_timestamp,
        attributes=batch.attributes,
        partial=partial,
        payload=payload,
    )
    return _replace(data, batch, new)


def _one_entry(
    data: bytes, rng: random.Random, change: Callable[[bytes], bytes], *, magics: Sequence[int] = (0, 1)
) -> bytes:
    """One entry of one wrapper changed."""
    data, found = _wrappers(data, magics=magics)
    batch = rng.choice(found)
    entries = _entries(data, batch)
    number = rng.randrange(len(entries))
    entries[number] = change(entries[number])
    return _rewrap(data, batch, entries)


def _patched(entry: bytes, at: int, new: bytes) -> bytes:
    return entry[:at] + new + entry[at + len(new) :]


@_named("inner-crc", "legacy/inner-crc", deep=True)
def _inner_crc(data: bytes, rng: random.Random) -> bytes:
    return _one_entry(data, rng, lambda entry: _flip(entry, rng, 12, 16))


@_named("inner-compressed", "legacy/wrapper", deep=True)
def _inner_compressed(data: bytes, rng: random.Random) -> bytes:
    return _one_entry(
        data, rng, lambda entry: build.reseal(_patched(entry, 17, bytes([entry[17] & ~7 | rng.randint(1, 7)])))
    )


@_named("inner-size", "legacy/wrapper", deep=True)
def _inner_size(data: bytes, rng: random.Random) -> bytes:
    return _one_entry(data, rng, lambda entry: _patched(entry, 8, struct.pack(">i", rng.choice((-1, 0, 13)))))


@_named("inner-magic-unknown", "legacy/wrapper", deep=True)
def _inner_magic_unknown(data: bytes, rng: random.Random) -> bytes:
    return _one_entry(data, rng, lambda entry: _patched(entry, 16, bytes([rng.choice((2, 3, 255))])))


@_named("inner-magic-mixed", "legacy/inner-magic", "time/max", deep=True)
def _inner_magic_mixed(data: bytes, rng: random.Random) -> bytes:
    """A message of the other format inside a wrapper, as the cleaner left them (KAFKA-4298)."""

    def change(entry: bytes) -> bytes:
        (offset,) = struct.unpack_from(">q", entry)
        return build.message(1 - entry[16], b"k", b"other", offset=offset)

    return _one_entry(data, rng, change)


@_named("inner-structure", "record/structure", deep=True)
def _inner_structure(data: bytes, rng: random.Random) -> bytes:
    def change(entry: bytes) -> bytes:
        at = 18 if entry[16] == 0 else 26
        return build.reseal(_patched(entry, at, struct.pack(">i", rng.choice((10**6, 2**31 - 1)))))

    return _one_entry(data, rng, change)


@_named("inner-partial", "legacy/partial", deep=True)
def _inner_partial(data: bytes, rng: random.Random) -> bytes:
    data, found = _wrappers(data)
    batch = rng.choice(found)
    entries = _entries(data, batch)
    return _rewrap(data, batch, entries, partial=entries[0][: rng.randrange(1, len(entries[0]))])


@_named("inner-none", "legacy/wrapper", deep=True)
def _inner_none(data: bytes, rng: random.Random) -> bytes:
    data, found = _wrappers(data)
    return _rewrap(data, rng.choice(found), [], partial=rng.randbytes(rng.randint(0, 11)))


@_named("inner-offsets", "record/delta", deep=True)
def _inner_offsets(data: bytes, rng: random.Random) -> bytes:
    """Every message inside has the last one's offset."""
    data, found = _wrappers(data, at_least=2)
    batch = rng.choice(found)
    entries = _entries(data, batch)
    return _rewrap(data, batch, [_patched(entry, 0, entries[-1][:8]) for entry in entries])


@_named("wrapper-empty", "legacy/wrapper", deep=True)
def _wrapper_empty(data: bytes, rng: random.Random) -> bytes:
    data, found = _wrappers(data)
    batch = rng.choice(found)
    return _replace(
        data,
        batch,
        build.message(
            batch.magic,
            None,
            rng.choice((None, b"")),
            offset=batch.last_offset,
            timestamp=batch.max_timestamp,
            attributes=batch.attributes,
        ),
    )


@_named("wrapper-offset-low", "legacy/wrapper", "offset/backwards", "offset/gap", deep=True)
def _wrapper_offset_low(data: bytes, rng: random.Random) -> bytes:
    data, found = _wrappers(data, at_least=3, magics=(1,))
    batch = rng.choice(found)
    last = struct.unpack_from(">q", _entries(data, batch)[-1])[0]
    return _field(data, batch, ">q", 0, rng.randrange(1, max(last, 2)), seal=False)


@_named("wrapper-codec-data", "batch/codec", deep=True)
def _wrapper_codec_data(data: bytes, rng: random.Random) -> bytes:
    """The compressed data of a wrapper cut short."""
    data, found = _wrappers(data)
    batch = rng.choice(found)
    payload = build.compress(batch.codec, b"".join(_entries(data, batch)), magic=batch.magic)
    return _rewrap(data, batch, [], payload=payload[: rng.randrange(20, len(payload) - 8)])


@_named("lz4-header-checksum", "batch/codec", deep=True)
def _lz4_header_checksum(data: bytes, rng: random.Random) -> bytes:
    """The header checksum of magic 0 in a magic 1 wrapper."""
    data, found = _with(
        data,
        lambda data, batch: batch.magic == 1 and batch.codec == 3 and bool(_entries(data, batch)),
        lambda offset, epoch: build.wrapper([build.record(b"k", b"v")], codec="lz4", magic=1, base_offset=offset),
    )
    batch = rng.choice(found)
    entries = b"".join(_entries(data, batch))
    return _rewrap(data, batch, [], payload=build.lz4_frame(entries, broken_header_checksum=True))


@_named("legacy-codec", "batch/codec", "batch/codec-odd", "legacy/wrapper", deep=True)
def _legacy_codec(data: bytes, rng: random.Random) -> bytes:
    data, found = _legacy(data)
    batch = rng.choice(found)
    attributes = batch.attributes & 0xF8 | _other(rng, range(1, 8), batch.codec)
    return _field(data, batch, ">B", 17, attributes)


@_named("legacy-attributes", "batch/attributes")
def _legacy_attributes(data: bytes, rng: random.Random) -> bytes:
    data, found = _legacy(data)
    batch = rng.choice(found)
    return _field(data, batch, ">B", 17, (batch.attributes & 0xFF) ^ 1 << rng.randrange(4, 8))


@_named("legacy-trailing", "legacy/trailing", deep=True)
def _legacy_trailing(data: bytes, rng: random.Random) -> bytes:
    data, found = _legacy(data)
    batch = rng.choice(found)
    body = bytearray(data[batch.position : batch.position + batch.size] + rng.randbytes(rng.randint(1, 20)))
    struct.pack_into(">i", body, 8, len(body) - 12)
    return _replace(data, batch, build.reseal(bytes(body)))


@_named("legacy-structure", "record/structure", deep=True)
def _legacy_structure(data: bytes, rng: random.Random) -> bytes:
    data, found = _legacy(data)
    batch = rng.choice(found)
    return _field(data, batch, ">i", 18 if batch.magic == 0 else 26, rng.choice((10**6, 2**31 - 1)))


@_named("wrapper-timestamp", "time/max", deep=True)
def _wrapper_timestamp(data: bytes, rng: random.Random) -> bytes:
    data, found = _wrappers(data, magics=(1,), create_time=True)
    batch = rng.choice(found)
    return _field(data, batch, ">q", 18, _other(rng, (-1, 0, batch.max_timestamp + 1), batch.max_timestamp))
