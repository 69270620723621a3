"""`kdump dump` of indexes, producer snapshots, checkpoints and the other small files beside a log."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.dump import companion_files
from kdump.dump.events import CompanionDamage, CompanionEntry
from kdump.errors import SourceError
from kdump.format.naming import FETCH_KINDS, LOG_KINDS, Kind
from kdump.storage.source import BytesSource
from kdump.storage.walk import Tail
from support import build
from support.laws import sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))
SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")

TOPIC_ID = "mwJ-D-tiSwSrr_TIGJF7hA"
INDEX = build.offset_index((5, 100), (9, 4096))
TIMES = build.time_index((1_700_000_000_123, 5), (1_700_000_000_124, 9))
ABORTED = build.transaction_index((7, 5, 110, 11), (8, 111, 120, 121))
PRODUCERS = build.producer_snapshot(
    build.producer(16, last_sequence=4, last_offset=24, offset_delta=4),
    build.producer(7, coordinator_epoch=3, first_offset=9),
)
EPOCHS = build.checkpoint("0 0", "2 133")
OFFSETS = build.checkpoint("orders 0 24", "my.orders 11 9223372036854775807")
QUORUM = b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'

SOUND: dict[str, tuple[bytes, list[dict[str, Any]]]] = {
    "00000000000000000100.index": (
        INDEX,
        [
            {"type": "index_entry", "offset": 105, "position": 100},
            {"type": "index_entry", "offset": 109, "position": 4096},
        ],
    ),
    "00000000000000000100.timeindex": (
        TIMES,
        [
            {"type": "time_index_entry", "timestamp": 1_700_000_000_123, "offset": 105},
            {"type": "time_index_entry", "timestamp": 1_700_000_000_124, "offset": 109},
        ],
    ),
    "00000000000000000100.txnindex": (
        ABORTED,
        [
            {
                "type": "aborted_transaction",
                "version": 0,
                "producer_id": pid,
                "first_offset": a,
                "last_offset": b,
                "last_stable_offset": c,
            }
            for pid, a, b, c in ((7, 5, 110, 11), (8, 111, 120, 121))
        ],
    ),
    "00000000000000000100.snapshot": (
        PRODUCERS,
        [
            {
                "type": "producer",
                "producer_id": 16,
                "producer_epoch": 0,
                "last_sequence": 4,
                "last_offset": 24,
                "offset_delta": 4,
                "timestamp": 1000,
                "coordinator_epoch": -1,
                "current_txn_first_offset": -1,
            },
            {
                "type": "producer",
                "producer_id": 7,
                "producer_epoch": 0,
                "last_sequence": -1,
                "last_offset": -1,
                "offset_delta": 0,
                "timestamp": 1000,
                "coordinator_epoch": 3,
                "current_txn_first_offset": 9,
            },
        ],
    ),
    "leader-epoch-checkpoint": (
        EPOCHS,
        [{"type": "epoch", "epoch": 0, "start_offset": 0}, {"type": "epoch", "epoch": 2, "start_offset": 133}],
    ),
    **{
        f"{what}-checkpoint": (
            OFFSETS,
            [
                {"type": "checkpoint_entry", "topic": "orders", "partition": 0, "offset": 24},
                {"type": "checkpoint_entry", "topic": "my.orders", "partition": 11, "offset": (1 << 63) - 1},
            ],
        )
        for what in ("recovery-point-offset", "replication-offset", "log-start-offset", "cleaner-offset")
    },
    "partition.metadata": (
        f"version: 0\ntopic_id: {TOPIC_ID}".encode(),
        [
            {"type": "property", "key": "version", "value": "0"},
            {"type": "property", "key": "topic_id", "value": TOPIC_ID},
        ],
    ),
    "meta.properties": (
        b"#\n#now\nbroker.id=0\nversion=0\ncluster.id=a\\u0041 b\n",
        [
            {"type": "property", "key": "broker.id", "value": "0"},
            {"type": "property", "key": "version", "value": "0"},
            {"type": "property", "key": "cluster.id", "value": "aA b"},
        ],
    ),
    "quorum-state": (
        QUORUM,
        [
            {"type": "property", "key": "leaderId", "value": "1"},
            {"type": "property", "key": "leaderEpoch", "value": "3"},
            {"type": "property", "key": "votedId", "value": "-1"},
            {"type": "property", "key": "votedDirectoryId", "value": "A" * 22},
            {"type": "property", "key": "data_version", "value": "1"},
        ],
    ),
    ".kafka_cleanshutdown": (
        b'{"version":0,"brokerEpoch":13}',
        [
            {"type": "property", "key": "version", "value": "0"},
            {"type": "property", "key": "brokerEpoch", "value": "13"},
        ],
    ),
}


def objects(kdump: Any, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Status, the objects before the summary without their path, and what went to standard error."""
    ran = kdump.inside("dump", "--format", "json", *arguments)
    *lines, summary = [json.loads(line) for line in ran.lines]
    assert (summary["type"], summary["exit_status"]) == ("summary", ran.status)
    for line in lines:
        assert line.pop("path") in arguments
    return ran.status, lines, ran.problems


def dumped(
    kdump: Any, tmp_path: Path, name: str, data: bytes, *arguments: str
) -> tuple[int, list[dict[str, Any]], str]:
    (tmp_path / name).write_bytes(data)
    return objects(kdump, *arguments, name)


# --- what Kafka's tool prints -----------------------------------------------------------------------------------------


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("case", sampled(CASES, 3), ids=lambda case: case.name)
def test_companions_as_the_tool_prints_them(kdump: Any, case: Path) -> None:
    failed = json.loads(status.read_bytes()) if (status := case / "expected" / "status.json").exists() else {}
    compared = 0
    for printed in sorted((case / "expected").rglob("*.entries.txt")):
        relative = printed.relative_to(case / "expected")
        name = printed.name.removesuffix(".entries.txt")
        if not name.endswith(SUFFIXES) or relative.as_posix() in failed:
            continue
        directory = case / relative.parent
        ran = type(kdump)(directory).inside("dump", "--format", "kafka", name)
        reported = printed.with_name(f"{name}.entries.err.txt")
        assert ran.problems.replace(f"{directory}/", "") == (reported.read_text() if reported.exists() else "")
        # what brokers write themselves is no damage, whatever is reported of it
        assert (ran.status, ran.out) == (0, printed.read_bytes())
        verified = type(kdump)(directory).inside("dump", "--format", "kafka", "--verify-index-only", name)
        assert (verified.status, verified.err) == (0, ran.err)
        if name.endswith("index") and not name.endswith("txnindex"):
            assert verified.lines == [line for line in ran.lines if not line.startswith(("offset: ", "timestamp: "))]
        compared += 1
    assert compared


def test_where_the_tool_fails_the_dump_goes_on(kdump: Any) -> None:
    directory = FIXTURES / "crash" / "preallocated-0"
    name = "00000000000000000383.timeindex"
    printed = (FIXTURES / "crash" / "expected" / "preallocated-0" / f"{name}.entries.txt").read_bytes()
    ran = type(kdump)(directory).inside("dump", "--format", "kafka", name)
    # there are no batches after the ones that the entries lead to, but room for more
    assert (ran.status, ran.problems) == (0, "")
    assert ran.out.startswith(printed)
    assert ran.out.count(b"timestamp: ") == 11


PRODUCER_1 = (
    "producerId: 1 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000"
    " firstSequence: 2147483646 lastSequence: 1 lastOffset: 9 offsetDelta: 3 timestamp: 1000\n"
)


@pytest.mark.parametrize(
    ("name", "data", "printed"),
    [
        ("7.index", b"", "7.index is empty.\n"),
        ("7.index", b"\0" * 7, "7.index is empty.\n"),
        # the tool takes the first slot of padding for an entry
        ("7.index", bytes(80), "offset: 7 position: 0\n"),
        ("7.index", bytes(8), "offset: 7 position: 0\n"),
        ("7.index", build.offset_index((3, 5), (0, 0), (4, 9)), "offset: 10 position: 5\n"),
        ("x.index", bytes(80), ""),
        ("7.timeindex", b"", ""),
        ("7.timeindex", bytes(120), "timestamp: 0 offset: 7\n"),
        ("7.txnindex", b"", ""),
        (
            "7.txnindex",
            build.transaction_index((1, 2, 3, 4), version=-1),
            "version: -1 producerId: 1 firstOffset: 2 lastOffset: 3 lastStableOffset: 4\n",
        ),
        ("7.snapshot", build.producer_snapshot(), ""),
        # nothing of a snapshot that a broker would not load
        ("7.snapshot", PRODUCERS[:-1], ""),
        ("7.snapshot", PRODUCERS + b"\0", ""),
        (
            "7.snapshot",
            build.producer_snapshot(build.producer(1, last_sequence=1, last_offset=9, offset_delta=3)),
            PRODUCER_1,
        ),
    ],
)
def test_lines_of_the_tool(kdump: Any, tmp_path: Path, name: str, data: bytes, printed: str) -> None:
    (tmp_path / name).write_bytes(data)
    ran = kdump.inside("dump", "--format", "kafka", name)
    assert ran.text == f"Dumping {name}\n{printed}"


def test_what_the_tool_does_not_show(kdump: Any, tmp_path: Path) -> None:
    names = [name for name in SOUND if not name.endswith(SUFFIXES)]
    for name in names:
        (tmp_path / name).write_bytes(SOUND[name][0])
    (tmp_path / "0.index").write_bytes(b"")
    ran = kdump.inside("dump", "--format", "kafka", *names, "0.index")
    assert (ran.status, ran.lines) == (3, [*(f"Dumping {name}" for name in (*names, "0.index")), "0.index is empty."])
    assert ran.problems.splitlines() == [f"Ignoring unknown file {name}" for name in names]


# --- every kind in every format ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOUND)
def test_entries(kdump: Any, tmp_path: Path, name: str) -> None:
    data, entries = SOUND[name]
    assert dumped(kdump, tmp_path, name, data) == (0, entries, "")
    text = kdump.inside("dump", "--format", "text", name)
    assert (text.status, text.lines[0]) == (0, f"file {name}")
    assert len(text.lines) == 1 + len(entries)
    for line, entry in zip(text.lines[1:], entries, strict=True):
        assert line.startswith(f"{entry['type']} ")
        for key, value in list(entry.items())[1:]:
            assert f" {key}={value}" in line or f' {key}="{value}"' in line
    terminal = kdump.inside("dump", "--format", "terminal", name, COLUMNS="250")
    assert terminal.status == 0
    words = " ".join(terminal.text.split())
    for entry in entries:
        values = [value for field, value in list(entry.items())[1:] if field != "timestamp"]  # a time for people
        assert all(str(value) in words for value in values if len(str(value)) < 12)


@pytest.mark.parametrize("name", SOUND)
def test_verify_says_what_they_are(kdump: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(SOUND[name][0])
    ran = kdump.inside("verify", name)
    assert (ran.status, ran.problems.count("\n")) == (3, 1)
    assert ran.problems.startswith(f"kdump: {name}: ")
    assert ", not a log file (--type log reads it as one)" in ran.problems
    assert kdump.inside("dump", "--type", "log", name).text.startswith(f"file {name}\n")


def test_a_directory_is_its_log_files(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    for name, (data, _) in SOUND.items():
        (tmp_path / "t-0" / name).write_bytes(data)
    ran = kdump.inside("dump", "t-0")
    assert (ran.status, ran.out, ran.err) == (0, b"", b"")  # a log directory, and no logs in it
    (tmp_path / "t-0" / "0.log").write_bytes(build.batch([build.record(b"k", b"v")]))
    assert kdump.inside("dump", "t-0").text.count("file ") == 1
    ran = kdump.inside("dump", "t-0/*")
    assert ran.status == 0
    # a glob leaves out what begins with a dot
    assert ran.text.count("file ") == len(SOUND)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000100.index.deleted", "index_entry"),
        ("00000000000000000100.timeindex.swap", "time_index_entry"),
        ("00000000000000000100.txnindex.cleaned", "aborted_transaction"),
        ("00000000000000000100.snapshot.deleted", "producer"),
        ("leader-epoch-checkpoint.tmp", "epoch"),
        ("replication-offset-checkpoint.tmp", "checkpoint_entry"),
        ("partition.metadata.tmp", "property"),
    ],
)
def test_names_with_something_after(kdump: Any, tmp_path: Path, name: str, kind: str) -> None:
    data = SOUND[name.rsplit(".", 1)[0]][0]
    status, lines, _ = dumped(kdump, tmp_path, name, data)
    assert (status, {line["type"] for line in lines}) == (0, {kind})


TYPES = {
    "index": (INDEX, "index_entry"),
    "timeindex": (TIMES, "time_index_entry"),
    "txnindex": (ABORTED, "aborted_transaction"),
    "snapshot": (PRODUCERS, "producer"),
    "epoch-checkpoint": (EPOCHS, "epoch"),
    "offset-checkpoint": (OFFSETS, "checkpoint_entry"),
    "partition-metadata": (SOUND["partition.metadata"][0], "property"),
    "meta-properties": (SOUND["meta.properties"][0], "property"),
    "quorum-state": (QUORUM, "property"),
    "clean-shutdown": (SOUND[".kafka_cleanshutdown"][0], "property"),
}


def test_every_companion_has_a_type() -> None:
    assert set(TYPES) == {kind.value for kind in Kind if kind not in (*LOG_KINDS, *FETCH_KINDS)}


@pytest.mark.parametrize("kind", TYPES)
def test_types(kdump: Any, tmp_path: Path, kind: str) -> None:
    data, entry = TYPES[kind]
    status, lines, _ = dumped(kdump, tmp_path, "saved.bak", data, "--type", kind)
    assert (status, {line["type"] for line in lines}) == (0, {entry})
    ran = kdump.inside("dump", "--format", "json", "--type", kind, "-", stdin=data)
    assert ran.status == 0
    assert json.loads(ran.lines[0])["type"] == entry
    assert kdump.inside("verify", "--type", kind, "saved.bak").status == 2


def test_without_a_number_in_the_name_offsets_count_from_zero(kdump: Any, tmp_path: Path) -> None:
    _, lines, _ = dumped(kdump, tmp_path, "saved.index", INDEX)
    assert [line["offset"] for line in lines] == [5, 9]


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offsets", "index", "aborted"),
    [
        ("105", [105], [5]),
        ("106:", [109], [5, 111]),
        (":109", [105], [5]),
        ("106:109", [], [5]),
        ("0:5", [], []),
        ("121:", [], []),
        ("115:118", [], [111]),
    ],
)
def test_offsets(kdump: Any, tmp_path: Path, offsets: str, index: list[int], aborted: list[int]) -> None:
    for name in SOUND:
        (tmp_path / name).write_bytes(SOUND[name][0])
    for suffix, key, expected in (
        (".index", "offset", index),
        (".timeindex", "offset", index),
        (".txnindex", "first_offset", aborted),
    ):
        _, lines, _ = objects(kdump, "--offset", offsets, f"00000000000000000100{suffix}")
        assert [line[key] for line in lines] == expected
    # the others speak of other offsets, or of none
    assert len(objects(kdump, "--offset", offsets, "leader-epoch-checkpoint")[1]) == 2


def test_a_number_of_entries(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "1.index").write_bytes(build.offset_index(*((n, n) for n in range(1, 100)), padding=5))
    (tmp_path / "meta.properties").write_bytes(b"version=0\n")
    for count, types in ((0, 0), (1, 1), (98, 98), (99, 99), (100, 101), (200, 101)):
        _, lines, _ = objects(kdump, "-n", str(count), "1.index", "meta.properties")
        assert len(lines) == types
    assert (
        kdump.inside("dump", "-n", "1", "--format", "kafka", "1.index").text
        == "Dumping 1.index\noffset: 2 position: 1\n"
    )


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "entries", "tail"),
    [
        ("7.index", INDEX + bytes(64), 2, (16, 64, "zeros")),
        ("7.index", bytes(64), 0, (0, 64, "zeros")),
        ("7.timeindex", TIMES + bytes(12), 2, (24, 12, "zeros")),
    ],
)
def test_padding(kdump: Any, tmp_path: Path, name: str, data: bytes, entries: int, tail: tuple[int, int, str]) -> None:
    status, lines, problems = dumped(kdump, tmp_path, name, data)
    assert (status, len(lines), problems) == (0, entries + 1, "")
    position, length, reason = tail
    assert lines[-1] == {"type": "tail", "position": position, "length": length, "reason": reason}
    # a running broker has it in the newest segment, and nowhere else
    (tmp_path / "7.log").write_bytes(b"")
    assert objects(kdump, "--fail-on", "warning", name)[0] == 0
    assert objects(kdump, "--fail-on", "info", name)[0] == 1
    (tmp_path / "8.log").write_bytes(b"")
    assert objects(kdump, "--fail-on", "error", name)[0] == 0
    assert objects(kdump, "--fail-on", "warning", name)[0] == 1


@pytest.mark.parametrize(
    ("name", "data", "entries", "tail"),
    [
        ("7.index", INDEX[:-1], 1, (8, 7, "torn")),
        ("7.timeindex", TIMES + b"\0", 2, (24, 1, "torn")),
        ("7.txnindex", ABORTED[:-4], 1, (34, 30, "torn")),
        ("7.txnindex", b"\1", 0, (0, 1, "torn")),
        ("7.snapshot", PRODUCERS[:-1], 1, (56, 45, "torn")),
        ("7.snapshot", PRODUCERS + PRODUCERS, 2, (102, 102, "garbage")),
    ],
)
def test_what_fills_no_entry(
    kdump: Any, tmp_path: Path, name: str, data: bytes, entries: int, tail: tuple[int, int, str]
) -> None:
    status, lines, _ = dumped(kdump, tmp_path, name, data)
    assert (status, len(lines)) == (1, entries + 1)
    position, length, reason = tail
    assert lines[-1] == {"type": "tail", "position": position, "length": length, "reason": reason}


@pytest.mark.parametrize(
    ("name", "data", "entries", "problem"),
    [
        (
            "7.txnindex",
            build.transaction_index((1, 2, 3, 4), (5, 6, 7, 8), version=0x300),
            2,
            "an entry has version 3, expected 0: Kafka refuses the index",
        ),
        ("7.snapshot", b"", 0, "0 bytes, too few for the header of a snapshot (10)"),
        (
            "7.snapshot",
            build.producer_snapshot(build.producer(1), crc=1),
            1,
            "the checksum is wrong: stored 0x00000001, computed 0x",
        ),
        ("7.snapshot", build.producer_snapshot(build.producer(1), version=2), 0, "version 2, expected 1"),
        ("7.snapshot", build.producer_snapshot(count=-1), 0, "a count of -1 entries"),
        ("leader-epoch-checkpoint", EPOCHS + b"3 x\n", 2, "line 5 is malformed, 'x' is not a 64-bit number: '3 x'"),
        ("leader-epoch-checkpoint", EPOCHS[:-1] + b"\xff", 1, "byte 13 is not valid UTF-8"),
        ("cleaner-offset-checkpoint", build.checkpoint("a 1 2", count=2), 1, "a count of 2 entries, but there are 1"),
        ("partition.metadata", b"version: 0", 1, "line 2 is missing"),
        ("meta.properties", b"version=1\nnode.id=1", 2, "cluster.id is missing"),
        ("meta.properties", b"version=0\na=\\u1", 1, "line 2: \\u without four hexadecimal digits"),
        ("quorum-state", b'{"leaderId":1,"data_version":1}', 2, "leaderEpoch is missing, which data_version 1 has"),
        ("quorum-state", b"", 0, "the file is empty"),
    ],
)
def test_damage(kdump: Any, tmp_path: Path, name: str, data: bytes, entries: int, problem: str) -> None:
    status, lines, problems = dumped(kdump, tmp_path, name, data)
    assert (status, len([line for line in lines if line["type"] != "tail"])) == (1, entries)
    assert problems.startswith(f"kdump: {name}: {problem}")
    assert problems.count("\n") == 1
    assert kdump.inside("dump", "--fail-on", "never", name).status == 0


def test_a_marker_that_says_nothing_is_a_marker(kdump: Any, tmp_path: Path) -> None:
    assert dumped(kdump, tmp_path, ".kafka_cleanshutdown", b"") == (0, [], "")
    status, lines, problems = dumped(kdump, tmp_path, ".kafka_cleanshutdown", b"{}")
    assert (status, lines, problems) == (0, [], "kdump: .kafka_cleanshutdown: brokerEpoch is missing\n")
    assert objects(kdump, "--fail-on", "warning", ".kafka_cleanshutdown")[0] == 1


@pytest.mark.parametrize("name", ["7.snapshot", "leader-epoch-checkpoint", "meta.properties", "quorum-state"])
def test_files_that_are_too_large(kdump: Any, tmp_path: Path, name: str) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(1 << 40)
    # from another directory, since what lies in its own is read before and after
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = type(kdump)(elsewhere).inside("dump", f"../{name}")
    assert found.status == 3
    assert "1099511627776 bytes, " in found.problems
    assert " have at most " in found.problems


def test_the_other_paths_are_still_done(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "1.snapshot").write_bytes(b"")
    (tmp_path / "2.index").write_bytes(INDEX)
    ran = kdump.inside("dump", "1.snapshot", "missing.index", "2.index")
    assert ran.status == 3
    assert ran.text.count("index_entry") == 2
    assert len(ran.problems.splitlines()) == 2


def test_nothing_in_a_file_reaches_a_terminal(kdump: Any, tmp_path: Path) -> None:
    evil = "\x1b]0;x\x07\u202e"
    (tmp_path / "meta.properties").write_bytes(f"a=\\u001b]0;\\u202e\nversion={evil}".encode())
    (tmp_path / "replication-offset-checkpoint").write_bytes(build.checkpoint(f"{evil} 0 0", evil))
    (tmp_path / "quorum-state").write_bytes(json.dumps({evil: evil}).encode())
    for form in ("text", "terminal", "json"):
        ran = kdump.inside("dump", "--format", form, "meta.properties", "replication-offset-checkpoint", "quorum-state")
        assert ran.status == 1
        for unsafe in ("\x1b]", "\x07", "\u202e"):
            assert unsafe not in ran.text + ran.problems


def test_a_file_that_shrinks_while_it_is_read() -> None:
    class Shrinking(BytesSource):
        def readinto(self, position: int, buffer: memoryview) -> int:
            return super().readinto(position, buffer[: max(0, 20 - position)])

    for kind, data in ((Kind.INDEX, INDEX * 2), (Kind.TIMEINDEX, TIMES), (Kind.TXNINDEX, ABORTED)):
        found = list(companion_files.contents("x", Shrinking(data), kind, 0))
        assert any(isinstance(item, CompanionDamage) and "while it was read" in item.reason for item in found)


KINDS = [kind for kind in Kind if kind not in (*LOG_KINDS, *FETCH_KINDS)]


@given(st.sampled_from(KINDS), st.binary(max_size=150), st.none() | st.integers(0, (1 << 63) - 1))
def test_any_bytes(kind: Kind, data: bytes, base_offset: int | None) -> None:
    look(kind, data, base_offset)


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 1 << 32))
def test_mutations(kind: str, seed: int) -> None:
    chosen = random.Random(seed)
    data = bytearray(TYPES[kind][0])
    for _ in range(chosen.randrange(1, 4)):
        at = chosen.randrange(len(data) + 1)
        data[at : at + chosen.randrange(4)] = chosen.randbytes(chosen.randrange(4))
    look(Kind(kind), bytes(data), 0)


def look(kind: Kind, data: bytes, base_offset: int | None) -> None:
    """Entries, tails and damage, whatever the bytes are, and tails end where the file does."""
    try:
        found = list(companion_files.contents("x", BytesSource(data), kind, base_offset))
    except SourceError as error:
        pytest.fail(str(error))
    for item in found:
        assert isinstance(item, CompanionEntry | Tail | CompanionDamage)
        companion_files.severity(item, active=True) if not isinstance(item, CompanionEntry) else None
    tails = [item for item in found if isinstance(item, Tail)]
    assert not tails or tails[-1].position + tails[-1].length == len(data)
    assert all(a.position + a.length == b.position for a, b in pairwise(tails))
