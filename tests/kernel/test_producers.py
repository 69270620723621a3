"""What a scan records of producers, and how the events are replayed: one rule a test."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import pytest

from kdump.format.producer_snapshot import ENTRY_SIZE, ProducerEntry
from kdump.kernel.indexes import ENTRIES_KEPT, IndexTracker, ordered
from kdump.kernel.producers import (
    ABORT,
    COMMIT,
    DATA,
    EMPTIED,
    EVENT,
    EVENT_BYTES,
    GAP,
    KEPT,
    ODD,
    RUNS_FULL,
    TRANSACTIONAL,
    Producers,
    Runs,
)
from kdump.kernel.records import STATUSES
from kdump.kernel.results import ScanState
from kdump.kernel.scan import (
    BATCH_COLUMNS,
    SCAN_DAMAGED,
    SCAN_FULL,
    SCAN_STOPPED,
    SUSPECTS,
    Scanner,
)
from support import build, oracle

DAY_MS = 86_400_000
NOW = 1_600_000_000_000
_ENTRY = struct.Struct(">qhiqiqiq")

# --------------------------------------------------------------------------------------------------------------------
# events


def event(
    kind: int,
    offset: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    sequence: int = -1,
    timestamp: int = NOW,
    **how: Any,
) -> bytes:
    """An event of one batch at position 100 * offset, of `count` records."""
    count = how.get("count", 1)
    delta = count - 1 if kind == DATA else 0
    last_sequence = -1 if kind != DATA or sequence < 0 else (sequence + delta) % 2**31
    return struct.pack(
        EVENT,
        producer_id,
        100 * offset,
        offset,
        offset + delta,
        timestamp,
        timestamp,
        99,
        sequence,
        last_sequence,
        delta,
        epoch,
        kind,
        TRANSACTIONAL if how.get("transactional", kind != DATA) else 0,
        1,
    )  # fmt: skip


def data(offset: int, sequence: int, **how: Any) -> bytes:
    return event(DATA, offset, sequence=sequence, **how)


def marker(kind: int, offset: int, coordinator_epoch: int = 0, **how: Any) -> bytes:
    return event(kind, offset, sequence=coordinator_epoch, **how)


GAP_EVENT = struct.pack(EVENT, *([0] * 11), GAP, 0, 0)


def replayed(*events: bytes, sequences: bool = True, complete: bool = True) -> Producers:
    producers = Producers(sequences, complete)
    producers.replay(b"".join(events))
    return producers


def said(*events: bytes, **how: Any) -> tuple[list[str], dict[str, int]]:
    """The problems of the rows, and the counts of the tallies."""
    rows, counts, tallies = replayed(*events, **how).take()
    problems = [row[0] for row in rows]
    assert counts == {problem: problems.count(problem) for problem in problems}
    return problems, {what: tally[0] for what, tally in tallies.items()}


def entry_of(producers: Producers, producer_id: int = 7) -> ProducerEntry:
    found = [ProducerEntry._make(fields) for fields in _ENTRY.iter_unpack(producers.entries())]
    return next(entry for entry in found if entry.producer_id == producer_id)


NOTHING: tuple[list[str], dict[str, int]] = ([], {})


def test_an_event_has_the_size_of_its_layout() -> None:
    assert struct.calcsize(EVENT) == EVENT_BYTES == 72


# -----------------------------------------------------------------------------------------------------------------
# sequences


@pytest.mark.parametrize(
    ("last", "following", "expected"),
    [
        (5, 6, NOTHING),
        (2**31 - 1, 0, NOTHING),
        (5, 7, ([], {"gap": 1})),
        (5, 5, (["producer/sequence"], {})),
        (5, 0, (["producer/sequence"], {})),
        (0, 2**30, ([], {"gap": 1})),
        (0, 2**30 + 1, (["producer/sequence"], {})),
        (-1, 3, NOTHING),  # the batch before had none, so nothing is known
        (5, -1, NOTHING),
    ],
)
def test_sequences(last: int, following: int, expected: tuple[list[str], dict[str, int]]) -> None:
    assert said(data(0, last), data(1, following)) == expected
    assert said(data(0, last), data(1, following), sequences=False) == NOTHING


def test_a_row_says_what_was_known_before() -> None:
    producers = replayed(data(0, 3, epoch=2, transactional=True, count=4), data(9, 4, epoch=2))
    rows, counts, tallies = producers.take()
    place = (900, 99, 9, 7, 2, 4, 6, 2, 0, False)
    assert rows == [("producer/sequence", *place), ("txn/state", *place)]
    assert counts == {"producer/sequence": 1, "txn/state": 1}
    assert tallies == {}
    assert producers.take() == ([], {}, {})


def test_the_first_gap_is_reported() -> None:
    producers = replayed(data(0, 0), data(1, 5), data(2, 9), data(3, 10))
    assert producers.take()[2] == {"gap": (2, 100, 99, 1, 7, 0, 5, 0)}


def test_a_new_epoch_begins_with_0() -> None:
    assert said(data(0, 9), data(1, 0, epoch=1)) == NOTHING
    assert said(data(0, 9), data(1, 10, epoch=1)) == ([], {"gap": 1})
    assert replayed(data(0, 9), data(1, 10, epoch=1)).take()[2]["gap"][-2:] == (10, -1)


def test_a_producer_that_was_idle_for_a_day_may_begin_anywhere() -> None:
    for idle, expected in ((DAY_MS, {}), (DAY_MS - 1, {"gap": 1}), (-DAY_MS, {})):
        assert said(data(0, 0), data(1, 50, timestamp=NOW + idle)) == ([], expected)
    assert said(data(0, 0, timestamp=-1), data(1, 50)) == ([], {"gap": 1})
    assert said(data(0, 0, timestamp=-(2**63)), data(1, 50, timestamp=2**63 - 1)) == ([], {"gap": 1})


def test_nothing_is_known_of_what_comes_first() -> None:
    assert said(data(0, 50)) == NOTHING
    assert said(data(0, 50), complete=False) == NOTHING


def test_an_epoch_does_not_go_back() -> None:
    assert said(data(0, 0, epoch=3), data(1, 7, epoch=2)) == (["producer/epoch"], {})
    assert said(data(0, 0, epoch=3), data(1, 7, epoch=2), data(2, 8, epoch=2)) == (["producer/epoch"], {})
    assert replayed(data(0, 0, epoch=3), marker(COMMIT, 1, epoch=2)).take()[0][0][-1] is True


def test_a_marker_of_another_epoch_clears_the_sequence() -> None:
    for epoch in (1, 5):
        producers = replayed(data(0, 9, epoch=2), marker(COMMIT, 1, 4, epoch=epoch))
        assert entry_of(producers) == ProducerEntry(7, epoch, -1, -1, 0, NOW, 4, -1)
    producers = replayed(data(0, 9, epoch=2, count=2), marker(COMMIT, 2, epoch=2))
    assert entry_of(producers) == ProducerEntry(7, 2, 10, 1, 1, NOW, 0, -1)
    assert said(data(0, 9), marker(COMMIT, 1, epoch=1), data(2, 0, epoch=1)) == ([], {"empty": 1})
    assert said(data(0, 9), marker(COMMIT, 1, epoch=1), data(2, 3, epoch=1)) == ([], {"empty": 1, "gap": 1})


def test_damage_takes_what_is_known() -> None:
    assert said(data(0, 0), GAP_EVENT, data(1, 7)) == NOTHING
    assert said(data(0, 0), GAP_EVENT, data(1, 7), data(2, 9)) == ([], {"gap": 1})
    assert said(data(0, 0, epoch=3), GAP_EVENT, data(1, 7, epoch=1)) == NOTHING
    assert said(data(0, 0), GAP_EVENT, marker(COMMIT, 1), data(2, 7)) == NOTHING
    producers = replayed(data(0, 0))
    producers.forget()
    assert not producers.complete
    producers.replay(data(1, 7))
    assert producers.take() == ([], {}, {})


# --------------------------------------------------------------------------------------------------------------
# transactions


def test_a_transaction_is_open_until_its_marker() -> None:
    begun = data(3, 0, transactional=True, count=2)
    assert replayed(begun).open() == [(7, 0, 3, NOW, True)]
    assert replayed(begun, data(5, 2, transactional=True)).open() == [(7, 0, 3, NOW, True)]
    committed = replayed(begun, marker(COMMIT, 5))
    assert (committed.open(), committed.aborted(), committed.take()) == ([], [], ([], {}, {}))
    aborted = replayed(begun, marker(ABORT, 5))
    assert (aborted.open(), aborted.aborted()) == ([], [(7, 3, 5, 6, True, True)])
    assert aborted.aborted() == []


def test_the_last_stable_offset_is_where_the_first_other_transaction_begins() -> None:
    events = [data(10 * producer, 0, producer_id=producer, transactional=True) for producer in (3, 1, 2)]
    ends = [marker(ABORT, 50 + producer, producer_id=producer) for producer in (1, 3, 2)]
    producers = replayed(*events)
    assert [entry[:3] for entry in producers.open()] == [(3, 0, 30), (1, 0, 10), (2, 0, 20)]
    producers.replay(b"".join(ends))
    assert producers.aborted() == [
        (1, 10, 51, 30, True, True),
        (3, 30, 53, 20, True, True),
        (2, 20, 52, 53, True, True),
    ]


def test_many_transactions_at_once() -> None:
    count = 500
    producers = Producers(complete=True)
    for again in range(3):
        first = 10_000 * again
        producers.replay(
            b"".join(data(first + one, again, producer_id=one, transactional=True) for one in range(count))
        )
        assert [entry[0] for entry in producers.open()] == list(range(count))
        producers.replay(b"".join(marker(ABORT, first + 5000 + one, producer_id=one) for one in range(0, count, 2)))
        producers.replay(b"".join(marker(COMMIT, first + 6000 + one, producer_id=one) for one in range(1, count, 2)))
        assert producers.open() == []
        assert [entry[0] for entry in producers.aborted()] == list(range(0, count, 2))
    assert len(producers) == count


def test_a_batch_outside_the_open_transaction_ends_it() -> None:
    producers = replayed(data(0, 0, transactional=True), data(1, 1))
    assert [row[0] for row in producers.take()[0]] == ["txn/state"]
    assert producers.open() == []


def test_a_marker_without_a_transaction_is_counted_where_that_is_sure() -> None:
    assert said(marker(COMMIT, 0)) == ([], {"empty": 1})
    assert said(marker(COMMIT, 0), complete=False) == NOTHING
    assert said(data(0, 0), marker(COMMIT, 1), complete=False) == ([], {"empty": 1})
    assert said(data(0, 0), GAP_EVENT, marker(COMMIT, 1)) == NOTHING


def test_epochs_of_markers() -> None:
    begun = data(0, 0, epoch=4, transactional=True)
    for epoch, problems in ((3, ["producer/epoch"]), (4, []), (5, []), (6, ["txn/marker-epoch"])):
        assert said(begun, marker(COMMIT, 1, epoch=epoch)) == (problems, {})
    assert said(data(0, 0), marker(COMMIT, 1, epoch=9)) == ([], {"empty": 1})


def test_a_coordinator_epoch_that_goes_back_is_counted() -> None:
    begun = [data(offset, offset, transactional=True) for offset in (0, 1, 2)]
    producers = replayed(begun[0], marker(COMMIT, 1, 5), begun[1], marker(COMMIT, 2, 4), begun[2], marker(COMMIT, 3, 4))
    assert producers.take()[2] == {"coordinator": (1, 200, 99, 2, 7, 0, 4, 5)}


def test_what_is_no_marker_leaves_the_producer_unknown() -> None:
    producers = replayed(data(0, 0, transactional=True), event(ODD, 1), data(2, 9, transactional=True))
    assert producers.take() == ([], {}, {})
    assert producers.open() == [(7, 0, 2, NOW, False)]
    assert len(replayed(event(ODD, 1))) == 0


def test_what_damage_leaves_uncertain() -> None:
    begun = data(3, 0, transactional=True)
    producers = replayed(begun, GAP_EVENT)
    assert producers.open() == [(7, 0, 3, NOW, False)]  # its end may be in the gap
    producers.replay(data(9, 5, transactional=True) + marker(ABORT, 10))
    assert producers.aborted() == [(7, 3, 10, 11, False, False)]
    producers.replay(data(11, 6, transactional=True) + marker(ABORT, 12))
    assert producers.aborted() == [(7, 11, 12, 13, True, False)]
    assert replayed(begun, GAP_EVENT, data(9, 5)).open() == []
    assert replayed(begun, complete=False).open() == [(7, 0, 3, NOW, False)]
    other = data(0, 0, producer_id=1, transactional=True)
    producers = replayed(
        other, event(ODD, 1, producer_id=1), data(2, 1, producer_id=1, transactional=True), begun, marker(ABORT, 4)
    )
    assert producers.aborted() == [(7, 3, 4, 2, True, False)]


# -----------------------------------------------------------------------------------------------------------------
# snapshots


def stored(producer_id: int, **fields: int) -> bytes:
    """An entry of a snapshot."""
    return build.producer(producer_id, timestamp=NOW, **fields)


def test_a_snapshot_is_where_to_go_on() -> None:
    entries = b"".join(
        (
            stored(1, epoch=2, last_sequence=4, last_offset=40, offset_delta=1, coordinator_epoch=3, first_offset=30),
            stored(2, epoch=0, first_offset=20),
            stored(3, last_sequence=8, offset_delta=4),  # no batch: a sequence says nothing then
        )
    )
    producers = Producers()
    producers.replay(data(0, 0, producer_id=9, transactional=True))
    producers.load(entries)
    assert producers.complete
    assert len(producers) == 3
    assert producers.open() == [(2, 0, 20, NOW, True), (1, 2, 30, NOW, True)]
    assert producers.entries()[: 2 * ENTRY_SIZE] == entries[: 2 * ENTRY_SIZE]
    assert entry_of(producers, 3) == ProducerEntry(3, 0, -1, -1, 0, NOW, -1, -1)
    producers.replay(data(50, 6, producer_id=1, epoch=2, transactional=True) + data(51, 1, producer_id=3))
    assert producers.take()[2] == {"gap": (2, 5000, 99, 50, 1, 2, 6, 4)}
    producers.replay(marker(ABORT, 52, 3, producer_id=1, epoch=2))
    assert producers.aborted() == [(1, 30, 52, 20, True, True)]


def test_of_two_entries_of_a_producer_the_later_one_counts() -> None:
    producers = Producers()
    producers.load(stored(1, epoch=1, first_offset=5) + stored(2) + stored(1, epoch=3, first_offset=9))
    assert [struct.unpack_from(">q", producers.entries(), at)[0] for at in (0, ENTRY_SIZE)] == [1, 2]
    assert producers.open() == [(1, 3, 9, NOW, True)]


def changed(entries: bytes, **fields: int) -> bytes:
    entry = ProducerEntry._make(_ENTRY.unpack(entries))
    return _ENTRY.pack(*entry._replace(**fields))


def test_a_snapshot_against_the_state() -> None:
    producers = replayed(data(5, 3, epoch=1, transactional=True, count=3))
    entries = producers.entries()
    assert producers.compare(entries) == []
    for field, value in (
        ("producer_epoch", 0),
        ("last_sequence", 9),
        ("last_offset", 9),
        ("offset_delta", 1),
        ("timestamp", 1),
    ):
        found = getattr(entry_of(producers), field)
        assert producers.compare(changed(entries, **{field: value})) == [("differs", 7, field, value, found)]
    assert producers.compare(changed(entries, coordinator_epoch=2)) == [("differs", 7, "coordinator_epoch", 2, -1)]
    assert producers.compare(changed(entries, current_txn_first_offset=-9)) == [
        ("differs", 7, "current_txn_first_offset", -1, 5)
    ]
    assert producers.compare(b"") == [("missing", 7, "timestamp", None, NOW)]
    assert producers.compare(entries + stored(8)) == [("surplus", 8, "timestamp", NOW, None)]
    assert producers.compare(entries + stored(8, epoch=-1)) == []


def test_old_brokers_put_a_marker_into_a_snapshot_otherwise() -> None:
    producers = replayed(data(5, 3, transactional=True, count=3), marker(COMMIT, 8, timestamp=NOW + 5))
    entries = producers.entries()
    assert producers.compare(changed(entries, last_offset=8, offset_delta=0)) == []  # Kafka 0.11
    assert producers.compare(changed(entries, timestamp=NOW)) == []  # Kafka 1.1
    assert producers.compare(changed(entries, timestamp=NOW + 6)) != []
    producers.replay(data(9, 6, timestamp=NOW + 5))
    assert producers.compare(changed(producers.entries(), last_offset=8)) != []
    assert producers.compare(changed(producers.entries(), timestamp=NOW)) != []


def test_what_is_not_certain_is_not_compared() -> None:
    for producers in (replayed(data(0, 0), complete=False), replayed(data(0, 0), GAP_EVENT, data(1, 1))):
        assert producers.compare(b"") == []
        assert producers.compare(stored(7, epoch=5) + stored(8)) == []
        entries = producers.entries()
        producers.load(entries)
        assert [row[0] for row in producers.compare(stored(8))] == ["surplus", "missing"]


def test_so_many_rows_are_kept() -> None:
    producers = Producers(complete=True)
    producers.replay(data(0, 9) + data(1, 9) * (KEPT + 5))
    rows, counts, _ = producers.take()
    assert (len(rows), counts) == (KEPT, {"producer/sequence": KEPT + 5})
    many = b"".join(stored(producer_id) for producer_id in range(KEPT + 5))
    assert len(producers.compare(many)) == KEPT
    producers.load(many)
    assert len(producers.compare(b"")) == KEPT


def test_bytes_that_are_no_entries_or_events() -> None:
    for call in (Producers().replay, Producers().load, Producers().compare):
        with pytest.raises(ValueError):
            call(b"\0" * (ENTRY_SIZE - 1))


def test_ids_of_any_kind_are_distinguished() -> None:
    for ids in (
        range(5000),
        range(0, 5_000_000, 1000),
        [one << 40 for one in range(3000)],
        [2**63 - 1 - one for one in range(3000)],
    ):
        producers = Producers(complete=True)
        for sequence in (0, 1):
            producers.replay(b"".join(data(sequence, sequence, producer_id=producer_id) for producer_id in ids))
        assert producers.take() == ([], {}, {})
        assert len(producers) == len(ids)
        assert [struct.unpack_from(">q", entry)[0] for entry in _cut(producers.entries())] == list(ids)


def _cut(entries: bytes) -> list[bytes]:
    return [entries[at : at + ENTRY_SIZE] for at in range(0, len(entries), ENTRY_SIZE)]


# ------------------------------------------------------------------------------------------------------------- what is
# recorded


def batch(offset: int, sequence: int = -1, count: int = 1, *, timestamp: int = NOW, **how: Any) -> bytes:
    how = {"producer_id": 7, "producer_epoch": 0} | how
    records = [build.record(b"k", timestamp=timestamp)] * count
    return build.batch(records, base_offset=offset, base_sequence=sequence, **how)


def recorded(*parts: bytes) -> list[tuple[int, ...]]:
    """The events of a scan over batches that are all valid."""
    log = b"".join(parts)
    runs = Runs()
    assert Scanner(0, runs=runs).scan(log, 0, len(log), 0, len(log), len(log)) == SCAN_STOPPED
    count = runs.count
    events = list(struct.iter_unpack(EVENT, runs.take()))
    assert (len(events), runs.count) == (count, 0)
    return events


def test_batches_in_sequence_are_one_event() -> None:
    first, second = batch(10, 4, 2, timestamp=NOW - 9), batch(15, 6, 3)
    [event] = recorded(first, second)
    assert event == (7, 0, 10, 17, NOW, NOW - 9, len(first), 4, 8, 2, 0, DATA, 0, 2)


@pytest.mark.parametrize(
    "second",
    [
        batch(1, 2),
        batch(1, 0),
        batch(1, 1, producer_epoch=1),
        batch(1, 1, transactional=True),
        batch(1, 1, timestamp=NOW + DAY_MS),
        batch(1, 1, timestamp=NOW - DAY_MS),
        batch(0, 1),
        batch(1, -1),
    ],
)
def test_what_a_rule_has_to_look_at_is_an_event_of_its_own(second: bytes) -> None:
    assert len(recorded(batch(0, 0), second)) == 2
    assert len(recorded(batch(0, 0), batch(1, 1))) == 1


def test_a_sequence_wraps_inside_a_run() -> None:
    [event] = recorded(batch(0, 2**31 - 2, 3), batch(3, 1, 2))
    assert event[7:9] == (2**31 - 2, 2)


def test_without_a_sequence_every_batch_is_an_event() -> None:
    assert [event[7:9] for event in recorded(batch(0), batch(1), batch(2, 0))] == [(-1, -1), (-1, -1), (0, 0)]


def test_markers_and_what_is_none() -> None:
    first = batch(0, 0, transactional=True)
    events = recorded(
        first,
        build.marker("ABORT", base_offset=1, coordinator_epoch=5, timestamp=NOW),
        build.marker("COMMIT", base_offset=2, producer_epoch=3, timestamp=NOW + 1),
        batch(3, 1, transactional=True),
    )
    assert [event[11] for event in events] == [DATA, ABORT, COMMIT, DATA]
    assert events[1] == (7, len(first), 1, 1, NOW, NOW, 78, 5, -1, 0, 0, ABORT, TRANSACTIONAL, 1)
    assert events[2][5:11] == (NOW + 1, 78, 0, -1, 0, 3)
    for key, value in (
        (b"\0\0\0", b""),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0" * 5),
        (b"\xff\xff\0\1", b"\0" * 6),
        (b"\0\0\0\2", b"\0" * 6),
    ):
        odd = build.batch([build.control_record(0, value, key=key)], control=True, producer_id=7, producer_epoch=0)
        assert [event[11] for event in recorded(odd)] == [ODD]
    [compressed] = recorded(
        build.batch(
            [build.control_record("ABORT", b"\0" * 6)], codec="gzip", control=True, producer_id=7, producer_epoch=0
        )
    )
    assert compressed[11] == ODD
    after = build.batch(
        [build.control_record("ABORT", b"\0" * 6)] * 2,
        count=1,
        last_offset_delta=0,
        control=True,
        producer_id=7,
        producer_epoch=0,
    )
    assert recorded(after)[0][11] == ODD


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_control_batch_of_a_producer_has_to_end_a_transaction(codec: str) -> None:
    kinds: dict[str, tuple[str, str]] = {}
    for control_type, value in (("COMMIT", b"\0" * 6), ("SNAPSHOT_FOOTER", b"\0\0\0")):
        for producer_id in (7, -1):
            records = [build.control_record(control_type, value), build.control_record("SNAPSHOT_FOOTER", b"\0\0\0")]
            log = build.batch(records, control=True, producer_id=producer_id, codec=codec)
            scanner = Scanner(0, deep=True)
            scanner.scan(log, 0, len(log), 0, len(log), len(log))
            if codec != "none":
                scanner.open(0, gzip.decompress(log[61:]))
            row = dict(zip(BATCH_COLUMNS, scanner.rows.tolist(), strict=False)) if scanner.count else {}
            suspect = [code for bit, code in enumerate(SUSPECTS) if row.get("suspect", 0) >> bit & 1]
            assert suspect == [found.code for found in oracle.verify(log, deep=True, base_offset=0)]
            kinds[f"{control_type} {producer_id}"] = (" ".join(suspect), STATUSES[row.get("status", 0)])
    assert kinds.pop("SNAPSHOT_FOOTER 7") == ("control/structure", "control-type")
    assert set(kinds.values()) == {("", "")}


def test_what_has_no_producer_is_no_event() -> None:
    assert (
        recorded(
            batch(0, producer_id=-1),
            build.message_v1(offset=1),
            build.control_batch([build.leader_change(1, [1], [1])], base_offset=2),
        )
        == []
    )


def test_a_control_batch_without_a_marker_is_an_event() -> None:
    """It says nothing of a transaction, unless one is open there."""
    (event,) = recorded(batch(0, count=0, control=True, last_offset_delta=0))
    assert (event[0], event[11]) == (7, EMPTIED)


def test_damage_is_an_event_and_ends_runs() -> None:
    runs = Runs()
    scanner = Scanner(0, runs=runs)
    one = batch(0, 0)
    scanner.scan(one, 0, len(one), 0, len(one), 1000)
    scanner.damaged(one, 0, len(one), 0, 6)
    scanner.unlink()
    two = batch(2, 1)
    scanner.scan(two, 0, len(two), 2 * len(one), 3 * len(one), 1000)
    scanner.unlink()
    events = list(struct.iter_unpack(EVENT, runs.take()))
    assert [(event[11], event[1]) for event in events] == [
        (DATA, 0),
        (GAP, len(one)),
        (DATA, 2 * len(one)),
        (GAP, 3 * len(one)),
    ]


def test_a_scan_comes_back_to_have_events_taken() -> None:
    log = b"".join(build.marker(base_offset=offset) for offset in range(RUNS_FULL + 3))
    runs = Runs()
    scanner = Scanner(0, runs=runs)
    assert scanner.scan(log, 0, len(log), 0, len(log), len(log)) == SCAN_FULL
    assert (runs.count, scanner.stop) == (RUNS_FULL, 78 * RUNS_FULL)
    runs.take()
    assert scanner.scan(log, scanner.stop, len(log), scanner.stop, len(log), len(log)) == SCAN_STOPPED
    assert runs.count == 3


def test_many_producers_have_a_run_each() -> None:
    log = [batch(3000 * turn + one, turn, producer_id=1000 * one) for turn in range(3) for one in range(3000)]
    events = recorded(*log)
    assert len(events) == 3000
    assert {event[13] for event in events} == {3}


def test_only_runs_are_reported() -> None:
    with pytest.raises(TypeError):
        Scanner(0, runs=object())  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ epochs, time,
# indexes


def seen(*parts: bytes, **how: Any) -> ScanState:
    return scanned(*parts, **how).state()


def scanned(*parts: bytes, base: int = 0, indexes: IndexTracker | None = None) -> Scanner:
    log = b"".join(parts)
    scanner = Scanner(base, indexes=indexes)
    assert scanner.scan(log, 0, len(log), 0, len(log), len(log)) == SCAN_STOPPED
    return scanner


def tracker(index: bytes, time: bytes, *, base: int = 0, interval: int = 4096) -> IndexTracker:
    """What checks these entries."""
    indexes = IndexTracker(base, interval)
    indexes.check(index, time)
    return indexes


def checked(
    *parts: bytes, index: bytes = b"", time: bytes = b"", base: int = 0, interval: int = 4096
) -> tuple[IndexTracker, ScanState]:
    """What a scan of these batches found in the entries."""
    indexes = tracker(index, time, base=base, interval=interval)
    return indexes, scanned(*parts, base=base, indexes=indexes).state()


def test_changes_of_the_leader_epoch() -> None:
    size = len(batch(0))
    state = seen(*(batch(offset, epoch=epoch) for offset, epoch in enumerate((-1, 3, 3, -1, 5, 4))))
    assert state.epochs == ((3, 1, size), (5, 4, 4 * size), (4, 5, 5 * size))


def test_time_that_goes_back() -> None:
    week = 7 * DAY_MS
    state = seen(
        *(batch(offset, timestamp=NOW + time) for offset, time in enumerate((0, -week, -2 * week - 1, 0, -week - 9)))
    )
    assert (state.backs, state.back_position, state.back_offset) == (2, 2 * len(batch(0)), 2)
    assert state.back_largest == week + 9
    assert seen(batch(0), batch(1, timestamp=-1), batch(2, timestamp=5)).backs == 0


def test_the_batch_with_the_largest_timestamp() -> None:
    state = seen(
        batch(5, count=2, timestamp=1),
        batch(8, count=3, timestamp=9),
        batch(11, timestamp=9),
        batch(12, timestamp=2),
        base=5,
    )
    assert (state.max_timestamp, state.max_timestamp_offset) == (9, 10)
    assert state.max_timestamp_position == len(batch(0, count=2))
    assert (state.first_timestamp, state.last_timestamp) == (1, 2)
    state = seen(batch(5, timestamp=-1), base=5)
    assert (state.max_timestamp, state.max_timestamp_offset, state.max_timestamp_position) == (-1, 5, -1)


SIZE = len(batch(0))
LOG = [batch(offset, timestamp=NOW + offset) for offset in range(10)]


@pytest.mark.parametrize(
    ("entries", "problems", "differs"),
    [
        ([(3, 3 * SIZE), (6, 6 * SIZE), (9, 9 * SIZE)], [], None),
        ([(3, 3 * SIZE), (6, 6 * SIZE)], [], (2, -1, -1, 9, 9 * SIZE)),
        ([(3, 3 * SIZE), (5, 5 * SIZE)], [], (1, 5, 5 * SIZE, -1, -1)),
        ([(4, 3 * SIZE)], [], (0, 4, 3 * SIZE, 3, 3 * SIZE)),
        ([(3, 3 * SIZE + 1)], ["index/position"], (0, 3, 3 * SIZE + 1, 3, 3 * SIZE)),
        ([(2, 3 * SIZE)], ["index/offset"], (0, 2, 3 * SIZE, 3, 3 * SIZE)),
        ([(0, 3 * SIZE), (1, 4 * SIZE)], ["index/offset"] * 2, (0, 0, 3 * SIZE, 3, 3 * SIZE)),
        ([(3, 3 * SIZE), (6, 6 * SIZE), (9, 9 * SIZE), (99, 99 * SIZE)], [], None),
    ],
)
def test_entries_of_the_offset_index(
    entries: list[tuple[int, int]], problems: list[str], differs: tuple[int, ...] | None
) -> None:
    indexes, state = checked(*LOG, index=build.offset_index(*entries), interval=2 * SIZE)
    assert [entry.problem for entry in indexes.bad_entries()] == problems
    assert indexes.bad_entry_counts() == {problem: problems.count(problem) for problem in problems}
    assert state.index_differs == differs
    assert (state.index_begin, state.index_cursor) == (0, min(len(entries), 3))


def test_a_bad_entry_is_reported_with_its_batch() -> None:
    based = [batch(100 + offset) for offset in range(4)]
    indexes, _ = checked(*based, index=build.offset_index((1, 2 * SIZE), (9, 3 * SIZE + 5)), base=100)
    assert indexes.bad_entries() == [
        ("index/offset", 0, 101, 2 * SIZE, 2 * SIZE, 102, 102, 101),
        ("index/position", 1, 109, 3 * SIZE + 5, 3 * SIZE, 103, 103, 3 * SIZE),
    ]


@pytest.mark.parametrize(
    ("entry", "problems"),
    [
        ((NOW + 3, 3), []),
        ((NOW + 2, 3), ["timeindex/wrong"]),
        ((NOW + 1, 3), ["timeindex/misses"]),
        ((NOW + 9, 3), ["timeindex/wrong"]),
        ((NOW + 99, 999), []),
    ],
)
def test_entries_of_the_time_index(entry: tuple[int, int], problems: list[str]) -> None:
    indexes, _ = checked(*LOG, time=build.time_index(entry))
    assert [entry.problem for entry in indexes.bad_entries()] == problems


def test_an_entry_of_the_time_index_between_two_batches() -> None:
    indexes, state = checked(batch(0, timestamp=5), batch(10, timestamp=9), time=build.time_index((9, 7)))
    assert indexes.bad_entries() == [("timeindex/offset", 0, 9, 7, SIZE, 10, 10, 10)]
    assert state.first_time_entry == 9


def test_after_damage_entries_speak_of_what_is_lost() -> None:
    index, time = build.offset_index((2, 2 * SIZE), (5, 5 * SIZE)), build.time_index((NOW + 2, 2), (NOW + 5, 5))
    indexes = tracker(index, time, interval=2 * SIZE)
    scanner = Scanner(0, indexes=indexes)
    scanner.scan(LOG[0], 0, SIZE, 0, SIZE, 1000)
    scanner.unlink()
    rest = b"".join(LOG[4:])
    assert scanner.scan(rest, 0, len(rest), 4 * SIZE, 10 * SIZE, 10 * SIZE) == SCAN_STOPPED
    assert indexes.bad_entries() == []
    state = scanner.state()
    assert state.index_differs == (2, -1, -1, 8, 8 * SIZE)
    assert (state.index_cursor, state.time_cursor) == (2, 2)
    assert scanner.scan(b"x" * 20, 0, 20, 10 * SIZE, 11 * SIZE, 11 * SIZE) == SCAN_DAMAGED


def test_a_walk_that_goes_on_begins_where_the_other_one_ended() -> None:
    index = build.offset_index((3, 3 * SIZE), (6, 6 * SIZE), (9, 9 * SIZE))
    time = build.time_index(*((NOW + offset, offset) for offset in (3, 6, 9)))
    trackers = [tracker(index, time, interval=2 * SIZE) for _ in range(3)]
    left, right, alone = (Scanner(0, indexes=indexes) for indexes in trackers)
    whole = b"".join(LOG)
    for scanner, start, stop in ((left, 0, 6), (right, 6, 10), (alone, 6, 10)):
        if scanner is right:
            scanner.carry(*left.state().carry._replace(time_cursor=-1))
        assert scanner.scan(whole, start * SIZE, len(whole), start * SIZE, stop * SIZE, len(whole)) == SCAN_STOPPED
        assert scanner.state().index_differs is None
    assert all(indexes.bad_entries() == [] for indexes in trackers)
    ends = [(scanner.state().index_begin, scanner.state().index_cursor) for scanner in (left, right, alone)]
    assert ends == [(0, 1), (1, 3), (1, 3)]
    assert left.state().time_cursor == right.state().time_begin == alone.state().time_begin == 1
    assert right.state().first_index_offset == -(2**63)
    assert alone.state().first_index_offset == 6


def test_a_carried_cursor_says_where_the_time_index_goes_on() -> None:
    time = build.time_index(*((NOW + offset, offset) for offset in (3, 6, 9)))
    for carried, begin in ((-1, 1), (0, 0), (2, 2), (99, 3)):
        scanner = Scanner(0, indexes=tracker(b"", time))
        scanner.carry(5, True, 0, True, NOW + 5, carried)
        scanner.scan(LOG[6], 0, SIZE, 6 * SIZE, 7 * SIZE, 7 * SIZE)
        assert scanner.state().time_begin == begin


def test_the_last_offset_of_all_without_entries() -> None:
    assert scanned(batch(2**63 - 1), base=2**63 - 10).state().last_offset == 2**63 - 1


def test_entries_need_a_base_offset() -> None:
    with pytest.raises(ValueError):
        IndexTracker(-1)


def test_so_many_bad_entries_are_kept() -> None:
    count = ENTRIES_KEPT + 7
    log = [batch(count, count=1)]
    time = build.time_index(*((-(10**6) + number, number) for number in range(count)))
    indexes, _ = checked(batch(0), *log, time=time)
    assert indexes.bad_entry_counts() == {"timeindex/misses": count, "timeindex/offset": count - 1}
    assert len(indexes.bad_entries()) == 2 * ENTRIES_KEPT


def test_entries_in_order() -> None:
    assert ordered(build.offset_index((0, 0), (1, 5), (3, 6), (3, 9)), 8) == 3
    assert ordered(build.offset_index((0, 0), (1, 5), (3, 5)), 8) == 2
    assert ordered(build.offset_index((-1, 0)), 8) == ordered(build.offset_index((0, -1)), 8) == 0
    assert ordered(build.time_index((-5, 0), (3, 0), (4, 2), (4, 3)), 12) == 3
    assert ordered(build.time_index((1, 4), (2, 3)), 12) == 1
    assert ordered(build.offset_index((0, 1)) + b"\0\0\0", 8) == 1
    assert ordered(b"", 12) == 0
    with pytest.raises(ValueError):
        ordered(b"", 9)
