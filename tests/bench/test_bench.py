"""The benchmark's own ground: what it generates is valid, and its loops read all of it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from bench import arrow_rows, bare, log_append, log_read
from bench.datasets import SPECS, Cache, clean
from bench.generate import Segment, read_manifest, write_partition
from bench.measure import Command, CommandError, Sample, UnavailableError, paired_ratio, run
from bench.payload import varint
from bench.rows import all_rows
from bench.segments import runs
from bench.template import HEADER
from bench.tools import Tools

SEGMENT_BYTES = 100_000


@pytest.fixture(scope="module", params=list(SPECS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Segment]]:
    """A small version of each data set, two segments."""
    name = str(request.param)
    directory = tmp_path_factory.mktemp("bench") / name / f"{name}-0"
    stream = SPECS[name].stream(Random(1))
    return name, write_partition(directory, stream, segments=2, segment_bytes=SEGMENT_BYTES)


@pytest.mark.daily(4)
def test_segments_are_sound(written: tuple[str, list[Segment]]) -> None:
    """Framing, CRC, offsets and counts of every batch."""
    name, segments = written
    last = -1
    for segment in segments:
        batches = records = 0
        for buffer, ranges in runs(str(segment.path)):
            for start, end in ranges:
                batch = bytes(buffer[start:end])
                base_offset, _, _, magic, crc, _, delta = HEADER.unpack_from(batch.ljust(HEADER.size))[:7]
                if magic == 1:
                    assert struct.unpack_from(">I", batch, 12)[0] == zlib.crc32(batch[16:])
                    delta = 0
                    records += 1
                else:
                    assert magic == 2
                    assert crc == crc32c(batch[21:])
                    records += HEADER.unpack_from(batch)[-1]
                assert last < base_offset
                if name != "compacted":
                    assert base_offset == last + 1
                assert base_offset >= segment.base_offset
                last = base_offset + delta
                batches += 1
        assert (segment.batches, segment.records) == (batches, records)
        assert segment.path.stat().st_size == segment.bytes
        assert segment.decoded_bytes >= SEGMENT_BYTES


@pytest.mark.daily(4)
def test_index_entries_are_batch_starts(written: tuple[str, list[Segment]]) -> None:
    """Each entry of the offset index: the last offset of the batch at its position."""
    for segment in written[1]:
        data = segment.path.read_bytes()
        entries = list(struct.iter_unpack(">ii", segment.path.with_suffix(".index").read_bytes()))
        assert entries
        for relative, position in entries:
            magic = data[position + 16]
            delta = struct.unpack_from(">i", data, position + 23)[0] if magic == 2 else 0
            assert struct.unpack_from(">q", data, position)[0] + delta == segment.base_offset + relative


@pytest.mark.daily(4)
def test_snapshots_are_sound(written: tuple[str, list[Segment]]) -> None:
    """A producer snapshot at the end of each segment: version, CRC, count."""
    name, segments = written
    snapshots = sorted(segments[0].path.parent.glob("*.snapshot"))
    assert len(snapshots) == (0 if name == "magic1" else len(segments))
    for snapshot in snapshots:
        data = snapshot.read_bytes()
        version, crc, count = struct.unpack_from(">hIi", data)
        assert version == 1
        assert crc == crc32c(data[6:])
        assert len(data) == 10 + 46 * count


@pytest.mark.daily(4)
@pytest.mark.parametrize("written", [name for name in SPECS if name.partition("-")[0] in bare.CODECS], indirect=True)
def test_bare_loop_opens_every_batch(written: tuple[str, list[Segment]], capsys: pytest.CaptureFixture[str]) -> None:
    """The decompress loop of a codec comes to the bytes that were compressed."""
    name, segments = written
    codec = name.partition("-")[0]
    bare.main(codec, *(str(segment.path) for segment in segments))
    said = json.loads(capsys.readouterr().out)
    assert said["decoded_bytes"] == sum(segment.decoded_bytes for segment in segments)
    assert said["batches"] == sum(segment.batches for segment in segments)


@pytest.mark.parametrize("written", ["log"], indirect=True)
def test_log_loops_do_all_of_it(written: tuple[str, list[Segment]], capsys: pytest.CaptureFixture[str]) -> None:
    """The log and the bare file get the same bytes; every read comes to its record."""
    segment = written[1][0].path
    for size in (0, 3 * SEGMENT_BYTES):
        appended = []
        for how in ("log", "write"):
            log_append.main(how, str(segment), str(size))
            appended.append(json.loads(capsys.readouterr().out)["bytes"])
        assert appended[0] == appended[1] >= size
    log_read.main(str(segment.parent), "200")
    assert json.loads(capsys.readouterr().out) == {"records": 200}


@pytest.mark.parametrize("written", ["plain", "one-record"], indirect=True)
def test_rows_of_arrow_are_all_of_it(written: tuple[str, list[Segment]], capsys: pytest.CaptureFixture[str]) -> None:
    """Every way reads every record."""
    name, segments = written
    for how in arrow_rows.HOW if name == "plain" else ("batches", "calls"):
        arrow_rows.main(how, *(str(segment.path) for segment in segments))
        wanted = 0 if how == "import" else sum(segment.records for segment in segments)
        assert json.loads(capsys.readouterr().out) == {"records": wanted}


@pytest.mark.parametrize("written", ["plain"], indirect=True)
def test_crcloop_reads_every_byte(written: tuple[str, list[Segment]], tmp_path: Path) -> None:
    """The C loop has the CRC of the whole file, at any length of its tail."""
    data = written[1][0].path.read_bytes()
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(data)
    try:
        command = Tools(tmp_path / "tools", Path("kdump")).crcloop_argv(str(file))
    except UnavailableError as why:
        pytest.skip(str(why))
    for cut in (0, 1, 7, 8, 767, 768, 24575, 24576, len(data) - 1, len(data)):
        file.write_bytes(data[:cut])
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert json.loads(done.stdout) == {"bytes": cut, "crc": crc32c(data[:cut])}


def test_cache_makes_a_data_set_once_and_cleans_up(tmp_path: Path) -> None:
    """The second call reads the manifest; only a cache is ever deleted."""
    said: list[str] = []
    cache = Cache(tmp_path / "cache", "small")
    built = cache.get("plain-32m", said.append)
    assert cache.get("plain-32m", said.append) == built
    assert len(said) == 1
    assert read_manifest(built.directory.parent) == list(built.segments)
    assert not clean(tmp_path)
    assert clean(cache.root)
    assert not cache.root.exists()


def test_failures_are_reported(tmp_path: Path) -> None:
    """A command that fails, or counts something else, is no measurement."""
    python = (sys.executable, "-c")
    assert run(Command((*python, "print('{\"batches\": 3}')"), expect={"batches": 3})).wall_s > 0
    with pytest.raises(CommandError, match="batches should be 4 and is 3"):
        run(Command((*python, "print('{\"batches\": 3}')"), expect={"batches": 4}))
    with pytest.raises(CommandError, match="failed: sad"):
        run(Command((*python, "raise SystemExit('sad')")))
    assert run(Command((*python, "print('{\"seconds\": 7.5}')"), expect={}, timed=True)).wall_s == 7.5
    with pytest.raises(CommandError):
        run(Command((str(tmp_path / "absent"),)))


def test_peak_is_of_the_command() -> None:
    """A command's peak memory is its own: more when it takes more."""
    little = run(Command((sys.executable, "-c", "pass"))).peak_bytes
    much = run(Command((sys.executable, "-c", "b'x' * (64 << 20)"))).peak_bytes
    assert little < 32 << 20
    assert much - little > 60 << 20


def test_ratio_is_paired() -> None:
    """Each subject against the mean of its neighbours, so a machine that slows down does not count."""
    reference = [Sample(wall, 0, 0) for wall in (1, 3, 5)]
    subject = [Sample(wall, 0, 0) for wall in (4.5, 8.5)]
    assert paired_ratio(reference, subject, 0.5) == 2


def test_rows_are_distinct_and_have_data() -> None:
    """Every row has its own name and a data set that can be made."""
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    assert {row.data for row in rows} <= set(SPECS)


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])
def test_varint_ends_are_right(value: int) -> None:
    """Zigzag: the least number of bytes, and back."""
    data = varint(value)
    number = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data))
    assert (number >> 1) ^ -(number & 1) == value
    assert len(data) == max(1, (number.bit_length() + 6) // 7)
