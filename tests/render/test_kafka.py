"""The format `kafka` against what Kafka's dump tool printed (the fixtures), and the walk of Kafka's readers."""

from __future__ import annotations

import io
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.file_records import FileLogInputStream, batch_from_header, next_batch_size
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import DumpFailure
from kdump.dump.kafka_tool.dump_log_segments import tool_events
from kdump.format.batch import Batch
from kdump.format.java import java_text
from kdump.format.record import Record
from kdump.kernel.crc import crc32c
from kdump.kernel.results import NO_VALUE
from kdump.render import RenderOptions, renderer
from kdump.render.kafka import (
    control_text,
    entry_line,
    head_lines,
)
from kdump.storage import discovery
from kdump.storage.partition import LogFile
from support.plain_lines import opened

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
VARIANTS = {
    "shallow": RenderOptions(),
    "deep": RenderOptions(deep_iteration=True),
    "data": RenderOptions(print_data_log=True),
    "bare": RenderOptions(print_data_log=True, skip_record_metadata=True),
}


def dumped(files: list[Path], options: RenderOptions, max_bytes: int | None = None) -> bytes:
    """What `kdump dump --format kafka` prints."""
    stream = io.BytesIO()
    records = options.deep_iteration or options.print_data_log
    wanted = DumpOptions(records=records, force=True, max_bytes=max_bytes)
    named = [file for file in discovery.log_files(map(str, files)) if isinstance(file, LogFile)]
    events = tool_events(dump_logs(named, wanted), records=records, max_bytes=max_bytes)
    with renderer("kafka", stream, options) as to:
        assert not [message for message in to.show(events) if isinstance(message, DumpFailure)]
    return stream.getvalue()


# --- the fixtures -----------------------------------------------------------------------------------------------------


def expected(case: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[Path, str, bytes, bool]]:
    """File, variant, what the tool printed, and whether it came to its end."""
    failed = case / "expected" / "status.json"
    status = json.loads(failed.read_text()) if failed.exists() else {}
    for printed in sorted((case / "expected").rglob("*.txt")):
        name, variant, _ = printed.name.rsplit(".", 2)
        if name.endswith(suffixes) and variant != "err" and not printed.name.endswith(".err.txt"):
            relative = printed.relative_to(case / "expected")
            yield case / relative.parent / name, variant, printed.read_bytes(), relative.as_posix() not in status


CASES = sorted(path.parent for path in FIXTURES.glob("*/case.toml"))


@pytest.mark.daily(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_logs_as_the_tool_prints_them(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for file, variant, printed, ended in expected(case, (".log", ".checkpoint")):
        if variant not in VARIANTS:
            continue
        monkeypatch.chdir(file.parent)
        found = dumped([Path(file.name)], VARIANTS[variant])
        # where the tool dies, the output here goes on
        assert (found if ended else found[: len(printed)]) == printed, f"{file} {variant}"
        compared += 1
    assert compared


@pytest.mark.daily(4)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_companions_as_the_tool_prints_them(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file, _, printed, ended in expected(case, (".index", ".timeindex", ".txnindex", ".snapshot")):
        monkeypatch.chdir(file.parent)
        found = dumped([Path(file.name)], RenderOptions())
        assert found == printed or (not ended and found.startswith(printed)), file


# --- the walk ---------------------------------------------------------------------------------------------------------


def header(size: int) -> bytes:
    return bytes(8) + struct.pack(">i", size) + bytes(5)


@pytest.mark.parametrize(
    ("size", "position", "end", "found"),
    [
        (14, 0, 26, 26),
        (49, 100, 161, 61),
        (49, 100, 160, None),
        (0x7FFFFFFF, 0, 1000, None),
        (14, 0, 17, None),
        (-1, 983, 1000, None),
        (14, 0, 18, None),
    ],
)
def test_frames(size: int, position: int, end: int, found: int | None) -> None:
    assert next_batch_size(header(size), position, end) == found


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a_size_below_the_smallest_message_raises(size: int) -> None:
    with pytest.raises(ValueError, match=f"Found record size {size} smaller than minimum record overhead"):
        next_batch_size(header(size), 0, 18)


def sound(base_offset: int, value: bytes = b"") -> bytes:
    """A sound batch of magic 2 with one record whose value is at most 50 bytes long."""
    body = b"\0\0\0\1" + bytes([len(value) * 2]) + value + b"\0"
    rest = struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1) + bytes([len(body) * 2]) + body
    start = struct.pack(">qiibI", base_offset, len(rest) + 9, 0, 2, crc32c(rest))
    return start + rest


SOUND = len(sound(0))


def lengthened(batch: bytes, size: int) -> bytes:
    return batch[:8] + struct.pack(">i", size) + batch[12:]


def positions(
    data: bytes, tmp_path: Path, options: RenderOptions | None = None, max_bytes: int | None = None
) -> tuple[list[tuple[int, int, bool]], bytes]:
    """Position, size and `isvalid` of each batch that the format shows, and its last line."""
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(data)
    lines = dumped([file], RenderOptions() if options is None else options, max_bytes).splitlines()
    assert lines[:2] == [b"Dumping " + os.fsencode(file), b"Log starting offset: 0"]
    found = []
    for line in lines[2:]:
        words = line.split(b" ")
        if b"position:" in words:
            at, size = (int(words[words.index(name) + 1]) for name in (b"position:", b"size:"))
            found.append((at, size, words[-1] == b"true"))
    return found, lines[-1]


def test_the_walk_ends_where_a_size_reaches_past_the_end(tmp_path: Path) -> None:
    data = sound(0) + lengthened(sound(1), 0x7FFFFFFF) + sound(2)
    found, last = positions(data, tmp_path)
    assert found == [(0, SOUND, True)]
    assert last == b"Found %d invalid bytes at the end of 00000000000000000000.log" % (2 * SOUND)


def test_the_walk_goes_on_where_the_tool_raises(tmp_path: Path) -> None:
    found, last = positions(sound(0) + lengthened(sound(1), -5) + sound(2), tmp_path)
    assert found == [(0, SOUND, True), (2 * SOUND, SOUND, True)]
    assert last.endswith(b"isvalid: true")


def test_the_walk_believes_every_length_from_14_on(tmp_path: Path) -> None:
    # 23 leads into the middle of the batch, where the producer id stands for a size of -1 and the tool raises
    found, _ = positions(sound(0) + lengthened(sound(1), 23) + sound(2), tmp_path)
    assert found == [(0, SOUND, True), (SOUND, 35, False), (2 * SOUND, SOUND, True)]
    # 20 leads to a large size, where it ends
    found, last = positions(sound(0) + lengthened(sound(1), 20) + sound(2), tmp_path)
    assert found == [(0, SOUND, True), (SOUND, 32, False)]
    assert last.startswith(b"Found %d invalid bytes" % (2 * SOUND - 32))


def test_a_length_may_lead_to_a_batch_inside_a_value(tmp_path: Path) -> None:
    inner = sound(7)[:50]
    outer = sound(0, inner)
    at = outer.index(inner)
    # what follows the cut inner batch is read as the rest of it
    data = lengthened(outer, at - 12) + sound(1)
    found, _ = positions(data, tmp_path, RenderOptions(deep_iteration=True))
    assert found[0] == (0, at, False)
    assert found[1] == (at, SOUND, False)


def test_a_wrong_checksum_does_not_stop_the_walk(tmp_path: Path) -> None:
    broken = bytearray(sound(1, b"value"))
    broken[-2] ^= 1
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(sound(0) + bytes(broken) + sound(2))
    lines = dumped([file], RenderOptions(print_data_log=True)).splitlines()
    assert [line.rpartition(b" ")[2] for line in lines if b"isvalid" in line] == [b"true", b"false", b"true"]
    # the tool prints records of a batch whose checksum is wrong, as long as they parse
    assert lines[5].endswith(b"payload: valud")


@pytest.mark.parametrize("tail", [b"x", b"\0" * 17, b"abcdefghijklmnopq"])
def test_short_tails_are_counted(tail: bytes, tmp_path: Path) -> None:
    found, last = positions(sound(0) + tail, tmp_path)
    assert found == [(0, SOUND, True)]
    assert last == b"Found %d invalid bytes at the end of 00000000000000000000.log" % len(tail)


@pytest.mark.parametrize("max_bytes", [SOUND, SOUND + 1, 2 * SOUND - 1])
def test_max_bytes_leaves_out_a_cut_batch_and_the_last_line(max_bytes: int, tmp_path: Path) -> None:
    found, last = positions(sound(0) + sound(1) + b"tail", tmp_path, max_bytes=max_bytes)
    assert found == [(0, SOUND, True)]
    assert last.endswith(b"isvalid: true")


def test_a_whole_log_has_no_last_line(tmp_path: Path) -> None:
    assert positions(sound(0) + sound(1), tmp_path)[1].endswith(b"isvalid: true")


@given(data=st.binary(max_size=400), cut=st.integers(0, 400))
def test_the_walk_is_that_of_the_bytes_alone(data: bytes, cut: int) -> None:
    """Asked for pieces or for all at once, up to the first place where the tool raises."""

    def read(position: int, size: int) -> bytes:
        return data[position : position + size]

    whole, pieces = FileLogInputStream(read, len(data)), FileLogInputStream(read, len(data))
    frames = [(frame.position, frame.size) for frame in whole.batches_before(len(data))]
    split = [(frame.position, frame.size) for frame in pieces.batches_before(min(cut, len(data)))]
    if pieces.raised_at is None:
        split += [(frame.position, frame.size) for frame in pieces.batches_before(len(data))]
        assert split == frames
    for position, size in frames:
        assert position + size <= len(data)


def test_a_header_of_any_magic() -> None:
    data = sound(5, b"v")
    batch = batch_from_header(data[:61], 100, len(data))
    assert (batch.position, batch.size, batch.magic, batch.base_offset, batch.last_offset) == (100, len(data), 2, 5, 5)
    assert (batch.count, batch.crc, batch.max_timestamp, batch.producer_id) == (1, crc32c(data[21:]), 1000, -1)
    message = struct.pack(">qiIbbq", 9, 22, 77, 1, 8, 1234).ljust(61, b"\0")
    legacy = batch_from_header(message, 0, 34)
    assert (legacy.magic, legacy.last_offset, legacy.base_offset, legacy.count, legacy.crc) == (1, 9, 9, 1, 77)
    assert (legacy.max_timestamp, legacy.timestamp_type, legacy.partition_leader_epoch) == (
        1234,
        "LogAppendTime",
        NO_VALUE,
    )
    wrapper = batch_from_header(message[:17] + b"\1" + message[18:], 0, 34)
    assert (wrapper.base_offset, wrapper.count, wrapper.codec_name) == (NO_VALUE, NO_VALUE, "gzip")


# --- lines ------------------------------------------------------------------------------------------------------------

JAVA = [  # what `new String(bytes, UTF_8)` made of them on Java 17
    ("eda080", "\ufffd"),
    ("edbfbf41", "\ufffdA"),
    ("eda0", "\ufffd"),
    ("ed", "\ufffd"),
    ("eda041", "\ufffdA"),
    ("edb0", "\ufffd"),
    ("eda0ff", "\ufffd\ufffd"),
    ("ed9fbf", "\ud7ff"),
    ("f0908080", "\U00010000"),
    ("f4908080", "\ufffd\ufffd\ufffd\ufffd"),
    ("f48fbfbf", "\U0010ffff"),
    ("c080", "\ufffd\ufffd"),
    ("e08080", "\ufffd\ufffd\ufffd"),
    ("e0a080", "\u0800"),
    ("e0a0", "\ufffd"),
    ("f8888080", "\ufffd\ufffd\ufffd\ufffd"),
    ("61ff62fe", "a\ufffdb\ufffd"),
    ("e282", "\ufffd"),
    ("e28241", "\ufffdA"),
    ("f09f98", "\ufffd"),
    ("f09f9841", "\ufffdA"),
    ("f0808080", "\ufffd\ufffd\ufffd\ufffd"),
    ("f5808080", "\ufffd\ufffd\ufffd\ufffd"),
    ("80", "\ufffd"),
    ("bf80", "\ufffd\ufffd"),
    ("c2", "\ufffd"),
    ("ededa080", "\ufffd\ufffd"),
    ("eda080edb080", "\ufffd\ufffd"),
    ("efbfbf", "\uffff"),
]


@pytest.mark.parametrize(("data", "text"), JAVA)
def test_malformed_utf8_as_java_reads_it(data: str, text: str) -> None:
    assert java_text(bytes.fromhex(data)) == text


@given(st.text())
def test_utf8_as_java_reads_it(text: str) -> None:
    assert java_text(text.encode()) == text


def lines_of(batch: Batch, record: Record, *, metadata: bool, contents: bool) -> str:
    stream = io.BytesIO()
    look = RenderOptions(deep_iteration=True, print_data_log=contents, skip_record_metadata=not metadata)
    with renderer("kafka", stream, look) as to:
        to.records("p", None, None, batch, opened([record]))
    return stream.getvalue().decode()


@pytest.mark.parametrize(
    ("key", "value", "full", "bare"),
    [
        (b"k", b"v", " key: k payload: v", "| key: k payload: v"),
        (None, b"v", " payload: v", "| payload: v"),
        (b"k", None, " key: k", "| key: k"),
        (None, None, "", ""),
        (b"", b"", " key:  payload: ", "| key:  payload: "),
    ],
)
def test_contents(
    key: bytes | None,
    value: bytes | None,
    full: str,
    bare: str,
    batch_of: Callable[..., Batch],
    record_of: Callable[..., Record],
) -> None:
    batch, record = batch_of(), record_of(0, key, value)
    assert lines_of(batch, record, metadata=True, contents=True).endswith(f"headerKeys: []{full}\n")
    assert lines_of(batch, record, metadata=False, contents=True) == f"{bare}\n"
    assert lines_of(batch, record, metadata=False, contents=False) == "\n"
    control = batch._replace(attributes=0x20)
    assert lines_of(control, record, metadata=False, contents=True) == "\n"


VOTERS = (
    b"\0\0\x02\0\0\0\3"
    + bytes(range(16))
    + b"\x02"
    + b"\x05CTRL"
    + b'\x0bh"o\x1bst\\\xc3\xa9'
    + b"\x7f\x23\x85\0\0\0\0\1\0\0\0"
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (0, b"\0\0\xff\xff\xff\xff", " endTxnMarker: ABORT coordinatorEpoch: -1"),
        (1, b"\0\3\0\0\0\5more", " endTxnMarker: COMMIT coordinatorEpoch: 5"),
        (1, b"", " controlType: COMMIT(1)"),
        (1, b"\0\0", " controlType: COMMIT(1)"),
        (
            2,
            b"\0\1\0\0\0\7\2\0\0\0\5\0\1\0",
            (
                ' LeaderChange: {"version":1,"leaderId":7,"voters":[{"voterId":5,'
                '"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA"}],"grantingVoters":[]}'
            ),
        ),
        (3, b"\0\0\0\0\0\0\0\0\3\xe8\0", ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":1000}'),
        (4, b"\0\0\0", ' SnapshotFooter {"version":0}'),
        (5, b"\0\0\0\1\0", ' KRaftVersion {"version":0,"kRaftVersion":1}'),
        (
            6,
            VOTERS,
            (
                ' KRaftVoters {"version":0,"voters":[{"voterId":3,'
                '"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw","endpoints":'
                '[{"name":"CTRL","host":"h\\"o\\u001Bst\\\\é\x7f","port":9093}],"kRaftVersionFeature":'
                '{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
            ),
        ),
        (7, b"", " controlType: UNKNOWN(7)"),
        (-3, None, " controlType: UNKNOWN(-3)"),
    ],
)
def test_control_records(kind: int, value: bytes | None, text: str) -> None:
    assert control_text(struct.pack(">hh", 0, kind), value) == text


def test_a_control_record_without_a_readable_key() -> None:
    assert control_text(b"\0", b"") == " controlType: UNKNOWN"


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/l//t-0///00000000000000000042.log", "Dumping /l/t-0/00000000000000000042.log\nLog starting offset: 42\n"),
        ("x/5.a.log", "Dumping x/5.a.log\nLog starting offset: 5\n"),
        ("\u0665.log", "Dumping \u0665.log\nLog starting offset: 5\n"),
        ("segment.log", "Dumping segment.log\n"),
        ("99999999999999999999.log", "Dumping 99999999999999999999.log\n"),
        ("bootstrap.checkpoint", "Dumping bootstrap.checkpoint\nKRaft bootstrap snapshot\n"),
        (
            "00000000000000000113-0000000004.checkpoint",
            "Dumping 00000000000000000113-0000000004.checkpoint\nSnapshot end offset: 113, epoch: 4\n",
        ),
        ("0.index", "Dumping 0.index\n"),
    ],
)
def test_heads(path: str, lines: str) -> None:
    assert head_lines(path) == lines


def test_a_producer_whose_sequence_wrapped() -> None:
    fields = {
        "producer_id": 7,
        "producer_epoch": 0,
        "last_sequence": 2,
        "last_offset": 24,
        "offset_delta": 4,
        "timestamp": 1000,
        "coordinator_epoch": -1,
        "current_txn_first_offset": 20,
    }
    assert entry_line("producer", fields) == (
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[20]"
        " lastTimestamp: 1000 firstSequence: 2147483646 lastSequence: 2 lastOffset: 24 offsetDelta: 4 timestamp: 1000\n"
    )
    empty = entry_line("producer", fields | {"last_offset": -1, "current_txn_first_offset": -1})
    assert empty.endswith("currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1000\n")


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last"),
    [(-1, 5, -1), (0, 4, 4), (2147483646, 2, 0), (2147483647, 1, 0), (-7, 2, -5), (-7, 2147483647, 2147483640)],
)
def test_last_sequences(base_sequence: int, delta: int, last: int, batch_of: Callable[..., Batch]) -> None:
    stream = io.BytesIO()
    with renderer("kafka", stream) as to:
        to.batch("p", batch_of(base_sequence=base_sequence, base_offset=0, last_offset=delta))
    assert f" lastSequence: {last} ".encode() in stream.getvalue()


def test_the_padding_of_an_index_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    padded, empty = Path("00000000000000000010.index"), Path("00000000000000000020.index")
    padded.write_bytes(b"".join(struct.pack(">ii", relative, 5) for relative in (0, 2, 0, 3)))
    empty.write_bytes(b"")
    assert dumped([padded, empty], RenderOptions()).decode().splitlines() == [
        f"Dumping {padded}",
        "offset: 10 position: 5",
        "offset: 12 position: 5",
        f"Dumping {empty}",
        f"{empty} is empty.",
    ]


def test_on_a_terminal_nothing_is_obeyed(batch_of: Callable[..., Batch], record_of: Callable[..., Record]) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    to = renderer("kafka", stream, RenderOptions(print_data_log=True))
    to.begin("/l/\x1b[2J/0.log")
    to.batch("p", batch_of())
    to.records(
        "p", None, None, batch_of(), opened([record_of(0, b"\x1b]0;x\x07", b"a\nb", headers=((b"\x9b", None),))])
    )
    text = stream.getvalue().decode()
    assert all(line.isprintable() for line in text.split("\n"))
    assert "Dumping /l/\\x1b[2J/0.log\nLog starting offset: 0\n" in text
    assert "headerKeys: [\ufffd] key: \\x1b]0;x\\x07 payload: a\\nb\n" in text
