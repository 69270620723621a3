"""A log of Kafka 0.7, of which there is no broker any more, written and read: by the documented format, as `oracle`
decodes it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kdump.writer.builder import NewRecord
from kdump.writer.log import Log
from kdump.writer.options import KAFKA07, LogOptions
from support import oracle
from support.command_runs import verified

OPTIONS = LogOptions(magic=KAFKA07, segment_bytes=2000)


def values(rng: random.Random) -> list[bytes]:
    return [b"value " * rng.randrange(20) + rng.randbytes(rng.randrange(20)) for _ in range(rng.randint(1, 9))]


def entries(directory: Path) -> dict[int, list[bytes]]:
    """By the offset of each entry the message that it is, or those inside, segment after segment without a hole."""
    found: dict[int, list[bytes]] = {}
    start = 0
    for path in sorted(directory.iterdir()):
        assert path.name == f"{start:020d}.kafka"
        data = path.read_bytes()
        at = 0
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4])
            own, whole = oracle.entries07(data[at:end])
            assert whole == end - at
            assert all(entry.crc_ok for entry in own)
            found[start + at] = [entry.payload for entry in own]
            at = end
        start += len(data)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy"])
def test_what_is_appended_is_there_by_its_position(tmp_path: Path, codec: str) -> None:
    directory = tmp_path / "topic-0"
    rng = random.Random(codec)
    appended: list[bytes] = []
    for _ in range(3):
        with Log(directory, write=True, options=OPTIONS) as log:
            for _ in range(40):
                some = values(rng)
                begin = log.end_offset
                done = log.append([NewRecord(None, value) for value in some], codec=codec)
                assert done.first_offset == begin
                assert done.batches == (len(some) if codec == "none" else 1)
                appended += some
    found = entries(directory)
    assert [value for inside in found.values() for value in inside] == appended
    assert len(list(directory.iterdir())) > 4
    assert verified(directory) == (0, [])
    with Log(directory) as log:
        assert [record.value for record in log.records()] == appended
        assert (log.start_offset, log.end_offset) == (0, sum(path.stat().st_size for path in directory.iterdir()))
        assert log.at_time(0) is None
        for offset, inside in found.items():
            for size in (1, 500, 4000):
                read = log.read(offset, size)
                data, at = Path(read.segment).read_bytes(), offset - read.base_offset
                assert (read.position, read.data) == (at, data[at : at + read.size_bytes])
                first = 4 + int.from_bytes(data[at : at + 4])
                assert first <= read.size_bytes <= max(size, 2 * first)
                assert read.next_offset == offset + read.size_bytes
                assert [record.value for record in read][: len(inside)] == inside
