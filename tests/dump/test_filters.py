"""Filters of a dump against a plain filter over the reference decoder, on valid and on mutated logs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz import corpus
from fuzz.check import LIMIT_BYTES, Case, log_file
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import BatchEvent, Event, RecordCount
from kdump.dump.filters import (
    LONGEST_PATTERN,
    MATCHED_BYTES,
    BadPattern,
    BytesPattern,
    HeaderPattern,
    PatternKind,
    RecordPredicates,
    compile_regex,
)
from kdump.dump.log_end import FromEnd
from kdump.dump.record_count import counted
from kdump.storage import discovery, records
from kdump.storage.walk import Gap, Tail
from support import build, oracle, record_filters
from support.cases import share
from support.laws import examples

Found = list[tuple[int, int, bytes | None, bytes | None]]
"""Position of the batch, offset, key and value."""
EXACT, PREFIX, NULL, REGEX = PatternKind


class Decoded(NamedTuple):
    """What the reference decoder says of a log: batches with their records, and the positions of others."""

    batches: list[tuple[oracle.Batch, list[oracle.Record]]]
    damaged: set[int]


def decoded(data: bytes, base: int) -> Decoded:
    found, damaged = [], set()
    for item in oracle.walk(data, base_offset=base, max_batch_bytes=LIMIT_BYTES):
        if isinstance(item, oracle.Batch):
            try:
                found.append((item, oracle.records(data, item.position, limit=LIMIT_BYTES)))
            except oracle.Malformed:
                damaged.add(item.position)
        else:
            damaged.add(item.position)
    return Decoded(found, damaged)


def events(data: bytes, base: int, options: DumpOptions) -> list[Event]:
    return list(dump_logs([log_file(Case(data, base))], options))


def shown(found: list[Event], damaged: set[int]) -> Found:
    return [
        (event.batch.position, record.offset, record.key, record.value)
        for event in found
        if isinstance(event, BatchEvent) and event.records is not None and event.batch.position not in damaged
        for record in records.records(event.batch, event.records)
    ]


def damage(found: list[Event]) -> list[object]:
    """Everything that a dump says of damage."""
    batches = [
        (event.batch.position, event.damage)
        for event in found
        if isinstance(event, BatchEvent) and event.damage is not None
    ]
    return [*batches, *(event for event in found if isinstance(event, Gap | Tail))]


def agree(data: bytes, base: int, rng: random.Random) -> int:
    """Compare a dump with a plain filter; returns the number of records that match."""
    batches, damaged = decoded(data, base)
    wanted = record_filters.drawn(rng, batches)
    expected = [
        (batch.position, record.offset, record.key, record.value)
        for batch, found in batches
        if record_filters.batch_matches(wanted, batch)
        for record in found
        if record_filters.record_matches(wanted, record)
    ]
    options = DumpOptions(max_batch_bytes=LIMIT_BYTES, predicates=wanted)
    found = events(data, base, options)
    assert shown(found, damaged) == expected, wanted
    assert all(event.damage or event.records.records for event in found if isinstance(event, BatchEvent))  # type: ignore[union-attr]

    first, limit = rng.randrange(20), rng.randrange(1, 6)
    some = options._replace(offsets=(base + first, None))
    # A broker finds an offset by the headers: not a record above the last offset of its batch, which one can have here.
    ends = {batch.position: batch.last_offset for batch, _ in batches}
    above = [item for item in expected if min(item[1], ends[item[0]]) >= base + first]
    assert shown(events(data, base, some), damaged) == above
    if not damaged:
        assert shown(events(data, base, some._replace(limit=limit)), damaged) == above[:limit]
        (number,) = counted(events(data, base, options._replace(counts=True)))
        assert number == RecordCount(len(expected))
    if wanted.time == (None, None) and not wanted.producers and wanted.control is None and not wanted.tombstones:
        assert damage(found) == damage(events(data, base, options._replace(predicates=None)))
    return len(expected)


@settings(max_examples=examples(150))
@given(st.randoms(use_true_random=False))
def test_valid_logs(rng: random.Random) -> None:
    agree(*corpus.segment(rng), rng)


@settings(max_examples=examples(150))
@given(st.randoms(use_true_random=False))
def test_mutated_logs(rng: random.Random) -> None:
    agree(*corpus.mutated(rng), rng)


def test_fixtures_and_that_filters_match() -> None:
    rng = random.Random(5)
    small = [(data, base) for _, data, base in corpus.fixtures() if len(data) < 20_000]
    numbers = [agree(data, base, rng) for data, base in share(small, 40)]
    assert sum(number > 0 for number in numbers) > len(numbers) // 4


def of_values(values: list[bytes | None], *patterns: BytesPattern, codec: str = "none") -> list[bytes | None]:
    data = build.batch([build.record(b"k", value) for value in values], codec=codec)
    found = events(data, 0, DumpOptions(predicates=RecordPredicates(values=patterns)))
    return [value for *_, value in shown(found, set())]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_bound_of_a_search(codec: str) -> None:
    inside, outside = b"a" * (MATCHED_BYTES - 1) + b"x", b"a" * MATCHED_BYTES + b"x"
    for pattern in (b"x", b"x$", b"^a+x", rb"\Aa+x"):
        assert of_values([outside, inside], BytesPattern(REGEX, pattern), codec=codec) == [inside]
    assert of_values([outside], BytesPattern(EXACT, outside), codec=codec) == [outside]


def test_a_search_ends_where_the_value_does() -> None:
    values: list[bytes | None] = [b"ab", b"ca", b"b", b"", None]
    assert of_values(values, BytesPattern(REGEX, b"a$")) == [b"ca"]
    assert of_values(values, BytesPattern(REGEX, b"^b")) == [b"b"]
    assert of_values(values, BytesPattern(REGEX, b"(?<!a)b")) == [b"b"]
    assert of_values(values, BytesPattern(REGEX, b"")) == [b"ab", b"ca", b"b", b""]
    assert of_values(values, BytesPattern(REGEX, b"^$"), BytesPattern(NULL)) == [b"", None]
    assert of_values(values, BytesPattern(PREFIX, b"")) == [b"ab", b"ca", b"b", b""]


def test_each_header_has_its_own_pattern() -> None:
    data = build.batch([build.record(b"1", b"", headers=[(b"a", b"y"), (b"b", b"x")]),
                        build.record(b"2", b"", headers=[(b"c", b""), (b"b", b"yy")])])  # fmt: skip
    patterns = tuple(HeaderPattern(name, BytesPattern(REGEX, what)) for name, what in ((b"a", b"x"), (b"b", b"y")))
    found = events(data, 0, DumpOptions(predicates=RecordPredicates(headers=patterns)))
    assert [key for _, _, key, _ in shown(found, set())] == [b"2"]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_batches_with_many_records_are_searched_in_pieces(codec: str) -> None:
    items = [build.record(b"%d" % number, b"v" * 40, headers=[(b"h", b"%d" % number)]) for number in range(10_000)]
    data = build.batch(items, codec=codec)
    wanted = RecordPredicates(keys=(BytesPattern(REGEX, b"7$"), BytesPattern(EXACT, b"8")))
    found = events(data, 0, DumpOptions(predicates=wanted))
    assert len(shown(found, set())) == 1001
    headers = RecordPredicates(headers=(HeaderPattern(b"h", BytesPattern(REGEX, b"^99")),))
    found = events(data, 0, DumpOptions(predicates=headers, offsets=(100, None), limit=50))
    assert [offset for _, offset, _, _ in shown(found, set())] == [number for number in range(100, 10_000)
                                                                   if str(number).startswith("99")][:50]  # fmt: skip


def test_expressions_that_are_refused() -> None:
    for pattern in (b"(", b"a{1,99999999999}", b"(" * 3000 + b")" * 3000, b"a" * (LONGEST_PATTERN + 1)):
        with pytest.raises(BadPattern):
            compile_regex(pattern)


def test_topics_and_partitions(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "payments-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(build.batch([build.record(name.encode(), b"")]))

    def keys(**chosen: tuple[object, ...]) -> list[bytes | None]:
        files = discovery.log_files([str(tmp_path)])
        found = list(dump_logs(files, DumpOptions(**chosen)))  # type: ignore[arg-type]
        return [key for _, _, key, _ in shown(found, set())]

    assert keys(topics=("orders",)) == [b"orders-0", b"orders-1"]
    assert keys(topics=("pay*", "x")) == [b"payments-0"]
    assert keys(partitions=(1, 7)) == [b"orders-1"]
    assert keys(topics=("orders", "payments"), partitions=(0,)) == [b"orders-0", b"payments-0"]


@settings(max_examples=examples(60))
@given(st.randoms(use_true_random=False))
def test_what_counts_back_from_the_end(rng: random.Random) -> None:
    data, base = rng.choice((corpus.segment, corpus.mutated))(rng)
    batches, damaged = decoded(data, base)
    records_of = [(batch.position, item.offset, item.key, item.value) for batch, found in batches for item in found]
    number = rng.randrange(1, 9)
    whole = events(data, base, DumpOptions(max_batch_bytes=LIMIT_BYTES))
    last = events(data, base, DumpOptions(max_batch_bytes=LIMIT_BYTES, from_end=FromEnd(last=number)))
    if not damaged:
        controls = {batch.position for batch, _ in batches if batch.control}
        assert shown(last, damaged) == [item for item in records_of if item[0] not in controls][-number:]
    assert damage(last) == damage(whole)
    valid = [batch for batch, _ in batches]
    if not damaged and valid:
        first = max(0, max(batch.last_offset for batch in valid) + 1 - number)
        near = DumpOptions(max_batch_bytes=LIMIT_BYTES, from_end=FromEnd(offsets=(number, None)))
        # A record can have an offset beyond the last one that the header of its batch says.
        positions = {batch.position for batch in valid if max(batch.offset, batch.last_offset) >= first}
        assert shown(events(data, base, near), damaged) == [
            item for item in records_of if item[0] in positions and item[1] >= first
        ]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_last_records_of_several_segments(tmp_path: Path, codec: str) -> None:
    (tmp_path / "t-0").mkdir()
    for base, count in ((0, 6000), (6000, 3), (6003, 0)):
        items = [build.record(b"%d" % (base + number), b"v" * 20, timestamp=base + number) for number in range(count)]
        data = build.batch(items, base_offset=base, codec=codec) if items else b""
        (tmp_path / "t-0" / f"{base:020}.log").write_bytes(data)

    def offsets(**chosen: object) -> list[int]:
        options = DumpOptions()._replace(**chosen)
        found = list(dump_logs(discovery.log_files([str(tmp_path)]), options))
        return [offset for _, offset, _, _ in shown(found, set())]

    assert offsets(from_end=FromEnd(last=2)) == [6001, 6002]
    assert offsets(from_end=FromEnd(last=5)) == [5998, 5999, 6000, 6001, 6002]
    assert offsets(from_end=FromEnd(last=9999)) == [*range(6003)]
    nines = RecordPredicates(keys=(BytesPattern(REGEX, b"9$"),))
    assert offsets(from_end=FromEnd(last=2), predicates=nines) == [5989, 5999]
    assert offsets(from_end=FromEnd(offsets=(4, None))) == [5999, 6000, 6001, 6002]
    assert offsets(from_end=FromEnd(offsets=(4, 1))) == [5999, 6000, 6001]
    assert offsets(from_end=FromEnd(offsets=(None, 6001))) == [0, 1]
    assert offsets(from_end=FromEnd(time=(2, None))) == [6000, 6001, 6002]
    assert offsets(from_end=FromEnd(time=(None, 0)), offsets=(6000, None)) == [6000, 6001]
