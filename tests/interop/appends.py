"""What is appended to logs, batch by batch, in several lives of a log: to a broker's own (Log.java) and to kdump's."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from support import build, oracle

NOW_MS = 1_800_000_000_000
"""The clock of both: later than every record, but not so late that a producer expires."""

SIZES = "index.interval.bytes=200,internal.segment.bytes=3000"
# A broker rolls, and notes a leader epoch, before it refuses: nothing of that is seen in one segment of one leader.
ONE = "index.interval.bytes=200,internal.segment.bytes=60000"
# Segments roll by size, by their indexes and by offsets, not by age.
NEVER = "segment.ms=9000000000000000"


class Step(NamedTuple):
    """One append: by a leader for a producer or for the coordinator, who give the offsets, or by a follower, who keeps
    them.

    With `delete` the first segments go, `epoch` of them.
    """

    how: str
    data: bytes
    epoch: int = 0


class Case(NamedTuple):
    """A log: what is appended between each opening and closing, its settings as a topic has them, its first offset, and
    how many days pass between its lives."""

    lives: Sequence[Sequence[Step]]
    settings: str = SIZES
    start: int = 0
    days: int = 0

    def now_ms(self, life: int) -> int:
        return NOW_MS + life * self.days * build.DAY_MS

    @property
    def options(self) -> Mapping[str, int]:
        return {name: int(value) for name, _, value in (part.partition("=") for part in self.settings.split(","))}


def cut(steps: Sequence[Step], lives: int) -> list[list[Step]]:
    """The steps in so many lives of about the same length."""
    bounds = [len(steps) * number // lives for number in range(lives + 1)]
    return [list(steps[start:end]) for start, end in itertools.pairwise(bounds)]


# ---- by a leader


def plain(rng: random.Random, count: int, *, largest: int = 400, epochs: Sequence[int] = (0,)) -> list[Step]:
    """Batches of every codec without a producer; some have no timestamp, and some are earlier than the one before."""
    found = []
    now = NOW_MS - 10_000_000
    for number in range(count):
        now += rng.choice((0, 1, 1000, -500))
        stamp = -1 if rng.random() < 0.1 else now
        records = [
            build.record(
                rng.choice((None, b"", b"key %d" % (number % 7))),
                rng.choice((None, b"", rng.randbytes(rng.randrange(largest)))),
                headers=[(b"name", None), (b"name", b"value")][: rng.randrange(3)],
                timestamp=stamp if stamp < 0 else stamp + 10 * rng.randrange(3),
            )
            for _ in range(rng.randint(1, 4))
        ]
        data = build.batch(records, codec=rng.choice(build.CODECS))
        found.append(Step("leader", data, epochs[number * len(epochs) // count]))
    return found


class _Producer:
    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = self.sequence = self.coordinator_epoch = 0
        self.open = False
        self.last: bytes | None = None


def produced(
    rng: random.Random,
    count: int,
    *,
    producers: int,
    odd: float = 0.0,
    epochs: Sequence[int] = (0,),
    first_id: int = 0,
    now_ms: int = NOW_MS,
) -> list[Step]:
    """Idempotent producers and transactions, committed and aborted; with the chance `odd` something that a broker
    refuses, or has already."""
    ids = [first_id + rng.choice((rng.randrange(3000), rng.getrandbits(40))) for _ in range(producers)]
    writers = [_Producer(producer_id) for producer_id in dict.fromkeys(ids)]
    found = []
    now = now_ms - 10_000_000
    for number in range(count):
        now += rng.choice((0, 1, 1000))
        writer = rng.choice(writers)
        how, data = _odd(rng, writer, now) if rng.random() < odd else _step(rng, writer, now)
        found.append(Step(how, data, epochs[number * len(epochs) // count]))
    return found


def _step(rng: random.Random, writer: _Producer, now: int) -> tuple[str, bytes]:
    if writer.open and rng.random() < 0.4:
        writer.open = False
        writer.coordinator_epoch += rng.random() < 0.1
        if rng.random() < 0.5:  # as since 4.0: every transaction ends in an epoch of its own
            writer.epoch, writer.sequence = writer.epoch + 1, 0
        kind = rng.choice(("COMMIT", "ABORT"))
        return "coordinator", _marker(writer, kind, now)
    if not writer.open and rng.random() < 0.05:
        # A marker without a transaction is nothing unusual: it is sent again, and a transaction may have no records
        # here.
        return "coordinator", _marker(writer, "ABORT", now)
    writer.open = writer.open or rng.random() < 0.5
    return "leader", _data(rng, writer, now)


def _marker(writer: _Producer, kind: str, now: int, **other: int) -> bytes:
    fields = {
        "producer_id": writer.producer_id,
        "producer_epoch": writer.epoch,
        "coordinator_epoch": writer.coordinator_epoch,
        "timestamp": now,
        **other,
    }
    writer.last = None
    return build.marker(kind, **fields)  # type: ignore[arg-type]


def _data(rng: random.Random, writer: _Producer, now: int) -> bytes:
    count = rng.randint(1, 4)
    data = _batch(rng, writer, now, count)
    writer.sequence += count
    writer.last = data
    return data


def _batch(rng: random.Random, writer: _Producer, now: int, count: int = 1, **other: int) -> bytes:
    fields = {
        "producer_id": writer.producer_id,
        "producer_epoch": writer.epoch,
        "base_sequence": writer.sequence,
        "transactional": writer.open,
        **other,
    }
    records = [build.record(b"k", b"v" * rng.randrange(60), timestamp=now) for _ in range(count)]
    return build.batch(records, codec=rng.choice(("none", "none", "lz4")), **fields)  # type: ignore[arg-type]


def _odd(rng: random.Random, writer: _Producer, now: int) -> tuple[str, bytes]:
    sound = _batch(rng, writer, now)
    refused: dict[str, Callable[[], tuple[str, bytes]]] = {
        "gap": lambda: ("leader", _batch(rng, writer, now, base_sequence=writer.sequence + 2)),
        "fenced": lambda: ("leader", _batch(rng, writer, now, producer_epoch=writer.epoch - 1)),
        "not from 0": lambda: ("leader", _batch(rng, writer, now, producer_epoch=writer.epoch + 1, base_sequence=5)),
        "again": lambda: ("leader", writer.last or _batch(rng, writer, now, base_sequence=writer.sequence + 7)),
        "fenced marker": lambda: ("coordinator", _marker(writer, "COMMIT", now, producer_epoch=writer.epoch - 1)),
        "old coordinator": lambda: ("coordinator", _marker(writer, "COMMIT", now, coordinator_epoch=-5)),
        "flipped": lambda: ("leader", sound[:-1] + bytes([sound[-1] ^ 1])),
        "cut": lambda: ("leader", sound[: rng.randrange(1, len(sound))]),
        "no transaction": lambda: ("leader", _batch(rng, writer, now, transactional=False)),
    }
    known = writer.sequence > 0
    names = [
        name
        for name in refused
        if name in ("flipped", "cut")
        or (name == "no transaction" and writer.open)
        or (known and name in ("gap", "not from 0", "again"))
        or (writer.epoch > 0 and known and name in ("fenced", "fenced marker"))
        or (writer.coordinator_epoch > 0 and name == "old coordinator")
    ]
    return refused[rng.choice(names)]()


# ---- by a follower


def fetched(data: bytes, rng: random.Random, *, most: int = 5) -> list[Step]:
    """A log as a follower gets it: several batches at a time."""
    found, start, at, count = [], 0, 0, rng.randint(1, most)
    while at < len(data):
        at += 12 + struct.unpack_from(">i", data, at + 8)[0]
        count -= 1
        if count == 0 or at == len(data):
            found.append(Step("follower", data[start:at], epoch=1 << 30))
            start, count = at, rng.randint(1, most)
    return found


def disturbed(steps: Sequence[Step], rng: random.Random) -> list[Step]:
    """The same, and among it what is there already, what comes too early, and what was damaged on its way."""
    found: list[Step] = []
    for number, step in enumerate(steps):
        again, ahead = rng.choice(steps[: number + 1]).data, rng.choice(steps[number:]).data
        at = rng.randrange(17, 12 + struct.unpack_from(">i", step.data, 8)[0])
        odd = (
            again if number else b"",
            ahead + step.data if ahead != step.data else b"",
            step.data + step.data,
            step.data[:at] + bytes([step.data[at] ^ 1 << rng.randrange(8)]) + step.data[at + 1 :],
        )
        found += [step._replace(data=data) for data in odd if data and rng.random() < 0.3]
        found.append(step)
    return found


def partition(rng: random.Random, *, odd: float, removed: float = 0.0) -> bytes:
    return b"".join(one.data for one in build.partition(rng, batches=120, odd=odd, removed=removed))


def alone(data: bytes) -> list[Step]:
    """A log batch by batch, with leader epoch 0 throughout."""
    found = []
    for step in fetched(data, random.Random(), most=1):
        one = bytearray(step.data)
        one[12:16] = bytes(4) if one[16] == 2 else one[12:16]
        found.append(step._replace(data=bytes(one)))
    return found


def legacy(rng: random.Random, magic: int, count: int, *, first: int = 0, step: int = 1) -> bytes:
    """Messages and wrappers of every codec; with `step` 2 every other offset is missing."""
    found, offset, now = b"", first, NOW_MS - 10_000_000
    for number in range(count):
        now += rng.choice((0, 1000, -300))
        items = [
            build.record(
                rng.choice((None, b"key %d" % (number % 7))),
                rng.choice((None, b"", rng.randbytes(rng.randrange(300)))),
                timestamp=now + rng.randrange(50),
                offset=offset + step * index,
            )
            for index in range(rng.randint(1, 4))
        ]
        codec = rng.choice(("none", "gzip", "snappy", "lz4"))
        if codec == "none":
            items = items[:1]
            (one,) = items
            found += build.message(magic, one.key, one.value, offset=offset, timestamp=one.timestamp or 0)
        else:
            found += build.wrapper(items, codec=codec, magic=magic)
        offset += step * len(items)
    return found


def sent(data: bytes, rng: random.Random) -> Iterator[bytes]:
    """The same messages as producers send them, a wrapper or several messages at a time, with offsets from 0 on."""
    at = 0
    messages: list[bytes] = []
    while at < len(data):
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        one = data[at : at + size]
        at += size
        if one[17] & 7:
            if messages:
                yield b"".join(messages)
            messages = []
            last = len(oracle.records(one)) - 1
            yield struct.pack(">q", last) + one[8:]
            continue
        messages.append(struct.pack(">q", len(messages)) + one[8:])
        if rng.random() < 0.5:
            yield b"".join(messages)
            messages = []
    if messages:
        yield b"".join(messages)


# ---- the logs


def far() -> list[Step]:
    """Offsets so far apart that a segment cannot hold both."""
    offsets = (0, 5, 2**31 - 1, 2**31 + 3, 2**31 + 2**31 + 3, 3 * 2**31, 2**40)
    built = [
        build.batch([build.record(b"k", b"v", timestamp=NOW_MS - 9000 + n)], base_offset=o)
        for n, o in enumerate(offsets)
    ]
    return [Step("follower", data, 1 << 30) for data in (built[0] + built[1] + built[2], *built[3:])]


def filling() -> list[Step]:
    """Batches that fill a segment of SIZES to the byte."""
    value = bytes(
        300 - len(build.batch([build.record(b"k", b"")])) - 2
    )  # from 64 bytes on a length takes another one: the value's, and the record's
    steps = [Step("leader", build.batch([build.record(b"k", value, timestamp=NOW_MS)])) for _ in range(35)]
    assert {len(step.data) for step in steps} == {300}
    return steps


def deleted(rng: random.Random) -> list[Step]:
    """Producers and leaders come and go, and now and then the first segments."""
    steps = produced(rng, 260, producers=5, epochs=(0, 1, 2, 5, 6))
    for at in (230, 170, 120, 90):
        steps.insert(at, Step("delete", b"", rng.randint(1, 2)))
    return steps


def too_large() -> Step:
    """A batch that is larger than the segment of ONE."""
    return Step("leader", build.batch([build.record(b"k", bytes(60000), timestamp=NOW_MS)]))


def cases(seed: str) -> dict[str, Case]:
    def rng(name: str) -> random.Random:
        return random.Random(f"{seed} {name}")

    small = "index.interval.bytes=1,internal.segment.bytes=100000,segment.index.bytes=80"
    magic0, magic1 = legacy(rng("magic 0"), 0, 80), legacy(rng("magic 1"), 1, 80)
    found = {
        "plain": Case(cut(plain(rng("plain"), 120), 3)),
        "one segment": Case(
            cut(plain(rng("one segment"), 150, largest=900), 2),
            "index.interval.bytes=4096,internal.segment.bytes=1073741824",
        ),
        "every batch indexed": Case([plain(rng("every"), 60)], "index.interval.bytes=0,internal.segment.bytes=5000"),
        "full indexes": Case(cut(plain(rng("full"), 100), 2), small),
        "from an offset": Case(cut(plain(rng("from"), 60), 2), start=4_000_000_000),
        "leader epochs": Case(cut(plain(rng("epochs"), 80, epochs=(0, 1, 5, 6)), 3)),
        "nothing": Case([[], [], plain(rng("nothing"), 3), []]),
        "producers": Case(cut(produced(rng("producers"), 250, producers=6, epochs=(0, 2, 3)), 4)),
        "many producers": Case(
            cut(produced(rng("many"), 400, producers=150), 2), "index.interval.bytes=500,internal.segment.bytes=9000"
        ),
        "refused": Case(cut([*produced(rng("refused"), 300, producers=5, odd=0.3), too_large()], 3), ONE),
        "filled": Case(cut(filling(), 2)),
        "deleted": Case(cut(deleted(rng("deleted")), 2)),
        "far apart": Case(cut(far(), 2)),
        "producers expire": Case(cut(produced(rng("expire"), 150, producers=8), 3), days=2),
        "followed": Case(cut(fetched(partition(rng("followed"), odd=0), rng("some")), 3)),
        "followed, many at once": Case(
            cut(fetched(partition(rng("many at once"), odd=0), rng("at once"), most=50), 2),
            "index.interval.bytes=200,internal.segment.bytes=9000",
        ),
        "followed, refused": Case(cut(disturbed(alone(partition(rng("refused 2"), odd=0)), rng("disturbed")), 2), ONE),
        "followed, odd": Case(cut(alone(partition(rng("odd"), odd=0.2)), 3), ONE),
        "followed, compacted": Case(cut(alone(partition(rng("compacted"), odd=0, removed=0.4)), 2), ONE),
        "magic 0": Case(cut(fetched(magic0, rng("0")), 2)),
        "magic 1": Case(cut(fetched(magic1, rng("1")), 2)),
        "magic 1, compacted": Case(cut(fetched(legacy(rng("1c"), 1, 80, step=2), rng("1d")), 2)),
    }
    end0 = struct.unpack_from(">q", magic0, _last(magic0))[0] + 1
    older = magic0 + legacy(rng("up"), 1, 40, first=end0)
    end1 = struct.unpack_from(">q", older, _last(older))[0] + 1
    newer = fetched(older, rng("upgraded")) + plain(rng("newest"), 40)
    assert end1 > end0
    return {**found, "upgraded": Case(cut(newer, 3))}


def _last(data: bytes) -> int:
    at = 0
    while True:
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if at + size == len(data):
            return at
        at += size
