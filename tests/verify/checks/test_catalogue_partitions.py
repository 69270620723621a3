"""Every code about a partition, its files and a log directory: a directory that fires it, and nearly the same one that
does not.

Each begins as what a broker leaves after a clean stop, and has one thing changed. So what it fires is one finding, or
`also` says which other one is right too.
"""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kdump.render import RenderOptions as Look
from kdump.render import renderer
from kdump.storage.discovery import discover
from kdump.verify.catalogue import CATALOGUE, companions, partitions
from kdump.verify.findings import KEPT, Finding, Severity
from kdump.verify.verify import Report, VerifyOptions, verify_logs
from support import build, finding_rules, metadata_logs
from support.directories import (
    NOW_MS,
    OTHER_TOPIC_ID,
    START_MS,
    TOPIC_ID,
    Files,
    Writer,
    changed,
    clean,
    history,
    log_directory,
    metadata,
    partition,
    stem,
    without,
    write,
)

DIRECTORY_ID = "7oPCvB8nTaSYkK1gVUSi8g"
"""Of meta.properties."""
A, B, C, END = (stem(offset) for offset in (0, 10, 20, 30))
DAY_MS = 86_400_000


PARTITION = partition(history().logs)
CLEAN = clean()


def of(writer: Writer, **checkpoints: bytes) -> Files:
    """A log directory with this partition in it."""
    return log_directory({"t-0": partition(writer.logs)}, **checkpoints)


def on(name: str, content: bytes | str | None) -> Files:
    return changed(CLEAN, {name: content})


def bytes_of(name: str) -> bytes:
    content = CLEAN[name]
    assert isinstance(content, bytes)
    return content


def edited(name: str, at: int, form: str, *values: int) -> Files:
    """Numbers of a file of the partition changed."""
    data = bytearray(bytes_of(f"t-0/{name}"))
    struct.pack_into(form, data, at, *values)
    return on(f"t-0/{name}", bytes(data))


def more(name: str, data: bytes) -> Files:
    return on(f"t-0/{name}", bytes_of(f"t-0/{name}") + data)


def epochs(*lines: str) -> Files:
    return on("t-0/leader-epoch-checkpoint", build.checkpoint(*lines))


def offsets(name: str, *lines: str) -> Files:
    return on(f"{name}-checkpoint", build.checkpoint(*lines))


def swapped(name: str, size: int) -> Files:
    """The first two entries of an index the other way round."""
    data = bytes_of(f"t-0/{name}")
    return on(f"t-0/{name}", data[size : 2 * size] + data[:size] + data[2 * size :])


def producers(first: int, *numbers: int, sequences: tuple[int, ...] = (), **how: Any) -> Writer:
    """Batches of producer 1 with these sequences."""
    writer = Writer()
    for sequence in (*sequences, first, *numbers):
        writer.data(1, sequence, **how)
    return writer


def markers(*steps: Callable[[Writer], object]) -> Writer:
    """A transaction of producer 2, and what the steps do in it and after it."""
    writer = Writer().data(2, 0, transactional=True)
    for step in steps:
        step(writer)
    return writer


def without_marker(writer: Writer) -> None:
    """What the log cleaner leaves of a control batch of producer 2."""
    at = writer.offset
    writer.add(build.empty_batch(at, at, control=True, producer_id=2, max_timestamp=writer.now_ms, epoch=writer.epoch))


def after_a_hole(writer: Writer) -> None:
    """The same in a segment of its own, after offsets that were gone when a broker fetched it."""
    without_marker(writer.skip().roll(new_epoch=False))


def stamped(*timestamps: int, roll: bool = False) -> Writer:
    writer = Writer()
    for number, timestamp in enumerate(timestamps):
        if roll and number:
            writer.roll(new_epoch=False)
        writer.data(timestamp=timestamp)
    return writer


def overlapping() -> Files:
    """The first segment goes on after where the second begins."""
    first = Writer()
    for _ in range(12):
        first.data()
    second = Writer(10)
    for _ in range(10):
        second.data()
    return log_directory({"t-0": partition(first.logs | second.logs)})


def gap(*, roll: bool = False, offset: int = 5, key: bytes | None = b"key") -> Writer:
    writer = Writer()
    for _ in range(offset):
        writer.data(key=key)
    writer.skip()
    if roll:
        writer.roll(new_epoch=False)
    return writer.data(key=key).data(key=key)


def late_end(offset: int = 5, **checkpoints: str) -> Files:
    """Batches of offsets 0 to 3 and of this one; each checkpoint has this offset."""
    writer = Writer().data().data().data().data().skip(offset - 4).data()
    return of(writer, **{name: build.checkpoint(f"t 0 {value}") for name, value in checkpoints.items()})


def emptied() -> Writer:
    """What a cleaner leaves: a segment without a batch between two others."""
    writer = Writer().data().skip(1).data().roll(new_epoch=False).skip(2).roll(new_epoch=False)
    return writer.data()


def old_and_new() -> Files:
    first = Writer().add(build.message_v1(b"key", b"value", offset=0, timestamp=START_MS))
    return of(first.roll(new_epoch=False).data())


def topics(*topic_ids: str) -> Files:
    return log_directory(
        {
            f"t-{number}": changed(PARTITION, {"partition.metadata": metadata(one)})
            for number, one in enumerate(topic_ids)
        },
        recovery_point_offset_checkpoint=build.checkpoint(*(f"t {number} 20" for number in range(len(topic_ids)))),
    )


def kraft(topic: str = "t", topic_id: str = TOPIC_ID, broker: int = 1, directory: str = DIRECTORY_ID) -> Files:
    """A log directory with a snapshot of the metadata log, which has one partition."""
    items = [
        metadata_logs.change("TopicRecord", name=topic, topicId=topic_id),
        metadata_logs.change(
            "PartitionRecord", partitionId=0, topicId=topic_id, replicas=(broker,), isr=(broker,), leader=broker,
            leaderEpoch=0, partitionEpoch=0, directories=(directory,),
        ),
    ]  # fmt: skip
    name = metadata_logs.snapshot_name(4)
    return changed(CLEAN, {f"__cluster_metadata-0/{name}": metadata_logs.snapshot(items)})


def stray(*names: str) -> Files:
    """A log directory in which the partition has these directories."""
    return log_directory(dict.fromkeys(names, PARTITION))


def begun_late(start: int, cleaner: int) -> Files:
    return log_directory(
        {"t-0": PARTITION},
        log_start_offset_checkpoint=build.checkpoint(f"t 0 {start}"),
        cleaner_offset_checkpoint=build.checkpoint(f"t 0 {cleaner}"),
        recovery_point_offset_checkpoint=build.checkpoint("t 0 20"),
    )


@dataclass(frozen=True)
class Case:
    """`fires` shows the code once, at a file, and `broker` is what the next start does about it; `quiet` shows nothing.
    `also` is what both show beside it; `besides` what only `fires` does."""

    fires: Files
    broker: str
    at: str
    quiet: Files = field(default_factory=lambda: CLEAN)
    severity: Severity | None = None
    also: tuple[str, ...] = ()
    besides: tuple[str, ...] = ()


SNAPSHOT = bytes_of(f"t-0/{B}.snapshot")
RESEALED = build.producer_snapshot(
    build.producer(1, last_sequence=9, last_offset=9, timestamp=START_MS + 9000), SNAPSHOT[56:]
)
GAPPY_INDEX = of(gap())
ABORTED = (2, 5, 7, 8)

_EPOCHS = ("epoch/backwards",)
"""The control records of a snapshot have no epoch."""

CASES: dict[str, Case] = {
    # indexes
    "index/missing": Case(without(CLEAN, f"t-0/{C}.index"), "rebuilds", f"{C}.log"),
    "index/torn": Case(more(f"{C}.index", b"\0\0\1"), "rebuilds", f"{C}.index"),
    "index/padding": Case(more(f"{A}.index", bytes(16)), "ignores", f"{A}.index"),
    "index/order": Case(swapped(f"{C}.index", 8), "rebuilds", f"{C}.index"),
    "index/position": Case(edited(f"{C}.index", 4, ">i", 4712), "rebuilds", f"{C}.index"),
    "index/offset": Case(edited(f"{C}.index", 0, ">i", 2), "rebuilds", f"{C}.index"),
    "index/stale": Case(more(f"{C}.index", build.offset_index((50, 99_999))), "rebuilds", f"{C}.index"),
    "index/differs": Case(on(f"t-0/{C}.index", bytes_of(f"t-0/{C}.index")[8:]), "rebuilds", f"{C}.index"),
    "timeindex/missing": Case(without(CLEAN, f"t-0/{C}.timeindex"), "rebuilds", f"{C}.log"),
    "timeindex/torn": Case(more(f"{C}.timeindex", b"\0\1"), "rebuilds", f"{C}.timeindex"),
    "timeindex/padding": Case(more(f"{A}.timeindex", bytes(24)), "ignores", f"{A}.timeindex"),
    "timeindex/order": Case(swapped(f"{C}.timeindex", 12), "rebuilds", f"{C}.timeindex"),
    "timeindex/timestamp": Case(edited(f"{C}.timeindex", 0, ">q", START_MS), "rebuilds", f"{C}.timeindex"),
    "timeindex/offset": Case(
        changed(GAPPY_INDEX, {f"t-0/{A}.timeindex": build.time_index((START_MS + 6000, 5), (START_MS + 7000, 7))}),
        "rebuilds",
        f"{A}.timeindex",
        GAPPY_INDEX,
        also=("offset/gap",),
    ),
    "timeindex/stale": Case(
        more(f"{C}.timeindex", build.time_index((START_MS + 99_000, 50))), "rebuilds", f"{C}.timeindex"
    ),
    "timeindex/last": Case(on(f"t-0/{A}.timeindex", bytes_of(f"t-0/{A}.timeindex")[:-12]), "ignores", f"{A}.timeindex"),
    "txnindex/version": Case(edited(f"{C}.txnindex", 0, ">h", 256), "refuses", f"{C}.txnindex"),
    "txnindex/torn": Case(more(f"{C}.txnindex", b"\0\0\0"), "rebuilds", f"{C}.txnindex"),
    "txnindex/order": Case(more(f"{A}.txnindex", build.transaction_index(ABORTED)), "ignores", f"{A}.txnindex"),
    "txnindex/range": Case(
        on(f"t-0/{C}.txnindex", build.transaction_index(ABORTED) + bytes_of(f"t-0/{C}.txnindex")),
        "rebuilds",
        f"{C}.txnindex",
    ),
    "txnindex/missing": Case(without(CLEAN, f"t-0/{C}.txnindex"), "rebuilds", f"{C}.log"),
    "txnindex/surplus": Case(
        on(f"t-0/{B}.txnindex", build.transaction_index((2, 15, 17, 18))), "ignores", f"{B}.txnindex"
    ),
    "txnindex/entry": Case(edited(f"{C}.txnindex", 10, ">q", 26), "rebuilds", f"{C}.txnindex"),
    # producer snapshots and leader epochs
    "snapshot/format": Case(edited(f"{END}.snapshot", 0, ">h", 2), "rebuilds", f"{END}.snapshot"),
    "snapshot/crc": Case(edited(f"{END}.snapshot", 2, ">I", 1), "rebuilds", f"{END}.snapshot"),
    "snapshot/state": Case(on(f"t-0/{B}.snapshot", RESEALED), "ignores", f"{B}.snapshot"),
    "snapshot/name": Case(on(f"t-0/{stem(15)}.snapshot", SNAPSHOT), "deletes", f"{stem(15)}.snapshot"),
    "snapshot/missing": Case(without(CLEAN, f"t-0/{C}.snapshot"), "rebuilds", f"{C}.log"),
    "epoch/format": Case(epochs("0 0", "1 x", "2 20"), "refuses", "leader-epoch-checkpoint"),
    "epoch/order": Case(epochs("0 0", "2 20", "1 10"), "ignores", "leader-epoch-checkpoint"),
    "epoch/checkpoint": Case(epochs("0 0", "1 12", "2 20"), "ignores", "leader-epoch-checkpoint"),
    "epoch/missing": Case(epochs("0 0", "2 20"), "ignores", "leader-epoch-checkpoint"),
    "epoch/beyond": Case(epochs("0 0", "1 10", "2 20", "5 40"), "deletes", "leader-epoch-checkpoint"),
    "epoch/stale": Case(epochs("0 0", "1 10", "2 20", "5 25"), "ignores", "leader-epoch-checkpoint"),
    # producers and transactions
    "producer/sequence": Case(of(producers(0, 1, 1)), "ignores", f"{A}.log", of(producers(0, 1, 2))),
    "producer/gap": Case(of(producers(0, 2)), "ignores", f"{A}.log", of(producers(0, 1))),
    "producer/epoch": Case(
        of(producers(0, producer_epoch=1).data(1, 1)),
        "ignores",
        f"{A}.log",
        of(producers(0, producer_epoch=1).data(1, 1, producer_epoch=1)),
    ),
    "txn/state": Case(
        of(markers(lambda writer: writer.data(2, 1), lambda writer: writer.end("ABORT", 2))),
        "refuses",
        f"{A}.log",
        of(markers(lambda writer: writer.data(2, 1, transactional=True), lambda writer: writer.end("COMMIT", 2))),
        # What the batch stands in for the index as for the replay: no transaction any more.
        besides=("txn/empty",),
    ),
    "txn/marker-epoch": Case(
        of(markers(lambda writer: writer.end("COMMIT", 2, producer_epoch=2))),
        "ignores",
        f"{A}.log",
        of(markers(lambda writer: writer.end("COMMIT", 2, producer_epoch=1))),
    ),
    "txn/epochs": Case(
        of(
            markers(
                lambda writer: writer.data(2, 0, transactional=True, producer_epoch=1),
                lambda w: w.end("COMMIT", 2, producer_epoch=1),
            )
        ),
        "ignores",
        f"{A}.log",
        of(
            markers(
                lambda writer: writer.end("COMMIT", 2, producer_epoch=1),
                lambda writer: writer.data(2, 0, transactional=True, producer_epoch=1),
                lambda writer: writer.end("COMMIT", 2, producer_epoch=1),
            )
        ),
    ),
    "txn/marker-empty": Case(
        of(markers(without_marker, lambda writer: writer.end("COMMIT", 2))),
        "ignores",
        f"{A}.log",
        of(markers(lambda writer: writer.end("COMMIT", 2), without_marker)),
    ),
    "txn/coordinator-epoch": Case(
        of(
            markers(
                lambda writer: writer.end("COMMIT", 2, coordinator_epoch=5),
                lambda writer: writer.data(2, 1, transactional=True).end("COMMIT", 2, coordinator_epoch=4),
            )
        ),
        "ignores",
        f"{A}.log",
        of(
            markers(
                lambda writer: writer.end("COMMIT", 2, coordinator_epoch=4),
                lambda writer: writer.data(2, 1, transactional=True).end("COMMIT", 2, coordinator_epoch=4),
            )
        ),
    ),
    "txn/empty": Case(
        of(markers(lambda writer: writer.end("COMMIT", 2), lambda writer: writer.end("COMMIT", 2))),
        "ignores",
        f"{A}.log",
        of(markers(lambda writer: writer.end("COMMIT", 2))),
    ),
    "txn/open": Case(of(markers()), "ignores", f"{A}.log", of(markers(lambda writer: writer.end("COMMIT", 2)))),
    "txn/hanging": Case(
        of(
            markers(
                lambda writer: writer.data(timestamp=START_MS + DAY_MS // 48),
                lambda writer: writer.data(timestamp=NOW_MS),
            )
        ),
        "ignores",
        f"{A}.log",
        of(markers(lambda writer: writer.end("COMMIT", 2), lambda writer: writer.data(timestamp=NOW_MS))),
    ),
    # segments and time
    "segment/missing": Case(
        of(gap(roll=True, key=None)), "ignores", f"{stem(6)}.log", of(Writer().data().roll().data())
    ),
    "segment/overlap": Case(overlapping(), "ignores", f"{A}.log", of(Writer().data().roll().data())),
    "segment/empty": Case(
        of(emptied()), "ignores", f"{stem(3)}.log", of(gap()), also=("offset/gap",), besides=("segment/missing",)
    ),
    "segment/magic": Case(old_and_new(), "ignores", f"{A}.log", of(Writer().data().roll(new_epoch=False).data())),
    "time/future": Case(of(stamped(NOW_MS + 3_600_001)), "ignores", f"{A}.log", of(stamped(NOW_MS + 3_600_000))),
    "time/back": Case(
        of(stamped(START_MS, START_MS - 7 * DAY_MS - 1)),
        "ignores",
        f"{A}.log",
        of(stamped(START_MS, START_MS - 7 * DAY_MS)),
    ),
    "time/retention": Case(
        of(stamped(NOW_MS + 3_600_001, NOW_MS, roll=True)),
        "ignores",
        f"{A}.log",
        of(stamped(NOW_MS, NOW_MS + 3_600_000, roll=True)),
        # One says what the segment has, this one what it keeps from going.
        besides=("time/future",),
    ),
    "offset/base": Case(
        late_end(replication_offset_checkpoint="5"),
        "ignores",
        f"{A}.log",
        late_end(replication_offset_checkpoint="6"),
        also=("offset/gap",),
    ),
    # checkpoints, and files that belong nowhere
    "checkpoint/format": Case(
        on("replication-offset-checkpoint", b"0\n1\nt 0\n"), "refuses", "replication-offset-checkpoint"
    ),
    "checkpoint/unknown": Case(
        offsets("replication-offset", "gone 0 5"),
        "deletes",
        "replication-offset-checkpoint",
        offsets("replication-offset", "t 0 5"),
    ),
    "checkpoint/beyond": Case(
        offsets("recovery-point-offset", "t 0 31"),
        "rebuilds",
        "recovery-point-offset-checkpoint",
        offsets("recovery-point-offset", "t 0 30"),
    ),
    "checkpoint/log-start": Case(
        offsets("log-start-offset", "t 0 31"),
        "deletes",
        "log-start-offset-checkpoint",
        offsets("log-start-offset", "t 0 30"),
    ),
    "checkpoint/below": Case(begun_late(10, 5), "rebuilds", "cleaner-offset-checkpoint", begun_late(10, 10)),
    "checkpoint/duplicate": Case(
        offsets("replication-offset", "t 0 10", "t 0 20"),
        "rebuilds",
        "replication-offset-checkpoint",
        offsets("replication-offset", "t 0 20"),
    ),
    "checkpoint/topic-id": Case(
        topics("wCO-p8jMSDOmjbmG5aH4gA", OTHER_TOPIC_ID), "ignores", "partition.metadata", topics(*[OTHER_TOPIC_ID] * 2)
    ),
    "metadata/format": Case(on("t-0/partition.metadata", b"version: 1\n"), "refuses", "partition.metadata"),
    "metadata/missing": Case(
        without(CLEAN, "t-0/partition.metadata"),
        "renames",
        "t-0",
        without(changed(CLEAN, {"meta.properties": b"version=0\nbroker.id=1\n"}), "t-0/partition.metadata"),
    ),
    "metadata/topic-id": Case(kraft(topic_id=OTHER_TOPIC_ID), "renames", "partition.metadata", kraft(), also=_EPOCHS),
    "metadata/topic": Case(kraft("other"), "renames", "partition.metadata", kraft(), also=_EPOCHS),
    "metadata/replica": Case(kraft(broker=2), "renames", "partition.metadata", kraft(), also=_EPOCHS),
    "metadata/directory": Case(kraft(directory=TOPIC_ID), "ignores", "partition.metadata", kraft(), also=_EPOCHS),
    "metadata/stray": Case(stray("t-0", f"t-0.{'0' * 32}-stray"), "ignores", f"t-0.{'0' * 32}-stray", stray("t-0")),
    "properties/format": Case(on("meta.properties", b"version=1\n"), "refuses", "meta.properties"),
    "file/leftover": Case(on(f"t-0/{stem(5)}.log.deleted", b""), "deletes", f"{stem(5)}.log.deleted"),
    "file/orphan": Case(on(f"t-0/{stem(5)}.index", b""), "deletes", f"{stem(5)}.index"),
    "file/unknown": Case(on("t-0/notes.txt", b"hello"), "ignores", "notes.txt"),
    "file/name": Case(on("t-0/letters.log", b""), "refuses", "letters.log"),
    "file/directory": Case(on("t-0/inside", None), "ignores", "inside"),
    "file/loop": Case(on("t-0/again", ".."), "ignores", "again"),
    "undo/unfinished": Case(
        on("t-0/.kdump-undo/1/undoing.jsonl", b""),
        "ignores",
        ".kdump-undo",
        on("t-0/.kdump-undo/1/applied.jsonl", b""),
    ),
}
ENTRIES = (*companions.ENTRIES, *partitions.ENTRIES)


class Shown:
    """What verify says of a directory, over all its reports."""

    def __init__(self, directory: Path, deep: bool = False) -> None:
        self.reports: list[Report] = list(verify_logs(discover([str(directory)]), VerifyOptions(deep, now_ms=NOW_MS)))
        self.findings: list[Finding] = [finding for report in self.reports for finding in report.findings]
        self.errors = [error for report in self.reports for error in report.errors]
        self.counts = sum((report.counts for report in self.reports), Counter[tuple[str, Severity]]())

    @property
    def codes(self) -> list[str]:
        return sorted(finding.code for finding in self.findings)


def test_every_code_has_a_case_and_every_case_a_code() -> None:
    assert CASES.keys() == {entry.code for entry in ENTRIES}


def test_what_a_broker_leaves_is_clean(tmp_path: Path) -> None:
    shown = Shown(write(tmp_path / "d", CLEAN), deep=True)
    assert shown.codes == []
    assert shown.errors == []
    assert [(report.path, report.log_start_offset, report.log_end_offset) for report in shown.reports] == [
        (str(tmp_path / "d/t-0"), 0, 30),
        (str(tmp_path / "d"), None, None),
    ]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (late_end(recovery_point_offset_checkpoint="5"), "recovery point"),
        (late_end(4 + (1 << 20), recovery_point_offset_checkpoint="5"), "recovery point"),
        (changed(late_end(), {f"t-0/{stem(5)}.snapshot": build.producer_snapshot()}), "producer snapshot"),
        (late_end(7, recovery_point_offset_checkpoint="5"), ""),  # two bits
        (late_end(recovery_point_offset_checkpoint="4"), ""),  # before the batch
        (of(gap(offset=4), recovery_point_offset_checkpoint=build.checkpoint("t 0 5")), ""),  # a batch comes after it
        (
            of(
                Writer().data().skip(7).data().data().skip().data(),
                recovery_point_offset_checkpoint=build.checkpoint("t 0 11"),
            ),
            "",
        ),  # another gap
    ],
)
def test_the_end_of_a_log_is_known(tmp_path: Path, files: Files, what: str) -> None:
    found = [each for each in Shown(write(tmp_path / "d", files)).findings if each.code == "offset/base"]
    assert [each.data["what"] for each in found] == [what] * bool(what)
    for each in found:
        assert (each.data["expected"], each.data["value"]) == (4, 5)
        assert each.position > 0


def test_a_marker_without_records_after_offsets_that_are_missing(tmp_path: Path) -> None:
    """The control batch itself shows that a log cleaner goes over the log, from which the offsets are gone."""
    findings = Shown(write(tmp_path / "d", of(markers(after_a_hole)))).findings
    (found,) = (each for each in findings if each.code == "txn/marker-empty")
    assert (found.offset, found.data["first"]) == (2, 0)
    assert max(each.severity for each in findings) is Severity.WARNING


@pytest.mark.parametrize("code", CASES)
def test_code_fires(tmp_path: Path, code: str) -> None:
    case = CASES[code]
    directory = write(tmp_path / "d", case.fires)
    shown = Shown(directory)
    assert shown.codes == sorted([code, *case.also, *case.besides]), [finding.message for finding in shown.findings]
    assert shown.errors == []
    assert shown.counts == Counter((finding.code, finding.severity) for finding in shown.findings)
    (finding,) = (finding for finding in shown.findings if finding.code == code)
    assert finding.severity is (case.severity or CATALOGUE[code].severity)
    assert finding.path.endswith(f"/{case.at}")
    assert finding.broker == case.broker
    for each in shown.findings:
        finding_rules.check(each)
        assert each.broker in finding_rules.OUTCOMES
        path = Path(each.path)
        size = path.stat().st_size if path.is_file() else 0
        assert 0 <= each.position <= each.position + each.length <= size
        for form in ("text", "terminal", "json"):
            renders(each, form)


def renders(finding: Finding, form: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with renderer(form, stream, Look(color=False)) as out:
        out.finding(finding)
    stream.flush()
    text = stream.buffer.getvalue().decode()
    assert text.endswith("\n")
    if form == "json":
        line = json.loads(text)
        assert (line["code"], line["message"], line["broker"]) == (finding.code, finding.message, finding.broker)
        assert json.loads(json.dumps(line["data"])) == line["data"]
    elif form == "text":
        assert finding.code in text
        assert finding.message in text


@pytest.mark.parametrize("code", CASES)
def test_code_stays_quiet(tmp_path: Path, code: str) -> None:
    case = CASES[code]
    shown = Shown(write(tmp_path / "d", case.quiet))
    assert shown.codes == sorted(case.also), [finding.message for finding in shown.findings]
    assert shown.errors == []


@pytest.mark.daily(3)
@pytest.mark.parametrize("code", CASES)
def test_a_file_without_its_directory_has_no_broker(tmp_path: Path, code: str) -> None:
    directory = write(tmp_path / "d", CASES[code].fires)
    for log in sorted(directory.glob("t-0/*.log")):
        assert {finding.broker for finding in Shown(log).findings} <= {None}


# ---- severities that depend, and other ways to one code


def compacted_gap() -> Files:
    """A hole between two segments, of which a cleaner left the second."""
    writer = Writer().data().skip().roll(new_epoch=False)
    return of(writer.add(build.empty_batch(writer.offset, writer.offset)).data())


def lacking(sequence: int) -> Files:
    """Batches with a hole in their sequence, after one that a cleaner emptied."""
    writer = Writer().add(build.empty_batch(0, 0))
    return of(writer.data(1, 0).data(1, sequence))


def running(files: Files) -> Files:
    """Without the marker that a broker leaves when it has closed all logs."""
    return {name: content for name, content in files.items() if name != ".kafka_cleanshutdown"}


PADDED_SNAPSHOT = build.producer_snapshot(SNAPSHOT[10:56], SNAPSHOT[56:], tail=b"more")
OTHERWISE: dict[str, tuple[str, Severity, Files]] = {
    "padding in the newest index": ("index/padding", Severity.INFO, running(more(f"{C}.index", bytes(800)))),
    "padding in the newest time index": (
        "timeindex/padding",
        Severity.INFO,
        running(more(f"{C}.timeindex", bytes(1200))),
    ),
    "padding in an index that was closed": ("index/padding", Severity.WARNING, more(f"{C}.index", bytes(800))),
    "padding in a time index that was closed": (
        "timeindex/padding",
        Severity.WARNING,
        more(f"{C}.timeindex", bytes(1200)),
    ),
    "first entry below zero": ("index/order", Severity.ERROR, edited(f"{C}.index", 0, ">i", -5)),
    "first timestamp below zero": ("timeindex/order", Severity.ERROR, edited(f"{C}.timeindex", 8, ">i", -5)),
    "a wild entry in the middle": ("index/order", Severity.ERROR, edited(f"{C}.index", 0, ">i", 1 << 30)),
    "a wild timestamp in the middle": ("timeindex/order", Severity.ERROR, edited(f"{C}.timeindex", 0, ">q", 1 << 60)),
    "a timestamp that misses nothing": (
        "timeindex/timestamp",
        Severity.WARNING,
        edited(f"{C}.timeindex", 0, ">q", START_MS + 23_500),
    ),
    "a time index without entries": ("timeindex/last", Severity.WARNING, on(f"t-0/{A}.timeindex", b"")),
    "a time index of zeros": ("timeindex/padding", Severity.WARNING, on(f"t-0/{A}.timeindex", bytes(36))),
    "half an entry in a time index": (
        "timeindex/torn",
        Severity.WARNING,
        on(f"t-0/{A}.timeindex", bytes_of(f"t-0/{A}.timeindex")[:-5]),
    ),
    "the byte of the version that only a later Kafka reads": (
        "txnindex/version",
        Severity.ERROR,
        edited(f"{C}.txnindex", 0, ">h", 1),
    ),
    "another producer": ("txnindex/entry", Severity.ERROR, edited(f"{C}.txnindex", 2, ">q", 3)),
    "another last stable offset": ("txnindex/entry", Severity.WARNING, edited(f"{C}.txnindex", 26, ">q", 27)),
    "bytes under the checksum": ("snapshot/format", Severity.WARNING, on(f"t-0/{B}.snapshot", PADDED_SNAPSHOT)),
    "bytes after the checksum": ("snapshot/crc", Severity.ERROR, more(f"{B}.snapshot", b"stale")),
    "a snapshot cut short": ("snapshot/format", Severity.ERROR, on(f"t-0/{B}.snapshot", SNAPSHOT[:-1])),
    "a snapshot without a header": ("snapshot/format", Severity.ERROR, on(f"t-0/{B}.snapshot", b"")),
    "a producer more": (
        "snapshot/state",
        Severity.WARNING,
        on(f"t-0/{B}.snapshot", build.producer_snapshot(SNAPSHOT[10:56], SNAPSHOT[56:], build.producer(9))),
    ),
    "a producer less": (
        "snapshot/state",
        Severity.INFO,
        on(f"t-0/{B}.snapshot", build.producer_snapshot(SNAPSHOT[10:56])),
    ),
    "a snapshot after the end": ("snapshot/name", Severity.INFO, on(f"t-0/{stem(31)}.snapshot", SNAPSHOT)),
    "a hole that a cleaner made": ("segment/missing", Severity.INFO, compacted_gap()),
    "a sequence that a cleaner made": ("producer/gap", Severity.INFO, lacking(5)),
    "a marker with an epoch that was fenced": (
        "producer/epoch",
        Severity.WARNING,
        of(Writer().data(2, 0, producer_epoch=3, transactional=True).end("COMMIT", 2, producer_epoch=2)),
    ),
    "a marker for no reason": ("properties/format", Severity.WARNING, on(".kafka_cleanshutdown", b"{")),
    "an offset below zero": ("checkpoint/below", Severity.WARNING, offsets("replication-offset", "t 0 -1")),
    **{
        f"leftover {suffix}": ("file/leftover", Severity.WARNING, on(f"t-0/{stem(5)}.log.{suffix}", b""))
        for suffix in ("deleted", "cleaned")
    },
    "leftover swap": ("file/leftover", Severity.WARNING, on(f"t-0/{C}.index.swap", bytes_of(f"t-0/{C}.index"))),
    "leftover tmp": ("file/leftover", Severity.WARNING, on("t-0/leader-epoch-checkpoint.tmp", b"0\n0\n")),
    "leftover at the root": ("file/leftover", Severity.WARNING, on("meta.properties.tmp", b"")),
    "a short name": (
        "file/name",
        Severity.ERROR,
        on("t-0/5.log", build.batch([build.record(b"k", b"v")], base_offset=5)),
    ),
    "a negative name": ("file/name", Severity.ERROR, on("t-0/-1.log", build.batch([build.record(b"k", b"v")]))),
    "a name above 63 bits": ("file/name", Severity.ERROR, on("t-0/99999999999999999999.log", b"")),
    "no partition": ("file/name", Severity.ERROR, on("nothing", None)),
    "two of one partition": ("file/name", Severity.ERROR, on("t-00/partition.metadata", metadata())),
    "no file of a log directory": ("file/unknown", Severity.INFO, on("notes.txt", b"hello")),
    "a loop at the root": ("file/loop", Severity.INFO, on("again", ".")),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_one_thing_is_one_finding(tmp_path: Path, name: str) -> None:
    code, severity, files = OTHERWISE[name]
    shown = Shown(write(tmp_path / "d", files))
    reported = [(finding.code, finding.severity) for finding in shown.findings if finding.code != "offset/gap"]
    assert reported == [(code, severity)], [finding.message for finding in shown.findings]
    assert shown.errors == []
    for finding in shown.findings:
        finding_rules.check(finding)
        assert finding.broker in finding_rules.OUTCOMES


def test_a_partition_named_alone_is_whole(tmp_path: Path) -> None:
    """Its own files are known; what stands at the root of its log directory is not."""
    write(tmp_path / "d", changed(CLEAN, {"t-0/notes.txt": b"", "replication-offset-checkpoint": b"nonsense"}))
    shown = Shown(tmp_path / "d" / "t-0")
    assert [(finding.code, finding.broker) for finding in shown.findings] == [("file/unknown", "ignores")]


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(("by", "severity"), [(1, Severity.WARNING), (-1, Severity.ERROR)])
def test_more_entries_than_are_kept_are_counted_as_what_they_are(
    tmp_path: Path, by: int, severity: Severity, compacted: bool
) -> None:
    """Of a time index whose entries are all too high, or all too low; of a compacted segment the low ones are no one's
    fault."""
    count = KEPT + 100
    # The first batch has the offsets of two records, and in a compacted segment only one of them.
    batches = [
        build.batch([build.record(b"k", b"v")], base_offset=0, max_timestamp=10, last_offset_delta=int(compacted))
    ]
    batches += [
        build.batch([build.record(b"k", b"v")], base_offset=2 + number, max_timestamp=10_000 + 10 * number)
        for number in range(count)
    ]
    if not compacted:
        batches[0] = build.batch([build.record(b"k", b"v")] * 2, base_offset=0, max_timestamp=10)
    # Too low by more than a step, so that the batch before is above it.
    entries = [(10_000 + 10 * number + (5 if by > 0 else -15), 2 + number) for number in range(1, count)]
    directory = write(tmp_path / "t-0", {f"{A}.log": b"".join(batches), f"{A}.timeindex": build.time_index(*entries)})
    (report,) = verify_logs(discover([str(directory / f"{A}.log")]))
    counted = {key: number for key, number in report.counts.items() if key[0] == "timeindex/timestamp"}
    quiet = compacted and severity is Severity.ERROR
    assert counted == ({} if quiet else {("timeindex/timestamp", severity): count - 1})
