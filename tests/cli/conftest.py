"""Directories with segments in them, for runs of the command."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from support import build
from support.command_runs import unwatched

FIXTURES = Path(__file__).parents[2] / "fixtures"


def plain(base_offset: int, count: int = 3, **fields: Any) -> bytes:
    items = [build.record(b"key-%d" % number, b"value-%d" % number) for number in range(count)]
    return build.batch(items, base_offset=base_offset, **fields)


# Every kind of batch that a log can hold, with offsets 0 to 20.
MIXED = build.segment(
    build.message_v0(b"k0", b"v0", offset=0),
    build.wrapper([build.record(b"k", b"v%d" % number) for number in range(2)], base_offset=1, magic=0, codec="snappy"),
    build.message_v1(None, b"", offset=3),
    build.wrapper([build.record(None, b"v%d" % number) for number in range(3)], base_offset=4, codec="lz4"),
    plain(7),
    build.batch(
        [build.record(b"", b"\xff\x00", headers=[(b"h", None), (b"h", b""), (b"\xfe", b"\x80")])],
        base_offset=10,
        codec="zstd",
        base_sequence=5,
        producer_id=9,
        producer_epoch=1,
    ),
    plain(11, 4, codec="gzip", transactional=True, producer_id=7, producer_epoch=0, base_sequence=2**31 - 2),
    build.marker("COMMIT", base_offset=15, coordinator_epoch=3),
    build.empty_batch(16, 18),
    build.control_batch([build.leader_change(1, [1, 2], [1])], base_offset=19),
    plain(20, 1, timestamp_type="LogAppendTime", max_timestamp=1234),
)

CLEAN = build.segment(plain(0), plain(3, codec="zstd"), plain(6))
DAMAGED = build.segment(
    plain(0), build.batch([build.record(b"k", b"x" * 100)], base_offset=3, crc=0xDEADBEEF), plain(4)
)
WARNED = build.segment(plain(0), plain(5))
NOTED = build.segment(build.empty_batch(0, 0), plain(5))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """`topic-0` with two clean segments, and beside it one file of each severity."""
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(CLEAN)
    (directory / "00000000000000000009.log").write_bytes(plain(9))
    (tmp_path / "clean.log").write_bytes(CLEAN)
    (tmp_path / "damaged.log").write_bytes(DAMAGED)
    (tmp_path / "warned.log").write_bytes(WARNED)
    (tmp_path / "noted.log").write_bytes(NOTED)
    (tmp_path / "mixed.log").write_bytes(MIXED)
    return tmp_path


@pytest.fixture(scope="session")
def built() -> dict[str, bytes]:
    """The same bytes by name."""
    return {"clean": CLEAN, "damaged": DAMAGED, "warned": WARNED, "noted": NOTED, "mixed": MIXED}


@pytest.fixture
def changing(kdump: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command for runs that change what they are given."""
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    return kdump


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A log directory that a broker left; the command runs beside it, and names it `killed`."""
    directory = tmp_path / "killed"
    shutil.copytree(FIXTURES / "killed", directory, ignore=shutil.ignore_patterns("expected", "case.toml"))
    (directory / ".lock").touch()
    return directory
