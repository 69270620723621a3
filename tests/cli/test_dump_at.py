"""`kdump dump --at`: what stands at an offset, how it was found, and the result of a fetch of it."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump import discover
from kdump.cli.at import OffsetParam
from kdump.dump.read_at import LogEdge, TimeQuery
from kdump.format import fetch
from kdump.format.index import OFFSET_ENTRY
from kdump.storage.partition import Partition
from support import build
from support.fetch_results import parse_message_set_send
from support.laws import sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = [
    pytest.param(found.path, id=Path(found.path).relative_to(FIXTURES).as_posix())
    for found in discover([str(FIXTURES)])
    if isinstance(found, Partition) and any(segment.log.size for segment in found.segments)
]
READ_FIELDS = [
    "type",
    "path",
    "offset",
    "timestamp",
    "log_start_offset",
    "log_end_offset",
    "base_offset",
    "position",
    "size",
    "next_offset",
    "index_entry",
    "walked_bytes",
]
MS = 1_700_000_000_000


def plain(base_offset: int, count: int = 3, **fields: Any) -> bytes:
    items = [
        build.record(b"key-%d" % number, b"value-%d" % number, timestamp=MS + base_offset + number)
        for number in range(count)
    ]
    return build.batch(items, base_offset=base_offset, **fields)


def content(ran: Any) -> list[dict[str, Any]]:
    *lines, summary = map(json.loads, ran.lines)
    assert (summary["type"], summary["command"], summary["exit_status"]) == ("summary", "dump", ran.status)
    return lines


def of_type(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["type"] == kind]


def expected(lines: list[dict[str, Any]], offset: int, max_bytes: int) -> list[dict[str, Any]]:
    """Of what a plain dump shows of a sound log, what a read gives."""
    batches = of_type(lines, "batch")
    first = next((batch for batch in batches if batch["last_offset"] >= offset), None)
    if first is None:
        return []
    end = max(first["position"] + max_bytes, first["position"] + first["size"])
    inside = {
        batch["position"]
        for batch in batches
        if batch["path"] == first["path"]
        and first["position"] <= batch["position"]
        and batch["position"] + batch["size"] <= end
    }
    return [
        line
        for line in lines
        if line["path"] == first["path"]
        and line["position"] in inside
        and (line["type"] == "batch" or (line["type"] == "record" and line["offset"] >= offset))
    ]


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("path", sampled(PARTITIONS, 4))
def test_fixtures(kdump: Any, path: str) -> None:
    """At any offset, a read shows what a dump shows there."""
    lines = [
        line
        for line in content(kdump.inside("dump", "--format", "json", "--fail-on", "never", path))
        if not line["path"].endswith(".checkpoint")
    ]
    chosen = random.Random(path)
    (read,) = content(kdump.inside("dump", "--format", "json", "--at", "latest", "-v", path))
    start, end = read["log_start_offset"], read["log_end_offset"]
    for offset in sorted({start, end - 1, *(chosen.randrange(start, end) for _ in range(2))} - {end, start - 1}):
        # a whole one, or one where it is too small
        size = chosen.choice([1, 300, 1 << 10, 1 << 20])
        ran = kdump.inside("dump", "--format", "json", "--at", str(offset), "--max-bytes", str(size), "-v", path)
        assert (ran.status, ran.err) == (0, b"")
        read, *shown = content(ran)
        assert list(read) == READ_FIELDS
        batches = of_type(shown, "batch")
        room = size if size >= batches[0]["size"] else 0
        while 0 < room < batches[0]["size"]:
            room *= 2
        doubled = size
        while doubled < batches[0]["size"]:
            doubled *= 2
        assert shown == expected(lines, offset, doubled)
        assert (read["path"], read["position"]) == (batches[0]["path"], batches[0]["position"])
        assert read["size"] == sum(batch["size"] for batch in batches)
        assert read["next_offset"] == batches[-1]["last_offset"] + 1
        assert read["walked_bytes"] <= read["position"]


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("path", sampled(PARTITIONS, 4))
def test_fixtures_as_fetches(kdump: Any, tmp_path: Path, path: str) -> None:
    """The result of a fetch has the batches and records that the read shows."""

    def shown(*options: str) -> list[dict[str, Any]]:
        # A result names neither its topic nor, without the markers that follow, what was aborted.
        lines = content(kdump.inside("dump", "--format", "json", "--decode", "none", *options))
        for line in lines:
            line.pop("aborted", None)
        return [
            {
                **line,
                "path": None,
                "topic": None,
                "partition": None,
                "position": line["position"] - lines[0]["position"],
            }
            for line in lines
        ]

    sent = kdump.inside("dump", "--format", "fetch", "--at", "earliest", "--max-bytes", "4k", path)
    assert (sent.status, sent.err) == (0, b"")
    (tmp_path / "result").write_bytes(sent.out)
    read = shown("--at", "earliest", "--max-bytes", "4k", path)
    header, *result = shown("--type", "fetch", "result")
    assert (header["total_length"], header["error"]) == (len(sent.out) - 4, "none")
    first = min((line["offset"] for line in of_type(read, "record")), default=0)  # the log can start inside of a batch
    assert [
        {**line, "position": line["position"] - fetch.HEADER_SIZE}
        for line in result
        if line["type"] == "batch" or line["offset"] >= first
    ] == read


# ---- a log of three segments, with a hole


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Offsets 10 to 40 in segments that begin at 10, 20 and 30; compaction has taken 23 to 25."""
    directory = tmp_path / "topic-7"
    directory.mkdir()
    (directory / f"{10:020}.log").write_bytes(plain(10, 4) + plain(14, 6, codec="gzip"))
    (directory / f"{20:020}.log").write_bytes(plain(20) + plain(26, 4, codec="zstd"))
    (directory / f"{30:020}.log").write_bytes(plain(30, 11))
    return directory


def offsets(ran: Any) -> list[int]:
    return [line["offset"] for line in of_type(content(ran), "record")]


@pytest.mark.parametrize(
    ("at", "found"),
    [
        ("10", range(10, 20)),
        ("earliest", range(10, 20)),
        ("12", range(12, 20)),
        ("19", range(19, 20)),
        ("20", [20, 21, 22, 26, 27, 28, 29]),
        ("24", range(26, 30)),
        ("40", [40]),
        ("41", []),
        ("latest", []),
        (f"@{MS + 17}", range(17, 20)),
        ("@2023-11-14T22:13:20.024Z", range(26, 30)),
        ("@2023-11-14 22:13:20.024", range(26, 30)),
        ("@2023-11-15T00:13:20.0235+02:00", range(26, 30)),
        ("@0", range(10, 20)),
        ("@2023-11-14", range(10, 20)),
    ],
)
def test_at(kdump: Any, log: Path, at: str, found: Any) -> None:
    ran = kdump.inside("dump", "--format", "json", "--at", at, "topic-7")
    assert ran.status == 0
    assert offsets(ran) == list(found)


def test_nothing_yet(kdump: Any, log: Path) -> None:
    for at in ("latest", "41"):
        ran = kdump.inside("dump", "--at", at, "topic-7")
        assert (ran.status, ran.text) == (0, "")
        assert ran.problems == "kdump: topic-7: nothing has offset 41 yet; the log has offsets 10 to 40\n"
    for path in log.iterdir():
        path.unlink()
    (log / f"{5:020}.log").touch()
    ran = kdump.inside("dump", "--at", "earliest", "topic-7")
    assert (ran.status, ran.text) == (0, "")
    assert ran.problems == "kdump: topic-7: the log is empty; its first offset will be 5\n"


@pytest.mark.parametrize("at", ["9", "0", "42", "9223372036854775807"])
@pytest.mark.parametrize("form", ["json", "text", "kafka", "terminal"])
def test_out_of_range(kdump: Any, log: Path, at: str, form: str) -> None:
    ran = kdump.inside("dump", "--format", form, "--at", at, "topic-7")
    assert ran.status == 3
    assert ran.problems == (
        f"kdump: topic-7: offset {at} is out of range: the log has the offsets 10 to 40, and the next one will be 41\n"
    )
    if form == "json":
        assert content(ran) == []
    else:
        assert ran.text == ""


def test_no_record_so_late(kdump: Any, log: Path) -> None:
    for at, text in ((f"@{MS + 41}", "2023-11-14T22:13:20.041Z (timestamp 1700000000041)"), ("@9" + 17 * "0", None)):
        ran = kdump.inside("dump", "--at", at, "topic-7")
        assert (ran.status, ran.text) == (3, "")
        assert ran.problems == f"kdump: topic-7: no record is as late as {text or f'timestamp {at[1:]}'}\n"


def test_how_much(kdump: Any, log: Path) -> None:
    first = len(plain(10, 4))

    def counts(*options: str) -> tuple[int, int]:
        lines = content(kdump.inside("dump", "--format", "json", "--at", "11", *options, "topic-7"))
        return len(of_type(lines, "batch")), len(of_type(lines, "record"))

    assert counts() == (2, 9)
    assert counts("--max-bytes", "1") == (1, 3)
    assert counts("--max-bytes", str(first)) == (1, 3)
    assert counts("--max-bytes", str(first + 20)) == (1, 3)
    assert counts("--max-bytes", "64k") == (2, 9)
    assert counts("-n", "1") == (1, 1)
    assert counts("-n", "5") == (2, 5)
    assert counts("-n", "0") == (0, 0)
    assert counts("--batches") == (2, 0)
    assert counts("--batches", "-n", "1") == (1, 0)
    assert counts("--records") == (0, 9)


def test_a_batch_that_is_too_large(kdump: Any, log: Path) -> None:
    ran = kdump.inside("dump", "--at", "30", "--max-bytes", "10", "--max-batch-bytes", "100", "topic-7")
    size = len(plain(30, 11))
    assert (ran.status, ran.text) == (3, "")
    assert ran.problems == (
        f"kdump: topic-7/{30:020}.log: at byte 0: a batch of {size} bytes, and the largest that is allowed has 100\n"
    )


def test_how_it_was_found(kdump: Any, log: Path) -> None:
    first = len(plain(20))
    (log / f"{20:020}.index").write_bytes(OFFSET_ENTRY.pack(9, first))
    lines = content(kdump.inside("dump", "--format", "json", "--at", "27", "-v", "topic-7"))
    assert [line["type"] for line in lines] == ["read", "batch", "record", "record", "record"]
    assert list(lines[0]) == READ_FIELDS
    assert list(lines[0].values()) == [
        "read",
        f"topic-7/{20:020}.log",
        27,
        None,
        10,
        41,
        20,
        first,
        len(plain(26, 4, codec="zstd")),
        30,
        None,  # the entry is for offset 29, which is above
        first,
    ]
    lines = content(kdump.inside("dump", "--format", "json", "--at", "29", "-v", "topic-7"))
    assert (lines[0]["index_entry"], lines[0]["walked_bytes"]) == ({"offset": 29, "position": first}, 0)
    lines = content(kdump.inside("dump", "--format", "json", "--at", f"@{MS + 21}", "-v", "topic-7"))
    assert (lines[0]["offset"], lines[0]["timestamp"]) == (21, MS + 21)
    text = kdump.inside("dump", "--at", "29", "-v", "topic-7")
    size = len(plain(26, 4, codec="zstd"))
    walk = f"index_entry=(offset=29,position={first}) walked_bytes=0"
    assert text.lines[:2] == [
        f"file topic-7/{20:020}.log",
        (
            "read offset=29 timestamp=null log_start_offset=10 log_end_offset=41 base_offset=20"
            f" position={first} size={size} next_offset=30 {walk}"
        ),
    ]
    kafka = kdump.inside("dump", "--format", "kafka", "--at", "29", "-v", "topic-7")
    assert kafka.problems == f"kdump: {text.lines[1]}\n"


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (
            "29",
            (
                "offset 29: position {first}, by the index entry of offset 29 at position {first}, 0 bytes walked;"
                " {size} bytes read, the next read is at offset 30;"
            ),
        ),
        (
            "27",
            (
                "offset 27: position {first}, without an index entry, {first} bytes walked; {size} bytes read,"
                " the next read is at offset 30;"
            ),
        ),
        ("@2023-11-14T22:13:20.029Z", "offset 29 (2023-11-14T22:13:20.029Z): position {first}, without an index"),
        (
            "latest",
            (
                "offset 41: nothing at position {end} yet; 0 bytes read, the next read is at offset 41;"
                " the log has the offsets 10 to 40"
            ),
        ),
    ],
)
def test_how_it_was_found_on_a_terminal(kdump: Any, log: Path, at: str, sentence: str) -> None:
    first, size, end = len(plain(20)), len(plain(26, 4, codec="zstd")), len(plain(30, 11))
    (log / f"{20:020}.index").write_bytes(OFFSET_ENTRY.pack(9, first))
    shown = " ".join(kdump.inside("dump", "--format", "terminal", "--at", at, "-v", "topic-7").text.split())
    assert sentence.format(first=first, size=size, end=end) in shown


def test_an_index_that_lies(kdump: Any, log: Path) -> None:
    """It costs a walk, and the answer is the same."""
    sound = [
        kdump.inside("dump", "--format", "json", "--at", str(offset), "topic-7").lines[:-1] for offset in range(10, 41)
    ]
    for slots in ([(3, 7)], [(9, 0)], [(0, 1 << 20)], [(-5, 3)], [(1, 40), (0, 20)], [(9, len(plain(20)))]):
        for base in (10, 20, 30):
            (log / f"{base:020}.index").write_bytes(b"".join(OFFSET_ENTRY.pack(*slot) for slot in slots))
        for offset, lines in enumerate(sound, 10):
            assert kdump.inside("dump", "--format", "json", "--at", str(offset), "topic-7").lines[:-1] == lines


# ---- what PATH is


def test_a_segment_is_a_log_of_its_own(kdump: Any, log: Path) -> None:
    path = f"topic-7/{20:020}.log"
    ran = kdump.inside("dump", "--format", "json", "--at", "earliest", "-v", path)
    assert offsets(ran) == [20, 21, 22, 26, 27, 28, 29]
    read = content(ran)[0]
    assert (read["path"], read["log_start_offset"], read["log_end_offset"]) == (path, 20, 30)
    for at in ("19", "31"):
        ran = kdump.inside("dump", "--at", at, path)
        assert ran.status == 3
        assert "the log has the offsets 20 to 29" in ran.problems
    shutil.copy(log / f"{20:020}.log", log / "saved.bak")
    assert offsets(kdump.inside("dump", "--format", "json", "--at", "21", "topic-7/saved.bak"))[0] == 21


def test_a_directory_above(kdump: Any, log: Path) -> None:
    assert offsets(kdump.inside("dump", "--format", "json", "--at", "19", ".")) == [19]
    other = log.with_name("topic-8")
    shutil.copytree(log, other)
    ran = kdump.inside("dump", "--at", "19", ".")
    assert ran.status == 2
    assert "--at reads one log, and . has several: ./topic-7, ./topic-8 ..." in ran.problems
    assert offsets(kdump.inside("dump", "--format", "json", "--at", "19", "*-8")) == [19]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nothing", "nothing: no such file or directory"),
        ("empty-0", "empty-0: no log here"),
        ("0.index", "0.index: an offset index, not a log"),
        ("leader-epoch-checkpoint", "leader-epoch-checkpoint: a leader epoch checkpoint, not a log"),
        (f"{5:020}-{1:010}.checkpoint", f"{5:020}-{1:010}.checkpoint: no log here"),
        ("/dev/null", "/dev/null: not a regular file but a character device"),
    ],
)
def test_no_log(kdump: Any, tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "empty-0").mkdir()
    for name in ("0.index", "leader-epoch-checkpoint", f"{5:020}-{1:010}.checkpoint"):
        (tmp_path / name).write_bytes(b"0\n0\n")
    for form in ("text", "fetch"):
        ran = kdump.inside("dump", "--at", "0", "--format", form, path)
        assert (ran.status, ran.out, ran.problems) == (3, b"", f"kdump: {problem}\n")


def test_names_are_escaped(kdump: Any, log: Path) -> None:
    log.rename(log.with_name("\x1b[31m-0"))
    ran = kdump.inside("dump", "--at", "99", "\x1b[31m-0")
    assert ran.status == 3
    assert ran.problems.startswith("kdump: \\x1b[31m-0: offset 99")
    shutil.copytree(log.with_name("\x1b[31m-0"), log)
    assert "\x1b" not in kdump.inside("dump", "--at", "0", ".").problems
    assert "\x1b" not in kdump.inside("dump", "--at", "12", "-v", "\x1b[31m-0").text


# ---- options that do not go together


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--at", "x"], "'x' is not an offset; write a number, earliest, latest, or @ and a time"),
        (["--at", "-1"], "'-1' is not an offset"),
        (["--at", ""], "'' is not an offset"),
        (["--at", "1:2"], "'1:2' is not an offset"),
        (["--at", "9223372036854775808"], "is not an offset"),
        (["--at", "@"], "'@' is not a time"),
        (
            ["--at", "@noon"],
            "'@noon' is not a time; write @ and milliseconds since the epoch, or as in @2026-11-21T18:03:09Z",
        ),
        (["--at", "@-5"], "'@-5' is not a time"),
        (["--at", "@" + "9" * 30], "is not a time"),
        (["--at", "10", "--offset", "3:"], "--offset and --at cannot be combined"),
        (["--at", "10", "--force"], "--force and --at cannot be combined"),
        (["--at", "10", "--type", "log"], "--type and --at cannot be combined"),
        (["--at", "10", "--format", "kafka", "--verify-index-only"], "--verify-index-only and --at cannot be combined"),
        (["--at", "10", "other"], "--at reads one log"),
        (["--at", "10", "-"], "--at reads one log"),
        (["--at", "10", "--format", "fetch", "-n", "1"], "--batches, --records and -n do not apply"),
        (["--at", "10", "--format", "fetch", "-n", "0"], "--batches, --records and -n do not apply"),
        (["--at", "10", "--format", "fetch", "--batches"], "--batches, --records and -n do not apply"),
        (["--format", "fetch"], "--format fetch writes what --at reads"),
        (["-v"], "--verbose says how --at found its offset"),
        (["--verbose", "--format", "json"], "--verbose says how --at found its offset"),
    ],
)
def test_usage(kdump: Any, log: Path, options: list[str], problem: str) -> None:
    ran = kdump.inside("dump", *options, "topic-7")
    assert (ran.status, ran.out) == (2, b"")
    assert problem in ran.problems


def test_times() -> None:
    def read(text: str) -> Any:
        return OffsetParam().convert(text, None, None)

    assert read("latest") is LogEdge.LATEST
    assert read("07") == 7
    assert read("@7") == TimeQuery(7)
    assert read("@1970-01-01") == TimeQuery(0)
    assert read("@1970-01-01T00:00:00.001") == read("@1970-01-01T00:00:00.0005Z") == TimeQuery(1)
    assert read("@1970-01-01T01:00:00+01:00") == TimeQuery(0)
    assert read("@1969-12-31T23:59:59.9995Z") == TimeQuery(0)
    assert read("@1969-12-31T23:59:59Z") == TimeQuery(-1000)


# ---- damage


@pytest.fixture
def damaged(log: Path) -> Path:
    """A byte flipped in the last batch of the first segment and the first one of the second; garbage in the third."""
    for base, at in ((10, -1), (20, 65)):
        path = log / f"{base:020}.log"
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
    (log / f"{30:020}.log").write_bytes(plain(30) + b"\xff" * 30 + plain(33, 8))
    return log


def kinds(ran: Any) -> list[Any]:
    names = {"batch": "base_offset", "record": "offset", "gap": "length", "read": "offset"}
    return [(line["type"], line[names[line["type"]]], line.get("crc_ok")) for line in content(ran)]


def test_damage_that_is_passed_over(kdump: Any, damaged: Path) -> None:
    ran = kdump.inside("dump", "--format", "json", "-v", "--records", "--at", "15", "topic-7")
    assert ran.status == 1
    assert kinds(ran) == [
        ("batch", 14, False),
        ("read", 15, None),
        ("batch", 20, False),
        *(("record", offset, None) for offset in range(26, 30)),
    ]
    paths = [line["path"] for line in content(ran)]
    assert paths == sorted(paths)
    assert kdump.inside("dump", "--at", "15", "--fail-on", "never", "topic-7").status == 0


def test_damage_after(kdump: Any, damaged: Path) -> None:
    """A read ends before it, which is shown as far as the read could have gone."""
    ran = kdump.inside("dump", "--format", "json", "--batches", "--at", "30", "topic-7")
    assert ran.status == 1
    assert kinds(ran) == [("batch", 30, True), ("gap", 30, None)]
    ran = kdump.inside("dump", "--format", "json", "--batches", "--at", "12", "topic-7")
    assert ran.status == 1
    assert kinds(ran) == [("batch", 10, True), ("batch", 14, False)]
    ran = kdump.inside("dump", "--format", "json", "--batches", "--at", "30", "--max-bytes", "100", "topic-7")
    assert (ran.status, kinds(ran)) == (0, [("batch", 30, True)])
    ran = kdump.inside("dump", "--format", "json", "--at", "30", "-n", "2", "topic-7")
    assert kinds(ran) == [("batch", 30, True), ("record", 30, None), ("record", 31, None)]


def test_damage_before(kdump: Any, damaged: Path) -> None:
    """What lies before what holds the offset is no one's concern."""
    ran = kdump.inside("dump", "--format", "json", "--batches", "--at", "36", "topic-7")
    assert (ran.status, kinds(ran)) == (0, [("batch", 33, True)])


def test_records_that_cannot_be_read(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    items = [build.record(b"k0", b"v"), build.record(b"k1", b"v", key_length=99)]
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(build.batch(items) + plain(2))
    ran = kdump.inside("dump", "--at", "0", "t-0")
    assert ran.status == 1
    assert "DAMAGED=record/structure" in ran.text


# ---- the log before 0.8


@pytest.fixture
def old(tmp_path: Path) -> Path:
    directory = tmp_path / "topic_0"
    directory.mkdir()
    first = build.kafka07([b"a%d" % number for number in range(9)], codec="none")
    (directory / f"{0:020}.kafka").write_bytes(first)
    (directory / f"{len(first):020}.kafka").write_bytes(build.kafka07([b"b0", b"b1"], codec="none"))
    return directory


def test_the_log_before_0_8(kdump: Any, old: Path) -> None:
    each = len(build.kafka07([b"a0"], codec="none"))
    ran = kdump.inside("dump", "--format", "json", "-v", "--at", str(8 * each), "topic_0")
    read, batch, record = content(ran)
    assert (read["base_offset"], read["position"], read["next_offset"]) == (0, 8 * each, 9 * each)
    assert (batch["position"], record["offset"], record["value"]) == (8 * each, 8 * each, "a8")
    assert [
        line["value"]
        for line in content(kdump.inside("dump", "--format", "json", "--records", "--at", str(9 * each), "topic_0"))
    ] == ["b0", "b1"]
    ran = kdump.inside("dump", "--at", str(99 * each), "topic_0")
    assert (ran.status, f"offset {99 * each} is out of range" in ran.problems) == (3, True)
    assert kdump.inside("dump", "--at", "@5", "topic_0").status == 3  # nothing there has a time
    ran = kdump.inside("dump", "--at", "0", "--format", "kafka", "topic_0")
    assert (ran.status, ran.out) == (2, b"")
    assert "cannot read the log of Kafka 0.7" in ran.problems


def test_a_fetch_of_the_log_before_0_8(kdump: Any, old: Path, tmp_path: Path) -> None:
    each = len(build.kafka07([b"a0"], codec="none"))
    ran = kdump.inside("dump", "--format", "fetch", "--at", str(3 * each), "topic_0")
    assert ran.status == 0
    assert ran.out == fetch.build_message_set_send((old / f"{0:020}.kafka").read_bytes()[3 * each :])
    (tmp_path / f"{3 * each}.fetch").write_bytes(ran.out)
    shown = content(kdump.inside("dump", "--type", "fetch", "--format", "json", "--records", f"{3 * each}.fetch"))
    assert [(line["offset"], line["value"]) for line in shown[1:]] == [
        (number * each, f"a{number}") for number in range(3, 9)
    ]


# ---- fetch results


def test_a_fetch(kdump: Any, log: Path) -> None:
    data = (log / f"{10:020}.log").read_bytes()
    first = len(plain(10, 4))
    for at, options, messages in (
        ("10", (), data),
        ("13", ("--max-bytes", "1"), data[:first]),
        ("14", (), data[first:]),
        ("latest", (), b""),
    ):
        ran = kdump.inside("dump", "--format", "fetch", "--at", at, *options, "topic-7")
        assert (ran.status, ran.err) == (0, b"")
        assert parse_message_set_send(ran.out) == (0, messages)


def test_a_fetch_that_fails(kdump: Any, log: Path) -> None:
    for options, code in (
        (["--at", "9"], 1),
        (["--at", "42"], 1),
        (["--at", f"@{MS + 99}"], 1),
        (["--at", "30", "--max-bytes", "10", "--max-batch-bytes", "100"], 4),
    ):
        ran = kdump.inside("dump", "--format", "fetch", *options, "topic-7")
        assert (ran.status, parse_message_set_send(ran.out)) == (3, (code, b""))
        assert ran.problems == kdump.inside("dump", *options, "topic-7").problems != ""


def test_a_fetch_of_damage(kdump: Any, damaged: Path) -> None:
    ran = kdump.inside("dump", "--format", "fetch", "--at", "21", "-v", "topic-7")
    size = len(plain(20))
    assert (ran.status, parse_message_set_send(ran.out)) == (1, (0, plain(26, 4, codec="zstd")))
    passed, how = ran.problems.splitlines()
    assert passed == f"kdump: topic-7/{20:020}.log: bytes 0 to {size} are skipped: batch/crc"
    assert how.startswith("kdump: read offset=21 timestamp=null ")
    assert kdump.inside("dump", "--format", "fetch", "--at", "21", "--fail-on", "never", "topic-7").status == 0


def test_bytes_go_to_no_terminal(kdump: Any, log: Path) -> None:
    ran = kdump.terminal("dump", "--format", "fetch", "--at", "10", "topic-7")
    assert ran.status == 2
    assert b"--format fetch writes binary data, which goes to a file or a pipe and not to a terminal" in ran.out
    assert b"key-0" not in ran.out


def test_from_one_kdump_to_another(kdump: Any, log: Path) -> None:
    sent = kdump.inside("dump", "--format", "fetch", "--at", "20", "topic-7")
    assert sent.status == 0
    ran = kdump.inside("dump", "--type", "fetch", "--format", "json", "-", stdin=sent.out)
    assert offsets(ran) == [20, 21, 22, 26, 27, 28, 29]


def test_a_reader_that_goes_away(kdump: Any, log: Path) -> None:
    (log / f"{30:020}.log").write_bytes(b"".join(plain(30 + number * 3) for number in range(4000)))
    with kdump.started("dump", "--format", "fetch", "--at", "30", "topic-7") as process:
        assert process.stdout is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""
