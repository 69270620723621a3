"""Batches with a right checksum whose records cannot be read: counted, named with their reason, never called clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kdump as library
from support import build
from support.command_runs import lines
from support.cuttings import Ranges

LOG = "00000000000000000000.log"
MIB = 1 << 20


def one(base_offset: int, **fields: Any) -> bytes:
    return build.batch([build.record(b"key", b"value" * 20)], base_offset=base_offset, **fields)


def big(base_offset: int) -> bytes:
    return build.batch([build.record(b"key", bytes(2 * MIB))], base_offset=base_offset, codec="gzip")


BAD: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "not gzip": (one(1, codec="gzip", payload=b"no gzip at all"), "codec", {}),
    "an unknown codec": (one(1, attributes=6), "codec", {}),
    "too large": (big(1), "limit", {"max_batch_bytes": MIB}),
    "records that break off": (one(1, payload=b"\x7e\x00"), "records", {}),
    "compressed records that break off": (
        one(1, codec="gzip", payload=build.compress("gzip", b"\x7f\x7f")),
        "records",
        {},
    ),
    "a number of records below zero": (one(1, count=-3), "records", {}),
    "a compressed marker": (
        one(1, codec="gzip", payload=b"no gzip at all", control=True, transactional=True, producer_id=1),
        "codec",
        {},
    ),
}
OLD: dict[str, tuple[bytes, str]] = {
    "not gzip": (build.wrapper([build.record(b"k", b"v")], base_offset=1, payload=b"no gzip at all"), "codec"),
    "no message inside": (
        build.wrapper([build.record(b"k", b"v")], base_offset=1, payload=build.compress("gzip", b"\1\2\3", magic=1)),
        "records",
    ),
    "an unknown codec": (build.wrapper([build.record(b"k", b"v")], base_offset=1, attributes=5), "codec"),
}


def partition_with(directory: Path, bad: bytes) -> tuple[Path, int]:
    path = directory / "topic-0" / LOG
    path.parent.mkdir(parents=True)
    before = one(0)
    path.write_bytes(build.segment(before, bad, one(5)))
    return path, len(before)


def measured(path: Path, engine: Any = None, **options: Any) -> library.PartitionStatistics:
    found = library.stat_logs(library.discover([path]), library.StatOptions(**options), engine=engine)
    return next(each for each in found if isinstance(each, library.PartitionStatistics))


def check(found: library.PartitionStatistics, path: Path, position: int, bad: bytes, reason: str) -> None:
    assert found.damage.stretches == ((str(path), position, len(bad), reason),)
    assert (found.damage.count, found.damage.bytes) == (1, 0)
    # It is a batch as any other: the bytes of a file are those of its batches, the damaged ones, and zeros at the end.
    assert found.totals.batches == 3
    assert found.totals.bytes == path.stat().st_size


@pytest.mark.parametrize("name", BAD)
def test_its_place_and_its_reason_are_said(name: str, tmp_path: Path) -> None:
    bad, reason, options = BAD[name]
    path, position = partition_with(tmp_path, bad)
    found = measured(path.parent, deep=True, **options)
    check(found, path, position, bad, reason)
    assert found.records is not None
    assert (found.records.unread, found.records.batches) == (1, 2)
    assert measured(path.parent, Ranges(), deep=True, **options) == found
    verified = next(
        iter(library.verify_logs(library.discover([path.parent]), library.VerifyOptions(deep=True, **options)))
    )
    assert position in {finding.position for finding in verified.findings}


@pytest.mark.parametrize("options", [{"open_wrappers": True}, {"deep": True}], ids=str)
@pytest.mark.parametrize("name", OLD)
def test_so_is_that_of_a_wrapper_message(name: str, options: dict[str, bool], tmp_path: Path) -> None:
    bad, reason = OLD[name]
    path, position = partition_with(tmp_path, bad)
    found = measured(path.parent, **options)
    check(found, path, position, bad, reason)
    assert measured(path.parent).totals.records is None


def test_an_unknown_codec_shows_in_the_header(tmp_path: Path) -> None:
    bad = BAD["an unknown codec"][0]
    path, position = partition_with(tmp_path, bad)
    check(measured(path.parent), path, position, bad, "codec")


@pytest.mark.parametrize("name", BAD)
def test_the_command_says_it(kdump: Any, name: str, tmp_path: Path) -> None:
    bad, reason, options = BAD[name]
    path, position = partition_with(tmp_path, bad)
    words = ["--deep", *(["--max-batch-bytes", "1m"] if options else []), str(path.parent)]
    ran = kdump.inside("stat", "--format", "json", *words)
    assert ran.status == 1
    for kind in ("total", "partition", "topic"):
        (line,) = [line for line in lines(ran) if line["type"] == kind]
        stretch = {"path": str(path), "position": position, "length": len(bad), "reason": reason}
        assert line["damage"] == {"stretches": 1, "bytes": 0, "first": [stretch]}
    shown = kdump.inside("stat", "--format", "terminal", *words)
    assert shown.status == 1
    text = "".join(shown.text.split())
    assert f"{path}atposition{position}:abatch" in text
    assert "nodamage" not in text


@pytest.mark.parametrize("size", [1, 17, 18])
def test_zeros_that_are_shorter_than_a_header_are_no_preallocation(size: int, tmp_path: Path) -> None:
    """A broker truncates a tail of up to 17 bytes, whatever it holds."""
    path, _ = partition_with(tmp_path, one(1))
    path.write_bytes(path.read_bytes() + bytes(size))
    found = measured(path.parent)
    assert (found.damage.bytes, found.segments[0].tail_zero_bytes) == ((size, 0) if size < 18 else (0, size))
