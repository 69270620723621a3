"""Sums of hashes of a log whose end is not known before, and the last records of keys in parts."""

from __future__ import annotations

import random
import struct
from array import array

import pytest

from kdump.kernel.cell_differences import added
from kdump.kernel.record_hashes import HASH_COLUMNS
from kdump.kernel.sketches import KEY_PARTS, KeyParts, LastRecords, RecordSketch
from support.laws import SEED, examples

ROW = struct.Struct(f"<{len(HASH_COLUMNS)}q")
BITS = 4
TABLE_BYTES = (3 << BITS) * 16


def rows(offsets: list[int], hashes: dict[int, int]) -> bytes:
    return b"".join(ROW.pack(each, hashes[each] & 0xFF, 0, hashes[each], -1, 0, 0) for each in offsets)


def sums(cuts: bytes) -> dict[int, tuple[int, int]]:
    found = {offset: (count, low | high << 64) for offset, count, low, high in struct.iter_unpack("<qqQQ", cuts)}
    assert [*found] == sorted(found)
    assert len(found) == len(cuts) // 32
    return found


def test_what_is_kept_does_not_depend_on_where_the_log_ended_before() -> None:
    """Cuts have the sums of all records below them; each block of offsets has the tables of its records alone."""
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        start, most = choose.randrange(0, 5000), choose.choice([3, 200, 3000, 1 << 40])
        count = choose.randrange(1, 400)
        offsets = sorted({start + choose.randrange(most) for _ in range(count)})
        stop = offsets[-1] + choose.randrange(1, 100)
        borders = sorted({choose.randrange(start + 1, stop + 2) for _ in range(5)})
        hashes = {each: choose.getrandbits(63) for each in offsets}
        sketch, at, ends = RecordSketch(start, array("q", borders), blocks=4, bits=BITS), 0, list[int]()
        while at < len(offsets):
            taken = offsets[at : at + choose.randrange(1, 50)]
            ends.append(taken[-1] + 1)
            sketch.add(rows(taken, hashes), len(taken), array("q", [len(taken), ends[-1]]), 1)
            at += len(taken)
        found, shift = sums(sketch.cuts(stop)), sketch.cells(stop)[0]
        assert {start, stop, *(each for each in (*borders, *ends) if each < stop)} <= found.keys()
        assert len(found) <= 512 + 1 + len(borders) + len(ends)
        for offset, (below, total) in found.items():
            expected = [hashes[each] << 64 | (1 << 64) - 1 for each in offsets if each < offset]
            assert (below, total) == (len(expected), sum(expected) % (1 << 128))
        blocks = range(start >> shift, ((stop - 1) >> shift) + 1)
        assert 1 <= len(blocks) <= 4
        assert shift == 0 or ((stop - 1) >> (shift - 1)) - (start >> (shift - 1)) >= 4
        expected_cells = b""
        for block in blocks:
            alone = RecordSketch(0, b"", blocks=1, bits=BITS)
            within = [each for each in offsets if each >> shift == block]
            alone.add(rows(within, hashes), len(within), b"", 0)
            expected_cells += alone.cells(stop)[1]
        assert sketch.cells(stop)[1] == expected_cells


def test_tables_of_parts_are_those_of_the_whole() -> None:
    choose = random.Random(1)
    hashes = {each: choose.getrandbits(63) for each in range(400)}
    tables = []
    for offsets in (range(400), range(150), range(150, 400)):
        sketch = RecordSketch(0, b"", blocks=1, bits=BITS)
        sketch.add(rows(list(offsets), hashes), len(offsets), b"", 0)
        tables.append(sketch.cells(400)[1])
    assert added(tables[1], tables[2]) == tables[0]
    assert len(tables[0]) == TABLE_BYTES


def test_records_whose_transaction_is_not_committed_are_corrected() -> None:
    """By their offsets alone, whatever their hashes and keys are; of those below the start it has none."""
    choose = random.Random(3)
    records = [(offset, choose.getrandbits(63), choose.choice([0, 1, 2, 4])) for offset in range(100, 4000)]
    runs = [(first, min(first + choose.randrange(1, 90), 4000)) for first in range(90, 4000, 90)]
    outcomes = {first: choose.randrange(4) for first, _ in runs}
    known = {offset: outcomes[first] for first, stop in runs for offset in range(first, stop)}
    sketches = []
    for is_known in (True, False):
        sketch = RecordSketch(100, b"", blocks=4, bits=BITS)
        marks = known if is_known else {}
        data = [ROW.pack(at, 0, 0, each, 7, kind | marks.get(at, 0) << 4, 0) for at, each, kind in records]
        sketch.add(b"".join(data), len(data), b"", 0)
        sketches.append(sketch)
    whole, corrected = sketches
    assert corrected.cells(4000) != whole.cells(4000)
    for first, stop in runs:
        corrected.correct(first, stop, outcomes[first])
    assert (corrected.cells(4000), corrected.cuts(4000)) == (whole.cells(4000), whole.cuts(4000))
    assert corrected.keyed == whole.keyed
    for first, stop in ((8999, (1 << 62) + 1), (200, 199)):
        with pytest.raises(ValueError, match="offset"):
            corrected.correct(first, stop, 1)


def test_parts_have_the_last_records_of_all_keys() -> None:
    choose = random.Random(2)
    keys = [choose.getrandbits(63) * choose.choice([1, -1]) for _ in range(3000)]
    data = b"".join(ROW.pack(at, choose.choice(keys), 0, at, at, choose.randrange(2), 0) for at in range(20_000))
    whole, parts = LastRecords(1 << 20), KeyParts()
    assert whole.fill(data, 0, 20_000) == 20_000
    taken, at = [b""] * KEY_PARTS, 0
    while at < 20_000:
        at, full = parts.add(data, at, 20_000)
        if full >= 0:
            taken[full] += parts.take(full)
    one, other = (RecordSketch(0, b"", blocks=1, bits=9, of_keys=True) for _ in range(2))
    count = 0
    whole.sum_into(one)
    for part in range(KEY_PARTS):
        last = LastRecords(1 << 20, KEY_PARTS.bit_length() - 1, part)
        rest = taken[part] + parts.take(part)
        assert last.fill_part(rest, 0) == len(rest) // 32
        count += len(last)
        last.sum_into(other)
    assert (count, other.cells(20_000), other.cuts(20_000)) == (len(whole), one.cells(20_000), one.cuts(20_000))
