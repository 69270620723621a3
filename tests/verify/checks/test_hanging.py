"""Open transactions: which of them hang, by their age or by what the transaction log says, and what it says of real
ones."""

from __future__ import annotations

import shlex
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from kdump.format.internal_topics.transaction_state import TopicPartitions, TransactionLogValue, TransactionState
from kdump.format.naming import Kind, TopicPartition
from kdump.storage.partition import LogFile
from kdump.verify.checks.hanging import (
    LATE_MS,
    MAX_TIMEOUT_MS,
    OpenTransaction,
    TransactionStates,
    check_open_transactions,
    read_transaction_states,
)
from kdump.verify.findings import Finding, Severity
from support import build

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
NOW_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 2)
TRANSACTION = OpenTransaction(ORDERS, "orders-2/00000000000000000010.log", 7, 3, 15, NOW_MS, True)
OLD = TRANSACTION._replace(timestamp_ms=NOW_MS - MAX_TIMEOUT_MS - LATE_MS - 1)
MINE = (TopicPartitions("other", (2,)), TopicPartitions("orders", (0, 2)))
OTHERS = (TopicPartitions("other", (2,)), TopicPartitions("orders", (0, 1)))


def value(
    status: int,
    epoch: int = 3,
    partitions: tuple[TopicPartitions, ...] | None = MINE,
    producer_id: int = 7,
    previous: int = -1,
) -> TransactionLogValue:
    return TransactionLogValue(1, producer_id, previous, -1, epoch, -1, 60_000, status, partitions, NOW_MS, NOW_MS, 2)


def known(state: TransactionLogValue | None = None, *, complete: bool = True) -> TransactionStates:
    return TransactionStates({} if state is None else {7: state}, complete)


def verdict(transaction: OpenTransaction, log: TransactionStates | None, now_ms: int = NOW_MS) -> str | None:
    found = list(check_open_transactions([transaction], now_ms, log))
    assert len(found) == 1
    assert found[0].code == ("txn/hanging" if "problem" in found[0].data else "txn/open")
    assert found[0].severity is (Severity.WARNING if "problem" in found[0].data else Severity.INFO)
    assert (found[0].path, found[0].offset, found[0].data["first"]) == (transaction.path, 15, 15)
    assert found[0].message
    return found[0].data.get("problem")


# --- by age -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log", [None, known(complete=False)])
def test_idle(log: TransactionStates | None) -> None:
    assert verdict(OLD, log) == "idle"
    assert verdict(OLD, log, NOW_MS - 1) is None
    assert verdict(TRANSACTION, log) is None
    assert verdict(OLD._replace(timestamp_ms=-1), log) is None
    assert verdict(OLD._replace(timestamp_ms=0), log) is None
    assert verdict(OLD, log, -1) is None


def test_another_timeout() -> None:
    assert [finding.code for finding in check_open_transactions([OLD], NOW_MS, None, MAX_TIMEOUT_MS + 1)] == [
        "txn/open"
    ]
    assert [finding.code for finding in check_open_transactions([OLD], NOW_MS, None, MAX_TIMEOUT_MS)] == ["txn/hanging"]


def test_what_is_not_certain_does_not_hang() -> None:
    assert verdict(OLD._replace(certain=False), None) is None
    assert verdict(OLD._replace(certain=False), known()) is None
    assert verdict(OLD._replace(certain=False), known(value(TransactionState.CompleteCommit))) is None


# --- by the transaction log -------------------------------------------------------------------------------------------


def test_unknown_producer() -> None:
    assert verdict(TRANSACTION, known()) == "unknown"
    assert verdict(TRANSACTION, known(complete=False)) is None


@pytest.mark.parametrize("transaction", [TRANSACTION, OLD])
@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (value(TransactionState.Ongoing), None),
        (value(TransactionState.Ongoing, partitions=OTHERS), "elsewhere"),
        (value(TransactionState.Ongoing, partitions=None), "elsewhere"),
        (value(TransactionState.Ongoing, 4), None),  # the marker of that transaction will end this one too
        (value(TransactionState.Ongoing, 4, OTHERS), "ended"),
        (value(TransactionState.PrepareCommit), None),
        (value(TransactionState.PrepareAbort, 4), None),
        (value(TransactionState.PrepareCommit, 4, OTHERS), "elsewhere"),
        (value(TransactionState.PrepareAbort, 5, OTHERS), "ended"),
        (value(TransactionState.Empty, partitions=None), "ended"),
        (value(TransactionState.Empty, 4, None), "ended"),
        (value(TransactionState.CompleteCommit, partitions=()), "ended"),
        (value(TransactionState.CompleteAbort, 4, ()), "ended"),
        (value(TransactionState.Dead, partitions=()), "ended"),
        (value(TransactionState.Ongoing, 0, producer_id=1000, previous=7), "ended"),
    ],
)
def test_states(transaction: OpenTransaction, state: TransactionLogValue, wanted: str | None) -> None:
    assert verdict(transaction, known(state)) == wanted
    assert verdict(transaction, known(state, complete=False)) == wanted


@pytest.mark.parametrize(
    "state",
    [
        value(TransactionState.CompleteCommit, 2),  # the transaction log has lost its end
        value(TransactionState.Ongoing, 2, OTHERS),
        value(TransactionState.PrepareEpochFence),
        value(99),
    ],
)
def test_states_that_say_nothing(state: TransactionLogValue) -> None:
    assert verdict(TRANSACTION, known(state)) is None
    assert verdict(OLD, known(state)) == "idle"


def test_partition_without_a_name() -> None:
    nameless = TRANSACTION._replace(topic_partition=None)
    assert verdict(nameless, known(value(TransactionState.Ongoing, 3, OTHERS))) is None
    assert verdict(nameless, known(value(TransactionState.CompleteCommit))) == "ended"
    assert command(OLD._replace(topic_partition=None))[4:8] == ["--topic", "TOPIC", "--partition", "PARTITION"]


def command(transaction: OpenTransaction) -> list[str]:
    (finding,) = check_open_transactions([transaction], NOW_MS, None)
    return shlex.split(finding.data["command"])


def test_command() -> None:
    options = ["--topic", "orders", "--partition", "2", "--start-offset", "15"]
    assert command(OLD) == ["kafka-transactions.sh", "--bootstrap-server", "HOST:PORT", "abort", *options]
    assert command(OLD._replace(topic_partition=TopicPartition("a;b c", 0)))[5] == "a;b c"


def test_every_transaction_has_its_finding() -> None:
    found: list[Finding] = list(check_open_transactions([TRANSACTION, OLD, TRANSACTION], NOW_MS, None))
    assert [finding.code for finding in found] == ["txn/open", "txn/hanging", "txn/open"]


# --- reading the transaction log --------------------------------------------------------------------------------------


def state_record(transactional_id: bytes, producer_id: int | None, status: int = 1, version: int = 0) -> build.Record:
    key = struct.pack(">hh", 0, len(transactional_id)) + transactional_id
    if producer_id is None:
        return build.record(key, None)
    return build.record(key, struct.pack(">hqhibiqq", version, producer_id, 0, 60_000, status, -1, NOW_MS, -1))


def log(*records: build.Record, base_offset: int = 0) -> bytes:
    """A batch for each record, as a coordinator appends them."""
    return b"".join(build.batch([item], base_offset=base_offset + at) for at, item in enumerate(records))


def write(directory: Path, *segments: tuple[int, bytes], newest: bool = True) -> list[LogFile]:
    directory.mkdir(exist_ok=True)
    files = []
    for at, (base_offset, data) in enumerate(segments):
        path = directory / f"{base_offset:020}.log"
        path.write_bytes(data)
        last = newest and at == len(segments) - 1
        files.append(LogFile(str(path), Kind.LOG, base_offset, last, len(data)))
    return files


def statuses(found: TransactionStates) -> dict[int, int]:
    return {producer_id: state.transaction_status for producer_id, state in found.states.items()}


def test_the_newest_state_counts(tmp_path: Path) -> None:
    first = log(state_record(b"a", 1, 1), state_record(b"b", 2, 1), state_record(b"a", 1, 2), state_record(b"c", 3))
    second = log(state_record(b"b", 20, 4), state_record(b"c", None), state_record(b"d", 4, 0), base_offset=4)
    found = read_transaction_states({0: write(tmp_path, (0, first), (4, second))})
    assert statuses(found) == {1: 2, 20: 4, 4: 0}
    assert found.complete


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_several_records_in_a_batch(tmp_path: Path, codec: str) -> None:
    data = build.batch([state_record(b"a", 1, 1), state_record(b"b", 2, 3), state_record(b"a", 1, 5)], codec=codec)
    assert statuses(read_transaction_states({0: write(tmp_path, (0, data))})) == {1: 5, 2: 3}


@pytest.mark.parametrize(
    ("numbers", "complete"), [((), False), ((0,), True), ((1,), False), ((0, 2), False), ((1, 0), True)]
)
def test_all_partitions_have_to_be_there(tmp_path: Path, numbers: Sequence[int], complete: bool) -> None:
    partitions = {
        number: write(tmp_path / str(number), (0, log(state_record(b"%d" % number, number)))) for number in numbers
    }
    found = read_transaction_states(partitions)
    assert found.complete is complete
    assert sorted(found.states) == sorted(numbers)


def test_what_stands_before_damage_is_not_known(tmp_path: Path) -> None:
    records = [state_record(b"a", 1, 1), state_record(b"b", 2, 1), state_record(b"c", 3, 1)]
    size = len(log(records[0]))
    data = bytearray(log(*records))
    data[size + 70] ^= 1
    found = read_transaction_states({0: write(tmp_path, (0, bytes(data)))})
    assert statuses(found) == {3: 1}
    assert not found.complete
    gap = read_transaction_states(
        {0: write(tmp_path, (0, log(records[0]) + b"\xff" * 30 + log(records[2], base_offset=2)))}
    )
    assert statuses(gap) == {3: 1}
    assert not gap.complete


@pytest.mark.parametrize(("newest", "tail", "sound"), [(True, 40, True), (False, 40, False), (True, 0, True)])
def test_room_for_more_is_no_damage(tmp_path: Path, newest: bool, tail: int, sound: bool) -> None:
    found = read_transaction_states({0: write(tmp_path, (0, log(state_record(b"a", 1)) + bytes(tail)), newest=newest)})
    assert found.complete is sound
    assert statuses(found) == ({1: 1} if sound else {})


def test_a_torn_end_can_have_been_newer(tmp_path: Path) -> None:
    found = read_transaction_states({0: write(tmp_path, (0, log(state_record(b"a", 1), state_record(b"b", 2))[:-1]))})
    assert found == TransactionStates({}, False)


def test_records_that_are_none(tmp_path: Path) -> None:
    later = build.record(struct.pack(">hh", 9, 1) + b"a", b"\0")
    odd_key = build.record(b"\0", b"\0")
    found = read_transaction_states({0: write(tmp_path, (0, log(state_record(b"a", 1), later)))})
    assert (statuses(found), found.complete) == ({1: 1}, True)
    found = read_transaction_states({0: write(tmp_path, (0, log(state_record(b"a", 1), odd_key)))})
    assert (statuses(found), found.complete) == ({1: 1}, False)
    found = read_transaction_states(
        {0: write(tmp_path, (0, log(*(state_record(b"a", 1, version=version) for version in (0, 7)))))}
    )
    assert (statuses(found), found.complete) == ({}, False)
    found = read_transaction_states({0: write(tmp_path, (0, build.batch([state_record(b"a", 1)], count=2)))})
    assert (statuses(found), found.complete) == ({}, False)


def test_control_batches_hold_no_states(tmp_path: Path) -> None:
    data = log(state_record(b"a", 1)) + build.marker(base_offset=1)
    assert statuses(read_transaction_states({0: write(tmp_path, (0, data))})) == {1: 1}


def test_file_that_is_gone(tmp_path: Path) -> None:
    files = write(tmp_path, (0, log(state_record(b"a", 1))))
    Path(files[0].path).unlink()
    assert read_transaction_states({0: files}) == TransactionStates({}, False)


def test_producer_ids_that_were_used_up(tmp_path: Path) -> None:
    key = struct.pack(">hh", 0, 1) + b"a"
    partitions = b"\0"
    body = struct.pack(">hqhib", 1, 1000, 0, 60_000, 4) + partitions + struct.pack(">qq", NOW_MS, NOW_MS)
    record = build.record(key, body + b"\1\0\x08" + struct.pack(">q", 7))
    found = read_transaction_states({0: write(tmp_path, (0, log(record)))})
    assert found.states.keys() == {7, 1000}
    assert verdict(TRANSACTION, found) == "ended"


# --- real ones --------------------------------------------------------------------------------------------------------


def real(case: str) -> TransactionStates:
    files = sorted((FIXTURES / case / "__transaction_state-0").glob("*.log"))
    assert files
    return read_transaction_states(
        {0: [LogFile(str(path), Kind.LOG, int(path.stem), path == files[-1], path.stat().st_size) for path in files]}
    )


@pytest.mark.parametrize("case", sorted(path.parent.name for path in FIXTURES.glob("*/__transaction_state-0")))
def test_real_transaction_logs(case: str) -> None:
    found = real(case)
    assert found.complete
    assert found.states
    assert all(state.transaction_status in list(TransactionState) for state in found.states.values())


def test_open_transaction_of_a_killed_broker() -> None:
    found = real("crash")
    assert TransactionState.Ongoing in {state.transaction_status for state in found.states.values()}
    for state in found.states.values():
        for topic, partition_ids in state.transaction_partitions or ():
            transaction = TRANSACTION._replace(
                topic_partition=TopicPartition(topic, partition_ids[0]),
                producer_id=state.producer_id,
                epoch=state.producer_epoch,
            )
            assert verdict(transaction, found) is None
            elsewhere = transaction._replace(topic_partition=TopicPartition(topic, 999))
            assert verdict(elsewhere, found) == "elsewhere"


def test_hanging_transactions_of_a_broker_that_takes_late_data() -> None:
    found = real("restarted")
    transfers = [TRANSACTION._replace(topic_partition=TopicPartition("transfers", number)) for number in range(2)]
    assert verdict(transfers[1]._replace(producer_id=2004, epoch=1), found) == "ended"
    assert verdict(transfers[0]._replace(producer_id=1_000_000, epoch=0), found) == "unknown"
    for transaction in transfers:
        assert verdict(transaction._replace(producer_id=3, epoch=4), found) is None
