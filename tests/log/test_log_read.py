"""Logs are read by offset: what the class gives is what a plain scan of the same bytes gives, whatever the indexes
say."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kdump.errors import KdumpError, MessageTooLarge, OffsetOutOfRange, SourceError
from kdump.kernel import valid_batches
from kdump.log import search_index, segment_reader
from kdump.log.fetch_data_info import FetchDataInfo
from kdump.log.log_files import LogFiles
from kdump.storage.source import FileSource
from kdump.storage.walk import BatchChunk, Walk
from kdump.writer import log as log_module
from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from kdump.writer.options import LogOptions
from kdump.writer.retention import by_size
from support import build, damage, oracle
from support.laws import examples, sampled
from support.plain_log import PlainLog, PlainRead

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
ALL = os.environ.get("KDUMP_LAWS") == "all"
PARTITIONS = sorted({path.parent for path in FIXTURES.glob("*/*/*.log")})

SOME = (
    "codecs/none-0",
    "compacted/later-0",
    "crash/preallocated-0",
    "follower/transfers-0",
    "mixed-through-3.9.1/mixed-0",
    "nested/nested-0",
    "segments/segments-0",
    "v0-compacted-0.9.0.1/compacted-0",
    "v1-segments-0.10.2.2/segments-0",
)


def file_name(directory: Path) -> str:
    return f"{directory.parent.name}/{directory.name}"


@pytest.fixture(params=sampled(PARTITIONS, 3), ids=file_name)
def partition(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@cache
def scanned(directory: Path) -> PlainLog:
    return PlainLog(directory)


def copy(directory: Path, tmp_path: Path) -> Path:
    """The log files and indexes of a partition where they may be changed, under the log directory's checkpoints."""
    to = tmp_path / directory.name
    to.mkdir(parents=True)
    for path in directory.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".kafka"):
            shutil.copyfile(path, to / path.name)
    checkpoint = directory.parent / "log-start-offset-checkpoint"
    if checkpoint.exists():
        shutil.copyfile(checkpoint, tmp_path / checkpoint.name)
    return to


def agree(fetched: FetchDataInfo, plain: PlainRead | int | None, end: int) -> None:
    """A read gives what the scan gives."""
    assert not isinstance(plain, int)
    if plain is None:
        assert (fetched.data, fetched.next_offset, fetched.size_bytes) == (b"", end, 0)
        return
    assert (fetched.segment, fetched.position) == (str(plain.path), plain.position)
    assert fetched.next_offset == plain.next_offset
    assert fetched.data == plain.data
    passed = [(os.path.basename(each.path), each.position, each.length) for each in fetched.damage]
    assert passed == list(plain.damage)


def widths(plain: PlainLog, offset: int) -> list[int]:
    """Sizes at which the answer changes, and those next to them."""
    largest = plain.read(offset, 1 << 30)
    if not isinstance(largest, PlainRead):
        return [1, 1 << 20]
    borders = {1, 1 << 20, len(largest.data)}
    at, left = 0, 4
    while at < len(largest.data) and left:
        at += struct.unpack_from(">i", largest.data, at + 8)[0] + 12
        borders |= {at - 1, at, at + 1}
        left -= 1
    return sorted(width for width in borders if width > 0)


# --- fixtures
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.daily(4)
@pytest.mark.laws
def test_every_offset_of_every_fixture(partition: Path) -> None:
    plain = scanned(partition)
    with Log(partition) as log:
        assert (log.start_offset, log.end_offset) == (plain.start, plain.end)
        assert (log.earliest(), log.latest()) == (plain.start, plain.end)
        for offset in range(plain.start, plain.end + 1):
            some = widths(plain, offset) if ALL or offset % 16 == 0 else [1]
            for max_bytes in some:
                agree(log.read(offset, max_bytes), plain.read(offset, max_bytes), plain.end)
        for offset in (plain.start - 1, plain.end + 1, -1, 1 << 62):
            with pytest.raises(OffsetOutOfRange) as caught:
                log.read(offset)
            assert (caught.value.offset, caught.value.start, caught.value.end) == (offset, plain.start, plain.end)


@pytest.mark.daily(4)
@pytest.mark.laws
def test_every_width_from_one_byte_up(partition: Path) -> None:
    plain = scanned(partition)
    with Log(partition) as log:
        places = [batch for segment in plain.segments for batch in segment.batches if batch.last >= plain.start]
        for batch in places if ALL else random.Random(7).sample(places, min(2, len(places))):
            whole = plain.read(batch.last, 1 << 30)
            assert isinstance(whole, PlainRead)
            ends = [0]
            while ends[-1] < len(whole.data):
                ends.append(ends[-1] + struct.unpack_from(">i", whole.data, ends[-1] + 8)[0] + 12)
            for max_bytes in range(1, ends[-1] + 2 if ALL else min(ends[-1] + 2, 3 * batch.size, 1000)):
                limit = max_bytes
                while limit < ends[1]:
                    limit *= 2
                fetched = log.read(batch.last, max_bytes)
                assert fetched.position == whole.position
                assert fetched.data == whole.data[: ends[bisect_right(ends, limit) - 1]]


@pytest.mark.daily(4)
@pytest.mark.laws
def test_records_are_those_of_the_oracle(partition: Path) -> None:
    plain = scanned(partition)
    expected = [
        (record.offset, record.timestamp, record.key, record.value, record.headers) for record in plain.records()
    ]
    with Log(partition) as log:
        assert [each[:5] for each in log.records(control=True)] == expected
        if expected:
            middle = expected[len(expected) // 2][0]
            assert [each[:5] for each in log.records(middle, control=True)] == [
                each for each in expected if each[0] >= middle
            ]
            fetched = log.read(middle)
            assert next(iter(fetched)).offset >= middle
            for offset in random.Random(6).choices([each[0] for each in expected], k=20):
                loaded, lazy = log.read(offset), log.read(offset)
                assert loaded.data
                assert next(iter(lazy)) == next(iter(loaded))
                assert list(lazy) == list(loaded) == list(log.read(offset))
            rows = [batch for batch, _ in fetched.batches()]
            assert b"".join(body for _, body in fetched.batches()) == fetched.data
            with FileSource(fetched.segment) as source:
                walk = Walk(source, base_offset=fetched.base_offset, everything=True, rows=8)
                shown = {row.position: row for item in walk if isinstance(item, BatchChunk) for row in item.rows()}
            assert rows == [shown[row.position] for row in rows]


@pytest.mark.daily(4)
@pytest.mark.laws
def test_times_are_found_whatever_the_time_index_says(partition: Path, tmp_path: Path) -> None:
    plain = scanned(partition)
    times = {batch.max_timestamp for segment in plain.segments for batch in segment.batches}
    sample = sorted(times) if ALL else random.Random(5).sample(sorted(times), min(6, len(times)))
    asked = sorted({0, *(time + step for time in sample for step in (-1, 0, 1))})
    with Log(partition) as log:
        for time in asked:
            assert log.at_time(time) == plain.at_time(time), time
    if not ALL and file_name(partition) not in SOME:
        return
    directory = copy(partition, tmp_path)
    for number, path in enumerate(sorted(directory.glob("*.timeindex"))):
        path.write_bytes(random.Random(number).randbytes(12 * 40))
    with Log(directory) as log:
        for time in asked:
            assert log.at_time(time) == plain.at_time(time), time


@pytest.mark.parametrize("time", [-5, -1, 0])
def test_records_without_a_timestamp(time: int, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Log(directory, write=True) as log:
        for number in range(8):
            log.append([NewRecord(None, bytes(10_000), (), number - 1 if number > 3 else -1)])
    with Log(directory) as log:
        assert log.at_time(time) == ((0, -1) if time < 0 else (4, 3))


# --- indexes that lie
# ---------------------------------------------------------------------------------------------------

Entries = list[tuple[int, int]]
Lie = Callable[[Entries, bytes, random.Random], bytes]


def packed(entries: Entries) -> bytes:
    return b"".join(struct.pack(">ii", relative & 0x7FFFFFFF, position & 0x7FFFFFFF) for relative, position in entries)


def frames(data: bytes) -> list[tuple[int, int]]:
    """(offset, position) of everything that looks like a batch with a right checksum, in values above all."""
    found = []
    for position in range(len(data) - 17):
        magic = data[position + 16]
        if magic > 2:
            continue
        total = struct.unpack_from(">i", data, position + 8)[0] + 12
        if not (26 if magic < 2 else 61) <= total <= len(data) - position:
            continue
        batch = oracle.header(data, position)
        if oracle.checksum(data, position, total) == batch.crc:
            found.append((batch.last_offset, position))
    return found


def _swapped(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    entries = list(entries)
    if len(entries) > 1:
        at = rng.randrange(len(entries) - 1)
        entries[at], entries[at + 1] = entries[at + 1], entries[at]
    return packed(entries)


def _offsets_of_others(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    """Positions that are right, with offsets that are not."""
    offsets = sorted(rng.sample(range(5000), len(entries)))
    return packed([(offset, position) for offset, (_, position) in zip(offsets, entries, strict=True)])


def _inside(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    """Offsets that are right, with positions in the middle of batches."""
    return packed([(relative, position + rng.randrange(1, 60)) for relative, position in entries])


def _many(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    """In order, and about anything."""
    count = rng.randrange(1, 60)
    offsets = sorted(rng.sample(range(2000), count))
    places = sorted(rng.sample(range(max(len(data), count)), count))
    return packed(list(zip(offsets, places, strict=True)))


def _nested(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    return packed(sorted({position: offset for offset, position in frames(data)}.items(), key=lambda item: item[1]))


def _onto_frames(entries: Entries, data: bytes, rng: random.Random) -> bytes:
    """An entry for everything that looks like a batch, with rising offsets."""
    positions = [position for _, position in frames(data)]
    offsets = sorted(rng.sample(range(max(2000, len(positions))), len(positions)))
    return packed(list(zip(offsets, positions, strict=True)))


LIES: dict[str, Lie] = {
    "empty": lambda entries, data, rng: b"",
    "random": lambda entries, data, rng: rng.randbytes(8 * rng.randrange(1, 50) + rng.randrange(8)),
    "stale": lambda entries, data, rng: packed(entries[: len(entries) // 2]),
    "longer": lambda entries, data, rng: packed(
        [*entries, *((100_000 + n, len(data) + 5000 * n) for n in range(1, 9))]
    ),
    "offsets too low": lambda entries, data, rng: packed([(offset - 3, position) for offset, position in entries]),
    "offsets too high": lambda entries, data, rng: packed([(offset + 7, position) for offset, position in entries]),
    "positions too low": lambda entries, data, rng: packed([(offset, position - 9) for offset, position in entries]),
    "one batch on": lambda entries, data, rng: packed(
        [(left[0], right[1]) for left, right in itertools.pairwise(entries)]
    ),
    "one batch back": lambda entries, data, rng: packed(
        [(right[0], left[1]) for left, right in itertools.pairwise(entries)]
    ),
    "swapped": _swapped,
    "offsets of others": _offsets_of_others,
    "inside batches": _inside,
    "many": _many,
    "nested": _nested,
    "onto frames": _onto_frames,
    "padded": lambda entries, data, rng: packed(entries) + bytes(800),
    "all at the end": lambda entries, data, rng: packed([(n, len(data) - 40 + n) for n in range(30)]),
}


def lie(directory: Path, plain: PlainLog, how: Lie | None, seed: int = 1) -> None:
    """Give every segment an index that lies; None takes them away."""
    for segment in plain.segments:
        path = directory / f"{segment.base_offset:020}.index"
        entries = [
            (batch.last - segment.base_offset, batch.position)
            for batch in segment.batches
            if batch.position and batch.last >= segment.base_offset
        ]
        if how is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(how(entries, segment.data, random.Random(seed)))


def sample(plain: PlainLog, count: int) -> list[int]:
    """Offsets, those beside the ends of batches among them; damage can put them anywhere."""
    if plain.end - plain.start < (3000 if ALL else count):
        return list(range(plain.start, plain.end + 1))
    near = {batch.last + step for segment in plain.segments for batch in segment.batches for step in (-1, 0, 1)}
    rng = random.Random(3)
    some = [offset for offset in sorted(near) if plain.start <= offset <= plain.end]
    kept = some if ALL else rng.sample(some, min(count // 2, len(some)))
    return sorted({plain.start, plain.end, *kept, *(rng.randint(plain.start, plain.end) for _ in range(count // 2))})


@pytest.mark.daily(3)
@pytest.mark.parametrize("how", [None, *LIES], ids=lambda how: how or "missing")
def test_an_index_that_lies_costs_no_more_than_a_walk(how: str | None, tmp_path: Path) -> None:
    chosen = PARTITIONS if ALL else [path for path in PARTITIONS if file_name(path) in SOME]
    for number, original in enumerate(chosen):
        directory = copy(original, tmp_path / str(number))
        plain = PlainLog(directory)
        lie(directory, plain, None if how is None else LIES[how], number)
        with Log(directory) as log:
            assert log.end_offset == plain.end
            for offset in sample(plain, 40):
                agree(log.read(offset, 3000), plain.read(offset, 3000), plain.end)


# --- values that hold batches
# -------------------------------------------------------------------------------------------


def smuggled(base: int, inner: bytes) -> bytes:
    """A batch of one record whose value is `inner` but for its last byte, a zero, which is the record's number of
    headers: so `inner` ends where the batch does."""
    assert inner.endswith(b"\0")
    built = build.batch([build.Record(value=inner[:-1])], base_offset=base)
    assert built.endswith(inner)
    return built


def test_batches_in_values_are_never_the_logs_own(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = []
    for offset in range(12):
        inner = b"".join(
            build.batch([build.Record(value=b"not it")], base_offset=offset + 1 + place) for place in range(offset % 4)
        )
        batches.append(smuggled(offset, inner) if inner else build.batch([build.Record()], base_offset=offset))
    data = b"".join(batches)
    (directory / f"{0:020}.log").write_bytes(data)
    inside = [(last, position) for last, position in frames(data) if position]
    rng = random.Random(4)
    entries = [
        sorted({position: last for last, position in inside}.items(), key=lambda item: item[0]),
        *(sorted((position, last) for last, position in rng.sample(inside, 5)) for _ in range(20)),
    ]
    plain = PlainLog(directory)
    for some in entries:
        # Their own offsets first, then rising ones, so that the order of the index gives nothing away.
        for offsets in ([last for _, last in some], range(len(some))):
            index = packed([(last, position) for (position, _), last in zip(some, offsets, strict=True)])
            (directory / f"{0:020}.index").write_bytes(index)
            with Log(directory) as log:
                for offset in range(plain.end + 1):
                    agree(log.read(offset, 1), plain.read(offset, 1), plain.end)


def test_batches_in_large_values_are_never_the_logs_own(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    outer, within = [], []
    position = 0
    for offset in range(16):
        nested = [
            build.batch([build.Record(value=bytes(30_000))], base_offset=100 * offset + place) for place in range(1, 21)
        ]
        built = smuggled(100 * offset, b"".join(nested))
        places = list(
            itertools.accumulate(map(len, nested[:-1]), initial=position + len(built) - len(b"".join(nested)))
        )
        within.append([(100 * offset + place, at) for place, at in enumerate(places, 1)])
        outer.append((100 * offset, position, built))
        position += len(built)
    (directory / f"{0:020}.log").write_bytes(b"".join(built for _, _, built in outer))
    right = [(offset, position) for offset, position, _ in outer[1:]]
    for entries in (
        [entry for some in within for entry in some],
        [entry for some in within for entry in some[-2:]],
        [entry for some in within[8:] for entry in some],
        sorted(right + within[7]),
        sorted(right + within[12][-3:]),
        sorted(right[:-1] + within[15]),
        right,
    ):
        (directory / f"{0:020}.index").write_bytes(packed(entries))
        with Log(directory) as log:
            for offset, position, built in random.Random(1).sample(outer, 16):
                for near in range(max(offset - 99, 0), offset + 1, 9 if offset % 7 else 1):
                    assert log.read(near, 1).position == position
                assert log.read(offset, len(built)).data == built


# --- a log of several windows
# -------------------------------------------------------------------------------------------


class Large:
    """Batches of about 16 KiB with a record each, of which nothing but the base offset differs, and an index with an
    entry for each but the first."""

    def __init__(self, count: int) -> None:
        built = build.batch([build.Record(value=bytes(16_000)), build.Record(value=b"second")])
        self.size = len(built)
        self.data = b"".join(struct.pack(">q", 2 * number) + built[8:] for number in range(count))
        self.end = 2 * count
        self.entries = [(2 * number + 1, number * self.size) for number in range(1, count)]

    def write(self, directory: Path, entries: Entries | None) -> Path:
        directory.mkdir()
        (directory / f"{0:020}.log").write_bytes(self.data)
        if entries is not None:
            (directory / f"{0:020}.index").write_bytes(packed(entries))
        return directory


@pytest.fixture(scope="module")
def large() -> Large:
    return Large(700)


def check_large(large: Large, directory: Path, offsets: list[int]) -> Log:
    log = Log(directory)
    assert log.end_offset == large.end
    for offset in offsets:
        fetched = log.read(offset, 1)
        assert fetched.position == offset // 2 * large.size
        assert next(iter(fetched)).offset == offset
    return log


def test_a_good_index_costs_no_walk(large: Large, tmp_path: Path) -> None:
    offsets = random.Random(1).choices(range(large.end), k=400)
    with check_large(large, large.write(tmp_path / "t-0", large.entries), offsets) as log:
        for offset in offsets:
            fetched = log.read(offset, 1)
            assert fetched.walked_bytes <= large.size
            if offset > 2 * large.size:
                entry = fetched.index_entry
                assert entry is not None
                assert entry.offset <= offset
                assert entry.position == fetched.position - fetched.walked_bytes
    for n in range(3):
        with check_large(large, large.write(tmp_path / f"sparse-{n}", large.entries[n :: 3 + 40 * n]), offsets):
            pass


@pytest.mark.parametrize("seed", range(12 if ALL else 4))
def test_lies_about_one_window(large: Large, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    at = rng.randrange(100, 600)
    for number in range(6):
        entries = list(large.entries)
        for place in range(at, at + rng.randrange(1, 9)):
            relative, position = entries[place]
            entries[place] = [
                (relative, position + 61),
                (relative - 40, position),
                (relative, position + large.size),
                (relative + 100, position),
                (relative, position - large.size),
                (relative - 1, position - 17),
            ][number]
        offsets = [*range(2 * at - 60, 2 * at + 60), *rng.choices(range(large.end), k=60)]
        rng.shuffle(offsets)
        with check_large(large, large.write(tmp_path / f"{seed}-{number}", entries), offsets):
            pass


def test_without_an_index_one_walk_is_enough(large: Large, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = large.write(tmp_path / "t-0", None)
    walks = []

    class Counted(Walk):
        def __init__(self, *of: Any, **how: Any) -> None:
            walks.append(how)
            super().__init__(*of, **how)

    for module in (segment_reader, search_index):
        monkeypatch.setattr(module, "Walk", Counted)
    with check_large(large, directory, random.Random(2).choices(range(large.end), k=200)) as log:
        assert log.at_time(0) is not None
    assert len(walks) == 1


# --- damage
# -------------------------------------------------------------------------------------------------------------


def damaged(directory: Path, rng: random.Random, times: int) -> None:
    """Damage some of the log files, as far as they can be."""
    for path in sorted(directory.glob("*.log")):
        if rng.random() < 0.7:
            for _ in range(times):
                name = rng.choice(sorted(damage.DAMAGES))
                try:
                    path.write_bytes(damage.DAMAGES[name](path.read_bytes(), rng))
                except damage.NotApplicable:
                    continue


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("seed", range(400 if ALL else examples(80)))
def test_damage_is_passed_over(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    original = rng.choice([path for path in PARTITIONS if file_name(path) in SOME])
    directory = copy(original, tmp_path)
    damaged(directory, rng, rng.choice((1, 1, 1, 2, 5)))
    plain = PlainLog(directory)
    for how in ("good", "missing", "many", "onto frames"):
        if how != "good":
            lie(directory, plain, LIES.get(how), seed)
        with Log(directory) as log:
            assert log.end_offset == plain.end
            for offset in sample(plain, 60):
                for max_bytes in (1, 3000, 1 << 20):
                    expected = plain.read(offset, max_bytes, 1 << 20)
                    agree(log.read(offset, max_bytes), expected, plain.end)


def test_a_block_of_a_later_place_leads_no_reader_astray(tmp_path: Path) -> None:
    """The entries that a scan builds would go back after it."""
    parts = [build.batch([build.record(b"k", b"a value of some length")], base_offset=number) for number in range(2400)]
    data = b"".join(parts)
    directory = tmp_path / "p-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(data[:16384] + data[150016:150528] + data[16896:])
    plain = PlainLog(directory)
    with Log(directory) as log:
        for offset in range(0, 2400, 61):
            agree(log.read(offset, 300), plain.read(offset, 300, 1 << 20), plain.end)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Segments of a partition: (base offset, bytes)."""
    segments = []
    offset = draw(st.sampled_from((0, 0, 1000)))
    for _ in range(draw(st.integers(1, 3))):
        built = draw(build.built_segments(base_offset=offset, gaps=True, compacted=True, max_batches=5))
        data, odd = built.data, draw(st.none() | st.binary(max_size=80) | st.integers(1, 40).map(bytes))
        if odd is not None:
            at = draw(st.sampled_from([*built.positions, len(data)]))
            data = data[:at] + odd + data[at:]
        segments.append((offset, data))
        if built.batches:
            offset = built.batches[-1].last_offset + 1
        offset += draw(st.sampled_from((0, 0, 5))) if built.batches else 1
    return segments


@given(segments=logs(), data=st.data())
@settings(
    max_examples=examples(2000 if ALL else 120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_law_any_index_gives_what_the_scan_gives(
    segments: list[tuple[int, bytes]], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("law") / "t-0"
    directory.mkdir()
    for base, log in segments:
        (directory / f"{base:020}.log").write_bytes(log)
    plain = PlainLog(directory)
    for segment in plain.segments:
        positions = [item.position for item in segment.items] + [len(segment.data)]
        entry = st.tuples(
            st.integers(0, 1100)
            | st.sampled_from([batch.last - segment.base_offset for batch in segment.batches] or [0]),
            st.integers(0, len(segment.data) + 20) | st.sampled_from(positions),
        )
        index = data.draw(st.none() | st.binary(max_size=40) | st.lists(entry, max_size=6).map(sorted).map(packed))
        if index is not None:
            (directory / f"{segment.base_offset:020}.index").write_bytes(index)
    with Log(directory) as read:
        assert (read.start_offset, read.end_offset) == (plain.start, plain.end)
        near = [batch.last + step for segment in plain.segments for batch in segment.batches for step in (-1, 0, 1)]
        for offset in sorted({plain.start, plain.end, *near}):
            if plain.start <= offset <= plain.end:
                for max_bytes in (1, data.draw(st.integers(1, 2000)), 1 << 20):
                    agree(read.read(offset, max_bytes), plain.read(offset, max_bytes), plain.end)


def test_records_that_cannot_be_opened_are_reported_of(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    closed = bytearray(build.batch([build.Record()] * 2, base_offset=1))
    closed[22] |= 1  # gzip, which it is not
    data = [build.batch([build.Record()]), build.reseal(bytes(closed)), build.batch([build.Record()], base_offset=3)]
    (directory / f"{0:020}.log").write_bytes(b"".join(data))
    with Log(directory) as log:
        fetched = log.read(0)
        assert not fetched.damage
        for _ in range(2):
            assert [record.offset for record in fetched] == [0, 3]
            assert [(each.position, each.length, each.code) for each in fetched.damage] == [
                (len(data[0]), len(data[1]), "batch/codec")
            ]
        assert fetched.data == b"".join(data)


# --- buffers
# ------------------------------------------------------------------------------------------------------------


def test_the_buffer_doubles_up_to_the_largest_message(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    sizes = [10, 700, 40, 5000, 90, 3_000_000, 20]
    batches = [
        build.batch([build.Record(value=random.Random(number).randbytes(size))], base_offset=number)
        for number, size in enumerate(sizes)
    ]
    (directory / f"{0:020}.log").write_bytes(b"".join(batches))
    plain = PlainLog(directory)
    for most in (100, 1000, len(batches[3]), len(batches[3]) - 1, 1 << 30):
        with Log(directory, options=LogOptions(max_message_bytes=most)) as log:
            for offset in range(7):
                for max_bytes in (1, 60, 100, 101, 777, 2049, 5000, 8000, 4 << 20):
                    expected = plain.read(offset, max_bytes, most)
                    if isinstance(expected, int):
                        with pytest.raises(MessageTooLarge) as caught:
                            log.read(offset, max_bytes)
                        assert caught.value.size == expected
                        assert caught.value.limit == max(most, max_bytes)
                        assert f"a batch of {expected} bytes" in str(caught.value)
                    else:
                        agree(log.read(offset, max_bytes), expected, plain.end)
                        assert next(iter(log.read(offset, max_bytes))).offset == offset
    with Log(directory) as log, pytest.raises(ValueError, match="1 or more"):
        log.read(0, 0)


# --- Kafka 0.7
# ----------------------------------------------------------------------------------------------------------


def test_offsets_of_kafka_07_are_positions(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    rng = random.Random(9)
    base = 0
    for _ in range(3):
        messages: list[build.Nested] = [
            [b"inside", b"and"] if rng.random() < 0.2 else rng.randbytes(rng.randrange(200)) for _ in range(80)
        ]
        data = build.kafka07(messages)
        (directory / f"{base:020}.kafka").write_bytes(data)
        base += len(data)
    newest = max(directory.iterdir())
    newest.write_bytes(newest.read_bytes() + b"\0\0\1")
    plain = PlainLog(directory, ".kafka")
    with Log(directory) as log:
        assert (log.start_offset, log.end_offset) == (plain.start, plain.end)
        for offset in [*range(0, plain.end, 1 if ALL else 37), plain.end - 1, plain.end]:
            for max_bytes in (1, 300, 1 << 20):
                agree(log.read(offset, max_bytes), plain.read(offset, max_bytes), plain.end)
        expected = [
            entry.payload
            for segment in plain.segments
            for entry in oracle.entries07(segment.data, segment.base_offset)[0]
        ]
        records = log.records(on_damage=lambda _: None)
        assert [record.value for record in records] == expected
        assert [(each.position, each.code) for each in records.damage] == [
            (plain.end - log.segments[-1].base_offset, "tail/torn")
        ]
        assert log.at_time(0) is None


def test_a_read_after_the_end_of_a_segment_of_kafka_07_goes_on_in_the_next_one(tmp_path: Path) -> None:
    """The log start may lie where no segment has bytes. A read from there did not end."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.kafka").write_bytes(build.kafka07([b"one", b"two"]))
    (directory / f"{5000:020}.kafka").write_bytes(build.kafka07([b"three"]))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3000\n")
    with Log(directory) as log:
        assert log.start_offset == 3000
        for offset in (3000, 4999, 5000):
            assert [record.value for record in log.read(offset)] == [b"three"]


# --- the kernel
# ---------------------------------------------------------------------------------------------------------


def test_the_kernel_looks_at_no_byte_that_is_not_there(tmp_path: Path) -> None:
    built = build.batch([build.Record()])
    (tmp_path / "file").write_bytes(built)
    with FileSource(str(tmp_path / "file")) as source:
        seeker, fd = valid_batches.Seeker(), source.fileno()
        for call in (
            lambda: seeker.seek(fd, bytes(8), 2, None, 0, 0, len(built)),
            lambda: seeker.verify(fd, bytes(8), 0, 2, 0, 0, len(built)),
            lambda: seeker.verify(fd, bytes(8), 1, 0, 0, 0, len(built)),
            lambda: seeker.take(fd, 0, len(built), valid_batches.TAKE_BYTES + 1, 0),
            lambda: seeker.take(fd, 0, len(built), len(built) - 1, 0),
            lambda: valid_batches.follow(built, 0, len(built) + 1, -1),
            lambda: valid_batches.follow(built, 2, 1, -1),
            lambda: valid_batches.positions(bytes(15), 2, 0),
            lambda: valid_batches.row(built[:60], 0),
            lambda: valid_batches.row(build.message_v1(value=b"")[:25], 0),
            lambda: valid_batches.first_at(bytes(80), 4, 4, 0),
        ):
            with pytest.raises(ValueError):
                call()
        assert seeker.take(fd, 0, len(built), len(built) + 1, 0) is None
        assert seeker.seek(fd, b"", 0, None, 0, 0, len(built))[:4] == (valid_batches.SEEK_FOUND, -1, 0, 0)
        assert seeker.seek(fd, b"", 0, None, 0, 1, len(built))[0] == valid_batches.SEEK_ENDED
        assert seeker.seek(fd, b"", 0, None, 0, 1, 2 * len(built))[0] == valid_batches.SEEK_SHRUNK
        for end in range(len(built)):
            assert seeker.seek(fd, b"", 0, None, 0, 0, end)[0] == (
                valid_batches.SEEK_DAMAGED if end else valid_batches.SEEK_ENDED
            )
            assert valid_batches.follow(built, 0, end, -1) == (0, -1)
        assert valid_batches.follow(built + built, 0, 2 * len(built), -1) == (len(built), 0)
        with pytest.raises(OSError, match="Bad file descriptor"):
            seeker.seek(1 << 20, b"", 0, None, 0, 0, len(built))


# --- files
# ----------------------------------------------------------------------------------------------------------------


def test_more_segments_than_files_may_be_open(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for offset in range(200):
        (directory / f"{offset:020}.log").write_bytes(build.batch([build.Record()], base_offset=offset))
    with Log(directory) as log:
        before = len(os.listdir("/dev/fd"))
        for offset in random.Random(1).choices(range(200), k=600):
            assert next(iter(log.read(offset))).offset == offset
        assert len(os.listdir("/dev/fd")) - before < 80
        assert [segment.base_offset for segment in log.segments] == list(range(200))
    assert len(os.listdir("/dev/fd")) <= before


def test_reading_changes_nothing(tmp_path: Path) -> None:
    directory = copy(FIXTURES / "segments" / "segments-0", tmp_path)
    os.chmod(directory, 0o500)
    before = sorted((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir())
    with Log(directory) as log:
        assert list(log.records())
        assert log.segments
    os.chmod(directory, 0o700)
    assert sorted((path.name, path.stat().st_mtime_ns, path.read_bytes()) for path in directory.iterdir()) == before


def test_files_that_another_process_takes_away(tmp_path: Path) -> None:
    directory = copy(FIXTURES / "segments" / "segments-0", tmp_path)
    paths = sorted(directory.glob("*.log"))
    plain = PlainLog(directory)
    bases = [segment.base_offset for segment in plain.segments]
    with Log(directory) as log:
        agree(log.read(bases[1], 100), plain.read(bases[1], 100), plain.end)
        alive = log.read(bases[1])
        paths[1].unlink()
        paths[2].unlink()
        shutil.copyfile(paths[0], tmp_path / "other")
        os.replace(tmp_path / "other", paths[3])
        # What was open stays; what was not is gone, or another file.
        agree(alive, plain.read(bases[1], 1 << 20), plain.end)
        with pytest.raises(SourceError, match="no such file"):
            log.read(bases[2])
        with pytest.raises(SourceError, match="another file has taken its place"):
            log.read(bases[3])
        with open(paths[4], "r+b") as file:
            file.truncate(300)
        with pytest.raises(SourceError, match="ended at byte"):
            log.read(bases[5] - 1)


def test_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no log files here"):
        Log(tmp_path)
    with pytest.raises(SourceError, match="no such file"):
        Log(tmp_path / "missing")
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{5:020}.log").write_bytes(b"")
    with Log(tmp_path / "t-0") as log:
        assert (log.start_offset, log.end_offset, list(log.records()), log.at_time(0)) == (5, 5, [], None)
        fetched = log.read(5)
        assert (fetched.data, fetched.next_offset, fetched.base_offset, fetched.position) == (b"", 5, 5, 0)
        with pytest.raises(OffsetOutOfRange, match="offset 6 is out of range: the log is empty"):
            log.read(6)


def test_one_file_is_a_log_of_its_own(tmp_path: Path) -> None:
    path = sorted((FIXTURES / "segments" / "segments-0").glob("*.log"))[2]
    plain = PlainLog(path.parent)
    expected = plain.segments[2].batches
    named = tmp_path / "saved.log"
    shutil.copyfile(path, named)
    for file in (path, named):
        with Log(file) as log:
            assert (log.start_offset, log.end_offset) == (expected[0].first, expected[-1].last + 1)
            for batch in expected:
                assert log.read(batch.last).position == batch.position


# --- while it is written to
# ---------------------------------------------------------------------------------------------


def numbered(offset: int) -> bytes:
    return b"%d" % offset * (offset % 50)


def batch_of(offset: int, count: int) -> bytes:
    return build.batch([build.Record(value=numbered(offset + step)) for step in range(count)], base_offset=offset)


def test_a_snapshot_outlives_its_segments(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=2000, index_interval_bytes=200, delete_delay_ms=0)
    with Log(tmp_path / "t-0", write=True, options=options) as log:
        for offset in range(0, 300, 3):
            log.append(batch_of(offset, 3), assign=False)
        assert len(log.segments) > 5
        one, other = log.records(), log.records(31)
        alive = log.read(2, 500)
        data = alive.data
        late = log.read(2, 700)
        assert next(one).offset == 0
        gone = log.delete(by_size(0))
        assert [segment.path for segment in gone] == sorted(segment.path for segment in gone)
        log.append(batch_of(300, 3), assign=False)
        log.delete(by_size(0))  # time to take the files away
        assert not any(os.path.exists(segment.path) for segment in gone)
        assert log.start_offset == gone[-1].next_offset
        with pytest.raises(OffsetOutOfRange):
            log.read(2)
        assert late.data.startswith(data)
        assert [record.value for record in one] == [numbered(offset) for offset in range(1, 300)]
        assert [record.value for record in other] == [numbered(offset) for offset in range(31, 300)]
        assert [record.offset for record in log.records()][-1] == 302
        del one, other, alive, late
        numbers = Path("/proc/self/fd")
        open_files = [os.readlink(path) for path in numbers.iterdir() if path.is_symlink()] if numbers.exists() else []
        assert not [path for path in open_files if str(tmp_path) in path and "deleted" in path]
    with pytest.raises(KdumpError, match="closed"):
        log.read(302)
    with Log(tmp_path / "t-0") as log, pytest.raises(KdumpError, match="reading only"):
        log.append(b"")


def test_readers_beside_a_writer(tmp_path: Path) -> None:
    options = LogOptions(segment_bytes=6000, index_interval_bytes=300, delete_delay_ms=0)
    stop = threading.Event()
    failed: list[BaseException] = []
    reads = [0, 0, 0]

    def watched(work: Callable[[random.Random], None], number: int) -> None:
        rng = random.Random(number)
        try:
            while not stop.is_set():
                work(rng)
                reads[number] += 1
        except BaseException as error:  # noqa: BLE001  # the main thread raises it
            failed.append(error)
            stop.set()

    with Log(tmp_path / "t-0", write=True, options=options) as log:
        log.append(batch_of(0, 1), assign=False)

        def at_random(rng: random.Random) -> None:
            start, end = log.start_offset, log.end_offset
            offset = rng.randrange(start, end)
            try:
                fetched = log.read(offset, rng.choice((1, 500, 1 << 20)))
            except OffsetOutOfRange:
                return  # it was deleted in between
            found = [record for record, _ in zip(fetched, range(40), strict=False)]
            assert found[0].offset == offset
            assert [record.value for record in found] == [numbered(offset + step) for step in range(len(found))]
            assert not fetched.damage

        def in_order(rng: random.Random) -> None:
            end = log.end_offset
            expected = None
            for record in log.records():
                assert expected is None or record.offset == expected
                assert record.value == numbered(record.offset)
                expected = record.offset + 1
            assert expected is not None
            assert expected >= end

        def at_the_end(rng: random.Random) -> None:
            end = log.end_offset
            fetched = log.read(end)
            assert (fetched.data, fetched.next_offset) == (b"", end) or fetched.data
            assert log.at_time(0) is None or log.at_time(1) is not None

        threads = [
            threading.Thread(target=watched, args=(work, number))
            for number, work in enumerate((at_random, in_order, at_the_end))
        ]
        for thread in threads:
            thread.start()
        rng, offset, until = random.Random(1), 1, time.monotonic() + (20 if ALL else 0.8)
        while time.monotonic() < until and not stop.is_set():
            count = rng.randrange(1, 6)
            log.append(batch_of(offset, count), assign=False)
            offset += count
            if rng.random() < 0.05:
                log.delete(by_size(rng.choice((20_000, 60_000))))
        stop.set()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        assert min(reads) > 3
        assert log.end_offset == offset


def test_a_segment_that_a_broker_deletes_while_the_log_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = copy(FIXTURES / "segments/segments-0", tmp_path)
    logs = sorted(directory.glob("*.log"))
    real = log_module.log_files_at

    def late(path: str) -> LogFiles:
        found = real(path)
        logs[0].unlink(missing_ok=True)
        return found

    monkeypatch.setattr(log_module, "log_files_at", late)
    with Log(directory) as log:
        assert log.start_offset == int(logs[1].stem)
        assert next(log.records()).offset == int(logs[1].stem)
