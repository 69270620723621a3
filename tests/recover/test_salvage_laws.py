"""What a salvage keeps of the logs that brokers wrote when bits are flipped, sectors are gone or segments swapped.

KDUMP_LAWS=all tries every bit of every field, every sector and every page, and lists the excepted cases (pytest -s);
else a share of them is tried, with every magic, codec and field in it. KDUMP_SHARD=1/2 takes the first half of the
directories.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

import pytest

from kdump.log.disputes import OffsetRun
from kdump.recover.plan import SALVAGE, TRUNCATE, Action, RecoverOptions
from kdump.recover.salvage.result import SalvageResult
from support import build, damage_partition, oracle
from support.damage import NotApplicable
from support.expected_files import NOW_MS, left_by, planned, put
from support.laws import examples, sampled
from support.salvage_faults import FIELDS, FIXTURES, MEMORY, Flip, LogCopy, partitions, without_sector, zeroed
from support.salvage_oracle import Own, files, salvaged, valid, written

ALL = os.environ.get("KDUMP_LAWS") == "all"
SHARE = examples(28)
"""Flips of each magic, codec and field in a default run."""
DAMAGED = re.compile("batch/|gap/|tail/")
"""The codes of bytes that are no valid batch."""
SECTOR, PAGE = 512, 4096
ZEROS = bytes(8192)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A place for copies, in memory where the system has one."""
    place = MEMORY / f"kdump-laws-{os.getpid()}" if os.access(MEMORY, os.W_OK) else tmp_path / "laws"
    place.mkdir(exist_ok=True)
    yield place
    shutil.rmtree(place)


def places() -> list[Path]:
    part, _, parts = os.environ.get("KDUMP_SHARD", "1/1").partition("/")
    return partitions()[int(part) - 1 :: int(parts)]


def chosen() -> dict[Path, list[Flip]]:
    """The flips to try: all, or some of each magic, codec and field."""
    groups: dict[tuple[int, int, str], list[tuple[Path, int]]] = {}
    found: dict[Path, list[Flip]] = {}
    for place in places():
        found[place] = []
        for number, own in enumerate(valid(files(place))):
            for name, bits in FIELDS.items():
                if ALL:
                    found[place] += (Flip(number, bit) for bit in bits)
                groups.setdefault((own.batch.magic, own.batch.codec, name), []).append((place, number))
    rng = random.Random(13)
    for (*_, name), candidates in groups.items() if not ALL else ():
        for place, number in rng.choices(candidates, k=SHARE):
            found[place].append(Flip(number, rng.choice(FIELDS[name])))
    assert ALL or {name for *_, name in groups} == FIELDS.keys()
    return found


def names(found: SalvageResult, own: Own) -> bool:
    """Whether the report names a batch that goes, and what it contradicts."""
    return any(_holds(clash.dropped, found.names, own) for clash in found.conflicts)


def _holds(named: OffsetRun, files: Sequence[str], own: Own) -> bool:
    return files[named.file] == own.file and named.start <= own.batch.position < named.stop


@pytest.mark.laws
def test_one_flipped_bit_costs_one_batch(room: Path) -> None:
    wrong, excepted, tried, began = [], [], Counter[str](), time.monotonic()
    for place, flips in chosen().items():
        copy = LogCopy(place, room)
        for flip in flips:
            if flip.batch >= len(copy.batches):
                continue
            found = copy.with_bits([flip])
            tried[flip.field] += 1
            lost = copy.lost(found, [flip])
            case = f"{place.relative_to(FIXTURES)} {flip} {flip.field}: {lost[:5]} of {len(copy.batches)}"
            if lost and copy.protected(found, lost):
                excepted.append(f"{case}, of a transaction that lost its ABORT marker")
            elif lost and flip.field == "offset" and copy.other_explanations(flip):
                excepted.append(case)
                if not all(names(found, copy.batches[number]) for number in lost):
                    wrong.append(f"{case}, not named")
            elif lost:
                wrong.append(case)
        copy.close()
    seconds = time.monotonic() - began
    if ALL:
        print(f"{dict(tried)} in {seconds:.0f} s, {len(excepted)} excepted", *excepted, sep="\n")
    assert not wrong, "\n".join([f"{len(wrong)} of {tried.total()}", *wrong[:50]])
    assert min(tried[field] for field in FIELDS) >= examples(200)


def test_an_offset_beyond_the_segment_is_wrong_where_a_wrapper_begins_the_next_one(room: Path) -> None:
    """The offset of a wrapper message is that of its last inner message: the next segment begins at its name."""
    copy = LogCopy(FIXTURES / "v0-segments-0.8.2.2" / "segments-0", room)
    beyond = Flip(23, 60)  # from 53 to 61; the next segment begins at 60, its first message is a wrapper with offset 65
    assert copy.lost(copy.with_bits([beyond]), [beyond]) == []
    copy.close()


@pytest.mark.laws
def test_two_flipped_bits_cost_two_batches(room: Path) -> None:
    wrong = []
    rng = random.Random(14)
    some = [place for place in places() if len(list(valid(files(place)))) > 3]
    for place in some if ALL else rng.sample(some, min(examples(120), len(some))):
        copy = LogCopy(place, room)
        for _ in range(200 if ALL else 6):
            left = rng.randrange(len(copy.batches))
            right = rng.choice((left + 1, left + 2, rng.randrange(len(copy.batches)))) % len(copy.batches)
            kind = rng.choice(("offset", "length", "magic"))
            flips = [Flip(number, rng.choice(FIELDS[kind])) for number in {left, right}]
            found = copy.with_bits(flips)
            lost = copy.lost(found, flips)
            case = f"{place.relative_to(FIXTURES)} {flips} {kind}: {lost[:5]} of {len(copy.batches)}"
            if not lost or copy.protected(found, lost):
                continue
            if kind != "offset" or len(lost) + sum(1 for flip in flips if copy.is_lost(found, flip.batch)) > len(flips):
                wrong.append(case)
        copy.close()
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:50]])


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize("tail", [b"", ZEROS], ids=["", "zeros at the end"])
@pytest.mark.parametrize("kind", ["page zeroed", "sector zeroed", "sector removed"])
def test_what_a_bad_sector_leaves(room: Path, kind: str, tail: bytes) -> None:
    """Every batch without a changed byte stays."""
    wrong: list[str] = []
    size = PAGE if kind.startswith("page") else SECTOR
    rng = random.Random(f"{kind} {len(tail)}")
    for place in places() if ALL else rng.sample(places(), min(examples(80), len(places()))):
        copy = LogCopy(place, room)
        for name, data in copy.logs.items():
            starts = range(0, len(data), size)
            for start in starts if ALL else rng.sample(starts, min(3, len(starts))):
                change = without_sector if kind == "sector removed" else zeroed
                damaged, expected = change(copy, name, start, size)
                found, after = copy.with_data(name, damaged + tail)
                missed = Counter(own.data for own in expected) - after
                if missed.total() > sum(one.dropped for one in found.undecided):
                    wrong.append(
                        f"{place.relative_to(FIXTURES)} {name} at {start}: {missed.total()} of {len(copy.batches)}"
                    )
        copy.close()
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:50]])


def swap(directory: Path, left: str, right: str) -> None:
    (directory / left).rename(directory / "aside")
    (directory / right).rename(directory / left)
    (directory / "aside").rename(directory / right)


@pytest.mark.daily(3)
@pytest.mark.parametrize("suffixes", [(".log",), (".log", ".index", ".timeindex", ".txnindex")], ids=["logs", "all"])
@pytest.mark.parametrize(
    "partition", ["segments/segments-0", "v1-segments-0.10.2.2/segments-0", "mixed-through-3.9.1/mixed-0"]
)
def test_two_swapped_segments_are_renamed_back(tmp_path: Path, partition: str, suffixes: tuple[str, ...]) -> None:
    stems = [name[:-4] for name, data in files(FIXTURES / partition).items() if data]
    for number, (left, right) in enumerate([*pairwise(stems), (stems[0], stems[-1])]):
        directory = tmp_path / str(number) / "p-0"
        shutil.copytree(FIXTURES / partition, directory)
        before = files(directory)
        for suffix in suffixes:
            if (directory / f"{left}{suffix}").exists() and (directory / f"{right}{suffix}").exists():
                swap(directory, f"{left}{suffix}", f"{right}{suffix}")
        plan = planned(directory, RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS))
        after = put(tmp_path / "after" / str(number) / "p-0", left_by(plan))
        assert files(after) == before, (left, right)
        assert plan.lost.given_up.batches == plan.lost.given_up.bytes == 0
        assert not [action for action in plan.actions if action.action == "delete" and action.path.endswith(".log")]
        assert not planned(after, RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS)).actions


class BatchSet(NamedTuple):
    """How many batches a set has, and how many records these hold."""

    batches: int = 0
    records: int = 0


def records_of(own: Own) -> int:
    """How many records a batch has. The header of a wrapper message does not say it; an unreadable one has none."""
    if own.batch.count is not None:
        return own.batch.count
    try:
        return len(list(oracle.records(own.data)))
    except oracle.Malformed:
        return 0


def records_removed(action: Action, logs: dict[str, bytes]) -> int:
    """How many records an action removes from these logs, also where the report does not know it."""
    if action.records is not None:
        return action.records
    start, stop = action.start or 0, action.stop or 0
    of_file = (own for own in valid(logs) if own.file == Path(action.path).name)
    return sum(records_of(own) for own in of_file if start <= own.batch.position < stop)


def largest_set(logs: dict[str, bytes]) -> BatchSet:
    """The largest set of batches, in file order, whose offsets rise; of several, the one with the fewest records.

    A salvage drops as few batches as it can. Which of two it drops, their holes and the indexes decide, not records.
    """
    best: list[tuple[Own, BatchSet]] = []
    for own in valid(logs):
        count = records_of(own)
        before = max((found for one, found in best if one.last < own.first), key=_size, default=BatchSet())
        best.append((own, BatchSet(before.batches + 1, before.records + count)))
    return max((found for _, found in best), key=_size, default=BatchSet())


def _size(of: BatchSet) -> tuple[int, int]:
    return of.batches, -of.records


NOT_ABOUT_ORDER = {
    "epoch/backwards": "it goes on after batches that were written again with a higher leader epoch",
    "offset/range": "one batch alone, 2^31 offsets after the others, would move the end of the log there",
    "control/structure": "a broker refuses it",
    "txn/state": "a broker refuses it",
    "legacy/wrapper": "a broker refuses it",
    "txn/open": "a transaction that lost its ABORT marker, which a later COMMIT would commit",
}
"""Why a salvage drops a batch that a truncation leaves, although its offset rises."""


@pytest.mark.laws
def test_a_salvage_keeps_no_fewer_batches_and_records_than_a_truncation(tmp_path: Path) -> None:
    """And what a truncation leaves that it drops is in its report."""
    wrong, runs = [], 0
    small = [place for place in partitions() if sum(map(len, files(place).values())) < 40_000]
    numbers = range(2000) if ALL else sampled(range(examples(400)), 3)
    for number in numbers:
        rng = random.Random(number)
        place, name = rng.choice(small), rng.choice(sorted(damage_partition.DAMAGES))
        directory = tmp_path / str(number) / place.name
        shutil.copytree(place, directory)
        try:
            damage_partition.apply(name, directory, rng)
        except NotApplicable:
            continue
        damaged = files(directory)
        if not damaged:
            continue
        runs += 1
        plan = planned(directory, RecoverOptions(strategy=SALVAGE, now_ms=NOW_MS))
        salvaged = files(put(tmp_path / "salvaged" / str(number) / place.name, left_by(plan)))
        have = Counter(own.data for own in valid(salvaged))
        refused = [action for action in plan.actions if action.because in NOT_ABOUT_ORDER]
        kept = largest_set(salvaged)
        batches = kept.batches + sum(action.batches or 0 for action in refused)
        records = kept.records + sum(records_removed(action, damaged) for action in refused)
        for walk in ("newest", "all"):
            other = planned(directory, RecoverOptions(strategy=TRUNCATE, walk=walk, now_ms=NOW_MS))
            left = files(put(tmp_path / walk / str(number) / place.name, left_by(other)))
            truncated = largest_set(left)
            if batches < truncated.batches or (batches == truncated.batches and records < truncated.records):
                codes = Counter(action.because for action in plan.actions if action.batches)
                wrong.append(f"{number} {place.relative_to(FIXTURES)} {name} {walk}: {kept}, not {truncated}; {codes}")
            dropped = Counter(own.data for own in valid(left)) - have
            named = sum(action.batches or 0 for action in plan.actions)
            if dropped.total() > named:
                wrong.append(f"{number} {name} {walk}: {dropped.total()} batches go, {named} named")
        shutil.rmtree(directory)
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])
    assert runs > (100 if ALL else len(numbers) // 2)


class NestedLog(NamedTuple):
    """A log of which one record, in the batch data[start:stop], holds a log whose offsets would fit."""

    data: bytes
    start: int
    stop: int
    end: int  # without zeros


def one(magic: int, offset: int, value: bytes = b"v") -> bytes:
    if magic == 2:
        return build.batch([build.record(b"k", value)], base_offset=offset)
    return build.message(magic, b"k", value, offset=offset)


def nested_logs() -> Iterator[NestedLog]:
    for magic, inner, codec, first, rest in product((0, 1, 2), (0, 1, 2), ("none", "lz4"), (3, 6, 7), (0, 1, 2)):
        value = b"some bytes" * (first % 2) + b"".join(one(inner, first + number, b"w" * 30) for number in range(3))
        before = b"".join(one(magic, offset) for offset in range(3))
        records = [build.record(b"k", value)]
        if magic == 2:
            outer = build.batch(records, base_offset=6, codec=codec)
        elif codec == "none":
            outer = one(magic, 6, value)
        else:
            outer = build.wrapper(records, magic=magic, base_offset=6, codec=codec)
        after = (b"", ZEROS[:700], b"".join(one(magic, offset) for offset in range(7, 11)))[rest]
        yield NestedLog(
            before + outer + after, len(before), len(before + outer), len(before + outer + after.rstrip(b"\0"))
        )


def test_nothing_inside_a_value_is_taken(room: Path) -> None:
    """Whatever byte of the batch around it is damaged: the batch goes as a whole, and the report names its bytes."""
    wrong, rng, name = [], random.Random(16), f"{0:020d}.log"
    for number, log in sampled(enumerate(nested_logs()), 3):
        spots = range(log.start, log.stop)
        for at in spots if ALL else [*rng.sample(spots, 3), *rng.sample(range(log.start, log.start + 17), 3)]:
            damaged = bytearray(log.data)
            damaged[at] ^= 1 << rng.randrange(8)
            directory = written(room / "p-0", {name: bytes(damaged)})
            found = salvaged(directory)
            gone = {byte for piece in found.dropped for byte in range(piece.start, min(piece.stop, log.end))}
            # The checksum does not cover the offset and the leader epoch: the whole batch can be right.
            bare = at - log.start in (*range(8), *range(12, 16))
            taken = not bare and any(not DAMAGED.match(code) for code in found.dropped.values())
            if taken or (gone != set(spots) and not (bare and not gone)):
                wrong.append(f"{number}, byte {at - log.start} of {len(spots)}: {found.dropped} of {log[1:]}")
    assert not wrong, "\n".join([str(len(wrong)), *wrong[:40]])
