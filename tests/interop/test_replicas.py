"""Copies whose histories part at an unclean election of real brokers: the merge is what the brokers converge to."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import ModuleType

import kdump
from interop.clients import Client
from kdump.convert import tables
from kdump.convert.records import reader
from kdump.replicas.findings import replica_findings
from kdump.replicas.merge import MergedPartition, merge_replicas
from kdump.storage.partition import Partition

NAME = "parted-0"
SETTINGS = {"unclean.leader.election.enable": "true", "min.insync.replicas": 1, "log.flush.interval.messages": 1}


def merged(*directories: Path) -> MergedPartition:
    partitions = [each for each in kdump.discover(list(map(str, directories))) if isinstance(each, Partition)]
    (found,) = merge_replicas(partitions)
    return found


def values(found: MergedPartition) -> dict[int, str]:
    stream = reader.RecordStream(tables.record_schema(["offset", "value"]), isolation="read-uncommitted")
    rows = [row for batch in stream.batches([found.partition]) for row in batch.to_pylist()]
    return {row["offset"]: row["value"].decode() for row in rows}


def copied(directory: Path, to: Path) -> Path:
    """The partition and the checkpoints of its log directory, as the broker left them."""
    to.mkdir()
    for file in directory.iterdir():
        if file.is_file() and file.name != ".lock":
            shutil.copy(file, to)
    return Path(shutil.copytree(directory / NAME, to / NAME))


def converged(*directories: Path) -> bool:
    """Whether the brokers have the same log, in at most two minutes."""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        one, *others = ([values(merged(each / NAME)), merged(each / NAME).partition.slices] for each in directories)
        if all(one[0] == other[0] for other in others):
            return True
        time.sleep(1)
    return False


def test_an_unclean_election(kafka: ModuleType, tmp_path: Path) -> None:
    with (
        kafka.kraft_broker(tmp_path / "first", settings=SETTINGS) as first,
        kafka.kraft_broker(tmp_path / "second", settings=SETTINGS, beside=first) as second,
        kafka.kraft_broker(tmp_path / "third", settings={**SETTINGS, "node.id": 3}, beside=first) as third,
    ):
        client = Client(kafka, first.bootstrap)
        client.make("parted:1@2+3:")
        client.write(f"{NAME}:pI3 pP2")
        common = client.read("read_uncommitted", NAME)[NAME]
        third.stop()
        client.write(f"{NAME}:qI2 rP3")
        alone = client.read("read_uncommitted", NAME)[NAME]
        second.stop()
        third.start()
        client.write(f"{NAME}:sP1 tI2")
        third.stop()
        copies = [copied(each.logs, tmp_path / f"copy-{number}") for number, each in enumerate((second, third))]
        found = merged(*copies)
        third.start()
        second.start()
        served = client.read("read_uncommitted", NAME)[NAME]
        assert converged(second.logs, third.logs)
    assert len(common) < len(alone)
    assert values(found) == served
    assert values(merged(*reversed(copies))) == served
    assert found.replicas[0] == str(copies[1])
    end = max(common) + 1
    (lost,) = found.diverged
    assert (lost.replica, lost.first_offset, lost.last_offset) == (str(copies[0]), end, max(alone))
    assert lost.records == len(alone) - len(common)
    assert [finding.code for finding in replica_findings(found)] == ["replica/diverged"]
    # What the broker that was cut has now is what it would have got from the merge.
    assert values(merged(second.logs / NAME)) == served
