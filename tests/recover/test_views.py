"""A plan that goes by what verify's scan showed of a damaged log is the plan that reads the log again."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kdump.broker import file_records
from kdump.broker.file_records import FileRecords, ReadBuffer, VerifiedRecords
from kdump.broker.rebuild import rebuild_companions
from kdump.errors import SourceError
from kdump.format.batch import CONTROL, TRANSACTIONAL
from kdump.format.naming import Kind
from kdump.kernel.producers import Runs
from kdump.kernel.transactions import Transactions
from kdump.log.severity import Severity
from kdump.recover.plan import SALVAGE, Plan, RecoverOptions
from kdump.recover.planner import plan_partition
from kdump.storage.discovery import discover
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import Partition
from kdump.storage.source import BytesSource
from kdump.verify import partition
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions
from kdump.verify.verify import verify_logs
from support import build, cuttings, damage, damage_partition, directories, partition_cases, wrong_headers
from support.damage import NotApplicable
from support.expected_files import NOW_MS, put, report_of
from support.laws import examples
from support.salvage_faults import partitions

OPTIONS = (
    RecoverOptions(walk="all"),
    RecoverOptions(strategy=SALVAGE),
    RecoverOptions(strategy=SALVAGE, undecided="drop"),
)
STAMP = 1_600_000_000_000


def plan_of(report: Report, directory: Path, options: RecoverOptions) -> Plan | str:
    found = next(item for item in discover([str(directory)]) if isinstance(item, Partition))
    try:
        return plan_partition(report, found, options)
    except SourceError as error:
        return str(error)


def check_plans(directory: Path, case: object) -> bool:
    """Whether the report had views; each strategy has the same plan without them."""
    report = report_of(directory)
    without = replace(report, views={}, valid_prefixes={})
    for options in OPTIONS:
        assert plan_of(report, directory, options) == plan_of(without, directory, options), (case, options.strategy)
    return bool(report.views)


def test_a_log_with_transactions_is_planned_as_if_it_was_read(tmp_path: Path) -> None:
    seen = 0
    for number in range(examples(80)):
        rng = random.Random(number)
        segments = build.partition(
            rng, batches=rng.choice((8, 40)), odd=rng.choice((0, 0.1)), removed=number % 3 * 0.05
        )
        broken = partition_cases.broken(segments, rng, rng.choice((1, 1, 2, 3)))
        files = {f"{segment.base_offset:020d}.log": segment.data for segment in broken}
        seen += check_plans(put(tmp_path / str(number) / "topic-0", files), number)
    assert seen > examples(80) // 2


def test_a_log_with_wrong_headers_is_planned_as_if_it_was_read(tmp_path: Path) -> None:
    """No checksum covers them. A stretch between two of them is one span where no other batch can divide it."""
    seen = 0
    for number in range(examples(60)):
        rng = random.Random(number)
        files = wrong_headers.damaged_partition(rng)
        seen += check_plans(directories.write(tmp_path / str(number) / "topic-0", files), number)
    assert seen > examples(60) // 2


def test_a_log_with_transactions_and_a_wrong_offset_is_planned_as_if_it_was_read(tmp_path: Path) -> None:
    for number in range(examples(60)):
        files = wrong_headers.with_wrong_offset(random.Random(number))
        check_plans(directories.write(tmp_path / str(number) / "topic-0", files), number)


def test_the_companions_of_a_log_out_of_order_need_no_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan has verified them, so that only headers are read, here one by one."""
    monkeypatch.setattr(file_records, "_LARGE_BATCH_BYTES", 1)
    monkeypatch.setattr(
        FileRecords, "verified", lambda each: VerifiedRecords(ReadBuffer(100), each._open, each._start, each.size)
    )
    seen = 0
    for number in range(examples(60)):
        files = wrong_headers.damaged_partition(random.Random(number))
        directory = directories.write(tmp_path / str(number) / "topic-0", files)
        for options in OPTIONS[:2]:
            plan = plan_of(report_of(directory), directory, options)
            if not isinstance(plan, Plan):
                continue
            seen += any(log.is_verified and not log.valid for log in plan.segments)
            compared = plan._replace(segments=tuple(log._replace(is_verified=False) for log in plan.segments))
            wanted = list(rebuild_companions(compared.rebuild_request()))
            assert list(rebuild_companions(plan.rebuild_request())) == wanted, (number, options.strategy)
    assert seen > examples(60) // 12


def test_the_logs_of_brokers_are_planned_as_if_they_were_read(tmp_path: Path) -> None:
    """Of each magic and codec, compacted ones too."""
    seen = 0
    for number in range(examples(60)):
        rng = random.Random(number)
        place = rng.choice(partitions())
        directory = tmp_path / str(number) / place.name
        shutil.copytree(place, directory)
        logs = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size]
        try:
            if rng.random() < 0.5 and logs:
                log = rng.choice(logs)
                log.write_bytes(damage.damage(log.read_bytes(), rng))
            else:
                damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), directory, rng)
        except NotApplicable:
            continue
        if any(isinstance(item, Partition) for item in discover([str(directory)])):
            seen += check_plans(directory, (number, place))
    assert seen > examples(60) // 3


@pytest.mark.parametrize("transactional", [False, True])
def test_what_is_given_up_has_the_largest_timestamp_of_its_own(tmp_path: Path, transactional: bool) -> None:
    """Not that of a batch before the damage, which the scan carries on."""
    log = b"".join(
        build.batch(
            [build.record(b"k", b"v", timestamp=STAMP - offset)],
            base_offset=offset,
            producer_id=7 if transactional else -1,
            producer_epoch=0 if transactional else -1,
            base_sequence=offset if transactional else -1,
            transactional=transactional,
        )
        for offset in range(5)
    )
    size = len(log) // 5
    bad = bytearray(log)
    bad[size + 64] ^= 1
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": bytes(bad)})
    plan = plan_of(report_of(directory), directory, RecoverOptions(walk="all"))
    assert isinstance(plan, Plan)
    assert (plan.lost.given_up.batches, plan.lost.given_up.max_timestamp) == (3, STAMP - 2)


def transactions_of(data: bytes, start: int, stop: int) -> Transactions:
    """Those of the batches [start, stop) of a log."""
    found = Transactions(listed=True, gaps=False, idempotent=True)
    source = BytesSource(data[:stop])
    for _ in walk_of(Kind.LOG, source, base_offset=0, start=start, runs=Runs(), on_events=found.add):
        pass
    return found


def plain_begins(data: bytes) -> tuple[set[int], list[tuple[int, int]]]:
    """The producers of a log, and the begins of its transactions, by the headers of its batches."""
    producers: set[int] = set()
    open_: dict[int, int] = {}
    begins = []
    for batch in damage.batches(data):
        if batch.producer_id < 0 or (batch.attributes & CONTROL and batch.count == 0):
            continue
        producers.add(batch.producer_id)
        if batch.attributes & (CONTROL | TRANSACTIONAL) and batch.producer_id not in open_:
            open_[batch.producer_id] = batch.base_offset
            begins.append((batch.producer_id, batch.base_offset))
        if batch.attributes & CONTROL:
            del open_[batch.producer_id]
    return producers, begins


def test_the_producers_of_stretches_add_up() -> None:
    for number in range(examples(60)):
        rng = random.Random(number)
        data = b"".join(segment.data for segment in build.partition(rng, batches=30, odd=0))
        starts = [0, *(batch.position + batch.size for batch in damage.batches(data))]
        left, right = sorted(rng.choices(starts, k=2))
        added = Transactions(listed=True, gaps=False, idempotent=True)
        for start, stop in ((0, left), (left, right), (right, len(data))):
            found = transactions_of(data, start, stop)
            added.join(found.packed(), found.packed_ended())
        whole = transactions_of(data, 0, len(data))
        producers, begins = plain_begins(data)
        for one in (added, whole):
            assert (set(one.producer_ids()), one.begins()) == (producers, begins), number


def test_too_many_transactions_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take the memory of as many rows: then the headers of the log are read."""
    markers = [build.marker("COMMIT", base_offset=offset, producer_id=offset % 20) for offset in range(31)]
    data = bytearray(b"".join(markers))
    data[70] ^= 1
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": bytes(data)})
    for most, is_kept in ((29, False), (30, True)):
        monkeypatch.setattr(partition, "MOST_ROWS", most)
        (view,) = report_of(directory).views.values()
        assert [stretch.producers is not None for stretch in view.stretches if stretch.state.batches] == [is_kept]


def test_a_partition_without_room_for_transactions_is_planned_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = build.partition(random.Random(3), batches=60, odd=0)
    data = [segment.data[:80] + b"\xff" + segment.data[81:] for segment in segments]
    directory = put(
        tmp_path / "topic-0",
        {f"{segment.base_offset:020d}.log": bad for segment, bad in zip(segments, data, strict=True)},
    )
    wanted = [plan_of(report_of(directory), directory, options) for options in OPTIONS]
    monkeypatch.setattr(partition, "MOST_ROWS", 2)
    assert [plan_of(report_of(directory), directory, options) for options in OPTIONS] == wanted


def test_a_partition_without_room_for_views_is_planned_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of many damages take memory: of the segments after those there is room for, the log is read again."""
    segments = build.partition(random.Random(3), batches=60, odd=0)
    data = [segment.data[:80] + b"\xff" + segment.data[81:] for segment in segments]
    directory = put(
        tmp_path / "topic-0",
        {f"{segment.base_offset:020d}.log": bad for segment, bad in zip(segments, data, strict=True)},
    )
    report = report_of(directory)
    assert len(report.views) == len(segments) > 1
    wanted = [plan_of(report, directory, options) for options in OPTIONS]
    most = max(len(view.items) for view in report.views.values())
    monkeypatch.setattr(partition, "MOST_ITEMS", most)
    few = report_of(directory)
    assert 1 <= len(few.views) < len(segments)
    assert sum(len(view.items) for view in few.views.values()) <= most
    assert [plan_of(few, directory, options) for options in OPTIONS] == wanted


def test_a_log_with_many_damages_is_planned_as_if_it_was_read(tmp_path: Path) -> None:
    for number in range(examples(6)):
        rng = random.Random(number)
        segments = build.partition(rng, batches=300, odd=0)
        broken = partition_cases.broken(segments, rng, 60)
        files = {f"{segment.base_offset:020d}.log": segment.data for segment in broken}
        check_plans(put(tmp_path / str(number) / "topic-0", files), number)


def test_a_scan_in_ranges_plans_as_if_the_log_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    for number in range(examples(30)):
        rng = random.Random(number)
        segments = build.partition(rng, batches=60, odd=rng.choice((0, 0.1)))
        broken = partition_cases.broken(segments, rng, rng.choice((1, 3, 20)))
        files = {f"{segment.base_offset:020d}.log": segment.data for segment in broken}
        directory = put(tmp_path / str(number) / "topic-0", files)
        with monkeypatch.context() as patch:
            cuttings.borders(patch, rng)
            how = ScanOptions(valid_segments=True, now_ms=NOW_MS)
            (report,) = verify_logs(discover([str(directory)]), how, engine=cuttings.Ranges())
        seen += bool(report.views)
        for options in OPTIONS:
            wanted = plan_of(replace(report, views={}, valid_prefixes={}), directory, options)
            assert plan_of(report, directory, options) == wanted, (number, options.strategy)
    assert seen > examples(30) // 2


def test_values_of_zeros_need_as_many_bytes_with_a_view(tmp_path: Path) -> None:
    """Only bytes that are no batch are read for zeros, which a copy leaves out."""
    batches = [build.batch([build.record(value=bytes(200_000))], base_offset=offset) for offset in range(5)]
    log = bytearray(b"".join(batches))
    log[len(batches[0]) + 100] ^= 1
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": bytes(log)})
    report = report_of(directory)
    plan, without = (plan_of(one, directory, OPTIONS[0]) for one in (report, replace(report, views={})))
    assert isinstance(plan, Plan)
    assert isinstance(without, Plan)
    assert 3 * len(batches[0]) < plan.bytes_needed == without.bytes_needed < 4 * len(batches[0]) + 100


def transactional(offset: int, epoch: int = 0) -> bytes:
    return build.batch(
        [build.record(b"k", b"v")],
        base_offset=offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=0 if epoch else offset - 1,
        transactional=True,
    )


@pytest.mark.parametrize(
    ("second", "codes"),
    [
        (transactional(2), set()),
        (transactional(2, 1), {"txn/epochs"}),
        (build.empty_batch(2, 2, control=True, producer_id=7), {"txn/marker-empty"}),
    ],
    ids=["no finding", "two epochs", "no marker"],
)
@pytest.mark.parametrize("options", OPTIONS[1:], ids=["keep", "drop"])
def test_a_transaction_about_which_nothing_can_be_done_lets_a_salvage_do_nothing(
    tmp_path: Path, second: bytes, codes: set[str], options: RecoverOptions
) -> None:
    log = build.batch([build.record(b"k", b"v")]) + transactional(1) + second
    directory = put(tmp_path / "topic-0", {f"{0:020d}.log": log})
    report = report_of(directory)
    assert {finding.code for finding in report.findings if finding.severity >= Severity.WARNING} == codes
    plan = plan_of(report, directory, options)
    assert isinstance(plan, Plan)
    assert (plan.actions, plan.files) == ((), {})


@pytest.mark.parametrize("second", [transactional(2), transactional(2, 1)], ids=["no finding", "two epochs"])
@pytest.mark.parametrize("options", OPTIONS, ids=["truncate", "keep", "drop"])
def test_a_wrapper_that_a_broker_cannot_open_goes_from_a_segment_of_both_formats(
    tmp_path: Path, second: bytes, options: RecoverOptions
) -> None:
    """A broker does not start with it, and verify, which does not open it, finds nothing."""
    log = build.wrapper([build.record(b"k", b"v")], payload=b"no gzip") + transactional(1) + second
    plan = plan_of(report_of(put(tmp_path / "topic-0", {f"{0:020d}.log": log})), tmp_path / "topic-0", options)
    assert isinstance(plan, Plan)
    assert plan.actions[0].because == "legacy/wrapper"
    assert (plan.actions[0].start, plan.actions[0].batches) == (0, 1 if options.strategy == SALVAGE else 3)


def test_a_later_segment_goes_for_the_damage_before_it(tmp_path: Path) -> None:
    """A broker deletes it, whatever else is found in it; the warning about its transaction takes nothing away."""
    first = bytearray(build.batch([build.record(b"k", b"v")]))
    first[-1] ^= 1
    files = {f"{0:020d}.log": bytes(first), f"{1:020d}.log": transactional(1) + transactional(2, 1)}
    files |= {f"{offset:020d}.{kind}": b"" for offset in (0, 1) for kind in ("index", "timeindex")}
    directory = put(tmp_path / "topic-0", files)
    report = report_of(directory)
    assert "txn/epochs" in {finding.code for finding in report.findings}
    plan = plan_of(report, directory, OPTIONS[0])
    assert isinstance(plan, Plan)
    logs = {action.path[-24:]: action.because for action in plan.actions if action.path.endswith(".log")}
    assert logs == {f"{0:020d}.log": "batch/crc", f"{1:020d}.log": "batch/crc"}
