"""Topic-partitions whose logs have wrong fields of headers: neither a checksum nor a length shows a wrong base offset,
leader epoch or magic.
"""

from __future__ import annotations

import random

from support import build, damage, directories

HEADER = (*range(8), *range(12, 17))
"""The bytes of a header that no checksum covers, without the length."""


def flipped(data: bytes, rng: random.Random) -> bytes:
    """The log with a flipped bit in a header of magic 2, or an offset that is another one."""
    batch = rng.choice(damage.batches(data))
    log = bytearray(data)
    if rng.random() < 0.5:
        log[batch.position + rng.choice(HEADER if log[batch.position + 16] == 2 else HEADER[:8])] ^= 1 << rng.randrange(
            8
        )
    else:
        offset = int.from_bytes(log[batch.position : batch.position + 8]) + rng.choice((-1, 1)) * rng.randrange(1, 300)
        log[batch.position : batch.position + 8] = max(0, offset).to_bytes(8)
    return bytes(log)


def log_of(rng: random.Random, kind: str | None = None) -> dict[int, bytes]:
    """One to three segments of batches of records or of messages, with and without transactions, by base offset."""
    kind = kind or rng.choice(("plain", "plain", "message", "transactions", "transactions"))
    records, value = rng.choice((1, 1, 3)), bytes(rng.choice((10, 300, 900, 5000)))
    offset, epoch, now = rng.choice((0, 0, 1 << 33)), 0, 1_600_000_000_000
    sequences, begun = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0)
    logs: dict[int, bytes] = {}
    for _ in range(rng.choice((1, 1, 2, 3))):
        base, data = offset, b""
        for _ in range(rng.choice((3, 15, 40))):
            now += rng.choice((0, 0, 1, 1000, -500))
            epoch += rng.random() < 0.05
            if kind == "message":
                data += build.message_v1(b"k", value, offset=offset, timestamp=now)
                offset += 1
                continue
            producer = rng.randrange(3)
            if kind == "transactions" and begun[producer] and rng.random() < 0.2:
                begun[producer] = 0
                how = rng.choice(("COMMIT", "ABORT"))
                data += build.marker(how, base_offset=offset, producer_id=producer, epoch=epoch, timestamp=now)
                offset += 1
                continue
            writes = kind == "transactions" and rng.random() < 0.8
            data += build.batch(
                [build.record(value=value, timestamp=now) for _ in range(records)],
                base_offset=offset,
                epoch=epoch,
                producer_id=producer if writes else -1,
                producer_epoch=0 if writes else -1,
                base_sequence=sequences[producer] if writes else -1,
                transactional=writes,
            )
            if writes:
                begun[producer] = 1
                sequences[producer] += records
            offset += records
        logs[base] = data
    return logs


def damaged_partition(rng: random.Random) -> directories.Files:
    """The log with all of its companions, but for one of them sometimes; then one or two headers are wrong."""
    files = directories.partition(log_of(rng))
    if rng.random() < 0.2:
        del files[rng.choice([name for name in files if not name.endswith(".log")])]
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice([name for name in files if name.endswith(".log")])
        data = files[name]
        assert isinstance(data, bytes)
        files[name] = flipped(data, rng)
    return files


def with_wrong_offset(rng: random.Random) -> directories.Files:
    """A log with transactions where a bit of one or two base offsets is flipped, or the offset is another one there."""
    files = directories.partition(log_of(rng, "transactions"))
    if rng.random() < 0.3:
        files = {name: data for name, data in files.items() if not name.endswith(".txnindex")}
    if rng.random() < 0.2:
        del files[rng.choice([name for name in files if not name.endswith(".log")])]
    logs = [name for name in files if name.endswith(".log")]
    for _ in range(rng.choice((1, 1, 1, 2))):
        name = rng.choice(logs)
        data = files[name]
        assert isinstance(data, bytes)
        batches, log = damage.batches(data), bytearray(data)
        batch, other = rng.choice(batches), rng.choice(batches)
        # A bit that is flipped, or the offset of another batch: so that transactions begin at one.
        if rng.random() < 0.7:
            log[batch.position + rng.choice((0, 2, 3, 5, 6, 7, 7, 7))] ^= 1 << rng.randrange(8)
        else:
            log[batch.position : batch.position + 8] = other.base_offset.to_bytes(8, signed=True)
        files[name] = bytes(log)
    return files


def with_unknown_magic(rng: random.Random) -> directories.Files:
    """The log where the magic of one or two batches, which no checksum covers, has one bit more; else sound mostly."""
    files = directories.partition(log_of(rng))
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice([name for name in files if name.endswith(".log")])
        data = files[name]
        assert isinstance(data, bytes)
        batch, log = rng.choice(damage.batches(data)), bytearray(data)
        log[batch.position + 16] |= 1 << rng.randrange(2, 8)
        files[name] = flipped(bytes(log), rng) if rng.random() < 0.1 else bytes(log)
    return files
