"""Segments from a seed: built ones of every magic and codec, real ones from the fixtures, and mutations of both.

Nothing here depends on anything but the random source that it is given, so a case is its seed and its number.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from support import build, damage, oracle

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SMALL_BYTES = 3000  # what the oracle reads in a few milliseconds
INTERESTING = (
    0,
    1,
    2,
    13,
    14,
    17,
    21,
    22,
    48,
    49,
    60,
    61,
    127,
    128,
    255,
    256,
    2**15 - 1,
    2**31 - 1,
    -1,
    -2,
    -(2**15),
    -(2**31),
)
LONGS = (*INTERESTING, 2**31, 2**32, 2**62, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1)


# ----------------------------------------------------------------------------------------------------------- built
# segments


def text(rng: random.Random) -> bytes | None:
    """A key or a value: nothing, a few bytes, or some that compress well."""
    kind = rng.randrange(6)
    if kind == 0:
        return None
    if kind == 1:
        return b""
    if kind == 2:
        return rng.randbytes(rng.randrange(1, 4)) * rng.randrange(1, 120)
    return rng.randbytes(rng.randrange(1, 16))


def items(rng: random.Random, base_offset: int, *, headers: bool, gaps: bool, most: int = 5) -> list[build.Record]:
    """Records of one batch with rising offsets."""
    found = []
    offset = base_offset
    for _ in range(rng.randrange(1, most + 1)):
        if gaps:
            offset += rng.choice((0, 0, 0, 1, 90))
        some = (
            [(rng.randbytes(rng.randrange(3)).hex().encode(), text(rng)) for _ in range(rng.choice((0, 0, 1, 2)))]
            if headers
            else []
        )
        found.append(
            build.record(
                text(rng), text(rng), headers=some, timestamp=rng.choice((-1, 0, 5, 1000, 2**40)), offset=offset
            )
        )
        offset += 1
    return found


def _control(rng: random.Random, base_offset: int, epoch: int) -> tuple[bytes, int]:
    if rng.random() < 0.5:
        return build.marker(
            rng.choice(("COMMIT", "ABORT")), base_offset=base_offset, epoch=epoch, producer_id=rng.randrange(3)
        ), base_offset
    some = [
        build.leader_change(1, [1, 2], [1]),
        build.snapshot_header(),
        build.kraft_version(1),
        build.kraft_voters([build.Voter(1, endpoints=(("C", "localhost", 9093),))]),
        build.snapshot_footer(),
    ]
    chosen = rng.sample(some, rng.randrange(1, 4))
    codec = rng.choice(("none", "none", "none", "gzip"))
    return build.control_batch(chosen, base_offset=base_offset, epoch=epoch, codec=codec), base_offset + len(chosen) - 1


def _v2(rng: random.Random, base_offset: int, epoch: int, codec: str, compacted: bool) -> tuple[bytes, int]:
    if rng.random() < 0.15:
        return _control(rng, base_offset, epoch)
    if compacted and rng.random() < 0.2:
        last = base_offset + rng.randrange(9)
        return build.empty_batch(base_offset, last, epoch=epoch), last
    chosen = items(rng, base_offset, headers=True, gaps=compacted)
    appended = rng.random() < 0.2
    sequence = rng.choice((-1, -1, 0, 5, 2**31 - 2))
    last = (chosen[-1].offset or 0) + (rng.choice((0, 0, 3)) if compacted else 0)
    data = build.batch(
        chosen,
        base_offset=base_offset,
        codec=codec,
        epoch=epoch,
        timestamp_type="LogAppendTime" if appended else "CreateTime",
        max_timestamp=rng.choice((0, 77, 2**41)) if appended else None,
        delete_horizon_ms=rng.choice((None, 0, 2**40)) if compacted else None,
        transactional=rng.random() < 0.3,
        producer_id=-1 if sequence < 0 else 7,
        producer_epoch=-1 if sequence < 0 else 0,
        base_sequence=sequence,
        last_offset_delta=last - base_offset,
    )
    return data, last


def _legacy(rng: random.Random, base_offset: int, magic: int, codec: str, compacted: bool) -> tuple[bytes, int]:
    timestamp_type = "LogAppendTime" if magic == 1 and rng.random() < 0.2 else "CreateTime"
    if codec == "none":
        data = build.message(
            magic,
            text(rng),
            text(rng),
            offset=base_offset,
            timestamp=rng.choice((-1, 0, 2**40)),
            timestamp_type=timestamp_type,
        )
        return data, base_offset
    chosen = items(rng, base_offset, headers=False, gaps=compacted)
    data = build.wrapper(
        chosen,
        codec=codec,
        magic=magic,
        base_offset=base_offset,
        timestamp=rng.choice((0, 2**41)) if timestamp_type == "LogAppendTime" else None,
        timestamp_type=timestamp_type,
        inner_magic=1 - magic if magic == 0 and rng.random() < 0.05 else None,
    )
    return data, chosen[-1].offset or 0


def built(
    rng: random.Random, *, magics: Sequence[int] = (0, 1, 2), codecs: Sequence[str] = build.CODECS, most: int = 5
) -> tuple[bytes, int]:
    """A sound segment and its base offset: batches of these magics and codecs, offsets and leader epochs that rise."""
    base = offset = rng.choice((0, 0, 7, 300, 2**31, 2**40))
    compacted = rng.random() < 0.3
    epoch = rng.choice((-1, 0, 3))
    parts = []
    for _ in range(rng.randrange(1, most + 1)):
        magic = rng.choice(magics)
        epoch += rng.choice((0, 0, 0, 1))
        if magic == 2:
            part, last = _v2(rng, offset, epoch, rng.choice(codecs), compacted)
        else:
            part, last = _legacy(
                rng, offset, magic, rng.choice([codec for codec in codecs if codec != "zstd"]), compacted
            )
        parts.append(part)
        offset = last + 1 + (rng.choice((0, 0, 1, 1000)) if compacted else 0)
    return b"".join(parts), base


# ------------------------------------------------------------------------------------------------------------ real
# segments


@cache
def fixtures() -> tuple[tuple[str, bytes, int], ...]:
    """Name, bytes and base offset of every log and snapshot among the fixtures."""
    found = []
    for path in sorted(FIXTURES.rglob("*")):
        if path.suffix in (".log", ".checkpoint") and path.is_file():
            base = int(path.name.split(".")[0]) if path.suffix == ".log" else 0
            found.append((path.relative_to(FIXTURES).as_posix(), path.read_bytes(), base))
    return tuple(found)


@cache
def small_pieces() -> tuple[tuple[bytes, int], ...]:
    """Runs of whole batches of the fixtures, at most SMALL_BYTES long (or one batch), each with a base offset that
    fits."""
    pieces = []
    for _, data, base in fixtures():
        positions = [item.position for item in oracle.walk(data, base_offset=base)] + [len(data)]
        begin = 0
        for position, following in pairwise(positions):
            if following - begin > SMALL_BYTES and position > begin:
                pieces.append((data[begin:position], base))
                begin = position
        pieces.append((data[begin:], base))
    return tuple(dict.fromkeys(piece for piece in pieces if 0 < len(piece[0]) <= 3 * SMALL_BYTES))


# ----------------------------------------------------------------------------------------------------------------
# mutations


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    code, numbers = rng.choice(((">i", INTERESTING), (">q", LONGS), (">h", INTERESTING[:-1])))
    number = rng.choice(numbers)
    if at + struct.calcsize(code) <= len(data):
        struct.pack_into(code, data, at, oracle.wrap(number, 8 * struct.calcsize(code)))


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice((rng.randbytes(rng.randrange(1, 30)), bytes(rng.randrange(1, 90))))


def _delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 1, 2, 5, 61, 300))]


def _repeat(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    piece = data[at : at + rng.choice((1, 4, 17, 61, 200))]
    to = rng.randrange(len(data) + 1)
    data[to:to] = piece


def _splice(data: bytearray, rng: random.Random) -> None:
    other, _ = segment(rng)
    at = rng.randrange(len(data) + 1)
    begin = rng.randrange(len(other))
    data[at:] = other[begin:]


BYTES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _flip,
    _set,
    _set,
    _overwrite,
    _insert,
    _delete,
    _repeat,
    _splice,
)


def edited(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, put in, taken out or moved."""
    out = bytearray(data)
    if out:
        rng.choice(BYTES)(out, rng)
    return bytes(out)


def resealed(data: bytes) -> bytes:
    """Every frame that the stored lengths lead to, with the checksum that it should have: what is wrong is then sealed
    under it."""
    out = bytearray(data)
    position = 0
    while len(data) - position >= 26:
        total = build.total_size(data, position)
        if total < 26 or total > len(data) - position:
            break
        out[position : position + total] = build.reseal(bytes(out[position : position + total]))
        position += total
    return bytes(out)


def _header(data: bytes, rng: random.Random) -> bytes:
    """One header field of one batch at an edge of its range, sealed or not."""
    found = damage.batches(data)
    if not found:
        return data
    batch = rng.choice(found)
    fields: tuple[tuple[int, str], ...] = ((0, ">q"), (8, ">i"), (16, ">b"), (17, ">b"))
    if batch.magic == 2:
        fields = (
            *fields,
            (12, ">i"),
            (21, ">h"),
            (23, ">i"),
            (27, ">q"),
            (35, ">q"),
            (43, ">q"),
            (51, ">h"),
            (53, ">i"),
            (57, ">i"),
        )
    elif batch.magic == 1:
        fields = (*fields, (18, ">q"), (26, ">i"))
    else:
        fields = (*fields, (18, ">i"))
    at, code = rng.choice(fields)
    (now,) = struct.unpack_from(code, data, batch.position + at)
    number = rng.choice((now - 1, now + 1, rng.choice(LONGS)))
    out = bytearray(data)
    struct.pack_into(code, out, batch.position + at, oracle.wrap(number, 8 * struct.calcsize(code)))
    whole = build.total_size(bytes(out), batch.position)
    if rng.random() < 0.8 and 26 <= whole <= len(out) - batch.position:
        return build.reseal(bytes(out), batch.position)
    return bytes(out)


def _inside(data: bytes, rng: random.Random) -> bytes:
    """The records of one batch edited as they are before compression, then packed and sealed again."""
    found = damage.batches(data)
    if not found:
        return data
    batch = rng.choice(found)
    body = data[batch.position : batch.position + batch.size]
    if batch.magic == 2:
        begin = 61
    else:
        begin = (26 if batch.magic == 1 else 18) + 4
        begin += max(0, struct.unpack_from(">i", body, begin - 4)[0])
        if batch.codec:
            begin += 4
    payload, codec = body[begin:], batch.codec
    if not payload:
        return data
    if codec:
        try:
            payload = oracle.decompress(codec, payload, batch.magic, 1 << 20).payload
        except oracle.Malformed:
            return data
    for _ in range(rng.choice((1, 1, 2, 4))):
        payload = edited(payload, rng)
    if rng.random() < 0.15:
        codec = rng.choice((0, 1, 2, 3, 4))
    if batch.codec or codec:
        payload = build.compress(codec, payload, magic=batch.magic)
    head = bytearray(body[:begin])
    head[22 if batch.magic == 2 else 17] = head[22 if batch.magic == 2 else 17] & ~7 | codec
    if batch.codec and batch.magic != 2:
        struct.pack_into(">i", head, begin - 4, len(payload))
    new = bytearray(bytes(head) + payload)
    struct.pack_into(">i", new, 8, len(new) - 12)
    if len(new) >= 26:
        new = bytearray(build.reseal(bytes(new)))
    return data[: batch.position] + bytes(new) + data[batch.position + batch.size :]


def _run(data: bytes, rng: random.Random) -> bytes:
    """One byte after the header of several batches in a row."""
    found = damage.batches(data)
    first = rng.randrange(len(found) + 1)
    out = bytearray(data)
    for batch in found[first : first + rng.randrange(1, 8)]:
        at = rng.randrange(batch.position + 17, batch.position + batch.size)
        out[at] ^= rng.randrange(1, 256)
    return bytes(out)


def _damaged(data: bytes, rng: random.Random) -> bytes:
    try:
        return damage.damage(data, rng)
    except (damage.NotApplicable, oracle.Malformed, struct.error, ValueError, IndexError):
        return data  # damages are made for sound batches


_OPERATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _damaged,
    _damaged,
    _damaged,
    edited,
    edited,
    _header,
    _header,
    _inside,
    _inside,
    _inside,
    _run,
    lambda data, rng: resealed(edited(data, rng)),
    lambda data, rng: resealed(edited(edited(data, rng), rng)),
)


def segment(rng: random.Random) -> tuple[bytes, int]:
    """A sound segment (or part of a real one that a crash left) and a base offset that fits."""
    if rng.random() < 0.4:
        return rng.choice(small_pieces())
    return built(rng)


def mutated(rng: random.Random) -> tuple[bytes, int]:
    """A segment that something happened to, and the base offset that it had."""
    data, base = segment(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = changed(data, rng)
    return data, base


def changed(data: bytes, rng: random.Random) -> bytes:
    """A segment that one thing happened to."""
    return rng.choice(_OPERATIONS)(data, rng)


def random_headers(rng: random.Random) -> bytes:
    """Headers whose fields are random, most of them at the edges of their ranges; sealed or not."""
    parts = []
    for _ in range(rng.randrange(1, 8)):
        body = rng.randbytes(rng.choice((0, 1, 5, 14, 40, 200)))
        sizes = [8 * struct.calcsize(f">{code}") for code in "qiihiqqqhii"]
        offset, wrong, epoch, attributes, *others = (
            oracle.wrap(rng.choice((*LONGS, rng.getrandbits(64))), size) for size in sizes
        )
        magic, length = rng.choice((0, 1, 2, 2, 2, rng.randrange(256))), rng.choice((49 + len(body), wrong))
        parts.append(struct.pack(">qiiBIh", offset, length, epoch, magic, 0, attributes))
        parts.append(struct.pack(">iqqqhii", *others) + body)
    data = b"".join(parts)
    return resealed(data) if rng.random() < 0.7 else data


# ------------------------------------------------------------------------------------------------------------ logs of
# 0.7


def _nested(rng: random.Random, depth: int) -> list[build.Nested]:
    found: list[build.Nested] = []
    for _ in range(rng.randrange(1, 5)):
        if depth and rng.random() < 0.35:
            found.append(_nested(rng, depth - 1))
        else:
            found.append(text(rng) or b"")
    return found


def _resealed_07(data: bytes) -> bytes:
    """Every entry that the sizes lead to, with the checksum of its payload."""
    out = bytearray(data)
    position = 0
    while len(data) - position >= 10:
        (size,) = struct.unpack_from(">i", data, position)
        header = 6 if data[position + 4] == 1 else 5
        if size < header or size > len(data) - position - 4:
            break
        struct.pack_into(">I", out, position + header, zlib.crc32(data[position + 4 + header : position + 4 + size]))
        position += 4 + size
    return bytes(out)


def mutated_07(rng: random.Random) -> bytes:
    """A log of Kafka 0.7 that something happened to; now and then nothing."""
    data = b"".join(
        build.kafka07(_nested(rng, 3), magic=rng.choice((0, 1, 1)), codec=rng.choice(("gzip", "snappy")))
        for _ in range(rng.randrange(1, 4))
    )
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        data = edited(data, rng)
        if rng.random() < 0.5:
            data = _resealed_07(data)
    return data
