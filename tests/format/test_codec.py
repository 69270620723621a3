"""kdump.format.codec: the same bytes and the same refusals as Kafka's reader, never more memory than allowed."""

from __future__ import annotations

import pickle
import random
import struct
import subprocess
import sys
import threading
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.errors import CodecMissing, KdumpError
from kdump.format import codec
from kdump.format.codec import gzip, lz4, snappy, zstd
from support import codec_cases
from support.cases import each
from support.codec_cases import (
    ACROSS,
    CASES,
    GZIP,
    INCOMPLETE_CODE,
    LONG,
    LZ4,
    NAMES,
    RECORD,
    SNAPPY,
    ZSTD,
    ZSTD_LEGACY,
    Case,
    Refused,
    Taken,
    gzip_header,
    gzip_member,
    lz4_block,
    lz4_frame,
    lz4_header,
    mutants,
    raw_snappy,
    text,
    xerial,
    xerial_header,
    xxh32,
    zstd_block,
    zstd_frame,
    zstd_stream,
)
from support.laws import examples

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
MIB = 1 << 20
MODULES = {SNAPPY: snappy, LZ4: lz4, ZSTD: zstd}
LIBRARIES = {SNAPPY: "cramjam", LZ4: "lz4.frame", ZSTD: "zstandard"}


def verdict_of(number: int, data: codec.Data, magic: int, limit: int = 64 * MIB) -> Taken | Refused:
    try:
        payload, note = codec.decompress(number, data, magic, limit)
    except codec.CodecError as error:
        return Refused(error.reason)
    return Taken(bytes(payload), note)


@pytest.fixture
def without_isal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    monkeypatch.setattr(gzip, "_local", threading.local())


@each("case", CASES, ids=lambda case: f"{NAMES[case.codec]}-{case.magic}-{case.name.replace(' ', '-')}")
def test_verdict(case: Case) -> None:
    assert verdict_of(case.codec, case.data, case.magic) == case.verdict
    inside = memoryview(b"before" + case.data + b"after")[6 : 6 + len(case.data)]
    assert verdict_of(case.codec, inside, case.magic) == case.verdict


@pytest.mark.usefixtures("without_isal")
@each("case", [case for case in CASES if case.codec == GZIP and case.magic == 2], ids=lambda case: case.name)
def test_verdict_without_isal(case: Case) -> None:
    assert verdict_of(GZIP, case.data, 2) == case.verdict


def test_every_reason_and_every_note_has_a_case() -> None:
    reasons = {case.verdict.reason for case in CASES if isinstance(case.verdict, Refused)}
    assert reasons | {"limit", "codec-unknown", "codec-magic", "zstd-legacy"} == set(codec.REASONS)
    assert {case.verdict.note for case in CASES if isinstance(case.verdict, Taken)} == {None, *codec.NOTES}


def test_case_names_are_unique() -> None:
    assert len({(case.codec, case.magic, case.name) for case in CASES}) == len(CASES)


# What Kafka writes


@pytest.mark.parametrize(
    ("number", "magic", "head", "tail"),
    [
        (GZIP, 2, "1f8b08000000000000ff", "00100000"),
        (SNAPPY, 2, "82534e41505059000000000100000001", ""),
        (LZ4, 2, "04224d18604082", "00000000"),
        (LZ4, 1, "04224d18604082", "00000000"),
        (LZ4, 0, "04224d1860401a", "00000000"),
        (ZSTD, 2, "28b52ffd0058", ""),
    ],
)
def test_frames_are_those_of_kafkas_writer(number: int, magic: int, head: str, tail: str) -> None:
    data = codec.compress(number, text(4096), magic)
    assert data.startswith(bytes.fromhex(head))
    assert data.endswith(bytes.fromhex(tail))


def test_snappy_chunks() -> None:
    def sizes(data: bytes) -> list[int]:
        at, found = 16, []
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            found.append(len(codec.decompress(SNAPPY, data[at + 4 : at + 4 + size], 2, MIB)[0]))
            at += 4 + size
        return found

    assert sizes(codec.compress(SNAPPY, LONG)) == [32768, 32768, 32768, 1696]
    assert sizes(codec.compress(SNAPPY, LONG, block_size=1024)) == [1024] * 97 + [672]
    assert codec.compress(SNAPPY, b"abc", raw=True) == b"\x03\x08abc"


def test_lz4_stores_what_does_not_shrink() -> None:
    assert codec.compress(LZ4, b"abc") == bytes.fromhex("04224d18604082 03000080 616263 00000000")


def test_levels() -> None:
    for number, weak, strong in ((GZIP, 1, 9), (LZ4, 9, 17), (ZSTD, 1, 19)):
        low, high = (codec.compress(number, LONG, level=level) for level in (weak, strong))
        assert len(high) < len(low)
        assert verdict_of(number, high, 2) == Taken(LONG)
    for number, level in ((GZIP, 0), (GZIP, 10), (LZ4, 0), (LZ4, 18), (ZSTD, 23), (ZSTD, -131073)):
        with pytest.raises(ValueError, match=f"{codec.CODECS[number]} has no level {level}, only "):
            codec.compress(number, LONG, level=level)
    for number in (0, SNAPPY):
        with pytest.raises(ValueError, match="has no levels"):
            codec.check_level(number, 1)
    assert verdict_of(GZIP, codec.compress(GZIP, LONG, level=-1), 2) == Taken(LONG)


def test_unknown_codecs() -> None:
    for number in (5, 6, 7):
        assert verdict_of(number, b"abc", 2) == Refused("codec-unknown")
    for number in (-1, 5):
        with pytest.raises(ValueError, match="no codec"):
            codec.compress(number, b"abc")


@given(
    data=st.binary(max_size=3000) | st.integers(0, 200_000).map(text),
    number=st.integers(0, 4),
    magic=st.integers(0, 2),
    block_size=st.integers(1, 70_000),
    raw=st.booleans(),
    level=st.none() | st.integers(1, 9),
)
def test_what_is_compressed_comes_back(
    data: bytes, number: int, magic: int, block_size: int, raw: bool, level: int | None
) -> None:
    packed = codec.compress(number, data, magic, level, block_size=max(block_size, len(data) // 50), raw=raw)
    assert verdict_of(number, packed, magic, len(data)) == Taken(data)
    if number and data:
        assert verdict_of(number, packed, magic, len(data) - 1) == Refused("limit")


# What does not end as it should


@pytest.mark.parametrize("number", CODECS)
@pytest.mark.parametrize("size", [5, 1500, 40_000])
def test_cut_anywhere(number: int, size: int) -> None:
    data = text(size)
    packed = codec.compress(number, data, block_size=min(1024, size // 2))
    borders = set()
    if number == SNAPPY:
        at = 16
        while at < len(packed):
            borders.add(at)
            at += 4 + struct.unpack_from(">i", packed, at)[0]
    step = 1 if size < 5000 else 37
    for end in [*range(0, len(packed), step), *range(max(0, len(packed) - 30), len(packed)), *borders]:
        verdict = verdict_of(number, packed[:end], 2)
        if number == ZSTD and end == 0:
            assert verdict == Taken(b"", "zstd-empty")
        elif (
            number == SNAPPY and end >= 16 and (border := max(border for border in borders if border <= end)) + 4 > end
        ):
            assert isinstance(verdict, Taken)
            assert data.startswith(verdict.payload)
            assert verdict.note == (None if end == border else "snappy-trailing")
        else:
            assert isinstance(verdict, Refused), end


@pytest.mark.laws
@pytest.mark.parametrize("number", CODECS)
def test_mutants_raise_codec_errors_only(number: int) -> None:
    many = examples(1600)
    verdicts = [verdict_of(number, data, magic, MIB) for magic, data in mutants(7, number, many)]
    assert 0.1 < sum(isinstance(verdict, Taken) for verdict in verdicts) / many < 0.9
    notes = {verdict.note for verdict in verdicts if isinstance(verdict, Taken)}
    assert notes <= {None, *codec.NOTES}


@given(data=st.binary(max_size=200), number=st.integers(1, 4), magic=st.integers(0, 2))
def test_noise_raises_codec_errors_only(data: bytes, number: int, magic: int) -> None:
    verdict_of(number, data, magic, MIB)
    heads = (b"", gzip_header(), xerial_header(), lz4_header(), bytes.fromhex("28b52ffd0058"))
    verdict_of(number, heads[number] + data, magic, MIB)


# Limits

EXPANDING = [
    pytest.param(GZIP, gzip_member(bytes(MIB)), id="gzip"),
    pytest.param(GZIP, gzip_member(bytes(MIB // 2)) * 2, id="gzip-members"),
    pytest.param(GZIP, gzip_member(bytes(MIB)) + b"x", id="gzip-trailing"),
    pytest.param(SNAPPY, xerial(bytes(MIB)), id="snappy"),
    pytest.param(SNAPPY, xerial(bytes(MIB), MIB), id="snappy-one-chunk"),
    pytest.param(SNAPPY, xerial(bytes(MIB)) + b"x", id="snappy-trailing"),
    pytest.param(SNAPPY, raw_snappy(bytes(MIB)), id="snappy-raw"),
    pytest.param(LZ4, lz4_frame(bytes(MIB)), id="lz4"),
    pytest.param(LZ4, lz4_header(0x60, 0x70) + lz4_block(bytes(MIB)) + bytes(4), id="lz4-one-block"),
    pytest.param(LZ4, lz4_frame(bytes(MIB)) + b"x", id="lz4-trailing"),
    pytest.param(ZSTD, zstd_stream(bytes(MIB)), id="zstd"),
    pytest.param(
        ZSTD,
        zstd_frame(zstd_block(b"\0", kind=1, size=MIB // 16) * 15, zstd_block(bytes(MIB // 16), last=True)),
        id="zstd-runs",
    ),
    pytest.param(ZSTD, zstd_stream(bytes(MIB // 2)) * 2, id="zstd-frames"),
    pytest.param(ZSTD, zstd_stream(bytes(MIB)) + b"\x28", id="zstd-trailing"),
]


@pytest.mark.parametrize(("number", "data"), EXPANDING)
@pytest.mark.parametrize("magic", [0, 2])
def test_limit(number: int, data: bytes, magic: int) -> None:
    verdict = verdict_of(number, data, magic, MIB)
    assert isinstance(verdict, Taken)
    assert verdict.payload == bytes(MIB)
    for limit in (MIB - 1, MIB // 2, 70_000, 1000, 1, 0):
        with pytest.raises(codec.LimitExceeded):
            codec.decompress(number, data, magic, limit)


def test_a_claim_that_no_block_can_keep_is_no_matter_of_the_limit() -> None:
    for data in (
        b"\x80\x80\x80\x80\x07\x08abc",
        xerial_header() + bytes((0, 0, 0, 9)) + b"\xff\xff\xff\xff\x07\x08abc",
    ):
        assert verdict_of(SNAPPY, data, 2, 100) == Refused("snappy-block")


BOMBS = """
import resource, sys, zlib
from support.codec_cases import *
from kdump.format import codec
from kdump.format.codec import gzip, lz4, snappy, zstd

MIB = 1 << 20
LIMIT = 8 * MIB
zeros = bytes(4 * MIB)
stream = zlib.compressobj(9, zlib.DEFLATED, -15)
deflated = b"".join(stream.compress(zeros) for _ in range(64)) + stream.flush()
crc = 0
for _ in range(64):
    crc = zlib.crc32(zeros, crc)
trailer = struct.pack("<I", crc)
run = zstd_block(b"\\0", kind=1, size=131072)
copies = b"\\x00x" + b"\\xfe\\x01\\x00" * (MIB // 3)
size = 64 * (MIB // 3) + 1
varint = bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21))
block = lz4_block(zeros)
first = lz4_block(zeros[: 65536])
bombs = {
    "gzip": (1, gzip_header() + deflated + trailer + struct.pack("<I", 256 * MIB)),
    "gzip that says it is small": (1, gzip_header() + deflated + trailer + struct.pack("<I", 1000)),
    "gzip that says it is just right": (1, gzip_header() + deflated + trailer + struct.pack("<I", LIMIT)),
    "gzip members": (1, gzip_member(zeros) * 64),
    "snappy": (2, xerial_header() + verbatim(varint + copies)),
    "snappy chunks": (2, xerial_header() + verbatim(raw_snappy(zeros)) * 64),
    "snappy raw": (2, varint + copies),
    "snappy that says it is large": (2, xerial_header() + verbatim(b"\\xff\\xff\\xff\\x7f" + copies)),
    "lz4": (3, lz4_header(0x60, 0x70) + block * 64 + END),
    "lz4 small blocks": (3, lz4_header() + first * 4096 + END),
    "lz4 that says it is large": (3, lz4_header(0x68, 0x70, 1 << 60) + block * 64 + END),
    "lz4 without end": (3, lz4_header(0x60, 0x70) + block * 64),
    "zstd": (4, b"".join(zstandard.ZstdCompressor().compress(zeros) for _ in range(64))),
    "zstd runs": (4, zstd_frame(*[run] * 8192, zstd_block(b"", last=True))),
    "zstd runs without end": (4, zstd_frame(*[run] * 8192)),
    "zstd that says it is small": (4, zstd_frame(*[run] * 8192, zstd_block(b"", last=True), size=1000)),
    "zstd in a window of 128 MiB": (4, zstd_frame(*[run] * 8192, zstd_block(b"", last=True), window=0x88)),
    "zstd stream": (4, zstd_stream(zeros * 64)),
}
for number in range(1, 5):  # the libraries and what they keep
    codec.decompress(number, codec.compress(number, text(100_000)), 2, MIB)
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
if sys.platform == "linux":
    with open("/proc/self/clear_refs", "w") as clear:  # forget the peak of building the bombs
        clear.write("5")
    def status(key):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))
    before = status("VmRSS:")
bombs = dict(sorted(bombs.items(), key=lambda bomb: bomb[1][0]))
for name, (number, data) in bombs.items():
    try:
        codec.decompress(number, data, 2, LIMIT)
        print(name, "was read")
    except codec.CodecError as error:
        if not isinstance(error, codec.LimitExceeded) and "says" not in name:
            print(name, "was", error.reason)
    peak = status("VmHWM:") if sys.platform == "linux" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    window = LIMIT if number == 4 else 0  # what zstd has written is in its window as well
    if peak - before > LIMIT + window + 16 * MIB:
        print(name, "took", peak - before)
"""


def test_bombs_stay_below_the_limit() -> None:
    tests = str(Path(codec_cases.__file__).parents[1])
    program = f"import sys; sys.path[:0] = {[tests, *filter(None, sys.path)]!r}\n{BOMBS}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


# Libraries, threads, buffers


def test_importing_brings_no_codec_library() -> None:
    program = (
        f"import sys; sys.path[:0] = {[*filter(None, sys.path)]!r}; before = set(sys.modules);"
        "import kdump.format.codec;"
        "print(sorted(name for name in set(sys.modules) - before"
        " if name.partition('.')[0] in ('cramjam', 'isal', 'lz4', 'snappy', 'zstandard', 'zlib')))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("number", LIBRARIES)
def test_missing_library(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = codec.compress(number, LONG)
    for library in (LIBRARIES[number], *(["lz4.block"] if number == LZ4 else [])):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(MODULES[number], "_local", threading.local())
    for use in (lambda: codec.decompress(number, data, 2, MIB), lambda: codec.compress(number, LONG)):
        with pytest.raises(CodecMissing, match="needs the Python package") as caught:
            use()
        assert isinstance(caught.value, KdumpError)
        assert caught.value.codec == NAMES[number]
        # What to install is what brings the module that is missing.
        assert packages_distributions()[LIBRARIES[number].partition(".")[0]] == [caught.value.package]
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.usefixtures("without_isal")
def test_gzip_without_isal() -> None:
    assert verdict_of(GZIP, codec.compress(GZIP, LONG), 2, len(LONG)) == Taken(LONG)


def test_versions() -> None:
    assert set(codec.versions()) == {"cramjam", "isal", "liblz4", "libzstd", "lz4", "zlib", "zstandard"}
    assert all(version[0].isdigit() for version in codec.versions().values())


def test_versions_of_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cramjam", "isal", "lz4", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    assert set(codec.versions()) == {"zlib"}


def test_errors_travel() -> None:
    for error in (codec.CodecError("lz4-linked"), codec.LimitExceeded()):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.reason, str(copy)) == (type(error), error.reason, codec.REASONS[error.reason])


@pytest.mark.parametrize("number", CODECS)
def test_results_are_the_callers_to_keep(number: int) -> None:
    texts = [text(100_000, seed) for seed in range(8)]
    kept = [codec.decompress(number, codec.compress(number, each), 2, MIB)[0] for each in texts]
    assert [bytes(each) for each in kept] == texts
    part = memoryview(kept[0])[5:10]
    del kept
    for one in texts:
        codec.decompress(number, codec.compress(number, one), 2, MIB)
    assert bytes(part) == texts[0][5:10]


def test_a_failure_leaves_nothing() -> None:
    for number in CODECS:
        sound = codec.compress(number, LONG)
        for case in CASES:
            if case.codec == number:
                verdict_of(number, case.data, case.magic)
                assert verdict_of(number, sound, 2) == Taken(LONG)


def test_threads() -> None:
    work = [
        (number, codec.compress(number, text(size, size)), text(size, size))
        for number in CODECS
        for size in (100, 5000, 100_000)
    ]
    wrong: list[int] = []

    def run(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(300):
            number, data, expected = choose.choice(work)
            if choose.random() < 0.2:
                verdict_of(number, data[: choose.randrange(len(data))], 2)
            if verdict_of(number, data, 2) != Taken(expected):
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_header_checksums() -> None:
    for descriptor, right, broken in (
        ("6040", 0x82, 0x1A),
        ("6440", 0xA7, 0x0C),
        ("6840", 0xCE, 0x26),
        ("6070", 0x73, 0x10),
    ):
        data = bytes.fromhex(descriptor)
        assert lz4._descriptor_checksum(data) == right == xxh32(data) >> 8 & 0xFF
        assert lz4._descriptor_checksum(codec_cases.LZ4_MAGIC + data) == broken
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


@given(st.binary(max_size=15))
def test_header_checksum_is_xxh32(data: bytes) -> None:
    assert lz4._descriptor_checksum(data) == xxh32(data) >> 8 & 0xFF


# Known differences: Kafka's side of them is in tests/interop/test_codec.py


def test_legacy_zstd_is_reported_from_garbage() -> None:
    for data in (ZSTD_LEGACY, zstd_stream(LONG) + ZSTD_LEGACY):
        assert verdict_of(ZSTD, data, 2) == Refused("zstd-legacy")


def test_isal_reads_a_code_that_zlib_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdict_of(GZIP, INCOMPLETE_CODE, 2) == Taken(bytes(4096))
    monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
    monkeypatch.setattr(gzip, "_local", threading.local())
    assert verdict_of(GZIP, INCOMPLETE_CODE, 2) == Refused("gzip-data")


@pytest.mark.parametrize("note", ACROSS)
def test_data_ends_for_small_records(note: str) -> None:
    number, data = ACROSS[note]
    assert verdict_of(number, data, 2) == Taken(RECORD[:2048], note)


def test_importing_brings_no_codec_module() -> None:
    program = (
        "import kdump.format.codec;"
        "print(sorted(name for name in sys.modules if name.startswith('kdump.format.codec.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {[*filter(None, sys.path)]!r}; {program}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['kdump.format.codec.base']\n"
