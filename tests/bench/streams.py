"""Endless logs of one shape each, batch after batch, as a broker would have appended them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from .compress import CODECS, COMPRESS
from .payload import commits_payload, compacted_payload, content, payload, single_payload, small_content
from .producers import Producers, marker_template
from .template import HEADER_BYTES, TRANSACTIONAL, BatchTemplate, MessagesTemplate, Producer, empty_batch

START_MS = 1_700_000_000_000
DISTINCT_BYTES = 2 << 20  # of prebuilt records: enough that no two near batches are alike
PRODUCERS = 50


class Append(NamedTuple):
    """What one produce request adds to the log."""

    data: bytes | bytearray
    last_offset: int
    max_timestamp_ms: int
    batches: int
    records: int
    decoded_bytes: int
    aborted: bytes = b""  # the transaction index entry that this append completes


def _nothing() -> Iterator[Append]:
    return iter(())


class Stream(NamedTuple):
    """A log without end, and the producer state that goes with what was taken from it."""

    appends: Iterator[Append]
    producers: Producers | None = None
    finish: Callable[[], Iterator[Append]] = _nothing


def plain(random: Random, batch_bytes: int, codec: str = "none") -> Stream:
    """Batches without producer ids."""
    return _stamped(_templates(random, batch_bytes, codec=codec), random)


def commits(random: Random) -> Stream:
    """Batches of the commits of groups, for a partition of `__consumer_offsets`."""
    return _stamped([BatchTemplate(commits_payload(random)) for _ in range(2048)], random)


def one_record(random: Random, batch_bytes: int) -> Stream:
    """Batches of one record each."""
    templates = [BatchTemplate(single_payload(random, batch_bytes)) for _ in range(8192)]

    def appends() -> Iterator[Append]:
        offset, now = 0, START_MS
        while True:
            for template in templates:
                yield Append(template.stamp(offset, now), offset, now, 1, 1, batch_bytes)
                offset += 1
                now += offset & 1

    return Stream(appends(), Producers())


def idempotent(random: Random, batch_bytes: int) -> Stream:
    """Batches of 50 producers with running sequences."""
    templates = _templates(random, batch_bytes)
    producers = Producers()

    def appends() -> Iterator[Append]:
        offset, now = 0, START_MS
        while True:
            template = random.choice(templates)
            producer_id = 1000 + random.randrange(PRODUCERS)
            producer = producers.next_batch(
                producer_id, offset, template.last_offset_delta, now + template.max_timestamp_delta
            )
            yield _append(template, template.stamp(offset, now, producer), offset, now)
            offset += template.records
            now += template.max_timestamp_delta + 1

    return Stream(appends(), producers)


def transactional(random: Random, batch_bytes: int) -> Stream:
    """Transactions of 50 producers, about eight batches each, one in ten aborted; `finish` ends the open ones."""
    templates = _templates(random, batch_bytes, attributes=TRANSACTIONAL)
    producers = Producers()
    markers = {commit: marker_template(commit=commit) for commit in (False, True)}
    offset, now = 0, START_MS

    def marker(producer_id: int, *, commit: bool) -> Append:
        nonlocal offset, now
        at, timestamp = offset, now
        template = markers[commit]
        data = template.stamp(at, timestamp, Producer(producer_id, producers.epoch(producer_id), -1))
        aborted = producers.end_transaction(producer_id, at, timestamp, commit=commit)
        offset += 1
        now += 1
        return Append(data, at, timestamp, 1, 1, template.decoded_bytes, aborted)

    def appends() -> Iterator[Append]:
        nonlocal offset, now
        while True:
            producer_id = 1000 + random.randrange(PRODUCERS)
            if producer_id in producers.open and not random.randrange(8):
                yield marker(producer_id, commit=bool(random.randrange(10)))
                continue
            template = random.choice(templates)
            producers.begin(producer_id, offset)
            producer = producers.next_batch(
                producer_id, offset, template.last_offset_delta, now + template.max_timestamp_delta
            )
            appended = _append(template, template.stamp(offset, now, producer), offset, now)
            offset += template.records
            now += template.max_timestamp_delta + 1
            yield appended

    def finish() -> Iterator[Append]:
        for producer_id in tuple(producers.open):
            yield marker(producer_id, commit=True)

    return Stream(appends(), producers, finish)


def compacted(random: Random, batch_bytes: int) -> Stream:
    """What a cleaner leaves: half of the offsets gone, whole batches missing, one batch in a hundred emptied."""
    templates = [BatchTemplate(compacted_payload(random, batch_bytes)) for _ in range(_distinct(batch_bytes))]
    producers = Producers()

    def appends() -> Iterator[Append]:
        offset, now, emptied = 0, START_MS, 0
        while True:
            offset += random.choice((0, 0, 0, 1, 7, 113, 5000))
            if random.randrange(100):
                template = random.choice(templates)
                appended = _append(template, template.stamp(offset, now), offset, now)
            else:  # the last batch of an idle producer: Kafka keeps its header for the sequence
                emptied += 1
                delta = random.randrange(64, 128)
                producer = producers.next_batch(1000 + emptied, offset, delta, now)
                data = empty_batch(offset, delta, now, producer)
                appended = Append(data, offset + delta, now, 1, 0, len(data))
            offset = appended.last_offset + 1
            now = appended.max_timestamp_ms + 1
            yield appended

    return Stream(appends(), producers)


def magic1(random: Random, append_bytes: int) -> Stream:
    """Uncompressed magic 1 messages."""
    templates = [
        MessagesTemplate(
            [small_content(random, 66) if one % 3 else content(random) for one in range(append_bytes // 128)]
        )
        for _ in range(_distinct(append_bytes))
    ]

    def appends() -> Iterator[Append]:
        offset, now = 0, START_MS
        while True:
            template = random.choice(templates)
            data = template.stamp(offset, now)
            offset += template.count
            now += template.count
            yield Append(data, offset - 1, now - 1, template.count, template.count, len(data))

    return Stream(appends())


def _distinct(batch_bytes: int) -> int:
    return max(24, DISTINCT_BYTES // batch_bytes)


def _templates(random: Random, batch_bytes: int, *, codec: str = "none", attributes: int = 0) -> list[BatchTemplate]:
    payloads = [payload(random, batch_bytes - HEADER_BYTES) for _ in range(_distinct(batch_bytes))]
    compress = COMPRESS[codec]
    return [BatchTemplate(each, stored=compress(each.body), attributes=attributes | CODECS[codec]) for each in payloads]


def _stamped(templates: list[BatchTemplate], random: Random) -> Stream:
    """Batches of these templates in any order, with times that go on."""

    def appends() -> Iterator[Append]:
        offset, now = 0, START_MS
        while True:
            template = random.choice(templates)
            data = template.stamp(offset, now)
            yield _append(template, data, offset, now)
            offset += template.records
            now += template.max_timestamp_delta + 1

    return Stream(appends(), Producers())


def _append(template: BatchTemplate, data: bytearray, offset: int, now: int) -> Append:
    return Append(
        data,
        offset + template.last_offset_delta,
        now + template.max_timestamp_delta,
        1,
        template.records,
        template.decoded_bytes,
    )
