"""A broker on log directories that it crashed in, that were damaged, and that kdump recover truncated: it starts,
serves every record that was left, and takes new ones.

KDUMP_RECOVER_BROKER_SEED chooses where the damages are done.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interop.clients import Client, Read, records
from interop.test_live import SETTINGS
from kdump.broker import predict as loading
from kdump.format.naming import RECOVERY_POINTS
from support import damage_partition, oracle, recovery_plans
from support.command_runs import verified
from support.damage import NotApplicable
from support.laws import of_the_day
from support.salvage_oracle import files, valid
from support.waits import checkpointed, until

SEED = os.environ.get("KDUMP_RECOVER_BROKER_SEED", "1")
SMALL = "internal.segment.bytes=1500,index.interval.bytes=200"
TOPICS = {
    "plain": (3, ""),
    "idempotent": (3, ""),
    "transactions": (5, ""),
    "rolls": (8, SMALL),
    "compacted": (3, f"{SMALL},cleanup.policy=compact"),
}
PARTITIONS = tuple(f"{topic}-{number}" for topic, (count, _) in TOPICS.items() for number in range(count))
WRITTEN = {
    # before a clean stop, and until the broker was killed
    "plain": ("pP6", "qP4"),
    "idempotent": ("iI4 jI3", "iI3"),
    "transactions": ("aC2 bA2 aA1 bC3 iI1", "aC2 bA1 aC1"),
    "rolls": ("aC2 bA2 iI2 aA3 bC3 iI3 aC2 bA2 aC2 bA2 bC3 aC1 pP2 cO1", "aA2 bC3 aC1 bA2 iI3 dO1 aC2"),
    "compacted": ("pP8 aC4 iI4 bA2 aC5 pP9 aC2", "iI3 bA1 aC2"),
}
# Producers that the broker knows, and others.
AFTERWARDS = "iI2 aC1 bA1 xC1"
CLEANS = {"log.cleaner.min.cleanable.ratio": "0.01"}
# A broker that was killed can register again when its session is over.
QUICK = {"broker.session.timeout.ms": 1000, "broker.heartbeat.interval.ms": 300}


class Damage(NamedTuple):
    """Done to the newest segment of a partition or to an older one, or so that a broker refuses it, or anyhow."""

    partition: str
    name: str
    where: str = ""


FROM_THE_CHECKPOINT = (
    Damage("plain-0", "truncate", "newest"),
    Damage("plain-1", "flip-payload", "newest"),
    Damage("plain-2", "zeroed-page", "newest"),
    Damage("idempotent-0", "epochs-garbage", "refused"),
    Damage("idempotent-1", "partition-metadata-empty", "refused"),
    Damage("idempotent-2", "epochs-negative", "refused"),
    Damage("transactions-0", "txnindex-version", "refused"),
    Damage("transactions-1", "bad-marker", "refused"),
    Damage("transactions-2", "resealed-not-transactional", "refused"),
    Damage("transactions-3", "resealed-control", "refused"),
    Damage("transactions-4", "odd-letters-log", "refused"),
    Damage("rolls-0", "odd-short-log"),
    Damage("rolls-1", "renamed-segment", "refused"),
    Damage("rolls-2", "leftover-swap"),
    Damage("rolls-2", "leftover-deleted"),
    Damage("rolls-3", "overflow-tail", "newest"),
    Damage("rolls-4", "flip-payload", "newest"),
    Damage("rolls-5", "index-garbage", "newest"),
    Damage("rolls-5", "leftover-cleaned"),
    Damage("rolls-6", "garbage-tail", "newest"),
    Damage("compacted-0", "flip-crc", "newest"),
    Damage("compacted-1", "partition-metadata-garbage", "refused"),
)
FROM_THE_FIRST = (
    Damage("plain-0", "flip-length", "newest"),
    Damage("plain-1", "short-tail", "newest"),
    Damage("plain-2", "odd-huge-log", "refused"),
    Damage("idempotent-0", "epochs-bad-count", "refused"),
    Damage("idempotent-1", "odd-negative-log"),
    Damage("transactions-0", "flip-payload"),
    Damage("transactions-1", "truncate"),
    Damage("transactions-2", "bad-marker", "refused"),
    Damage("transactions-3", "zeroed-end"),
    Damage("transactions-4", "resealed-not-transactional", "refused"),
    Damage("rolls-0", "flip-payload", "older"),
    Damage("rolls-1", "renamed-segment", "refused"),
    Damage("rolls-2", "leftover-swap-merged"),
    Damage("rolls-3", "offset-overflow", "older"),
    Damage("rolls-4", "offset-below-base", "refused"),
    Damage("rolls-5", "missing-segment", "older"),
    Damage("rolls-6", "leftover-swap-cut"),
    Damage("rolls-7", "zeroed-page", "older"),
    Damage("compacted-0", "flip-payload", "older"),
    Damage("compacted-1", "odd-letters-index", "refused"),
    Damage("compacted-2", "overflow-tail", "newest"),
)


class Life(NamedTuple):
    """The options of a recovery, what is damaged before, and how the broker ended: one that stopped trusts what it
    finds."""

    options: tuple[str, ...]
    damages: Sequence[Damage]
    ended: str = "crashed"


LIVES = {
    "from the checkpoint": Life((), FROM_THE_CHECKPOINT),
    "from the first": Life(("--from", "all"), FROM_THE_FIRST, "stopped"),
    "all rebuilt": Life(("--from", "all", "--rebuild", "all"), FROM_THE_FIRST),
}
REFUSED = (
    # with what a broker says when it ends
    (Damage("idempotent-0", "epochs-garbage"), "KafkaStorageException"),
    (Damage("idempotent-1", "partition-metadata-empty"), "NullPointerException"),
    (Damage("transactions-0", "txnindex-version"), "Unexpected aborted transaction version"),
    (Damage("transactions-1", "bad-marker", "refused"), "InvalidRecordException"),
    (Damage("transactions-2", "resealed-not-transactional", "refused"), "InvalidTxnStateException"),
    (Damage("rolls-1", "renamed-segment", "refused"), "Split operation is only permitted"),
)


ROOT_REFUSED = {
    # what is wrong in the log directory itself, and what a broker says when it ends
    "file/name backup": "is not in the form of topic-partition",
    "file/name plain-00": "Duplicate log directories",
    "checkpoint/format recovery-point-offset-checkpoint": "recovery-point-offset-checkpoint",
    "checkpoint/format replication-offset-checkpoint": "Shutdown broker because all log dirs",
    "checkpoint/format log-start-offset-checkpoint": "Error while reading checkpoint file",
    "checkpoint/format cleaner-offset-checkpoint": "Shutdown broker because all log dirs",
    "properties/format meta.properties": "meta.properties",
}
"""By the code of the finding and the name of what is wrong."""


def recover(*arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    """The exit status of a run in a process of its own, its lines, and what it complained of."""
    command = (sys.executable, "-P", "-m", "kdump", "recover", "--format", "json", "--no-progress")
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, timeout=120, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


# ---- damage


def recovery_point(logs: Path, partition: str) -> int:
    """What the checkpoint of a log directory says of a partition."""
    lines = (logs / RECOVERY_POINTS).read_text().splitlines()[2:]
    points = {"-".join(line.split()[:2]): int(line.split()[2]) for line in lines}
    return points.get(partition, 0)


def damage(logs: Path, what: Damage, seed: str, *, from_the_first: bool = False) -> None:
    """Damage a partition. What a broker is to refuse, it refuses where the recovery begins."""
    directory = logs / what.partition
    point = 0 if from_the_first else recovery_point(logs, what.partition)
    before = directory.with_name("before")
    shutil.copytree(directory, before)
    newest = damage_partition.logs(directory)[-1].stem
    for attempt in range(200):
        try:
            where = damage_partition.apply(what.name, directory, random.Random(f"{what}:{seed}:{SEED}:{attempt}"))
        except NotApplicable:
            continue
        is_newest = where.file.partition(".")[0] == newest
        fits = {
            "": True,
            "newest": is_newest and has_end_of_batch(directory, where),
            "older": not is_newest and has_end_of_batch(directory, where),
            "refused": what.where == "refused"
            and loading.predict_start(loading.directory_state(str(directory), recovery_point=point)).refuses,
        }
        if fits[what.where]:
            shutil.rmtree(before)
            return
        shutil.rmtree(directory)
        shutil.copytree(before, directory)
    raise AssertionError(f"{what} could not be done")


def has_end_of_batch(directory: Path, where: damage_partition.Where) -> bool:
    """Whether a truncation lets the log end after a batch. Where the cleaner has removed the last offsets below a
    segment, of which all goes, no consumer comes to the end: it waits for a batch that follows.
    """
    if not where.file.endswith(".log"):
        return True
    before = [own for own in valid(files(directory)) if (own.file, own.batch.position) < where]
    ends = [before[-1].file, f"{before[-1].last + 1:020d}.log"] if before else []
    return where.file in ends


FILLED = (
    Damage("plain-0", "truncate", "newest"),
    Damage("plain-1", "flip-payload"),
    Damage("plain-2", "zeroed-page"),
    Damage("idempotent-0", "flip-length"),
    Damage("transactions-0", "flip-payload"),
    Damage("transactions-1", "truncate"),
    Damage("transactions-3", "zeroed-end"),
    Damage("rolls-0", "flip-payload", "older"),
    Damage("rolls-5", "missing-segment", "older"),
    Damage("rolls-7", "zeroed-page", "older"),
)

# ---- what consumers are to see


class LogContent(NamedTuple):
    """The values of a log by offset: all of them, and those that were not aborted, as if what is open were aborted; and
    where open transactions begin."""

    all: dict[int, str]
    committed: dict[int, str]
    open: list[int]

    @property
    def stable(self) -> dict[int, str]:
        return {offset: text for offset, text in self.committed.items() if offset < min(self.open, default=1 << 63)}


def content_of(directory: Path) -> LogContent:
    """What the logs hold, by the plain walk of `oracle`."""
    everything: dict[int, str] = {}
    committed: dict[int, str] = {}
    open_at: dict[int, int] = {}
    waiting: dict[int, dict[int, str]] = {}
    for own in valid(files(directory)):
        found = oracle.records(own.data)
        producer = own.batch.producer_id
        if own.batch.control:
            (record,) = found
            assert record.key is not None
            open_at.pop(producer, None)
            ended = waiting.pop(producer, {})
            committed |= ended if record.key[2:4] == b"\0\1" else {}
            continue
        values = {record.offset: (record.value or b"").decode() for record in found}
        everything |= values
        if own.batch.attributes & 0x10:
            open_at.setdefault(producer, own.first)
            waiting.setdefault(producer, {}).update(values)
        else:
            committed |= values
    return LogContent(everything, committed, sorted(open_at.values()))


def served_after_loss(directory: Path, hanging: list[int]) -> LogContent:
    """What consumers see of a log whose markers may be lost: a broker does not know of these.

    It names the aborted transactions by the transaction indexes, which outlive a segment that is gone. A consumer skips
    the batches of a producer from the first offset of such a transaction to the next ABORT marker
    (CompletedFetch.consumeAbortedTransactionsUpTo). `hanging`: where open transactions begin, which are aborted later.
    """
    entries = [
        struct.unpack_from(">hqqqq", index, at)[1:3]
        for index in (path.read_bytes() for path in sorted(directory.glob("*.txnindex")))
        for at in range(0, len(index), 34)
    ]
    aborted = sorted((first, producer) for producer, first in entries)
    committed: dict[int, str] = {}
    skipped: set[int] = set()
    for own in valid(files(directory)):
        producer, found = own.batch.producer_id, oracle.records(own.data)
        while aborted and aborted[0][0] <= own.last:
            skipped.add(aborted.pop(0)[1])
        if own.batch.control:
            (record,) = found
            if record.key is not None and record.key[2:4] == b"\0\0":
                skipped.discard(producer)
            continue
        transactional = own.batch.attributes & 0x10
        if transactional and own.first in hanging:
            skipped.add(producer)
        if not transactional or producer not in skipped:
            committed |= {record.offset: (record.value or b"").decode() for record in found}
    return LogContent(content_of(directory).all, committed, hanging)


# ---- a broker


class Place:
    """A broker, and the log directory that it had when it crashed."""

    def __init__(self, kafka: ModuleType, broker: Any) -> None:
        self.broker, self.logs = broker, broker.logs
        self.client = Client(kafka, broker.bootstrap)

    def keep(self, name: str) -> None:
        shutil.copytree(self.logs, self.broker.home / name)

    def reset(self, name: str = "crashed") -> None:
        """Everything as it was when it was kept under a name."""
        self.broker.crash()
        self.put(self.broker.home / name)

    def put(self, logs: Path) -> None:
        shutil.rmtree(self.logs)
        shutil.copytree(logs, self.logs)

    def refuses(self) -> str:
        """What a broker says that does not start, or that ends by itself soon after."""
        said = self.broker.server.log_path
        before = said.stat().st_size
        with pytest.raises(RuntimeError, match=r"exit status [0-9]"):
            self._run_to_its_end()
        return str(said.read_bytes()[before:].decode())

    def _run_to_its_end(self) -> None:
        self.broker.start()
        raise RuntimeError(f"it started, and ended with exit status {self.broker.server.process.wait(30)}")


@pytest.fixture(scope="module")
def place(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("broker")
    with kafka.kraft_broker(home, settings={**SETTINGS, **CLEANS, **QUICK}) as broker:
        place = Place(kafka, broker)
        place.client.make(*(f"{topic}:{count}:{settings}" for topic, (count, settings) in TOPICS.items()))
        for part, end in enumerate((broker.stop, broker.crash)):
            place.client.write(*(f"{name}:{WRITTEN[name.partition('-')[0]][part]}" for name in PARTITIONS))
            for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
                checkpointed(place.logs, name)
            end()
            place.keep(("stopped", "crashed")[part])
            if part == 0:
                broker.start()
        # From now on nothing is cleaned while a reader is at it.
        properties = home / "server.properties"
        text = properties.read_text()
        for name, value in CLEANS.items():
            text = text.replace(f"{name}={value}", f"{name}=0.99")
        properties.write_text(text)
        yield place


def worse_than_info(found: Sequence[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(finding["code"], finding["path"]) for finding in found if finding["severity"] != "info"}


def kept(logs: Path) -> dict[str, Any]:
    return {name: content for name, content in recovery_plans.tree(logs, undo=True).items() if ".kdump-undo" in name}


@pytest.mark.parametrize("life", of_the_day(LIVES, 3))
def test_a_broker_goes_on_with_what_was_truncated(place: Place, life: str) -> None:
    options, damages, ended = LIVES[life]
    place.reset(ended)
    logs = place.logs
    for what in damages:
        damage(logs, what, life, from_the_first="--from" in options)
    status, lines, complaints = recover("--truncate", *options, logs)
    assert (status, complaints) == (4, ""), lines
    partitions = {Path(line["path"]).name: line for line in lines if line["type"] == "partition"}
    for what in damages:
        line = partitions[what.partition]
        assert (line["applied"], line["error"]) == (not line["empty"], None), what
        assert line["refusals"] or what.where != "refused", what
        assert line["empty"] or (logs / what.partition / ".kdump-undo" / line["undo"]).is_dir(), what
    if damages is FROM_THE_FIRST:  # which cuts logs below their recovery points
        assert any(path.name.startswith(".kdump-undo-") for path in logs.iterdir())
    undo = kept(logs)
    _, repaired = verified(logs)
    before = {name: content_of(logs / name) for name in PARTITIONS}

    place.broker.start()
    if not options:
        check_running(logs)
    reads = [("read", isolation, *PARTITIONS) for isolation in ("read_uncommitted", "read_committed")]
    uncommitted, committed, hanging = place.client.run(*reads, ("open", *PARTITIONS))
    lossy = {what.partition for what in damages if what.name == "missing-segment"}
    for name in lossy:
        starts = [int(line.split()[1]) for line in hanging if line.split()[0] == name]
        assert set(starts) <= set(before[name].open)
        before[name] = served_after_loss(logs / name, starts)
    assert sorted(hanging) == sorted(f"{name} {start}" for name, one in before.items() for start in one.open)
    assert records(uncommitted, PARTITIONS) == {name: one.all for name, one in before.items()}
    assert records(committed, PARTITIONS) == {name: one.stable for name, one in before.items()}

    *aborted, all_committed, _, new, new_committed = place.client.run(
        *(("abort", *line.split()) for line in hanging),
        reads[1],
        ("write", *(f"{name}:{AFTERWARDS}" for name in PARTITIONS)),
        *reads,
    )
    assert aborted == [["aborted"]] * len(hanging)
    assert records(all_committed, PARTITIONS) == {name: one.committed for name, one in before.items()}
    # Where a segment with markers is gone, nothing says what was aborted.
    assert not [text for name in set(PARTITIONS) - lossy for text in before[name].committed.values() if text[0] in "ao"]
    ends = {name: partitions[name]["log_end_offset"] + len(one.open) for name, one in before.items()}
    check_new(records(new, PARTITIONS), {name: one.all for name, one in before.items()}, ends, aborted=True)
    check_new(records(new_committed, PARTITIONS), {name: one.committed for name, one in before.items()}, ends)

    place.broker.stop()
    assert kept(logs) == undo
    _, found = verified(logs)
    assert worse_than_info(found) <= worse_than_info(repaired)

    left = recovery_plans.tree(logs, undo=True)
    status, lines, complaints = recover("--undo", logs)
    assert status == 3
    assert "a broker has written since" in complaints
    assert recovery_plans.tree(logs, undo=True) == left


def test_a_broker_goes_on_with_what_another_copy_gave(place: Place) -> None:
    place.reset("crashed")
    logs, other = place.logs, place.broker.home / "crashed"
    before = {name: content_of(logs / name) for name in PARTITIONS}
    for what in FILLED:
        damage(logs, what, "filled")
    status, lines, complaints = recover("--fill-from", other, *(logs / what.partition for what in FILLED))
    left = [line for line in lines if line["type"] not in ("plan", "action", "partition")]
    assert (status, complaints) == (0, ""), left
    filled = {line["topic"] + f"-{line['partition']}" for line in lines if line.get("action") == "fill"}
    assert filled == {what.partition for what in FILLED}
    for what in FILLED:
        here, there = (sorted((place / what.partition).glob("*.log")) for place in (logs, other))
        assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there], what
    place.broker.start()
    reads = [("read", isolation, *PARTITIONS) for isolation in ("read_uncommitted", "read_committed")]
    uncommitted, committed = place.client.run(*reads)
    assert records(uncommitted, PARTITIONS) == {name: one.all for name, one in before.items()}
    assert records(committed, PARTITIONS) == {name: one.stable for name, one in before.items()}
    place.broker.stop()
    _, found = verified(logs)
    assert not {code for code, _ in worse_than_info(found)} - {"txn/open", "txn/hanging"}


def check_running(logs: Path) -> None:
    """Nothing is written while a broker runs; a preview says that one runs."""
    for path in (logs, logs / "rolls-0"):
        _, lines, complaints = recover(path)
        assert lines[-1]["running"], complaints
        for arguments in (("--truncate",), ("--salvage",), ("--undo",)):
            status, _, complaints = recover(*arguments, path)
            assert status == 3, arguments
            assert "another process holds the lock" in complaints


def check_new(
    read: Read, before: Mapping[str, dict[int, str]], ends: Mapping[str, int], *, aborted: bool = False
) -> None:
    """All that was there, and after the end what was written afterwards."""
    kinds = {"I": "idempotent", "C": "committed", "A": "aborted"}
    expected = [
        f"{kinds[step[1]]} by {step[0]} {batch} {record}"
        for step in AFTERWARDS.split()
        for batch in range(int(step[2:]))
        for record in range(3)
        if aborted or step[1] != "A"
    ]
    for name, found in read.items():
        new = {offset: text for offset, text in found.items() if offset not in before[name]}
        assert found.items() >= before[name].items(), name
        assert [text for _, text in sorted(new.items())] == expected, name
        assert min(new) == ends[name], name


@pytest.mark.parametrize(("what", "says"), of_the_day(REFUSED, 2), ids=lambda value: getattr(value, "name", ""))
def test_a_broker_refuses_before_and_again_after_an_undo(place: Place, what: Damage, says: str) -> None:
    place.reset()
    damage(place.logs, what, "refused")
    damaged = recovery_plans.tree(place.logs)
    copy = place.logs.with_name("damaged")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(place.logs, copy)

    assert says in place.refuses()
    refused = recovery_plans.contents(recovery_plans.tree(place.logs / what.partition))

    place.put(copy)
    status, lines, complaints = recover("--truncate", place.logs)
    # 1: what a plan cannot bring back stays an error.
    assert (status in (0, 1, 4), complaints) == (True, ""), lines
    assert status != 1 or lines[-1]["left"]["by_code"].keys() <= {"segment/missing", "checkpoint/beyond"}, lines[-1]
    assert recovery_plans.tree(place.logs) != damaged
    assert not loading.predict_start(loading.directory_state(str(place.logs / what.partition))).refuses
    status, _, complaints = recover("--undo", place.logs)
    assert (status, complaints) == (0, "")
    assert recovery_plans.tree(place.logs, undo=True) == damaged

    if what.name == "renamed-segment":
        assert says in place.refuses()
        assert recovery_plans.contents(recovery_plans.tree(place.logs / what.partition)) == refused


@pytest.mark.parametrize("what", of_the_day(ROOT_REFUSED, 3))
def test_a_broker_refuses_its_log_directory(place: Place, what: str) -> None:
    place.reset()
    code, name = what.split()
    wrong = place.logs / name
    if code == "file/name":
        shutil.copytree(place.logs / "plain-0", wrong)
    else:
        wrong.write_bytes(b"version=x\n")
    _, found = verified(place.logs)
    refusing = {(one["code"], Path(one["path"]).name) for one in found if one["broker"] == "refuses"}
    assert (code, name) in refusing
    assert ROOT_REFUSED[what] in place.refuses()


def test_a_truncation_is_undone_after_a_start_and_a_stop(place: Place) -> None:
    """The way of the runbook: no one wrote, but the broker rewrote what belongs to the logs."""
    place.reset("stopped")
    logs = place.logs
    for what in FROM_THE_FIRST:
        damage(logs, what, "undone")
    damaged = recovery_plans.tree(logs)
    status, lines, complaints = recover("--truncate", "--from", "all", logs)
    assert (status, complaints) == (4, ""), lines
    applied = {Path(line["path"]).name for line in lines if line["type"] == "partition" and line["applied"]}
    left = recovery_plans.tree(logs)
    place.broker.start()
    place.broker.stop()
    since = recovery_plans.tree(logs)
    # A coordinator that ends a transaction, and the cleaner, write into a log.
    logs_of_both = (path for path in left.keys() | since.keys() if ".log" in path)
    wrote = {path.partition("/")[0] for path in logs_of_both if since.get(path) != left.get(path)}
    back = applied - wrote - {logs.name}
    assert back, complaints
    status, lines, complaints = recover("--undo", *([logs] if not wrote & applied else [logs / name for name in back]))
    assert not complaints, f"{sorted(wrote)} {complaints}"
    now = recovery_plans.tree(logs)
    for name in back:
        logs_of = [
            {path: one[path] for path in one if path.startswith(f"{name}/") and path.endswith(".log")}
            for one in (now, damaged)
        ]
        assert logs_of[0] == logs_of[1], name
    assert ".kafka_cleanshutdown" not in now


# A run of kdump that says when its plans are made, and waits.
WAITS = """
import sys
from kdump.cli import run
from kdump.recover import run_group
begin = run_group.begin_groups
def wait(*given):
    print("planned", flush=True)
    sys.stdin.read(1)
    begin(*given)
run_group.begin_groups = wait
sys.exit(run(sys.argv[1:]))
"""


def test_a_broker_that_starts_during_a_run_is_kept_out(place: Place) -> None:
    """Also in a copy that lacks .lock. The metadata log is loaded before a broker asks for the lock."""
    place.reset()
    logs = place.logs
    for what in (Damage("plain-0", "truncate", "newest"), Damage("rolls-4", "flip-payload", "newest")):
        damage(logs, what, "kept out")
    (logs / ".lock").unlink()

    def tree() -> recovery_plans.Tree:
        found = recovery_plans.tree(logs)
        return {path: file for path, file in found.items() if not path.startswith("__cluster_metadata-0")}

    damaged = tree()
    words = [sys.executable, "-P", "-c", WAITS, "recover", "--truncate", "--format", "json", str(logs)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"planned\n"
        assert "Failed to acquire lock" in place.refuses()
        assert {**tree(), ".lock": None} == {**damaged, ".lock": None}
        out, _ = run.communicate(b"\n", timeout=120)
    assert (run.returncode, json.loads(out.splitlines()[-1])["applied"]) == (4, True)
    assert recover("--undo", logs)[0] == 0
    assert tree() == damaged


def test_topics_are_deleted_and_logs_compacted_beside_undo_folders(place: Place) -> None:
    place.reset()
    logs = place.logs
    names = ("plain-0", "idempotent-0", "rolls-4", "compacted-0")
    for name in names:
        damage(logs, Damage(name, "flip-payload", "newest"), "deleted")
    assert recover("--truncate", logs)[0] == 4
    assert all((logs / name / ".kdump-undo").is_dir() for name in names)
    undo = kept(logs)
    place.broker.start()
    place.client.run(("delete", "plain", "idempotent"), ("write", "rolls-4:pP3", "compacted-0:pP9"))
    until(lambda: not any(path.name.startswith(("plain", "idempotent")) for path in logs.iterdir()))
    place.broker.stop()
    assert kept(logs) == {path: file for path, file in undo.items() if not path.startswith(("plain", "idempotent"))}
    left = recovery_plans.tree(logs, undo=True)
    status, _, complaints = recover("--undo", logs)
    assert (status, complaints.count("a broker has written since")) == (3, 2)
    assert recovery_plans.tree(logs, undo=True) == left
    assert recover("--undo", "--force", logs)[0] == 0
    # To undo the undo brings the repair back, which is asked for.
    assert recover("--undo", logs)[0] == 3
    assert recover("--undo", "--force", logs)[0] == 0
    assert recovery_plans.tree(logs) == {path: file for path, file in left.items() if ".kdump-undo" not in path}
