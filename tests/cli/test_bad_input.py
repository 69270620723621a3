"""What bad input gets: an answer. Never a traceback, a hang, or more memory than was allowed."""

from __future__ import annotations

import faulthandler
import gzip
import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import snappy
import zstandard

from kdump.format.naming import Kind
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from kdump.verify.scan import ScanOptions
from support import build, oracle
from support.cases import each
from support.file_reports import LogFileReport, verify_file
from support.laws import QUICK

VerifyBytes = Callable[..., LogFileReport]

MIB = 1 << 20
LIMIT_SECONDS = 60


@pytest.fixture(autouse=True)
def _limited_time() -> Iterator[None]:
    """A test that hangs fails; one that hangs in compiled code ends the run and says where."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"longer than {LIMIT_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_SECONDS)
    faulthandler.dump_traceback_later(6 * LIMIT_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def one(base_offset: int = 0, value: bytes = b"value", **fields: Any) -> bytes:
    return build.batch([build.record(b"key", value)], base_offset=base_offset, **fields)


def patched(data: bytes, at: int, code: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(code, out, at, value)
    return bytes(out)


def tiles(data: bytes) -> None:
    """Batches, gaps and the tail of a walk lie end to end and cover everything."""
    position = 0
    for item in Walk(BytesSource(data), everything=True):
        if isinstance(item, BatchChunk):
            for batch in item.rows():
                assert batch.position == position
                position += batch.size
        elif type(item).__name__ in ("Gap", "Tail"):
            assert item.position == position
            position += item.length
    assert position == len(data)


def as_the_reference(verify_bytes: VerifyBytes, data: bytes, **how: Any) -> None:
    """The findings are those of the plain and slow reference."""
    expected = [(finding.code, finding.position) for finding in oracle.verify(data, **how)]
    assert sorted((finding.code, finding.position) for finding in verify_bytes(data, **how).findings) == sorted(
        expected
    )


# ---- many hostile files, through the command


def nested(depth: int, magic: int = 1) -> bytes:
    """A wrapper in a wrapper in a wrapper."""
    inner = build.wrapper([build.record(b"k", b"v")], magic=magic)
    for _ in range(depth):
        inner = build.wrapper([inner], magic=magic)
    return inner


def lies() -> dict[str, bytes]:
    """Segments with one lie each, sealed under a right checksum where that can be."""
    three = [build.record(b"a", b"1"), build.record(b"b", b"2", headers=[(b"h", b"v")]), build.record(None, None)]
    out: dict[str, bytes] = {}
    for count in (-1, -(2**31), 0, 1, 2, 4, 5, 1000, 2**31 - 1):
        for codec in ("none", "gzip"):
            out[f"count {count} {codec}"] = build.batch(three, count=count, codec=codec)
        out[f"count {count} wide"] = build.batch(three, count=count, last_offset_delta=2**31 - 1)
    for field in sorted(build.RECORD_FIELDS - {"trailing"}):
        for value in (-1, -2, -(2**31), 0, 1, 2, 63, 64, 2**20, 2**31 - 1):
            lie = three[1]._replace(overrides={field: value})
            out[f"{field} {value}"] = build.batch([three[0], lie, three[2]])
        for name, raw in (
            ("endless", build.TOO_LONG_VARINT),
            ("endless long", build.TOO_LONG_VARLONG),
            ("all ones", b"\xff" * 30),
        ):
            lie = three[1]._replace(overrides={field: raw})
            out[f"{field} {name}"] = build.batch([three[0], lie, three[2]])
    for number in (5, 6, 7):
        out[f"codec {number}"] = build.batch(three, codec=number)
        for magic in (0, 1):
            out[f"codec {number} magic {magic}"] = build.message(magic, b"k", b"v", codec=number)
    for magic in (3, 4, 127, 128, 255):
        out[f"magic {magic}"] = one(0) + one(1, magic=magic) + one(2)
        out[f"magic {magic} unsealed"] = one(0) + one(1, magic=magic, crc=0) + one(2)
        out[f"magic {magic} alone"] = one(magic=magic)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for name, payload in (
            ("nothing", b""),
            ("zeros", bytes(64)),
            ("ones", b"\xff" * 64),
            ("text", b"no such data " * 9),
        ):
            out[f"{codec} of {name}"] = build.batch(three, codec=codec, payload=payload)
        whole = build.compress(codec, b"x" * 1000)
        for cut in (1, 4, 8, len(whole) // 2, len(whole) - 1):
            out[f"{codec} cut at {cut}"] = build.batch(three, codec=codec, payload=whole[:cut])
        for magic in (0, 1) if codec != "zstd" else ():
            out[f"{codec} wrapper {magic} of nothing"] = build.wrapper([], codec=codec, magic=magic)
            out[f"{codec} wrapper {magic} of text"] = build.wrapper(
                [], codec=codec, magic=magic, payload=b"no such data"
            )
    for depth in (1, 2, 20):
        for magic in (0, 1):
            out[f"wrappers {depth} deep, magic {magic}"] = nested(depth, magic)
    for magic in (0, 1):
        for name, length in (("negative", -2), ("huge", 2**31 - 1), ("one more", 2), ("lowest", -(2**31))):
            out[f"message {magic} key {name}"] = build.message(magic, b"k", b"v", key_length=length)
            out[f"message {magic} value {name}"] = build.message(magic, b"k", b"v", value_length=length)
    for offset in (-1, -(2**63), 2**63 - 1, 2**62):
        out[f"offset {offset}"] = one(offset)
        out[f"offset {offset} among others"] = one(0) + one(offset) + one(1)
        out[f"offset {offset} message"] = build.message_v1(b"k", b"v", offset=offset)
    for delta in (-1, -(2**31), 2**31 - 1):
        out[f"delta {delta}"] = one(last_offset_delta=delta) + one(1)
        out[f"delta {delta} at the end of all offsets"] = one(2**63 - 1, last_offset_delta=delta)
    for stamp in (-(2**63), -2, 2**63 - 1, 253_402_300_800_000):
        out[f"timestamp {stamp}"] = build.batch(three, base_timestamp=0, max_timestamp=stamp)
        out[f"timestamp {stamp} base"] = one(attributes=0x48, base_timestamp=stamp, max_timestamp=stamp)
    for sequence in (-2, 2**31 - 1):
        out[f"sequence {sequence}"] = build.batch(three, base_sequence=sequence, producer_id=-5, producer_epoch=-9)
    out["every attribute"] = one(attributes=0xFFFF)
    out["control with nonsense"] = build.control_batch([build.record(b"\xff" * 9, b"\xff" * 900)])
    out["control, huge arrays"] = build.control_batch(
        [build.control_record("LEADER_CHANGE", b"\0\0\0\0\0\1" + b"\xff\xff\xff\xff\x0f")]
    )
    out["control, voters"] = build.control_batch(
        [build.control_record("KRAFT_VOTERS", b"\0\0" + b"\xff\xff\xff\xff\x0f" + bytes(40))]
    )
    return out


LIES = lies()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each lie in a file of its own, alone and between sound batches."""
    directory = tmp_path_factory.mktemp("hostile")
    for number, data in enumerate(LIES.values()):
        (directory / f"lie-{number:03}.log").write_bytes(data)
    return directory


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify"],
        ["verify", "--deep"],
        ["verify", "--deep", "--format", "json"],
        ["verify", "--deep", "--type", "checkpoint"],
        ["dump", "--format", "text"],
        ["dump", "--format", "text", "--force"],
        ["dump", "--format", "json", "--force"],
        ["dump", "--format", "terminal", "--force"],
        ["dump", "--format", "kafka", "--print-data-log"],
        ["dump", "--batches", "--format", "json"],
    ],
    ids=" ".join,
)
def test_lies_have_an_answer(kdump: Any, hostile: Path, arguments: list[str]) -> None:
    files = [str(path) for path in sorted(hostile.iterdir())] if "--type" in arguments else [str(hostile)]
    ran = kdump.inside(*arguments, *files)
    assert ran.status == 1
    # Kafka's tool reports there what it finds odd.
    assert ran.err == b"" or "kafka" in arguments
    if "json" in arguments:
        found = [json.loads(line) for line in ran.lines]
        assert found[-1]["type"] == "summary"
        if arguments[0] == "verify":
            assert found[-1]["files"] == len(LIES)


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
@each("name", LIES)
def test_lies_are_checked_as_by_the_reference(verify_bytes: VerifyBytes, name: str, deep: bool) -> None:
    for data in (LIES[name], build.message_v0(b"k", b"v") + LIES[name] + one(2**40)):
        tiles(data)
        as_the_reference(verify_bytes, data, deep=deep)


# ---- companions of all kinds

COMPANIONS = [
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000000.txnindex",
    "00000000000000000000.snapshot",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "partition.metadata",
    "meta.properties",
]
NONSENSE = {
    "empty": b"",
    "one byte": b"\0",
    "zeros": bytes(1000),
    "ones": b"\xff" * 1001,
    "noise": random.Random(3).randbytes(5000),
    "large numbers": struct.pack(">iqiq", 2**31 - 1, 2**63 - 1, -(2**31), -(2**63)) * 40,
    "snapshot, huge count": struct.pack(">hIi", 1, 0, 2**31 - 1) + bytes(200),
    "snapshot, negative count": struct.pack(">hIi", 1, 0, -1) + bytes(200),
    "text": b"0\n1\n0 0\n",
    "text, huge count": b"0\n99999999999999999999\n0 0\n",
    "text, negative": b"-1\n-1\n-1 -1\n",
    "text, a number without end": b"0\n1\n" + b"9" * 5_000 + b" 0\n",
    "text, one long line": b"x" * 20_000,
    "text with escapes": b"0\n1\n\x1b[31mtopic\x07 0 5\nversion=\x1b]0;x\x07\n\xff\xfe=\x9b1m\n",
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("output_format", ["text", "json", "terminal", "kafka"])
def test_companions_of_nonsense(kdump: Any, tmp_path: Path, output_format: str) -> None:
    for number, data in enumerate(NONSENSE.values()):
        directory = tmp_path / f"topic-{number}"
        directory.mkdir()
        for name in COMPANIONS:
            (directory / name).write_bytes(data)
    for number, what in enumerate(NONSENSE):
        if output_format == "terminal" and what not in ("zeros", "noise", "text with escapes"):
            continue  # tables take their time
        for name in COMPANIONS:
            ran = kdump.inside("dump", "--format", output_format, f"topic-{number}/{name}")
            assert ran.status in (0, 1, 3), (what, name)
            assert "Traceback" not in ran.problems, (what, name)
            shown = (
                ran.problems if output_format == "kafka" else ran.text + ran.problems
            )  # it repeats what Kafka's tool prints
            assert all(unicodedata.category(letter) != "Cc" for letter in shown.replace("\n", "")), (what, name)
            if output_format == "json":
                assert json.loads(ran.lines[-1])["exit_status"] == ran.status


# ---- lengths

FRAMES = {
    "magic 0": build.message_v0(b"key", b"value", offset=5),
    "magic 1": build.message_v1(b"key", b"value", offset=5),
    "wrapper": build.wrapper([build.record(b"key", b"value")], base_offset=5, codec="snappy"),
    "magic 2": one(5),
    "large": one(5, value=b"x" * (600 << 10)),
}


@pytest.mark.parametrize("place", ["first", "middle", "last", "alone"])
@pytest.mark.parametrize("frame", FRAMES)
def test_lengths_that_lie(verify_bytes: VerifyBytes, frame: str, place: str) -> None:
    right = len(FRAMES[frame]) - 12
    before = b"" if place in ("first", "alone") else one(0) + one(4)
    after = b"" if place in ("last", "alone") else one(6) + build.message_v1(b"k", b"v", offset=7)
    lengths = {
        -(2**31),
        -13,
        -12,
        -1,
        0,
        1,
        4,
        5,
        13,
        14,
        21,
        22,
        48,
        49,
        50,
        2**16,
        2**24,
        2**31 - 13,
        2**31 - 12,
        2**31 - 1,
    }
    lengths |= {right + step for step in (-12, -2, -1, 1, 2, 12, len(after), len(after) + 1, len(after) - 1)}
    for length in sorted(lengths - {right}):
        data = before + patched(FRAMES[frame], 8, ">i", length) + after
        tiles(data)
        if frame != "large":  # the reference takes long for it
            as_the_reference(verify_bytes, data)
        report = verify_bytes(data)
        assert any(finding.severity.word == "error" for finding in report.findings), length
        assert report.bytes == len(data)


# ---- cuts

SMALL = build.segment(
    build.message_v0(b"k0", b"v0", offset=0),
    build.wrapper(
        [build.record(b"k", b"value %d" % number * 9) for number in range(2)], base_offset=1, magic=1, codec="gzip"
    ),
    one(3),
    build.batch([build.record(b"k%d" % number, b"v") for number in range(3)], base_offset=4, codec="zstd"),
    build.marker("COMMIT", base_offset=7),
)


def test_a_cut_at_every_byte(kdump: Any, verify_bytes: VerifyBytes, tmp_path: Path) -> None:
    borders = [item.position for item in oracle.walk(SMALL)] + [len(SMALL)]
    for cut in range(len(SMALL) + 1):
        (tmp_path / f"cut-{cut:04}.log").write_bytes(SMALL[:cut])
        tiles(SMALL[:cut])
        report = verify_bytes(SMALL[:cut], deep=True, base_offset=0)
        assert len(report.findings) == (0 if cut in borders else 1)
        assert report.batches == sum(0 < border <= cut for border in borders)
        assert report.valid_bytes == max(border for border in borders if border <= cut)
    verified = kdump("verify", "--deep", "--format", "json", ".")
    dumped = kdump("dump", "--format", "json", ".")
    for ran in (verified, dumped):
        assert (ran.status, ran.err) == (1, b"")
    damaged = {line["path"] for line in map(json.loads, verified.lines[:-1]) if line["severity"] == "error"}
    assert damaged == {f"./cut-{cut:04}.log" for cut in range(len(SMALL) + 1) if cut not in borders}
    covered = dict.fromkeys((f"./cut-{cut:04}.log" for cut in range(len(SMALL) + 1)), 0)
    for line in map(json.loads, dumped.lines[:-1]):
        if line["type"] != "record":
            assert line["position"] == covered[line["path"]]
            covered[line["path"]] += line.get("size") or line["length"]
    assert list(covered.values()) == list(range(len(SMALL) + 1))


def test_a_cut_alone_has_a_status(kdump: Any, tmp_path: Path) -> None:
    borders = [item.position for item in oracle.walk(SMALL)] + [len(SMALL)]
    for cut in (0, 1, 16, 17, 18, borders[1], borders[2] + 60, len(SMALL) - 1, len(SMALL)):
        (tmp_path / "cut.log").write_bytes(SMALL[:cut])
        for command in ("verify", "dump"):
            assert kdump.inside(command, "cut.log").status == (0 if cut in borders else 1), (command, cut)


# ---- batches in values


def test_whole_batches_inside_a_damaged_one(verify_bytes: VerifyBytes) -> None:
    inner = one(0) + one(1) + build.message_v1(b"k", b"v", offset=2)
    for broken in (
        one(5, value=inner, crc=1),
        one(5, value=inner, length=2**31 - 1),
        one(5, value=inner, length=-1),
        build.reseal(one(5, value=inner))[:-3] + b"\0\0\0",
    ):
        data = one(3) + one(4) + broken + one(6) + one(7)
        tiles(data)
        as_the_reference(verify_bytes, data)
        report = verify_bytes(data)
        assert report.batches == 4
        taken = [
            batch.base_offset
            for item in Walk(BytesSource(data), everything=True)
            if isinstance(item, BatchChunk)
            for index, batch in enumerate(item.rows())
            if batch.crc == item.diagnosis(index).computed_crc
        ]
        assert taken == [3, 4, 6, 7]


@pytest.mark.parametrize("count", [3, 100, 3000])
def test_a_value_full_of_batches(verify_bytes: VerifyBytes, count: int) -> None:
    inner = b"".join(one(offset) for offset in range(count))
    data = one(5000) + one(5001, value=inner, length=2**30) + one(5002)
    tiles(data)
    report = verify_bytes(data, base_offset=0)
    counts = {code: number for (code, _), number in report.counts.items()}
    assert counts.keys() == {"batch/length", "gap/foreign-batch"}
    assert counts["batch/length"] == 1
    assert 0 < counts["gap/foreign-batch"] <= min(count, 1000)  # they are looked for with bounded work
    assert report.batches == 2
    assert all(
        len(one()) < finding.position < len(data) for finding in report.findings if finding.code == "gap/foreign-batch"
    )


def test_beginnings_of_batches_without_end(verify_bytes: VerifyBytes) -> None:
    head = struct.pack(">qiib", 100, 3 << 20, 0, 2) + bytes(4)
    data = one(0) + b"\xff" * 50 + head * (6 * MIB // len(head))
    report = verify_bytes(data, base_offset=0)
    assert {finding.code for finding in report.findings} == {"gap/unsearched", "tail/garbage"}
    assert report.batches == 1


@pytest.mark.parametrize("filler", [b"\0", b"\x01", b"\x02", b"\xff", b"text, "])
def test_a_long_gap(verify_bytes: VerifyBytes, filler: bytes) -> None:
    data = one(0) + b"\xff" * 3 + filler * (4 * MIB // len(filler)) + one(1) + one(2)
    report = verify_bytes(data, base_offset=0)
    assert report.batches == 3
    assert {finding.code for finding in report.findings} <= {"gap/bytes", "batch/length", "batch/crc"}
    assert report.valid_bytes == 3 * len(one())


@pytest.mark.parametrize("count", [1, 5, 64, 65, 66, 500, 4000])
def test_damaged_batches_in_a_row(verify_bytes: VerifyBytes, count: int) -> None:
    report = verify_bytes(
        one(0) + b"".join(one(1 + number, crc=1) for number in range(count)) + one(1 + count), base_offset=0
    )
    assert {code: number for (code, _), number in report.counts.items()} == {"batch/crc": count}
    assert report.batches == 2


def test_every_other_batch_is_damaged(verify_bytes: VerifyBytes) -> None:
    report = verify_bytes(b"".join(one(number, crc=1) if number % 2 else one(number) for number in range(4001)))
    assert {code: number for (code, _), number in report.counts.items()} == {"batch/crc": 2000}
    assert report.batches == 2001


@pytest.mark.parametrize("seed", range(12))
def test_noise(verify_bytes: VerifyBytes, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(SMALL * 3)
    for _ in range(rng.choice((1, 5, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    for base in (None, 0):
        tiles(bytes(data))
        as_the_reference(verify_bytes, bytes(data), base_offset=base, deep=True)
    noise = rng.randbytes(5000)
    tiles(noise)
    as_the_reference(verify_bytes, noise)


# ---- more than there seems to be


def bomb(codec: str, size: int) -> bytes:
    """A batch of one record whose value is `size` zero bytes."""
    value = build.varint(size)
    before = build.varint(5 + len(value) + size) + b"\0\0\0" + build.varint(-1) + value
    after = build.varint(0)
    zeros = bytes(MIB)
    if codec == "zstd":
        stream = zstandard.ZstdCompressor(level=1).compressobj()
        pieces = [
            stream.compress(before),
            *(stream.compress(zeros) for _ in range(size // MIB)),
            stream.compress(after),
            stream.flush(),
        ]
    elif codec == "gzip":
        member = gzip.compress(zeros * 16, 1, mtime=0)
        pieces = [gzip.compress(before, mtime=0), member * (size // MIB // 16), gzip.compress(after, mtime=0)]
    elif codec == "lz4":
        block = build.lz4_frame(zeros[: 64 << 10])[7:-4]
        pieces = [build.lz4_frame(before)[:-4], block * (size // (64 << 10)), build.lz4_frame(after)[7:]]
    else:
        chunks = [bytes(snappy.compress(part)) for part in (before, zeros * 8, after)]
        first, middle, last = (struct.pack(">i", len(chunk)) + chunk for chunk in chunks)
        pieces = [build.XERIAL_HEADER, first, middle * (size // MIB // 8), last]
    return build.batch(
        (), codec=codec, payload=b"".join(pieces), count=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0
    )


MEASURED = """
import resource, sys
from kdump.cli import run
status = run(sys.argv[1:])
try:
    peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(status, peak, file=sys.stderr)
"""


def measured(directory: Path, *arguments: str) -> tuple[int, int, str]:
    """Exit status, most memory in bytes, and the output of a run in a process of its own.

    With `--jobs 1` where batches are opened: else other processes open them, and these are not measured.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    status, peak = done.stderr.split()[-2:]
    return int(status), int(peak), done.stdout


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bombs")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        (directory / f"{codec}.log").write_bytes(bomb(codec, 1 << 30) + one(1))
    return directory


@pytest.mark.daily(2)
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_bombs(bombs: Path, codec: str) -> None:
    for limit in (60, 128):
        status, peak, out = measured(
            bombs,
            "verify",
            "--deep",
            "--jobs",
            "1",
            "--format",
            "json",
            "--fail-on",
            "warning",
            "--max-batch-bytes",
            f"{limit}m",
            f"{codec}.log",
        )
        assert status == 1
        assert peak < (limit + 72) * MIB + (bombs / f"{codec}.log").stat().st_size  # which has 48 MiB for snappy
        assert f"its records decompress to more than {limit << 20} bytes" in out
        assert json.loads(out.splitlines()[-1])["batches"] == 2
    status, peak, out = measured(
        bombs, "dump", "--force", "--format", "json", "--max-batch-bytes", "60m", f"{codec}.log"
    )
    assert peak < (2 * 60 + 40) * MIB  # the batch as stored, and decompressed
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["batch", "batch", "record", "summary"]


def test_bombs_without_a_limit_of_ones_own(bombs: Path) -> None:
    status, peak, out = measured(bombs, "verify", "--deep", "--jobs", "1", "zstd.log")
    assert status == 0  # a warning
    assert peak < (1024 + 72) * MIB
    assert f"its records decompress to more than {1 << 30} bytes" in out


@pytest.mark.laws
def test_shallow_opens_no_bomb(bombs: Path) -> None:
    # Another process begins in the middle of the snappy batch, of which 48 MiB are to be searched for the next one.
    jobs = ["--jobs", "1"] if QUICK else []
    status, peak, _ = measured(bombs, "verify", *jobs, "gzip.log", "lz4.log", "snappy.log", "zstd.log")
    assert (status, peak < 40 * MIB) == (0, True)
    status, peak, _ = measured(bombs, "dump", "--batches", "gzip.log", "lz4.log", "snappy.log", "zstd.log")
    assert status == 0
    assert peak < 110 * MIB  # the snappy batch itself has 48 MiB


def test_wrappers_that_are_bombs(tmp_path: Path) -> None:
    for magic in (0, 1):
        value = gzip.compress(bytes(128 * MIB), 1)
        (tmp_path / f"wrapper-{magic}.log").write_bytes(build.wrapper([], codec="gzip", magic=magic, payload=value))
    status, peak, out = measured(tmp_path, "verify", "--deep", "--jobs", "1", "--max-batch-bytes", "20m", ".")
    assert (status, out.count("batch/limit"), peak < 92 * MIB) == (0, 2, True)


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    # the file is as long as the batch claims, and nothing is stored in it
    for name, head in (
        ("magic-2", one(0, length=(200 << 20) - 12)),
        ("magic-1", patched(build.message_v1(b"k", b"v"), 8, ">i", (200 << 20) - 12)),
    ):
        with (tmp_path / f"{name}.log").open("wb") as file:
            file.write(head)
            file.truncate(200 << 20)
    status, peak, out = measured(tmp_path, "verify", "--deep", ".")
    assert (status, out.count("error batch/length"), peak < 64 * MIB) == (1, 2, True)


def test_counts_that_lie_take_no_memory(tmp_path: Path) -> None:
    for number, name in enumerate(name for name in LIES if "2147483647" in name or "1048576" in name):
        (tmp_path / f"{number:03}.log").write_bytes(LIES[name])
    for arguments in (
        ["verify", "--deep"],
        ["dump", "--force", "--format", "json"],
        ["dump", "--force", "--format", "kafka", "--print-data-log"],
    ):
        status, peak, _ = measured(tmp_path, *arguments, ".")
        assert (status, peak < 40 * MIB) == (1, True), arguments


def test_control_bombs_of_a_snapshot(tmp_path: Path) -> None:
    zeros = build.record(build.control_key("SNAPSHOT_HEADER"), bytes(128 * MIB))
    (tmp_path / "0-1.checkpoint").write_bytes(build.batch([zeros], control=True, codec="gzip", level=1))
    status, peak, _ = measured(tmp_path, "verify", "--max-batch-bytes", "20m", "0-1.checkpoint")
    assert peak < 92 * MIB
    assert status in (0, 1)


# ---- files that change while they are read


class Shrinking(BytesSource):
    """A file whose end goes away after some reads."""

    def __init__(self, data: bytes, keep: int, after: int) -> None:
        super().__init__(data)
        self._keep, self._after, self._reads = keep, after, 0

    def readinto(self, position: int, buffer: memoryview) -> int:
        self._reads += 1
        if self._reads > self._after:
            left = max(0, self._keep - position)
            return super().readinto(position, buffer[:left])
        return super().readinto(position, buffer)

    def size_now(self) -> int:
        return self._keep


LONG = b"".join(one(number, value=bytes(1000), codec="none" if number % 3 else "zstd") for number in range(3000))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_file_that_shrinks(verify_bytes: VerifyBytes, deep: bool, after: int) -> None:
    for keep in (0, 1, 16, 17, 100, 5000, 600_000, len(LONG) - 10):
        report = verify_bytes(Shrinking(LONG, keep, after), deep=deep)
        codes = [finding.code for finding in report.findings]
        assert report.error is None
        assert codes.count("file/shrunk") == 1, (keep, codes)
        assert set(codes) <= {"file/shrunk", "tail/torn", "tail/zeros"}, (keep, codes)
        shrunk = next(finding for finding in report.findings if finding.code == "file/shrunk")
        assert shrunk.position + shrunk.length == len(LONG)


def test_a_file_that_shrinks_in_a_large_batch(verify_bytes: VerifyBytes) -> None:
    data = one(0) + one(1, value=bytes(5 * MIB)) + one(2)
    for keep in (100, 1 * MIB, 5 * MIB):
        for after in range(12):
            for deep in (False, True):
                report = verify_bytes(Shrinking(data, keep, after), deep=deep)
                assert report.error is None
                assert {finding.code for finding in report.findings} <= {"file/shrunk", "tail/torn", "batch/crc"}


def test_a_real_file_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LONG)
    file = LogFile(str(path), Kind.LOG, 0, True, len(LONG))
    with file.open() as source:
        os.truncate(path, 1_000_000)
        report = verify_file(file, ScanOptions(deep=True), source=source)
    codes = {finding.code for finding in report.findings}
    assert "file/shrunk" in codes
    assert codes <= {"file/shrunk", "tail/torn"}


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    "command", [["verify", "--deep", "--format", "json"], ["dump", "--format", "json"]], ids=" ".join
)
def test_a_file_that_another_process_cuts_and_writes(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(LONG)
    stop = threading.Event()

    def work() -> None:
        rng = random.Random(7)
        while not stop.is_set():
            os.truncate(path, rng.randrange(len(LONG)))
            with path.open("r+b") as file:
                file.seek(0)
                file.write(LONG[: rng.randrange(len(LONG))])
            stop.wait(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(4):
            status, peak, out = measured(tmp_path, *command, "0.log")
            assert status in (0, 1)
            assert peak < 64 * MIB
            last = json.loads(out.splitlines()[-1])
            assert (last["type"], last["exit_status"]) == ("summary", status)
    finally:
        stop.set()
        thread.join()


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(SMALL)
    file = LogFile(str(path), Kind.LOG, 0, True, len(SMALL))
    with file.open() as source:
        with path.open("ab") as more:
            more.write(one(8))
        report = verify_file(file, ScanOptions(), source=source)
    (finding,) = report.findings
    assert (finding.code, finding.severity.word, finding.position, finding.length) == (
        "file/grown",
        "info",
        len(SMALL),
        len(one(8)),
    )


def test_a_file_that_goes_away(kdump: Any, tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(SMALL)
    file = LogFile(str(path), Kind.LOG, 0, True, len(SMALL))
    with file.open() as source:
        path.unlink()
        report = verify_file(file, ScanOptions(), source=source)
    assert report.findings == []
