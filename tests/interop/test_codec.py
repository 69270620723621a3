"""Kafka's own streams (kafka-clients 4.3.1, through Codecs.java) against kdump.format.codec."""

from __future__ import annotations

import importlib.util
import random
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from kdump.format import codec
from kdump.format.codec import gzip
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
    Refused,
    mutant,
    mutants,
    noise,
    text,
)
from support.laws import of_the_day

HERE = Path(__file__).parent
RELEASE = "4.3.1"
LIMIT = 4 << 20
CODECS = (GZIP, SNAPPY, LZ4, ZSTD)


class Request(NamedTuple):
    operation: str
    codec: int
    magic: int
    argument: int
    data: bytes


class Answer(NamedTuple):
    status: int
    data: bytes


Ask = Callable[[Sequence[Request]], list[Answer]]


def _kafka() -> ModuleType:
    path = HERE.parents[1] / "fixtures" / "make" / "kafka.py"
    if "fixtures_make_kafka" not in sys.modules:
        spec = importlib.util.spec_from_file_location("fixtures_make_kafka", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules["fixtures_make_kafka"]


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Puts requests to a JVM of its own and gives the answers in the same order."""
    kafka = _kafka()
    if not kafka.have_java():
        pytest.skip("java and mvn are not installed")

    def ask(requests: Sequence[Request]) -> list[Answer]:
        asked = b"".join(
            struct.pack(">iBBbii", number, ord(each.operation), each.codec, each.magic, each.argument, len(each.data))
            + each.data
            for number, each in enumerate(requests)
        )
        out = kafka.run_source(RELEASE, HERE / "Codecs.java", flags=("-Xmx1g",), stdin=asked, timeout=300).stdout
        answers, at = [], 0
        for number in range(len(requests)):
            found, status, size = struct.unpack_from(">iBi", out, at)
            assert found == number
            at += 9
            answers.append(Answer(status, out[at : at + size]))
            at += size
        assert at == len(out)
        return answers

    return ask


def ours(number: int, data: bytes, magic: int) -> Answer:
    try:
        payload, _ = codec.decompress(number, data, magic, LIMIT)
    except codec.LimitExceeded:
        return Answer(2, b"")
    except codec.CodecError as error:
        return Answer(0, error.reason.encode())
    return Answer(1, bytes(payload))


def same(mine: Answer, kafkas: Answer) -> bool:
    return mine.status == kafkas.status and (mine.status != 1 or mine.data == kafkas.data)


def shown(data: bytes) -> str:
    return data.hex() if len(data) < 200 else f"{len(data)} bytes, {data[:80].hex()} … {data[-20:].hex()}"


def test_table(ask: Ask) -> None:
    """Each verdict of tests/support/codec_cases.py is Kafka's."""
    version, *answers = ask(
        [Request("V", 0, 0, 0, b""), *(Request("S", case.codec, case.magic, LIMIT, case.data) for case in CASES)]
    )
    newer = int(version.data) >= 25
    wrong = []
    for case, answer in zip(CASES, answers, strict=True):
        verdict = case.since_java_25 if newer and case.since_java_25 else case.verdict
        expected = Answer(0, b"") if isinstance(verdict, Refused) else Answer(1, verdict.payload)
        if not same(expected, answer):
            wrong.append(f"{NAMES[case.codec]} {case.magic} {case.name}: {answer.status} {shown(answer.data)}")
    assert not wrong


@pytest.mark.parametrize("number", of_the_day(CODECS, 2), ids=lambda number: NAMES[number])
def test_mutants(ask: Ask, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of damaged streams: the same verdict and the same bytes."""
    damaged = list(mutants(100 + number, number, 2500))
    answers = ask([Request("S", number, magic, LIMIT, data) for magic, data in damaged])
    differing = [
        (magic, data, kafkas)
        for (magic, data), kafkas in zip(damaged, answers, strict=True)
        if not same(ours(number, data, magic), kafkas)
    ]
    if number == GZIP:
        # isal does not mind incomplete Huffman codes, which zlib does: without isal there is no difference at all.
        assert len(differing) <= len(damaged) // 500
        monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
        monkeypatch.setattr(gzip, "_local", threading.local())
        for (magic, data), kafkas in zip(damaged, answers, strict=True):
            assert same(ours(number, data, magic), kafkas), shown(data)
        assert all(b"set" in kafkas.data for _, _, kafkas in differing)
    else:
        assert not [(magic, shown(data), kafkas.status, shown(kafkas.data)) for magic, data, kafkas in differing]


def records(choose: random.Random) -> tuple[int, bytes]:
    """The number of records and their bytes, as far as the iterator of a batch looks at them: size and body."""
    out = bytearray()
    count = choose.choice((1, 2, 5, 30))
    for _ in range(count):
        size = choose.choice((0, 1, 10, 63, 64, 500, 3000, 20000))
        value = size << 1
        while value > 127:
            out.append(value & 127 | 128)
            value >>= 7
        out.append(value)
        out += text(size, choose.randrange(50)) if choose.random() < 0.7 else noise(size, choose.randrange(50))
    return count, bytes(out)


def read_records(payload: bytes, count: int) -> bytes | None:
    """What the iterator returns, sizes in 4 bytes; None when it fails."""
    out, at = bytearray(), 0
    for _ in range(count):
        size = 0
        for shift in range(0, 35, 7):
            if at >= len(payload):
                return None
            byte = payload[at]
            at += 1
            size |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            return None
        size = (size & 0xFFFFFFFF) >> 1 ^ -(size & 1)
        if size < 0 or len(payload) - at < size:
            return None
        out += struct.pack(">i", size) + payload[at : at + size]
        at += size
    return bytes(out) if at == len(payload) else None


@pytest.mark.parametrize("number", of_the_day(CODECS, 2), ids=lambda number: NAMES[number])
def test_records_of_a_batch(ask: Ask, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka returns all records of a damaged batch exactly when they are what kdump's payload holds."""
    # With isal see test_mutants.
    if number == GZIP:
        monkeypatch.setitem(sys.modules, "isal.igzip_lib", None)
        monkeypatch.setattr(gzip, "_local", threading.local())
    choose = random.Random(number)
    batches = []
    for _ in range(1500):
        count, payload = records(choose)
        data = codec.compress(number, payload, block_size=choose.choice((1024, 32768)))
        if choose.random() < 0.9:
            data = mutant(choose, number, 2, data)
        batches.append((count, data))
    answers = ask([Request("R", number, 2, count, data) for count, data in batches])
    returned = 0
    for (count, data), kafkas in zip(batches, answers, strict=True):
        mine = ours(number, data, 2)
        assert mine.status < 2
        result = read_records(mine.data, count) if mine.status else None
        assert result == (kafkas.data if kafkas.status else None), (count, shown(data), kafkas.status)
        returned += kafkas.status
    assert 100 < returned < 1400


def test_what_kafka_writes(ask: Ask) -> None:
    """Kafka's frames are read without a note and on the normal path; they begin as those of compress()."""
    payloads = [b"", b"x", text(1000), LONG, noise(70_000), bytes(300_000)]
    requests = [
        Request("W", number, magic, piece, payload)
        for number in CODECS
        for magic in ((2,) if number == ZSTD else (0, 1, 2))
        for piece in (0, 1000)
        for payload in payloads
    ]
    for request, answer in zip(requests, ask(requests), strict=True):
        assert answer.status == 1, answer.data
        read = codec.decompress(request.codec, answer.data, request.magic, len(request.data))
        assert (bytes(read[0]), read[1]) == (request.data, None)
        mine = codec.compress(request.codec, request.data, request.magic)
        head = {GZIP: 10, SNAPPY: 16, LZ4: 7, ZSTD: 6 if request.data else 5}[request.codec]
        assert mine[:head] == answer.data[:head]


def test_what_kdump_writes(ask: Ask) -> None:
    """Kafka reads what compress() writes, for every codec, magic, level and framing."""
    packed = []
    for payload in (b"", b"x", text(1000), LONG, noise(70_000), bytes(300_000)):
        for number in CODECS:
            for magic in (2,) if number == ZSTD else (0, 1, 2):
                levels = {SNAPPY: (None,), ZSTD: (None, -5, 19)}.get(number, (None, 1, 9))
                packed += [(number, magic, codec.compress(number, payload, magic, level), payload) for level in levels]
        packed.append((SNAPPY, 1, codec.compress(SNAPPY, payload, 1, block_size=1024), payload))
        packed.append((SNAPPY, 1, codec.compress(SNAPPY, payload, 1, raw=True), payload))
    answers = ask([Request("S", number, magic, LIMIT, data) for number, magic, data, _ in packed])
    for (number, magic, data, payload), answer in zip(packed, answers, strict=True):
        assert answer == Answer(1, payload), (number, magic, shown(data))


def test_known_differences(ask: Ask) -> None:
    """What kdump.format.codec says of itself is so: see the ends of its modules' docstrings."""
    across = [Request("R", number, 2, 1, data) for number, data in ACROSS.values()]
    legacy, incomplete, *whole = ask(
        [Request("S", ZSTD, 2, LIMIT, ZSTD_LEGACY), Request("S", GZIP, 2, LIMIT, INCOMPLETE_CODE), *across]
    )
    assert legacy == Answer(1, b"hello")
    assert incomplete.status == 0
    assert whole == [Answer(1, struct.pack(">i", 5000) + RECORD[2:])] * 2
    for number, data in ACROSS.values():
        assert read_records(ours(number, data, 2).data, 1) is None
