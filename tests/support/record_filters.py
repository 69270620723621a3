"""Which records match predicates, in plain Python over what the reference decoder reads; and predicates that match some
records of a log."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from kdump.dump.filters import (
    MATCHED_BYTES,
    BytesPattern,
    HeaderPattern,
    PatternKind,
    ProducerPattern,
    RecordPredicates,
)
from support import oracle

Header = tuple[bytes, bytes | None]


def fits(pattern: BytesPattern, data: bytes | None) -> bool:
    if data is None or pattern.kind is PatternKind.NULL:
        return data is None and pattern.kind is PatternKind.NULL
    match pattern.kind:
        case PatternKind.EXACT:
            return data == pattern.data
        case PatternKind.PREFIX:
            return data[: len(pattern.data)] == pattern.data
        case _:
            return re.search(pattern.data, data[:MATCHED_BYTES]) is not None


def header_fits(pattern: HeaderPattern, headers: Sequence[Header]) -> bool:
    return any(
        name == pattern.name and (pattern.value is None or fits(pattern.value, value)) for name, value in headers
    )


def batch_matches(wanted: RecordPredicates, batch: oracle.Batch) -> bool:
    if wanted.control is not None and batch.control is not wanted.control:
        return False
    if wanted.tombstones and batch.control:
        return False
    first, _ = wanted.time
    if first is not None and batch.magic == 2 and batch.max_timestamp < first:
        return False
    return not wanted.producers or any(
        (batch.producer_id if batch.magic == 2 else -1) == each.producer_id
        and (each.epoch is None or each.epoch == batch.producer_epoch)
        for each in wanted.producers
    )


def record_matches(wanted: RecordPredicates, record: Any) -> bool:
    first, stop = wanted.time
    if wanted.time != (None, None):
        if record.timestamp == -1:
            return False
        if (first is not None and record.timestamp < first) or (stop is not None and record.timestamp >= stop):
            return False
    return (
        (not wanted.keys or any(fits(each, record.key) for each in wanted.keys))
        and (not wanted.values or any(fits(each, record.value) for each in wanted.values))
        and (not wanted.headers or any(header_fits(each, record.headers) for each in wanted.headers))
        and not (wanted.tombstones and record.value is not None)
    )


def drawn(rng: random.Random, seen: Sequence[tuple[oracle.Batch, Sequence[oracle.Record]]]) -> RecordPredicates:
    """Predicates, most of which some of the records match."""
    records = [record for _, found in seen for record in found]
    batches = [batch for batch, _ in seen]

    def pattern(data: bytes | None) -> BytesPattern:
        if data is None:
            return BytesPattern(PatternKind.NULL)
        part = data[: rng.randrange(len(data) + 1)]
        piece = re.escape(data[rng.randrange(len(data) + 1) :][:3])
        return rng.choice(
            (
                BytesPattern(PatternKind.EXACT, data),
                BytesPattern(PatternKind.PREFIX, part),
                BytesPattern(PatternKind.REGEX, b"^" + re.escape(part)),
                BytesPattern(PatternKind.REGEX, piece),
                BytesPattern(PatternKind.REGEX, piece + b"$"),
                BytesPattern(PatternKind.REGEX, rb"\b|^" + piece),
                BytesPattern(PatternKind.REGEX, b"(?<=" + piece + b")[^a]"),
                BytesPattern(PatternKind.REGEX, b"^(" + piece + b"|x)$"),
            )
        )

    def some(values: Sequence[bytes | None]) -> tuple[BytesPattern, ...]:
        return tuple(pattern(rng.choice(values)) for _ in range(rng.choice((1, 1, 2, 3)))) if values else ()

    headers = [header for record in records for header in record.headers]
    times = [record.timestamp for record in records] or [0]
    low, high = sorted((rng.choice(times), rng.choice(times)))
    producers = [(batch.producer_id, batch.producer_epoch) for batch in batches if batch.producer_id is not None] or [
        (1, 1)
    ]
    return RecordPredicates(
        keys=some([record.key for record in records]) if rng.random() < 0.4 else (),
        values=some([record.value for record in records]) if rng.random() < 0.4 else (),
        headers=tuple(
            HeaderPattern(name, rng.choice((None, pattern(value))))
            for name, value in (rng.choice(headers) for _ in range(rng.choice((1, 2))))
        )
        if headers and rng.random() < 0.4
        else (),
        producers=tuple(
            ProducerPattern(producer, rng.choice((None, epoch)))
            for producer, epoch in (rng.choice(producers) for _ in range(rng.choice((1, 2))))
        )
        if rng.random() < 0.2
        else (),
        time=rng.choice(((None, None), (None, None), (low, None), (None, high), (low, high + 1))),
        tombstones=rng.random() < 0.1,
        control=rng.choice((None, None, None, None, True, False)),
    )
