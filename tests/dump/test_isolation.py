"""What a dump with an isolation level shows, against a plain model over the reference decoder."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kdump
from kdump.dump.dump import DumpOptions, RecordLimit, dump_logs, dump_messages
from kdump.dump.events import BatchEvent, Event, FileBegin, IsolationNote, RecordCount
from kdump.dump.filters import RecordPredicates
from kdump.dump.isolation import CommittedRead, known_logs
from kdump.dump.log_end import FromEnd
from kdump.dump.message_range import MessageRange
from kdump.dump.record_count import counted
from kdump.storage import discovery, records
from kdump.storage.partition import LogFile
from support import build, oracle, record_filters
from support.laws import examples
from support.plain_isolation import (
    FIXTURES,
    PARTITIONS,
    damaged_partition,
    decided,
    partition_without_a_segment,
    some_transactions,
)

COMMITTED = DumpOptions(isolation="read-committed")


class Shown(NamedTuple):
    """A record that is shown: its segment, the position of its batch, and what it is."""

    segment: str
    position: int
    offset: int
    key: bytes | None
    value: bytes | None


class Read(NamedTuple):
    """What a consumer gets of a log, and how many records it does not get."""

    shown: list[Shown]
    aborted: int | None
    unstable: int | None
    last_stable_offset: int | None


def count(batches: list[oracle.Batch]) -> int | None:
    """How many records batches have by their headers, which of a wrapper message does not say it."""
    if any(batch.magic < 2 and batch.codec for batch in batches):
        return None
    return sum(max(0, min(batch.count or 0, batch.last_offset - batch.offset + 1)) for batch in batches)


class PlainLog:
    """The batches of a directory with their records, and what became of them."""

    def __init__(self, directory: Path) -> None:
        self.decided = decided(directory)
        self.batches: list[tuple[str, oracle.Batch, list[oracle.Record]]] = []
        self.unreadable: set[tuple[str, int]] = set()
        self.damaged = False
        for log in sorted(directory.glob("*.log")):
            data = log.read_bytes()
            for item in oracle.walk(data, base_offset=int(log.stem)):
                if not isinstance(item, oracle.Batch):
                    self.damaged = True
                    continue
                try:
                    self.batches.append((log.name, item, oracle.records(data, item.position)))
                except oracle.Malformed:
                    self.batches.append((log.name, item, []))
                    self.damaged = True
                    self.unreadable.add((log.name, item.position))

    def read(self, level: str, segment: str | None = None, wanted: RecordPredicates | None = None) -> Read:
        shown, aborted, unstable = list[Shown](), list[oracle.Batch](), list[oracle.Batch]()
        stable = self.decided.stable if level == "read-committed" else None
        for name, batch, found in self.batches:
            if (level != "all" and batch.control) or segment not in (None, name):
                continue
            if stable is not None and batch.offset >= stable:
                unstable.append(batch)
            elif level == "read-committed" and (batch.base_offset, batch.position) in self.decided.left_out:
                aborted.append(batch)
            elif wanted is None or record_filters.batch_matches(wanted, batch):
                shown += [
                    Shown(name, batch.position, each.offset, each.key, each.value)
                    for each in found
                    if wanted is None or record_filters.record_matches(wanted, each)
                ]
        return Read(shown, count(aborted), count(unstable), stable)


def events(path: Path, options: DumpOptions) -> list[Event]:
    return list(dump_logs(discovery.log_files([str(path)]), options))


def shown(found: list[Event], unreadable: set[tuple[str, int]]) -> list[Shown]:
    return list(_shown(found, unreadable))


def _shown(found: list[Event], unreadable: set[tuple[str, int]]) -> Iterator[Shown]:
    name = ""
    for event in found:
        if isinstance(event, FileBegin):
            name = Path(event.file.path).name
        if isinstance(event, BatchEvent) and event.records and (name, event.batch.position) not in unreadable:
            for each in records.records(event.batch, event.records):
                yield Shown(name, event.batch.position, each.offset, each.key, each.value)


def note_of(found: list[Event]) -> IsolationNote:
    (note,) = [event for event in found if isinstance(event, IsolationNote)]
    return note


def check_marks(directory: Path, log: PlainLog) -> None:
    """What is marked as aborted is so; where nothing is damaged, all of it is."""
    options = DumpOptions(marks_aborted=True)
    found = [event for event in events(directory, options) if isinstance(event, BatchEvent)]
    marked = [(event.batch.base_offset, event.batch.position) for event in found if event.aborted]
    assert set(marked) <= log.decided.aborted_batches
    if not log.damaged:
        assert set(marked) == log.decided.aborted_batches
    alone = [event for path in sorted(directory.glob("*.log")) for event in events(path, options)]
    assert marked == [
        (event.batch.base_offset, event.batch.position)
        for event in alone
        if isinstance(event, BatchEvent) and event.aborted
    ]


def check(directory: Path, rng: random.Random) -> Read:
    """Compares all levels, also with a filter, from an offset, of the last records, and of one segment."""
    log = PlainLog(directory)
    for level in ("all", "read-uncommitted"):
        found = events(directory, DumpOptions(isolation=level))
        assert shown(found, log.unreadable) == log.read(level).shown
        assert not any(isinstance(event, IsolationNote) for event in found)
    check_marks(directory, log)
    wanted = log.read("read-committed")
    found = events(directory, COMMITTED)
    assert shown(found, log.unreadable) == wanted.shown
    note = note_of(found)
    assert (note.aborted_records, note.unstable_records, note.exact) == (wanted.aborted, wanted.unstable, True)
    if wanted.last_stable_offset is None:
        assert note.outcome is None
        assert note.last_stable_offset == note.log_end_offset
    else:
        assert note.outcome in ("open", "undecided")
        assert note.last_stable_offset == wanted.last_stable_offset

    batches = [(batch, of) for _, batch, of in log.batches]
    some = record_filters.drawn(rng, batches)
    if some.control is None:
        filtered = log.read("read-committed", wanted=some).shown
        found = events(directory, COMMITTED._replace(predicates=some))
        assert shown(found, log.unreadable) == filtered
        if not log.damaged:
            *_, number = counted(events(directory, COMMITTED._replace(predicates=some, counts=True)))
            assert number == RecordCount(len(filtered))
    segment = rng.choice(sorted(directory.glob("*.log")))
    found = events(segment, COMMITTED)
    assert shown(found, log.unreadable) == log.read("read-committed", segment.name).shown
    assert note_of(found)[:10] == note[:10]
    if not log.damaged and all(
        batch.offset <= each.offset <= batch.last_offset for batch, of in batches for each in of
    ):
        last, first = rng.randrange(1, 9), rng.choice(wanted.shown or [Shown("", 0, 0, None, None)]).offset
        ends = events(directory, COMMITTED._replace(from_end=FromEnd(last=last)))
        assert shown(ends, set()) == wanted.shown[-last:]
        later = shown(events(directory, COMMITTED._replace(offsets=(first, None), limit=last)), set())
        assert later == [each for each in wanted.shown if each.offset >= first][:last]
    return wanted


@pytest.mark.daily(4)
@pytest.mark.parametrize("directory", PARTITIONS, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_partitions_of_brokers(directory: Path) -> None:
    wanted = check(directory, random.Random(directory.name))
    first, stop = (0, wanted.last_stable_offset)
    table = kdump.arrow(directory, columns=["offset"], offset=(first, stop), on_damage=lambda _: None).read_all()
    assert table.column("offset").to_pylist() == [each.offset for each in wanted.shown]


def test_there_are_such_partitions() -> None:
    found = [PlainLog(directory).read("read-committed") for directory in PARTITIONS]
    assert sum(bool(each.aborted) for each in found) > 5
    assert sum(bool(each.unstable) for each in found) > 3
    assert sum(each.last_stable_offset is None and bool(each.shown) for each in found) > 3


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(25)))
def test_damaged_partitions(number: int, tmp_path: Path) -> None:
    rng = random.Random(number)
    directory = tmp_path / "t-0"
    damaged_partition(directory, rng)
    check(directory, rng)


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(25)))
def test_missing_segments(number: int, tmp_path: Path) -> None:
    """The segment that is missing may have held the marker."""
    directory = tmp_path / "t-0"
    partition_without_a_segment(directory, random.Random(number))
    check_marks(directory, PlainLog(directory))


@settings(max_examples=examples(50))
@given(st.data(), st.randoms(use_true_random=False))
def test_any_transactions(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rng: random.Random) -> None:
    directory = tmp_path_factory.mktemp("x") / "t-0"
    some_transactions(directory, data)
    check(directory, rng)


def batch(offset: int, *values: bytes, **fields: object) -> bytes:
    return build.batch([build.record(None, value) for value in values], base_offset=offset, **fields)  # type: ignore[arg-type]


def committed(*files: LogFile) -> list[Event]:
    return list(dump_logs(files, COMMITTED))


def offsets(found: list[Event]) -> list[int]:
    return [each.offset for each in shown(found, set())]


def test_what_is_written_while_the_log_is_read(tmp_path: Path) -> None:
    """A transaction that begins after the markers were read ends the log, too."""
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(batch(0, b"a"))
    (file,) = discovery.log_files([str(path)])
    assert isinstance(file, LogFile)
    (log,) = known_logs([file])
    read = CommittedRead(log, 1 << 20)
    later = batch(1, b"b", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    path.write_bytes(path.read_bytes() + later + batch(2, b"c"))
    options = COMMITTED._replace(committed_read=read)
    with file.open() as source:
        messages = MessageRange(0, file.kind, 0, source)
        found = list(dump_messages(messages, file, options, RecordLimit(None)))
    assert offsets([FileBegin(file, None, None), *found]) == [0]
    (note,) = read.notes(complete=True, filtered=False)
    assert (note.last_stable_offset, note.log_end_offset, note.unstable_records) == (1, 1, 2)


def test_offsets_that_go_back_leave_a_transaction_undecided(tmp_path: Path) -> None:
    """The second segment repeats offsets of the first: what came between is not known."""
    producer = {"producer_id": 1, "producer_epoch": 0}
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = batch(5, b"a", transactional=True, base_sequence=0, **producer)
    (directory / f"{0:020}.log").write_bytes(batch(0, b"a", b"b", b"c", b"d", b"e") + data)
    (directory / f"{4:020}.log").write_bytes(batch(4, b"x") + build.marker("COMMIT", base_offset=6, **producer))
    found = events(directory, COMMITTED)
    assert note_of(found)[4:7] == (5, 7, "undecided")
    assert offsets(found) == [0, 1, 2, 3, 4, 4]


def test_a_file_that_is_no_segment_is_a_log_of_its_own(tmp_path: Path) -> None:
    producer = {"producer_id": 1, "producer_epoch": 0}
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = batch(0, b"a", transactional=True, base_sequence=0, **producer)
    (directory / f"{0:020}.log").write_bytes(data + build.marker("COMMIT", base_offset=1, **producer))
    (directory / f"{0:020}.log.deleted").write_bytes(data)
    found = committed(*discovery.log_files([str(each) for each in sorted(directory.iterdir())]))  # type: ignore[arg-type]
    notes = [event for event in found if isinstance(event, IsolationNote)]
    assert [(Path(note.path).name, note.outcome, note.whole_log) for note in notes] == [
        ("t-0", None, True),
        (f"{0:020}.log.deleted", "open", False),
    ]
    assert offsets(found) == [0]


def test_a_part_of_an_aborted_batch_that_was_compacted(tmp_path: Path) -> None:
    """How many of its records have the offsets is not known."""
    producer = {"producer_id": 1, "producer_epoch": 0}
    directory = tmp_path / "t-0"
    directory.mkdir()
    data = build.batch(
        [build.record(b"k", b"v")], base_offset=0, last_offset_delta=4, transactional=True, base_sequence=0, **producer
    )
    (directory / f"{0:020}.log").write_bytes(data + build.marker("ABORT", base_offset=5, **producer))
    for first, expected in ((0, (1, True)), (2, (1, False))):
        note = note_of(events(directory, COMMITTED._replace(offsets=(first, None))))
        assert (note.aborted_records, note.exact) == expected
        assert ("at most 1 record of aborted" in note.message) is not note.exact


def test_a_committed_read_of_messages_alone_is_refused(tmp_path: Path) -> None:
    """Without the log that they are of, nothing says which are committed."""
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch(0, b"a"))
    (file,) = discovery.log_files([str(path)])
    assert isinstance(file, LogFile)
    with file.open() as source:
        events = dump_messages(MessageRange(0, file.kind, 0, source), file, COMMITTED, RecordLimit(None))
        with pytest.raises(ValueError, match="a marker can come later"):
            next(events)
