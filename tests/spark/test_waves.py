"""The engine of Spark without Spark: groups, waves, order, answers, whatever the back end does."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.engine.protocol import Serial, TaskSizes
from kdump.errors import KdumpError, SourceError, name_host
from kdump.recover.plan import RecoverOptions
from kdump.recover.planner import plan_recovery
from kdump.spark import engine as engine_module
from kdump.spark.builds import build_name, digest_of
from kdump.spark.engine import SparkEngine, description_of
from kdump.spark.failures import SparkFailure
from kdump.spark.tasks import packed_group, run_group
from kdump.stat.stat import stat_logs
from kdump.stat.values import StatOptions
from kdump.storage.discovery import discover
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.verify import VerifyOptions, verify_logs
from support import damage, damage_partition
from support.directories import built, write
from support.laws import examples
from support.spark_jobs import InlineBackend, values

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
MIB = 1 << 20
NOW_MS = 1_900_000_000_000


class SizedTask(NamedTuple):
    number: int
    size_bytes: int


def double(task: SizedTask) -> int:
    return 2 * task.number


def fail_at_three(task: SizedTask) -> int:
    if task.number == 3:
        raise SourceError("the third one")
    return task.number


def large(task: SizedTask) -> bytes:
    return random.Random(task.number).randbytes(10_000)


@pytest.fixture(autouse=True)
def own_host() -> Iterator[None]:
    """The groups run in this process, which is a worker of another machine for so long."""
    yield
    name_host("")


# ---- groups and waves


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from([0, 1000, MIB, 64 * MIB, 300 * MIB, 2000 * MIB]), max_size=200), st.integers(1, 9))
def test_results_come_in_order_and_no_group_is_too_large(sizes: list[int], slots: int) -> None:
    tasks = [SizedTask(number, size) for number, size in enumerate(sizes)]
    seen: list[list[SizedTask]] = []

    def run(data: bytes) -> bytes:
        seen.append(pickle.loads(pickle.loads(data)[-1])[1])
        return run_group(data)

    backend = InlineBackend(slots, run=run)
    found = list(SparkEngine(backend).map(double, iter(tasks)))
    assert found == list(Serial().map(double, tasks))
    assert all(given is task for (given, _), task in zip(found, tasks, strict=True))
    for group in seen:
        assert len(group) == 1 or sum(task.size_bytes for task in group) <= engine_module.MOST_BYTES
    assert all(jobs <= 4 * slots + 1 for jobs in backend.jobs)


def test_thousands_of_small_tasks_are_few_groups() -> None:
    backend = InlineBackend(4)
    assert sum(1 for _ in SparkEngine(backend).map(double, (SizedTask(n, 30_000) for n in range(4000)))) == 4000
    assert sum(backend.jobs) < 80


def test_slots_are_counted_again_for_each_wave() -> None:
    backend = InlineBackend(2)
    engine = SparkEngine(backend)
    results = engine.map(double, (SizedTask(number, 600 * MIB) for number in range(200)))
    next(results)
    backend.slots = 10
    assert len(list(results)) == 199
    assert max(backend.jobs[:3]) <= 2 + 1
    assert max(backend.jobs) >= 10
    assert engine.slots == 10


def test_little_work_is_spread_over_the_slots() -> None:
    backend = InlineBackend(4)
    list(SparkEngine(backend).map(double, (SizedTask(n, 10 * MIB) for n in range(8))))
    assert backend.jobs == [4]


def test_groups_grow_with_the_work() -> None:
    engine = SparkEngine(InlineBackend(2))
    sizes = [engine.sizes]
    for _ in engine.map(double, (SizedTask(n, 256 * MIB) for n in range(400))):
        if engine.sizes != sizes[-1]:
            sizes.append(engine.sizes)
    assert sizes[0] == (512 * MIB, 128 * MIB)
    assert sizes[-1].range_bytes == 512 * MIB
    assert sizes[-1].whole_bytes == 4 << 30
    assert sizes == sorted(sizes)


def test_a_large_partition_on_few_slots_has_large_ranges() -> None:
    """Each slot has several, so that all end at about the same time, and none is too much to do again."""
    sizes = TaskSizes(512 * MIB, 128 * MIB)
    assert sizes.ranges_of(600 * MIB, 2) == 128 * MIB
    assert sizes.ranges_of(4 << 30, 2) == 256 * MIB
    assert sizes.ranges_of(4 << 30, 100) == 128 * MIB
    assert sizes.ranges_of(1 << 40, 2) == 512 * MIB


def test_tasks_are_taken_no_further_than_the_waves_under_way() -> None:
    taken = 0

    def tasks() -> Iterator[SizedTask]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            yield SizedTask(number, 200 * MIB)

    results = SparkEngine(InlineBackend(2)).map(double, tasks())
    assert next(results)[1] == 0
    assert taken <= 3 * 2 + 1
    for number in range(1, 100):
        assert next(results)[1] == 2 * number
    assert taken <= 100 + 3 * 9 * 2
    results.close()  # type: ignore[attr-defined]


def test_results_that_are_too_large_for_a_job_are_asked_for_in_parts() -> None:
    backend = InlineBackend(8, most_result_bytes=45_000)
    tasks = [SizedTask(number, 128 * MIB) for number in range(60)]
    assert [result for _, result in SparkEngine(backend).map(large, tasks)] == [large(task) for task in tasks]
    # The first waves do not know how large the answers are. Those after them do.
    assert backend.answered == 60
    assert backend.jobs[-1] == 1


def test_one_result_that_is_too_large_is_a_sentence() -> None:
    with pytest.raises(KdumpError, match=r"spark\.driver\.maxResultSize"):
        list(SparkEngine(InlineBackend(2, most_result_bytes=100)).map(large, [SizedTask(0, 0)]))


# ---- what goes wrong


def test_what_the_function_raises_comes_at_its_place() -> None:
    results = SparkEngine(InlineBackend(2)).map(fail_at_three, (SizedTask(n, 600 * MIB) for n in range(9)))
    assert [next(results)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(SourceError, match="the third one") as caught:
        next(results)
    assert "in a worker of Spark" in caught.value.__notes__[0]
    assert "fail_at_three" in caught.value.__notes__[0]


def test_a_worker_with_another_build_refuses() -> None:
    def other(data: bytes) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kdump.spark.tasks.build_name", lambda: "0.1.0 build 0")
            return run_group(data)

    with pytest.raises(KdumpError) as caught:
        list(SparkEngine(InlineBackend(2, run=other)).map(double, [SizedTask(0, 0)]))
    assert str(caught.value) == (
        f"the worker {os.uname().nodename} has kdump 0.1.0 build 0, and the driver has kdump {build_name()}; both must"
        " be the same build"
    )


def test_the_name_of_a_build_is_that_of_its_sources(tmp_path: Path) -> None:
    """Those of the kernel too: the version of a development build stays, and compilers differ."""
    package = tmp_path / "kdump"
    (package / "kernel").mkdir(parents=True)
    for name in ("__init__.py", "kernel/scan.pyx", "kernel/scan.so", "kernel/scan.c"):
        (package / name).write_text("x")
    first = digest_of(str(package))
    (tmp_path / "elsewhere").mkdir()
    assert digest_of(str(shutil.copytree(package, tmp_path / "elsewhere" / "kdump"))) == first
    for name in ("kernel/scan.so", "kernel/scan.c", "pyspark_kdump/x.py", "__pycache__/x.py"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text("y")
    assert digest_of(str(package)) == first
    (package / "kernel" / "scan.pyx").write_text("y")
    second = digest_of(str(package))
    (package / "kernel" / "scan.pyx").rename(package / "kernel" / "scan2.pyx")
    assert len({first, second, digest_of(str(package))}) == 3
    assert build_name() is build_name()


def test_a_refusal_needs_nothing_of_the_group() -> None:
    """Another build may not even have the function."""
    version, *_, work = pickle.loads(packed_group(double, [], names_host=True))
    assert version == build_name()
    answer = pickle.loads(run_group(pickle.dumps(("9.9.9", "/", True, b"no pickle at all"))))
    assert answer[0] == build_name()
    assert answer[2] == "refused"
    assert isinstance(work, bytes)


def test_an_interrupt_cancels_what_is_under_way() -> None:
    ended = threading.Event()

    def slow(data: bytes) -> bytes:
        ended.wait(20)
        return run_group(data)

    backend = InlineBackend(2, run=slow)
    results = SparkEngine(backend).map(double, (SizedTask(n, 200 * MIB) for n in range(100)))
    stop = threading.Timer(0.2, ended.set)

    def interrupted(*_: Any) -> bool:
        stop.start()
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module.SparkEngine, "_wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(results)
    assert backend.cancelled.is_set()


def test_a_cluster_without_workers_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "_NOTICE_SECONDS", 0.05)
    told: list[str] = []
    ready = threading.Event()

    def slow(data: bytes) -> bytes:
        ready.wait(20)
        return run_group(data)

    backend = InlineBackend(2, run=slow)
    monkeypatch.setattr(backend, "has_workers", lambda: bool(threading.Timer(0.2, ready.set).start()))
    list(SparkEngine(backend, told.append).map(double, [SizedTask(0, 0)]))
    assert len(told) == 1
    assert "no Spark worker has taken any work" in told[0]
    assert told[0].endswith("for an executor?; Spark's log: nothing)")


def test_workers_that_are_lost_in_the_middle_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark waits for others without a word."""
    monkeypatch.setattr(engine_module, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "_NOTICE_SECONDS", 0.05)
    told: list[str] = []
    lost, back = threading.Event(), threading.Event()

    def slow(data: bytes) -> bytes:
        if lost.is_set():
            back.wait(20)
        return run_group(data)

    def tell(what: str) -> None:
        told.append(what)
        back.set()

    backend = InlineBackend(2, run=slow)
    monkeypatch.setattr(backend, "has_workers", lambda: not lost.is_set())
    results = SparkEngine(backend, tell).map(double, (SizedTask(n, 600 * MIB) for n in range(40)))
    next(results)
    lost.set()
    assert len(list(results)) == 39
    assert told == ["no Spark worker is left; waiting for one that goes on (Ctrl-C ends the run)"]


@pytest.mark.parametrize("ends", ["in a job", "between jobs"])
def test_a_driver_that_is_killed_is_one_sentence(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    def refused(*_: object) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")

    backend = InlineBackend(2, run=refused if ends == "in a job" else run_group)
    engine = SparkEngine(backend)
    if ends == "between jobs":
        monkeypatch.setattr(InlineBackend, "slots", property(refused, lambda *_: None), raising=False)
    sentence = r"^the driver of Spark, a Java process of this machine, has ended, .*spark\.driver\.memory=4g"
    with pytest.raises(SparkFailure, match=sentence):
        list(engine.map(double, [SizedTask(0, 0)]))
    assert backend.cancelled.is_set()


def test_executors_that_end_at_once_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(engine_module, "_NOTICE_SECONDS", 0.05)
    monkeypatch.setattr(engine_module, "_CANCEL_SECONDS", 0)
    ready = threading.Event()

    def slow(data: bytes) -> bytes:
        ready.wait(20)
        return run_group(data)

    backend = InlineBackend(2, run=slow)

    def why() -> str:
        raise SparkFailure("no executor of Spark stays alive")

    monkeypatch.setattr(backend, "has_workers", lambda: False)
    monkeypatch.setattr(backend, "why_it_waits", why)
    with pytest.raises(SparkFailure, match="stays alive"):
        list(SparkEngine(backend).map(double, [SizedTask(0, 0)]))
    ready.set()
    assert backend.cancelled.is_set()


# ---- the same answer


def small_groups(patch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Cut everything, and group it, as if some kilobytes were many."""
    patch.setattr(engine_module, "_TASK_BYTES", 0)
    patch.setattr(engine_module, "LEAST_BYTES", rng.randrange(1, 3000))
    patch.setattr(engine_module, "MOST_BYTES", rng.randrange(1, 9000))
    patch.setattr(engine_module, "MOST_WHOLE_BYTES", rng.randrange(1, 9000))


def engine(rng: random.Random) -> SparkEngine:
    return SparkEngine(InlineBackend(rng.randrange(2, 5)))


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    "name", ["segments", "transactions", "compacted", "crash", "killed", "log-directory", "v0-segments-0.8.2.2"]
)
def test_spark_changes_no_report(tmp_path: Path, name: str) -> None:
    for seed in range(1, 1 + examples(10)):
        rng = random.Random(f"{name} {seed}")
        copy = Path(
            shutil.copytree(
                FIXTURES / name, tmp_path / f"{name}{seed}", ignore=shutil.ignore_patterns("expected", "case.toml")
            )
        )
        for partition in sorted(path for path in copy.iterdir() if path.is_dir()):
            hurt(partition, rng, seed % 4)
        compare(copy, rng)


@settings(max_examples=examples(6), deadline=None)
@given(st.randoms(use_true_random=False))
def test_spark_changes_no_report_of_made_partitions(tmp_path_factory: Any, rng: random.Random) -> None:
    compare(write(tmp_path_factory.mktemp("made") / "t-0", built(rng)), rng)


def hurt(directory: Path, rng: random.Random, times: int) -> None:
    for _ in range(times):
        with contextlib.suppress(damage.NotApplicable, IndexError):
            damage_partition.apply(rng.choice(sorted(damage_partition.DAMAGES)), directory, rng)


def compare(place: Path, rng: random.Random) -> None:
    """Verify, stat, stat --deep and the plan of a recovery here and in groups."""

    def found() -> Iterator[Any]:
        return discover([str(place)])

    deep = StatOptions(deep=True, now_ms=NOW_MS)
    for run in (
        lambda how: verify_logs(found(), VerifyOptions(now_ms=NOW_MS), engine=how),
        lambda how: stat_logs(found(), StatOptions(now_ms=NOW_MS), engine=how),
        lambda how: stat_logs(found(), deep, engine=how),
        lambda how: plan_recovery(found(), RecoverOptions(now_ms=NOW_MS), engine=how),
    ):
        expected = [values(item) for item in run(Serial())]
        with pytest.MonkeyPatch.context() as patch:
            small_groups(patch, rng)
            assert [values(item) for item in run(engine(rng))] == expected


# ---- a path that a worker does not have


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "in ranges"])
def test_a_path_that_a_worker_does_not_have_is_an_error_with_the_host(tmp_path: Path, *, whole: bool) -> None:
    shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "here" / "segments-0")
    shutil.copytree(FIXTURES / "transactions" / "transactions-0", tmp_path / "there" / "transactions-0")
    items = [item for item in discover([str(tmp_path)]) if not isinstance(item, LogDirectory)]
    assert [isinstance(item, Partition) for item in items] == [True, True]

    def elsewhere(data: bytes) -> bytes:
        shutil.rmtree(tmp_path / "there", ignore_errors=True)
        return run_group(data)

    with pytest.MonkeyPatch.context() as patch:
        if not whole:
            small_groups(patch, random.Random(1))
        patch.setattr("socket.gethostname", lambda: "host-7")
        work = SparkEngine(InlineBackend(2, run=elsewhere, names_host=True))
        reports = list(verify_logs(iter(items), VerifyOptions(now_ms=NOW_MS), engine=work))
    assert [report.path for report in reports] == [item.path for item in items if isinstance(item, Partition)]
    assert not reports[0].errors
    there = f"{tmp_path}/there/transactions-0: no such directory on the host host-7"
    assert [str(error) for error in reports[1].errors] == [
        f"{there}; every worker must be able to reach the same paths"
    ]
    assert not reports[1].findings


def test_a_wave_says_which_paths_it_reads(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "segments-0")
    shutil.copytree(FIXTURES / "transactions" / "transactions-0", tmp_path / "transactions-0")
    backend = InlineBackend(2)
    list(verify_logs(discover([str(tmp_path)]), VerifyOptions(now_ms=NOW_MS), engine=SparkEngine(backend)))
    assert backend.descriptions == [f"kdump: {tmp_path}/segments-0 to {tmp_path}/transactions-0, 2 paths"]
    assert description_of([[1, 2], [3]]) == "kdump"
