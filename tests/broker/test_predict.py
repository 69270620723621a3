"""What a broker's next start leaves, by rule: small directories with one thing in them each.
tests/interop/test_broker.py asks the broker's own loader."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kdump.broker import predict as broker
from kdump.storage.discovery import discover
from kdump.storage.source import BytesSource
from kdump.verify import reaction
from kdump.verify.findings import Finding, make_finding
from kdump.verify.verify import VerifyOptions, verify_logs
from support import build, damage_partition
from support.damage import NotApplicable
from support.laws import sampled

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FIRST, SECOND, THIRD = ("00000000000000000000", "00000000000000000010", "00000000000000000020")


def segment(base: int, batches: int = 10, *, value: bytes = b"value", **how: object) -> bytes:
    """Batches of one record each."""
    return b"".join(
        build.batch([build.record(b"key", value)], base_offset=base + number, **how)  # type: ignore[arg-type]
        for number in range(batches)
    )


ONE, TWO, THREE = segment(0), segment(10), segment(20)
BATCH = len(ONE) // 10


def healthy(**changed: bytes | None) -> dict[str, bytes]:
    """Three segments with what lies beside them; `changed` by name, with `_` for the dot, None for no such file."""
    files: dict[str, bytes] = {}
    for stem, log in ((FIRST, ONE), (SECOND, TWO), (THIRD, THREE)):
        files |= {f"{stem}.log": log, f"{stem}.index": b"", f"{stem}.timeindex": build.time_index((1000, 0))}
        if stem != FIRST:
            files[f"{stem}.snapshot"] = build.producer_snapshot()
    files["leader-epoch-checkpoint"] = build.checkpoint("0 0")
    files["partition.metadata"] = b"version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA"
    return files


def predicted(
    files: Mapping[str, bytes],
    *,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    valid_segments: Mapping[str, broker.ValidSegment] | None = None,
    deleting: bool = False,
) -> broker.LoadResult:
    sizes = {name: len(data) for name, data in files.items()}
    return broker.predict_start(
        broker.DirectoryState(
            sizes,
            lambda name: BytesSource(files[name]),
            valid_segments or {},
            recovery_point,
            log_start_offset,
            deleting,
        )
    )


def loads(outcome: broker.LoadResult, log_end_offset: int, *sizes: tuple[int, int]) -> None:
    assert outcome.refusals == ()
    assert outcome.log_end_offset == log_end_offset
    assert [tuple(left) for left in outcome.segments] == list(sizes)


def refuses(outcome: broker.LoadResult, exception: str, word: str, name: str) -> broker.Refusal:
    assert outcome.refusals
    first = outcome.refusals[0]
    assert (first.exception, first.reason, first.name) == (exception, word, name)
    return first


# -------------------------------------------------------------------------------------------------------------------
# cuts


def test_nothing_happens_to_a_sound_log() -> None:
    outcome = predicted(healthy())
    loads(outcome, 30, (0, len(ONE)), (10, len(TWO)), (20, len(THREE)))
    assert not outcome.truncations
    assert not outcome.split_segments
    assert outcome.recovered_logs == {f"{FIRST}.log", f"{SECOND}.log", f"{THIRD}.log"}
    assert outcome.leader_epochs == ((0, 0),)
    # Every snapshot is thrown away and written again, and one at the end is new.
    assert outcome.written_snapshots == {10, 20, 30}
    assert outcome.deleted_files == {f"{SECOND}.snapshot", f"{THIRD}.snapshot"}


@pytest.mark.parametrize(
    ("change", "position"),
    [
        (lambda data: data[:-5], 9 * BATCH),
        (lambda data: data + b"\1" * 17, 10 * BATCH),
        (lambda data: data + bytes(18), 10 * BATCH),
        (lambda data: data + b"\1" * 300, 10 * BATCH),
        (lambda data: data[: 3 * BATCH + 40] + b"\xff" + data[3 * BATCH + 41 :], 3 * BATCH),
        (lambda data: data[: 3 * BATCH + 8] + b"\x7f" + data[3 * BATCH + 9 :], 3 * BATCH),  # the end, without a word
        (lambda data: data[: 3 * BATCH + 8] + b"\xff" + data[3 * BATCH + 9 :], 3 * BATCH),
        (lambda data: data[: 3 * BATCH + 16] + b"\1" + data[3 * BATCH + 17 :], 3 * BATCH),
        (lambda data: data[: 3 * BATCH] + bytes(BATCH) + data[4 * BATCH :], 3 * BATCH),
    ],
)
def test_cut_at_the_first_bad_batch_and_later_segments_deleted(change: object, position: int) -> None:
    damaged = change(TWO)  # type: ignore[operator]
    outcome = predicted(healthy() | {f"{SECOND}.log": damaged})
    loads(outcome, 10 + position // BATCH, (0, len(ONE)), (10, position))
    assert outcome.truncations == {f"{SECOND}.log": position}
    assert {f"{THIRD}.log", f"{THIRD}.index", f"{THIRD}.timeindex", f"{THIRD}.snapshot"} <= outcome.deleted_files


def test_magic_above_2_is_2() -> None:
    loads(predicted({f"{FIRST}.log": ONE[:16] + b"\x7f" + ONE[17:]}), 10, (0, len(ONE)))


def test_a_batch_larger_than_the_window() -> None:
    large = build.batch([build.record(b"k", random.Random(1).randbytes(1 << 20))], base_offset=1)
    files = {f"{FIRST}.log": segment(0, 1) + large + segment(2, 1)}
    loads(predicted(files), 3, (0, len(files[f"{FIRST}.log"])))
    damaged = bytearray(files[f"{FIRST}.log"])
    damaged[BATCH + 900_000] ^= 1
    loads(predicted({f"{FIRST}.log": bytes(damaged)}), 1, (0, BATCH))


def test_messages_of_magic_0_and_1() -> None:
    log = build.message_v0(b"k", b"v", offset=0) + build.message_v1(b"k", b"v", offset=1)
    wrapper = build.wrapper([build.record(b"a"), build.record(b"b")], base_offset=2, codec="gzip", magic=1)
    loads(predicted({f"{FIRST}.log": log + wrapper}), 4, (0, len(log + wrapper)))
    damaged = log[:20] + bytes([log[20] ^ 1]) + log[21:] + wrapper
    assert predicted({f"{FIRST}.log": damaged}).truncations == {f"{FIRST}.log": 0}


def test_a_wrapper_that_cannot_be_opened() -> None:
    wrapper = build.wrapper([], base_offset=0, offset=3, codec="gzip", magic=1, payload=b"no gzip at all, sealed")
    refuses(predicted({f"{FIRST}.log": wrapper}), "KafkaException", "wrapper", f"{FIRST}.log")


def test_below_the_recovery_point_nothing_is_looked_at() -> None:
    outcome = predicted(healthy() | {f"{FIRST}.log": ONE[:-5]}, recovery_point=15)
    loads(outcome, 30, (0, len(ONE) - 5), (10, len(TWO)), (20, len(THREE)))
    assert outcome.recovered_logs == {f"{SECOND}.log", f"{THIRD}.log"}
    outcome = predicted(healthy() | {f"{SECOND}.log": TWO[:-5]}, recovery_point=15)
    loads(outcome, 19, (0, len(ONE)), (10, 9 * BATCH))


def test_a_cut_that_no_one_hears_of() -> None:
    """Without its offset index a segment is recovered while the directory is read, and later ones stay."""
    files = healthy() | {f"{SECOND}.log": TWO[:-5]}
    del files[f"{SECOND}.index"]
    loads(predicted(files), 30, (0, len(ONE)), (10, 9 * BATCH), (20, len(THREE)))
    loads(predicted(files, recovery_point=30), 30, (0, len(ONE)), (10, 9 * BATCH), (20, len(THREE)))


def test_a_directory_on_its_way_out_is_not_recovered() -> None:
    outcome = predicted(healthy() | {f"{FIRST}.log": ONE[:-5]}, deleting=True)
    assert not outcome.truncations
    assert not outcome.recovered_logs


def test_log_start_above_the_log() -> None:
    outcome = predicted(healthy(), log_start_offset=31)
    loads(outcome, 31, (31, 0))
    assert {f"{FIRST}.log", f"{SECOND}.log", f"{THIRD}.log"} <= outcome.deleted_files
    assert f"{31:020d}.log" in outcome.files
    assert outcome.leader_epochs == ()
    assert predicted(healthy(), log_start_offset=30).log_start_offset == 30


def test_a_tail_that_verify_found() -> None:
    files = healthy() | {f"{SECOND}.log": TWO + b"\1" * 30}
    valid_segments = {f"{SECOND}.log": broker.ValidSegment(20, ((0, 10),), {}, valid_bytes=len(TWO))}
    for recovery_point in (0, 25):
        with_it = predicted(files, valid_segments=valid_segments, recovery_point=recovery_point)
        assert with_it == predicted(files, recovery_point=recovery_point)
        assert with_it.truncations == ({} if recovery_point else {f"{SECOND}.log": len(TWO)})
    assert reaction.is_valid_log(["tail/torn", "offset/gap"], tail=True)
    assert not reaction.is_valid_log(["tail/torn", "offset/gap"])


# ----------------------------------------------------------------------------------------------------------------
# offsets


def moved(data: bytes, number: int, offset: int) -> bytes:
    at = number * BATCH
    return data[:at] + struct.pack(">q", offset) + data[at + 8 :]


def test_offsets_that_go_back() -> None:
    """No one notices, unless both are in the index: then the segment is emptied."""
    large = segment(10, value=bytes(5000))
    size = len(large) // 10
    back = large[: 4 * size] + struct.pack(">q", 11) + large[4 * size + 8 :]
    outcome = predicted(healthy() | {f"{SECOND}.log": back})
    loads(outcome, 10, (0, len(ONE)), (10, 0))
    assert outcome.emptied_logs == {f"{SECOND}.log"}
    assert outcome.truncations == {f"{SECOND}.log": 0}
    loads(
        predicted(healthy() | {f"{SECOND}.log": moved(TWO, 4, 11)}),
        30,
        (0, len(ONE)),
        (10, len(TWO)),
        (20, len(THREE)),
    )


def test_an_offset_below_the_segment() -> None:
    outcome = predicted(healthy() | {f"{SECOND}.log": moved(TWO, 4, 3)})
    refuses(outcome, "IllegalArgumentException", "split", f"{SECOND}.log")


def test_an_offset_above_what_a_segment_can_hold() -> None:
    far = 10 + (1 << 31)
    refuses(
        predicted(healthy() | {f"{SECOND}.log": moved(TWO, 4, far)}),
        "IllegalArgumentException",
        "split",
        f"{SECOND}.log",
    )
    ahead = TWO
    for number in range(4, 10):
        ahead = moved(ahead, number, far + number)
    outcome = predicted({f"{FIRST}.log": ONE, f"{SECOND}.log": ahead})
    loads(outcome, far + 10, (0, len(ONE)), (10, 4 * BATCH), (far + 4, 6 * BATCH))
    assert outcome.split_segments == {f"{SECOND}.log": (10, far + 4)}


# ------------------------------------------------------------------------------------------------- producers and
# control records


def transactional(base: int, producer: int = 7, **how: bool) -> bytes:
    return build.batch(
        [build.record(b"k", b"v")],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=how.get("transactional", True),
        control=how.get("control", False),
    )


def test_a_batch_outside_the_transaction_that_is_open() -> None:
    files = {f"{FIRST}.log": transactional(0) + transactional(1, transactional=False) + segment(2, 1)}
    refusal = refuses(predicted(files), "InvalidTxnStateException", "transaction", f"{FIRST}.log")
    assert refusal.position == len(transactional(0))
    # The transaction began a segment earlier.
    files = {f"{FIRST}.log": transactional(0), f"{SECOND}.log": transactional(10, transactional=False)}
    refuses(predicted(files), "InvalidTxnStateException", "transaction", f"{SECOND}.log")
    # … and what is known of that one need not be read again.
    valid_segments = {f"{FIRST}.log": broker.ValidSegment(1, ((0, 0),), {7: 0})}
    refuses(predicted(files, valid_segments=valid_segments), "InvalidTxnStateException", "transaction", f"{SECOND}.log")
    valid_segments = {f"{FIRST}.log": broker.ValidSegment(1, ((0, 0),), None)}
    refuses(predicted(files, valid_segments=valid_segments), "InvalidTxnStateException", "transaction", f"{SECOND}.log")
    valid_segments = {f"{FIRST}.log": broker.ValidSegment(1, ((0, 0),), {})}
    assert not predicted(files, valid_segments=valid_segments).refuses


def test_a_sound_transaction() -> None:
    log = transactional(0) + build.marker("ABORT", base_offset=1) + transactional(2, transactional=False)
    loads(predicted({f"{FIRST}.log": log}), 3, (0, len(log)))
    assert f"{FIRST}.txnindex" in predicted({f"{FIRST}.log": log}).files


@pytest.mark.parametrize(
    ("value", "key", "exception", "cut"),
    [
        (b"\0" * 5, None, "BufferUnderflowException", False),
        (b"\xff\xff\0\0\0\0", None, "InvalidRecordException", True),
        (None, None, "NullPointerException", False),
        (b"\0" * 6, b"\0\0\0", "InvalidRecordException", True),
        (b"\0" * 6, b"\0\0\0\2", "IllegalArgumentException", False),
    ],
)
def test_a_marker_that_cannot_be_read(value: bytes | None, key: bytes | None, exception: str, cut: bool) -> None:
    record = build.control_record("COMMIT", value, key=key)
    marker = build.batch([record], base_offset=1, producer_id=7, producer_epoch=0, transactional=True, control=True)
    log = transactional(0) + marker + segment(2, 3)
    outcome = predicted({f"{FIRST}.log": log})
    refusal = refuses(outcome, exception, "control", f"{FIRST}.log")
    assert refusal.position == len(transactional(0))
    kept = len(transactional(0) + marker)
    assert outcome.truncations == ({f"{FIRST}.log": kept} if cut else {})


def test_a_marker_that_is_no_business_of_a_producer() -> None:
    log = build.control_batch([build.control_record("LEADER_CHANGE", b"")])
    assert not predicted({f"{FIRST}.log": log}).refuses


def test_two_transactions_that_begin_at_one_offset() -> None:
    log = transactional(0, 7) + transactional(0, 8)
    log += build.marker(base_offset=1, producer_id=7) + build.marker(base_offset=2, producer_id=8)
    refuses(predicted({f"{FIRST}.log": log}), "IllegalArgumentException", "marker", f"{FIRST}.log")


# -------------------------------------------------------------------------------------------------------------
# companions


def test_transaction_indexes() -> None:
    bad = build.transaction_index((7, 0, 12, 12), version=0x0100)
    refusal = refuses(
        predicted(healthy() | {f"{SECOND}.txnindex": bad}), "KafkaException", "txnindex", f"{SECOND}.txnindex"
    )
    assert refusal.position == 0
    files = healthy() | {f"{SECOND}.txnindex": bad}
    del files[f"{SECOND}.index"]  # then it is rebuilt before anybody reads it
    assert not predicted(files).refuses
    below = healthy() | {f"{FIRST}.log": ONE, f"{SECOND}.txnindex": build.transaction_index((7, 0, 9, 9))}
    assert f"{SECOND}.log" in predicted(below, recovery_point=30).recovered_logs


@pytest.mark.parametrize(
    ("data", "left"),
    [
        (b"", ((0, 0),)),
        (b"0\n", ((0, 0),)),
        (build.checkpoint(), ((0, 0),)),
        (build.checkpoint("0 0", "1 5"), ((0, 0), (1, 5))),
        (build.checkpoint("0 0", "1 30"), ((0, 0),)),
        (build.checkpoint("0 0", "1 31"), ((0, 0),)),
        (build.checkpoint("9 100"), ()),  # its epoch hides those of the batches
    ],
)
def test_leader_epochs(data: bytes, left: tuple[tuple[int, int], ...]) -> None:
    outcome = predicted(healthy() | {"leader-epoch-checkpoint": data})
    assert not outcome.refuses
    assert outcome.leader_epochs == left


@pytest.mark.parametrize(
    ("data", "exception"),
    [
        (b"x\n", "KafkaStorageException"),
        (build.checkpoint("0 0", version=1), "KafkaStorageException"),
        (build.checkpoint("0 0", count=2), "KafkaStorageException"),
        (build.checkpoint("0 0") + b"\n", "KafkaStorageException"),
        (build.checkpoint("-1 0"), "IllegalArgumentException"),
    ],
)
def test_leader_epochs_that_are_refused(data: bytes, exception: str) -> None:
    outcome = predicted(healthy() | {"leader-epoch-checkpoint": data})
    refuses(outcome, exception, "epochs", "leader-epoch-checkpoint")


def test_partition_metadata() -> None:
    refuses(
        predicted(healthy() | {"partition.metadata": b""}), "NullPointerException", "metadata", "partition.metadata"
    )
    refuses(
        predicted(healthy() | {"partition.metadata": b"x"}), "KafkaStorageException", "metadata", "partition.metadata"
    )
    files = healthy()
    del files["partition.metadata"]
    assert not predicted(files).refuses


def test_snapshots() -> None:
    extra = {f"{7:020d}.snapshot": build.producer_snapshot(), f"{500:020d}.snapshot": b"torn"}
    outcome = predicted(healthy() | extra)
    assert set(extra) <= outcome.deleted_files
    # Above the recovery point they go, the newest below it is where the producers begin.
    open_ = build.producer_snapshot(build.producer(7, first_offset=3))
    files = healthy() | {f"{SECOND}.snapshot": open_, f"{SECOND}.log": transactional(10, transactional=False)}
    outcome = predicted(files, recovery_point=10)
    refuses(outcome, "InvalidTxnStateException", "transaction", f"{SECOND}.log")
    assert f"{SECOND}.snapshot" not in outcome.deleted_files
    files[f"{SECOND}.snapshot"] = open_[:-1]  # then from the log, where it is not open
    assert not predicted(files, recovery_point=10).refuses


# ------------------------------------------------------------------------------------------------------------------
# names


def test_leftovers() -> None:
    outcome = predicted(
        healthy() | {f"{FIRST}.log.deleted": b"x", f"{FIRST}.index.cleaned": b"", "x.checkpoint.deleted": b""}
    )
    assert {f"{FIRST}.log.deleted", f"{FIRST}.index.cleaned"} <= outcome.deleted_files
    assert "x.checkpoint.deleted" not in outcome.deleted_files
    outcome = predicted(healthy() | {f"{FIRST}.log.swap": ONE + TWO})
    loads(outcome, 30, (0, len(ONE + TWO)), (20, len(THREE)))
    assert outcome.swap_targets == {f"{FIRST}.log.swap": f"{FIRST}.log"}
    assert {f"{FIRST}.log", f"{SECOND}.log", f"{SECOND}.index"} <= outcome.deleted_files
    outcome = predicted(healthy() | {f"{FIRST}.log.swap": (ONE + TWO)[:-5]})
    loads(outcome, 19, (0, 19 * BATCH))
    assert outcome.truncations == {f"{FIRST}.log.swap": 19 * BATCH}
    outcome = predicted(healthy() | {f"{SECOND}.log.swap": b"", f"{FIRST}.log.cleaned": b""})
    assert f"{SECOND}.log.swap" in outcome.deleted_files


@pytest.mark.parametrize(
    "name", ["letters.log", "letters.index", "letters.snapshot", "letters.log.swap", "x.cleaned", f"{10**20}.log"]
)
def test_names_without_a_number(name: str) -> None:
    refuses(predicted(healthy() | {name: b""}), "NumberFormatException", "name", name)


@pytest.mark.parametrize("name", [f"{FIRST}", ".hidden", f"{FIRST}.log.bak", "notes.txt", "letters.deleted"])
def test_names_that_do_not_matter(name: str) -> None:
    loads(predicted(healthy() | {name: b"x"}), 30, (0, len(ONE)), (10, len(TWO)), (20, len(THREE)))


def test_short_and_negative_names() -> None:
    """What is in the file is never read; an empty segment is made under its true name."""
    outcome = predicted({f"{FIRST}.log": ONE, "5.log": segment(5)})
    loads(outcome, 5, (0, len(ONE)), (5, 0))
    assert f"{5:020d}.log" in outcome.files
    outcome = predicted({f"{FIRST}.log": ONE, "-1.log": segment(5)})
    loads(outcome, 10, (-1, 0), (0, len(ONE)))


def test_orphans() -> None:
    files = healthy() | {f"{7:020d}.index": b"", f"{7:020d}.txnindex": b""}
    assert {f"{7:020d}.index", f"{7:020d}.txnindex"} <= predicted(files).deleted_files


# ------------------------------------------------------------------------------------------------------------ one
# segment


def test_replay() -> None:
    assert broker.recover_segment(BytesSource(ONE), 0) == broker.SegmentRecovery(len(ONE), 10, False, None, ())
    assert broker.recover_segment(BytesSource(ONE[:-1]), 0) == broker.SegmentRecovery(9 * BATCH, 9, False, None, ())
    assert broker.recover_segment(BytesSource(b""), 5) == broker.SegmentRecovery(0, 5, False, None, ())
    assert broker.recover_segment(BytesSource(moved(ONE, 3, 1 << 40)), 0).overflow == 3 * BATCH
    assert broker.recover_segment(BytesSource(moved(ONE, 9, 2)), 0, interval=1).is_emptied
    assert not broker.recover_segment(BytesSource(moved(ONE, 9, 2)), 0).is_emptied


# -------------------------------------------------------------------------------------------------------------------
# words


def at(code: str, name: str, position: int = 0, length: int = 1, **data: Any) -> Finding:
    return make_finding(code, f"/logs/topic-0/{name}", position, length, **data)


def test_words() -> None:
    files = healthy() | {
        f"{SECOND}.log": TWO[: 3 * BATCH + 5],
        f"{FIRST}.log.deleted": b"",
        f"{7:020d}.index": b"",
        "letters.log": b"",
        "leader-epoch-checkpoint": build.checkpoint("0 0", "5 1000"),
    }
    outcome = predicted(files)
    said = [
        (at("tail/torn", f"{SECOND}.log", 3 * BATCH, 5, claimed=1), "truncates"),
        (at("offset/gap", f"{SECOND}.log", 0, 61), "ignores"),
        (at("offset/gap", f"{THIRD}.log", 0, 61), "deletes"),
        (at("index/torn", f"{SECOND}.index"), "rebuilds"),
        (at("index/missing", f"{SECOND}.log"), "rebuilds"),
        (at("index/torn", f"{THIRD}.index"), "deletes"),
        (at("snapshot/crc", f"{SECOND}.snapshot"), "rebuilds"),
        (at("snapshot/crc", f"{THIRD}.snapshot"), "deletes"),
        (at("file/leftover", f"{FIRST}.log.deleted"), "deletes"),
        (at("file/orphan", f"{7:020d}.index"), "deletes"),
        (at("file/name", "letters.log"), "refuses"),
        (at("file/unknown", "notes.txt"), "ignores"),
        (at("segment/missing", f"{SECOND}.log"), "ignores"),
        (at("txn/open", f"{SECOND}.log", 0, 10**6), "ignores"),
        (at("epoch/beyond", "leader-epoch-checkpoint", epoch=5, start_offset=1000), "deletes"),
    ]
    reacted = reaction.with_reactions([finding for finding, _ in said], outcome)
    assert [(finding.code, finding.broker) for finding in reacted] == [(finding.code, word) for finding, word in said]
    assert reaction.reaction_to(at("properties/format", "meta.properties"), None) == "refuses"
    (directory,) = reaction.with_directory_reactions([at("checkpoint/unknown", "recovery-point-offset-checkpoint")])
    assert directory.broker == "deletes"


def test_words_of_refusals() -> None:
    log = transactional(0) + transactional(1, transactional=False)
    outcome = predicted({f"{FIRST}.log": log, "partition.metadata": b"", "leader-epoch-checkpoint": b"x"})
    size = len(transactional(0))
    assert reaction.reaction_to(at("txn/state", f"{FIRST}.log", size, size), outcome) == "refuses"
    assert reaction.reaction_to(at("txn/state", f"{FIRST}.log", 0, size), outcome) == "ignores"
    assert reaction.reaction_to(at("metadata/format", "partition.metadata"), outcome) == "refuses"
    assert reaction.reaction_to(at("epoch/format", "leader-epoch-checkpoint"), outcome) == "refuses"
    outcome = predicted(healthy() | {f"{SECOND}.log": moved(TWO, 4, 3)})
    assert reaction.reaction_to(at("offset/range", f"{SECOND}.log", 4 * BATCH, BATCH), outcome) == "refuses"


# ------------------------------------------------------------------------------------------------------- together with
# verify


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize(
    "partition", ["segments/segments-0", "v2-transactions-0.11.0.3/transactions-0", "mixed-through-2.8.2/mixed-0"]
)
def test_what_verify_has_read_need_not_be_read_again(partition: str, tmp_path: Path) -> None:
    """The same outcome with what verify hands over as without; and where the start does something, a finding says
    so."""
    for name in sampled(damage_partition.DAMAGES, 3):
        rng = random.Random(name)
        directory = tmp_path / name / Path(partition).name
        shutil.copytree(FIXTURES / partition, directory)
        try:
            damage_partition.apply(name, directory, rng)
        except NotApplicable:
            continue
        outcome = broker.predict_start(broker.directory_state(str(directory)))
        (report, *_) = verify_logs(discover([str(directory)]), VerifyOptions(deep=True))
        if report.outcome is None:
            assert (outcome.refusals, outcome.truncations, outcome.emptied_logs) == ((), {}, frozenset()), name
            continue
        for what in (
            "refusals",
            "log_end_offset",
            "segments",
            "truncations",
            "emptied_logs",
            "split_segments",
            "leader_epochs",
            "written_snapshots",
        ):
            assert getattr(report.outcome, what) == getattr(outcome, what), (name, what)
        words = {finding.broker for finding in report.findings}
        assert "refuses" in words or not outcome.refusals, name
        assert words & {"truncates", "refuses"} or not outcome.truncations, name


@pytest.mark.parametrize("point", [0, 15])
def test_the_checkpoints_beside_a_partition_count(point: int, tmp_path: Path) -> None:
    """Named alone, too: below its recovery point a broker does not look."""
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(build.checkpoint(f"topic 0 {point}"))
    for name, data in (healthy() | {f"{FIRST}.log": ONE[:-5]}).items():
        (tmp_path / "topic-0" / name).write_bytes(data)
    (report,) = verify_logs(discover([str(tmp_path / "topic-0")]))
    (torn,) = [finding for finding in report.findings if finding.code == "tail/torn"]
    assert torn.broker == ("ignores" if point else "truncates")
    assert report.context.recovery_point == point
