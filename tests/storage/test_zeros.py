"""Runs of zeros are copied as holes, and their checksum is that of the bytes."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kdump.storage import zeros


@given(st.integers(0, 1 << 18), st.binary(max_size=20))
def test_the_checksum_of_zeros(count: int, before: bytes) -> None:
    assert zeros.crc_of_zeros(count, crc32c(before)) == crc32c(bytes(count), crc32c(before))


def test_the_checksum_of_many_zeros_is_that_of_its_parts() -> None:
    whole = zeros.crc_of_zeros(20 << 30, 7)
    assert whole == zeros.crc_of_zeros((20 << 30) - 12345, zeros.crc_of_zeros(12345, 7))


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_has_the_same_bytes_and_the_zeros_as_holes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sizes = [1, 100, 4096, zeros.BLOCK_BYTES, zeros.BLOCK_BYTES + 1, 3 << 20]
    data = b"".join(rng.choice((bytes, rng.randbytes))(rng.choice(sizes)) for _ in range(rng.randrange(6)))
    source, target = tmp_path / "source", tmp_path / "target"
    with source.open("wb") as file:
        for at in range(0, len(data), 4096):  # holes, where there is nothing but zeros
            if any(block := data[at : at + 4096]):
                file.seek(at)
                file.write(block)
        file.truncate(len(data))
    start = rng.randrange(len(data) + 1)
    target.write_bytes(b"before")
    with source.open("rb") as one, target.open("r+b") as other:
        crc = zeros.append_with_holes(one.fileno(), start, len(data), other.fileno(), 6)
        assert crc == zeros.crc_of_range(one.fileno(), start, len(data)) == crc32c(data[start:])
        assert zeros.is_same(one.fileno(), start, other.fileno(), 6, len(data) - start)
    assert target.read_bytes() == b"before" + data[start:]


def test_a_large_hole_takes_no_time_and_no_room(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"torn")
    os.truncate(source, 40 << 30)
    began = time.process_time()
    with source.open("rb") as one, target.open("w+b") as other:
        crc = zeros.append_with_holes(one.fileno(), 0, 40 << 30, other.fileno(), 0)
        assert crc == zeros.crc_of_range(other.fileno(), 0, 40 << 30)
    assert target.stat().st_size == 40 << 30
    assert target.stat().st_blocks * 512 < 1 << 20
    assert time.process_time() - began < 2


def test_a_source_that_is_shorter(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_bytes(b"abc")
    with path.open("rb") as one, (tmp_path / "target").open("w+b") as other, pytest.raises(EOFError):
        zeros.append_with_holes(one.fileno(), 0, 4, other.fileno(), 0)
