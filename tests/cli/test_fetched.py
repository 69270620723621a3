"""`kdump dump --type fetch` and `--type multifetch`: the results of a fetch, of every kind of log."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.dump import dump, events
from kdump.format import fetch
from kdump.format.naming import FETCH_KINDS, Kind
from kdump.storage.partition import LogFile
from kdump.storage.source import BytesSource, SourceRange
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
from support import build
from support.fetch_results import MessageSetSend, build_multi_message_set_send


def plain(base_offset: int, count: int = 3, **fields: Any) -> bytes:
    items = [build.record(b"key-%d" % number, b"value-%d" % number) for number in range(count)]
    return build.batch(items, base_offset=base_offset, **fields)


V0 = build.message_v0(b"k", b"v", offset=7) + build.wrapper(
    [build.record(b"k", b"v%d" % number) for number in range(2)], base_offset=8, magic=0, codec="snappy"
)
V1 = build.message_v1(None, b"x", offset=3)
V2 = plain(5) + plain(8, codec="zstd")
OLD = build.kafka07([b"one", b"two"], codec="none") + build.kafka07([b"three", b"four"], codec="gzip")
SETS = {"0": V0, "1": V1, "2": V2, "0.7": OLD}
FOLLOWING = {
    "0": build.message_v0(b"k", b"v", offset=20),
    "1": build.message_v1(b"k", b"v", offset=20),
    "2": plain(20, 1),
    "0.7": build.kafka07([b"six"], codec="none"),
}


def dumped(kdump: Any, tmp_path: Path, data: bytes, *options: str, name: str = "saved") -> tuple[int, list[Any], str]:
    (tmp_path / name).write_bytes(data)
    ran = kdump.inside("dump", "--format", "json", *options, name)
    *lines, summary = map(json.loads, ran.lines)
    assert (summary["type"], summary["exit_status"]) == ("summary", ran.status)
    return ran.status, lines, ran.problems


def of_log(kdump: Any, tmp_path: Path, data: bytes, kind: str) -> list[Any]:
    """What a dump of the same messages in a log shows, without what only their place decides."""
    _, lines, _ = dumped(kdump, tmp_path, data, "--type", kind, name="0.x")
    return [{name: value for name, value in line.items() if name != "path"} for line in lines]


def moved(lines: list[Any], by: int) -> list[Any]:
    return [{**line, "position": line["position"] + by} for line in lines]


def without_path(lines: list[Any]) -> list[Any]:
    return [{name: value for name, value in line.items() if name != "path"} for line in lines]


def header(position: int, length: int, code: int = 0, error: str = "none", *, multi: bool = False) -> dict[str, Any]:
    return {
        "type": "multi_message_set_send" if multi else "message_set_send",
        "position": position,
        "total_length": length,
        "error_code": code,
        "error": error,
    }


@pytest.mark.parametrize("magic", SETS)
def test_a_fetch_of_every_format(kdump: Any, tmp_path: Path, magic: str) -> None:
    messages = SETS[magic]
    status, lines, problems = dumped(kdump, tmp_path, fetch.build_message_set_send(messages), "--type", "fetch")
    log = of_log(kdump, tmp_path, messages, "kafka07" if magic == "0.7" else "log")
    assert (status, problems) == (0, "")
    assert without_path(lines) == [header(0, len(messages) + 2), *moved(log, 6)]


def test_a_multifetch(kdump: Any, tmp_path: Path) -> None:
    sets = [MessageSetSend(0, messages) for messages in SETS.values()] + [MessageSetSend(3, b"")]
    expected, position = [], 6
    for magic, messages in SETS.items():
        expected.append(header(position, len(messages) + 2))
        log = of_log(kdump, tmp_path, messages, "kafka07" if magic == "0.7" else "log")
        expected += moved(log, position + 6)
        position += 6 + len(messages)
    expected.append(header(position, 2, 3, "wrong-partition"))
    data = build_multi_message_set_send(sets)
    status, lines, problems = dumped(kdump, tmp_path, data, "--type", "multifetch")
    assert (status, problems) == (0, "")
    assert without_path(lines) == [header(0, len(data) - 4, multi=True), *expected]


@pytest.mark.daily(4)
@pytest.mark.parametrize("magic", SETS)
@pytest.mark.parametrize("multi", [False, True])
def test_a_message_that_is_cut_off(kdump: Any, tmp_path: Path, magic: str, multi: bool) -> None:
    """The room of the consumer ends anywhere: a tail, and no damage."""
    messages = SETS[magic] + FOLLOWING[magic]
    whole = len(SETS[magic])
    first = of_log(kdump, tmp_path, SETS[magic], "kafka07" if magic == "0.7" else "log")
    for kept in range(1, len(FOLLOWING[magic])):
        some = messages[: whole + kept]
        data = fetch.build_message_set_send(some)
        if multi:
            data = build_multi_message_set_send([MessageSetSend(0, some)])
        status, lines, problems = dumped(kdump, tmp_path, data, "--type", "multifetch" if multi else "fetch")
        assert (status, problems) == (0, "")
        begin = 12 if multi else 6
        tail = {"type": "tail", "position": begin + whole, "length": kept, "reason": "torn"}
        assert without_path(lines)[begin // 6 :] == [*moved(first, begin), tail]


def test_nothing_but_a_message_that_is_cut_off(kdump: Any, tmp_path: Path) -> None:
    for messages in (OLD[:12], V2[:40], V2[:3]):
        status, lines, _ = dumped(kdump, tmp_path, fetch.build_message_set_send(messages), "--type", "fetch")
        assert (status, [line["type"] for line in lines]) == (0, ["message_set_send", "tail"])


@pytest.mark.parametrize("code", fetch.ERROR_CODE_WORDS)
def test_error_codes(kdump: Any, tmp_path: Path, code: int) -> None:
    """That a fetch failed is no damage of the file that says so."""
    status, lines, problems = dumped(kdump, tmp_path, fetch.build_message_set_send(b"", code), "--type", "fetch")
    assert (status, problems) == (0, "")
    assert (lines[0]["error_code"], lines[0]["error"]) == (code, fetch.ERROR_CODE_WORDS[code])


def test_an_error_code_that_is_none(kdump: Any, tmp_path: Path) -> None:
    data = fetch.build_message_set_send(V2, 77)
    status, lines, problems = dumped(kdump, tmp_path, data, "--type", "fetch")
    assert (status, lines[0]["error"]) == (0, 77)
    assert problems == "kdump: saved: byte 0: 77 is not an error code\n"
    assert dumped(kdump, tmp_path, data, "--type", "fetch", "--fail-on", "warning")[0] == 1


@pytest.mark.parametrize(
    ("kind", "data", "problems"),
    [
        ("fetch", b"", ["byte 0: 0 bytes, and the header of a result has 6"]),
        ("fetch", b"\0\0\0", ["byte 0: 3 bytes, and the header of a result has 6"]),
        (
            "fetch",
            struct.pack(">ih", 1000, 0) + V1,
            [f"byte 0: a total length of 1000, but only {len(V1) + 2} bytes follow it"],
        ),
        ("fetch", struct.pack(">ih", -9, 0) + V1, ["byte 0: a total length of -9, and the error code alone has 2"]),
        (
            "fetch",
            fetch.build_message_set_send(V1) + b"?",
            [f"byte {len(V1) + 6}: 1 byte after the end of the result"],
        ),
        (
            "multifetch",
            fetch.build_header(8 + len(V1)) + struct.pack(">ih", 500, 0) + V1 + b"\0\0",
            [f"byte 6: a total length of 500, but only {len(V1) + 4} bytes follow it"],
        ),
        (
            "multifetch",
            fetch.build_header(9 + len(V1)) + fetch.build_message_set_send(V1) + b"\0\0\0",
            [f"byte {12 + len(V1)}: 3 bytes, and the header of a result has 6"],
        ),
        (
            "multifetch",
            fetch.build_header(900) + fetch.build_message_set_send(V1)[:-5],
            [
                f"byte 0: a total length of 902, but only {len(V1) + 3} bytes follow it",
                f"byte 6: a total length of {len(V1) + 2}, but only {len(V1) - 3} bytes follow it",
            ],
        ),
    ],
)
def test_lengths_that_lie(kdump: Any, tmp_path: Path, kind: str, data: bytes, problems: list[str]) -> None:
    status, _, reported = dumped(kdump, tmp_path, data, "--type", kind)
    assert (status, reported.splitlines()) == (1, [f"kdump: saved: {problem}" for problem in problems])


def test_damage_among_the_messages(kdump: Any, tmp_path: Path) -> None:
    bad = bytearray(plain(8))
    bad[30] ^= 1
    data = fetch.build_message_set_send(plain(5) + bytes(bad) + plain(11) + bytes(30))
    status, lines, _ = dumped(kdump, tmp_path, data, "--type", "fetch")
    assert status == 1
    assert [line.get("crc_ok", line["type"]) for line in lines if line["type"] != "record"] == [
        "message_set_send",
        True,
        False,
        True,
        "tail",
    ]


def test_offsets_of_the_log_before_0_8(kdump: Any, tmp_path: Path) -> None:
    """A result does not say where it begins, the name of its file can."""
    data = fetch.build_message_set_send(OLD)
    for name, first in (("saved", 0), ("300.fetch", 300)):
        _, lines, _ = dumped(kdump, tmp_path, data, "--type", "fetch", name=name)
        assert next(line["offset"] for line in lines if line["type"] == "record") == first
    _, lines, _ = dumped(kdump, tmp_path, fetch.build_message_set_send(V2), "--type", "fetch", name="300.fetch")
    assert [line["offset"] for line in lines if line["type"] == "record"] == [5, 6, 7, 8, 9, 10]


def test_options(kdump: Any, tmp_path: Path) -> None:
    data = build_multi_message_set_send([MessageSetSend(0, V2), MessageSetSend(0, V2)])

    def offsets(*options: str) -> list[int]:
        _, lines, _ = dumped(kdump, tmp_path, data, "--type", "multifetch", *options)
        return [line["offset"] for line in lines if line["type"] == "record"]

    assert offsets("--offset", "7:9") == [7, 8, 7, 8]
    assert offsets("-n", "7") == [5, 6, 7, 8, 9, 10, 5]
    assert offsets("--batches") == []
    assert offsets("--max-bytes", str(12 + len(plain(5)))) == [5, 6, 7]


def test_from_standard_input(kdump: Any) -> None:
    ran = kdump.inside("dump", "--type", "fetch", "-", stdin=fetch.build_message_set_send(V1))
    assert ran.status == 0
    assert ran.lines[:2] == [
        "file -",
        f"message_set_send position=0 total_length={len(V1) + 2} error_code=0 error=none",
    ]


def test_in_other_formats(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "saved").write_bytes(fetch.build_message_set_send(V2))
    assert "message set send" in kdump.inside("dump", "--type", "fetch", "--format", "terminal", "saved").text
    ran = kdump.inside("dump", "--type", "fetch", "--format", "kafka", "saved")
    assert (ran.status, ran.problems) == (3, "Ignoring unknown file saved\n")
    assert kdump.inside("verify", "--type", "fetch", "saved").status == 2


# --- any bytes --------------------------------------------------------------------------------------------------------


def look(kind: Kind, data: bytes) -> None:
    """Headers, batches, gaps and tails tile the file, whatever the bytes are."""
    file = LogFile("x", kind, None, True, len(data))
    source = BytesSource(data)
    position = 0
    for event in dump._dump_fetch_result(source, file, dump.DumpOptions(), dump.RecordLimit(None)):
        match event:
            case events.CompanionEntry(_, fields):
                assert fields["position"] == position
                position += fetch.HEADER_SIZE
            case dump.BatchEvent(batch):
                assert batch.position == position
                position += batch.size
            case Gap() | Tail():
                assert event.position == position
                position += event.length
            case ForeignBatch() | SearchLimit():
                pass
    assert position == len(data)


@given(st.sampled_from(FETCH_KINDS), st.binary(max_size=150))
def test_any_bytes(kind: Kind, data: bytes) -> None:
    look(kind, data)


@given(st.integers(0, 1 << 32))
def test_mutations(seed: int) -> None:
    chosen = random.Random(seed)
    parts = [MessageSetSend(chosen.choice([0, 0, 1]), chosen.choice([*SETS.values(), b""])) for _ in range(3)]
    data = bytearray(build_multi_message_set_send(parts))
    for _ in range(chosen.randrange(1, 4)):
        at = chosen.randrange(len(data) + 1)
        data[at : at + chosen.randrange(4)] = chosen.randbytes(chosen.randrange(4))
    look(Kind.MULTIFETCH, bytes(data))
    look(Kind.FETCH, bytes(data))


def test_a_part_of_a_source() -> None:
    source = BytesSource(b"0123456789")
    part = SourceRange(source, 2, 6)
    buffer = memoryview(bytearray(8))
    assert (part.size, part.size_now(), part.readinto(0, buffer), bytes(buffer[:4])) == (4, 4, 4, b"2345")
    assert (part.readinto(3, buffer[:2]), part.readinto(9, buffer)) == (1, 0)
    assert SourceRange(BytesSource(b"0123"), 2, 6).size_now() == 2
    assert SourceRange(BytesSource(b"0"), 2, 6).size_now() == 0
    part.close()
    assert source.readinto(0, buffer) == 8
