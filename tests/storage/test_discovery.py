"""From paths to partitions: what a directory is taken for, what is whole, what comes once, and what cannot be read."""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kdump.errors import NotALog, SourceError
from kdump.format.naming import Kind, TopicPartition
from kdump.storage import discovery
from kdump.storage import listing as directory
from kdump.storage.discovery import discover, log_files
from kdump.storage.partition import LogDirectory, LogFile, Partition, Segment, logs_of_partition, without_companions
from kdump.verify.findings import Severity
from kdump.verify.report import FileReport
from support import build

ROOT = ("meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")
SUFFIXES = ("log", "index", "timeindex", "snapshot")
HEX = "3ee7cc0af0c147a1b23e6c9a6c99a490"


def put(directory: Path, *names: str) -> None:
    """Files of one byte for each character of their name, so that sizes tell them apart."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"\0" * len(name))


def segments(directory: Path, *bases: int, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    put(directory, *(f"{base:020}.{suffix}" for base in bases for suffix in suffixes))


def found(*paths: Path | str, kind: Kind | None = None) -> list[Partition | LogDirectory | SourceError]:
    return list(discover(map(str, paths), kind=kind))


def partitions(*paths: Path | str) -> list[Partition]:
    items = found(*paths)
    assert not [item for item in items if isinstance(item, SourceError)]
    return [item for item in items if isinstance(item, Partition)]


def names(items: list[LogFile]) -> list[str]:
    return [os.path.basename(file.path) for file in items]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log directory with three partitions, below `data`."""
    directory = tmp_path / "data" / "logs"
    put(directory, *ROOT)
    for partition in (0, 2, 10):
        segments(directory / f"t-{partition}", 0, 5)
        put(directory / f"t-{partition}", "leader-epoch-checkpoint", "partition.metadata")
    return directory


# ---- what a directory is


def test_a_log_directory_comes_before_its_partitions(logs: Path) -> None:
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert (directory.path, directory.whole) == (str(logs), True)
    assert directory.partitions == (TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("t", 10))
    assert list(directory.offset_checkpoints) == ["recovery-point-offset-checkpoint"]
    assert directory.meta is not None
    assert directory.clean_shutdown is not None
    assert (directory.has_lock_file, directory.locked, directory.misplaced_files) == (False, False, ())
    assert [item.path for item in rest if isinstance(item, Partition)] == [str(logs / f"t-{n}") for n in (0, 2, 10)]
    for item in rest:
        assert isinstance(item, Partition)
        assert item.log_directory is directory
        assert (item.whole, item.state, item.misplaced_files) == (True, "", ())


def test_a_partition(logs: Path) -> None:
    (partition,) = partitions(logs / "t-2")
    assert (partition.path, partition.topic_partition) == (str(logs / "t-2"), TopicPartition("t", 2))
    assert partition.log_directory is None
    first, last = partition.segments
    assert [(file.base_offset, file.active) for file in (first.log, last.log)] == [(0, False), (5, True)]
    for base, segment in ((0, first), (5, last)):
        assert segment.txnindex is None
        for suffix, file in (("log", segment.log), ("index", segment.index), ("timeindex", segment.timeindex)):
            assert isinstance(file, LogFile)
            name = f"{base:020}.{suffix}"
            assert file == (str(logs / "t-2" / name), Kind(suffix), base, base == 5, len(name), None, None)
    assert [(file.base_offset, file.kind) for file in partition.producer_snapshots] == [
        (0, Kind.SNAPSHOT),
        (5, Kind.SNAPSHOT),
    ]
    assert partition.epochs is not None
    assert partition.metadata is not None
    assert (partition.quorum_state, partition.kraft_snapshots, partition.misplaced_files) == (None, (), ())
    bare = without_companions(partition)
    assert logs_of_partition(bare) == logs_of_partition(partition) == [first.log, last.log]
    assert [segment[1:] for segment in bare.segments] == [(None, None, None)] * 2
    assert (bare.producer_snapshots, bare.epochs, bare.metadata, bare.whole) == ((), None, None, False)


def test_what_lies_above_is_walked_and_not_whole(logs: Path) -> None:
    directory, *rest = found(logs.parent)
    assert isinstance(directory, LogDirectory)
    put(logs, "notes.txt")
    put(logs / "t-0", "notes.txt", "5.log.swap")
    (logs / "odd").mkdir()
    directory, *rest = found(logs.parent)
    assert isinstance(directory, LogDirectory)
    assert (directory.whole, directory.misplaced_files) == (False, ())
    for item in rest:
        assert isinstance(item, Partition)
        assert (item.whole, item.misplaced_files, len(item.segments)) == (False, (), 2)
    # and named as well, it is
    whole = [item.whole for item in found(logs.parent, logs) if not isinstance(item, SourceError)]
    assert whole == [True] * 4
    whole = [item.whole for item in found(logs.parent, logs / "t-2") if not isinstance(item, SourceError)]
    assert whole == [False, False, True, False]


def test_each_directory_is_entered_once(logs: Path) -> None:
    assert [item.path for item in partitions(logs / "t-2", logs, logs / "t-0")] == [
        str(logs / f"t-{partition}") for partition in (2, 0, 10)
    ]
    (logs / "t-3").symlink_to("t-2")
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert TopicPartition("t", 3) in directory.partitions
    assert len(rest) == 3


def test_a_folder_of_saved_files_follows_no_rules(tmp_path: Path) -> None:
    put(tmp_path / "saved", "0.log", "server.log", "notes.txt")
    (partition,) = partitions(tmp_path / "saved")
    assert (partition.whole, partition.misplaced_files, partition.topic_partition) == (False, (), None)
    assert [segment.log.base_offset for segment in partition.segments] == [0, None]
    segments(tmp_path / "saved", 7)
    (partition,) = partitions(tmp_path / "saved")
    assert partition.whole
    assert {stray.what for stray in partition.misplaced_files} == {"short", "number", "unknown"}


def test_a_partition_without_segments(tmp_path: Path, logs: Path) -> None:
    """A broker creates the first segment of an empty directory. Its name alone shows that it is Kafka's."""
    (logs / "empty-0").mkdir()
    assert [item.path for item in partitions(logs) if not item.segments] == [str(logs / "empty-0")]
    (tmp_path / "empty-0").mkdir()
    assert found(tmp_path / "empty-0") == []
    assert list(log_files([str(tmp_path / "empty-0")])) == []
    (tmp_path / "empty-0" / "notes").write_text("")
    (error,) = found(tmp_path / "empty-0")
    assert str(error) == f"{tmp_path / 'empty-0'}: no log files here"
    (tmp_path / "empty-0" / "notes").unlink()
    # what is left of a partition is looked at where it was named
    segments(tmp_path / "empty-0", 5, suffixes=("index", "snapshot"))
    (partition,) = partitions(tmp_path / "empty-0")
    assert (partition.segments, [stray.what for stray in partition.misplaced_files]) == ((), ["index"])
    (error,) = log_files([str(tmp_path / "empty-0")])
    assert isinstance(error, SourceError)
    assert len(found(tmp_path)) == 5  # the log directory and its four


def test_log_files_at_the_root_of_a_log_directory(logs: Path) -> None:
    put(logs, "bootstrap.checkpoint", "0.log")
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert [os.path.basename(stray.path) for stray in directory.misplaced_files] == ["0.log"]
    (loose,) = [item for item in rest if isinstance(item, Partition) and item.path == str(logs)]
    assert (loose.topic_partition, loose.whole, loose.log_directory) == (None, False, directory)
    assert names(logs_of_partition(loose)) == ["0.log", "bootstrap.checkpoint"]
    (checkpoint,) = loose.kraft_snapshots
    assert (checkpoint.kind, checkpoint.base_offset, checkpoint.active) == (Kind.CHECKPOINT, 0, True)


def test_an_unfinished_run_at_the_root_is_found_once(logs: Path) -> None:
    put(logs, "bootstrap.checkpoint", ".kdump-undo-1-plan-applying.jsonl")
    strays = [stray for item in found(logs) if not isinstance(item, SourceError) for stray in item.misplaced_files]
    assert [stray.what for stray in strays if ".kdump-undo" in stray.path] == ["unfinished"]


def test_nothing_comes_between_the_partitions_of_a_log_directory(logs: Path) -> None:
    """Who reads its checkpoints does so once."""
    put(logs, "bootstrap.checkpoint")
    for odd in ("a", "t-0/below", "z"):
        segments(logs / odd, 0)
        segments(logs / odd / "t-0", 0)
    directory, *rest = found(logs)
    items = [item for item in rest if isinstance(item, Partition)]
    assert [item.log_directory is directory for item in items] == [True] * 4 + [False] * 6
    assert [os.path.relpath(item.path, logs) for item in items] == [
        *(".", "t-0", "t-2", "t-10", "a", "a/t-0", "t-0/below", "t-0/below/t-0", "z", "z/t-0")
    ]


def test_the_metadata_log(tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    segments(directory, 0, 134)
    put(directory, "quorum-state", "00000000000000000134-0000000001.checkpoint")
    put(directory, "00000000000000000000-0000000000.checkpoint", "00000000000000000090-0000000001.checkpoint")
    (partition,) = partitions(directory)
    assert partition.quorum_state is not None
    assert [os.path.basename(file.path)[15:31] for file in partition.kraft_snapshots] == [
        "00000-0000000000",
        "00090-0000000001",
        "00134-0000000001",
    ]
    assert partition.misplaced_files == ()
    assert [name[15:] for name in names(logs_of_partition(partition))] == [
        "00000-0000000000.checkpoint",
        "00000.log",
        "00090-0000000001.checkpoint",
        "00134-0000000001.checkpoint",
        "00134.log",
    ]


def test_the_log_of_kafka_07(tmp_path: Path) -> None:
    put(tmp_path / "logs", ".kafka_cleanshutdown")
    put(tmp_path / "logs" / "t_0", "00000000000000000000.kafka", "00000000000000000100.kafka")
    put(tmp_path / "logs" / "u_0", "00000000000000000000.log")
    directory, *rest = found(tmp_path / "logs")
    assert isinstance(directory, LogDirectory)
    assert directory.partitions == (TopicPartition("t", 0),)
    assert [(os.path.basename(stray.path), stray.what) for stray in directory.misplaced_files] == [("u_0", "partition")]
    old, new = rest
    assert isinstance(old, Partition)
    assert isinstance(new, Partition)
    assert (old.topic_partition, old.log_directory, old.misplaced_files) == (TopicPartition("t", 0), directory, ())
    assert [(s.log.base_offset, s.log.kind, s.log.active) for s in old.segments] == [
        (0, Kind.KAFKA07, False),
        (100, Kind.KAFKA07, True),
    ]
    assert (new.topic_partition, new.log_directory, new.whole) == (None, None, False)
    (named,) = partitions(tmp_path / "logs" / "t_0")
    assert (named.topic_partition, named.whole) == (TopicPartition("t", 0), True)


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("a.b-c.d-7", "a.b-c.d", 7, ""),
        (f"t-0.{HEX}-delete", "t", 0, "delete"),
        (f"t-0.{HEX}-future", "t", 0, "future"),
        (f"t-0.{HEX}-stray", "t", 0, "stray"),
        (f"{'x' * 250}-11.{HEX}-stray"[-255:], "x" * (255 - len(f"-11.{HEX}-stray")), 11, "stray"),
        (f"a.b-1.x-2.{HEX}-delete", "a.b-1.x", 2, "delete"),
        ("t-2147483647", "t", 2147483647, ""),
        ("t-007", "t", 7, ""),
        ("höhe-3", "höhe", 3, ""),
    ],
)
def test_names_of_partitions(logs: Path, name: str, topic: str, partition: int, state: str) -> None:
    segments(logs / name, 0)
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    (item,) = [item for item in rest if isinstance(item, Partition) and item.path == str(logs / name)]
    assert (item.topic_partition, item.state) == (TopicPartition(topic, partition), state)
    assert directory.misplaced_files == ()
    # what is on its way out is not loaded
    assert (item.topic_partition in directory.partitions) == (state in ("", "future") or topic == "t")


@pytest.mark.parametrize(
    "name", ["lost+found", "backup", "t-", "-0", "t-x", "t-2147483648", ".snapshot", "t_0", "t-0.x", f"t.{HEX}-delete"]
)
def test_names_that_are_none(logs: Path, name: str) -> None:
    segments(logs / name, 0)
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert directory.misplaced_files == ((str(logs / name), 0, "partition"),)
    # its logs are read for all that
    (item,) = [item for item in rest if isinstance(item, Partition) and item.path == str(logs / name)]
    assert (item.topic_partition, item.log_directory, item.whole) == (None, None, False)


def test_two_directories_of_one_partition(logs: Path, tmp_path: Path) -> None:
    for name in (f"t-0.{HEX}-future", f"t-0.{HEX}-delete", f"t-0.{HEX[::-1]}-delete"):
        segments(logs / name, 0)
    (directory, *_) = found(logs)
    assert isinstance(directory, LogDirectory)
    assert directory.misplaced_files == ()
    assert directory.partitions.count(TopicPartition("t", 0)) == 1
    segments(logs / "t-00", 0)
    segments(logs / f"t-0.{HEX[::-1]}-future", 0)
    (directory, *_) = found(logs)
    assert isinstance(directory, LogDirectory)
    assert [stray.what for stray in directory.misplaced_files] == ["duplicate", "duplicate"]
    # in another log directory it is another broker's, or on its way
    put(tmp_path / "other", *ROOT)
    segments(tmp_path / "other" / "t-0", 0)
    assert not [
        stray
        for item in found(logs / "t-2", tmp_path / "other")
        if isinstance(item, LogDirectory)
        for stray in item.misplaced_files
    ]


def test_the_cache_of_remote_indexes_is_no_partition(logs: Path) -> None:
    put(logs / "remote-log-index-cache", f"0_{HEX}.index")
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert directory.misplaced_files == ()
    assert len(rest) == 3


@pytest.mark.parametrize("place", [".lock", "t-0/.lock"])
def test_a_lock_that_another_process_holds(logs: Path, place: str) -> None:
    """A broker's lock is seen, not taken; a file of that name elsewhere makes no log directory of a topic-partition."""
    put(logs, ".lock")
    put(logs / "t-0", ".lock")
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import fcntl, sys; held = open(sys.argv[1], 'r+'); fcntl.lockf(held, fcntl.LOCK_EX); "
                "print(flush=True);"
                "sys.stdin.read()"
            ),
            str(logs / place),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        directory, first, *_ = found(logs)
        assert isinstance(directory, LogDirectory)
        assert (directory.has_lock_file, directory.locked) == (True, place == ".lock")
        assert isinstance(first, Partition)
        assert [stray.what for stray in first.misplaced_files] == ["unknown"]
        holder.communicate(timeout=10)
    (directory, *_) = found(logs)
    assert isinstance(directory, LogDirectory)
    assert (directory.has_lock_file, directory.locked) == (True, False)
    with (logs / ".lock").open("r+") as free:
        fcntl.lockf(free, fcntl.LOCK_EX | fcntl.LOCK_NB)


# ---- files that were named


def test_a_file_alone(logs: Path) -> None:
    put(logs / "t-0", "00000000000000000005.txnindex", "7.log", "x.log.deleted")
    path = logs / "t-0" / "00000000000000000005.log"
    (partition,) = partitions(path)
    assert (partition.path, partition.whole) == (str(path), False)
    assert partition.topic_partition == TopicPartition("t", 0)
    assert (partition.producer_snapshots, partition.epochs, partition.metadata, partition.misplaced_files) == (
        (),
        None,
        None,
        (),
    )
    (segment,) = partition.segments
    assert [file is not None and file.kind for file in segment] == [Kind.LOG, Kind.INDEX, Kind.TIMEINDEX, Kind.TXNINDEX]
    assert not segment.log.active
    assert segment.index is not None
    assert (segment.index.base_offset, segment.index.size, segment.index.active) == (5, 26, False)
    (partition,) = partitions(logs / "t-0" / "00000000000000000000.log")
    assert partition.segments[0].txnindex is None
    for name, base in (("7.log", 7), ("x.log.deleted", None)):
        (partition,) = partitions(logs / "t-0" / name)
        assert partition.segments[0][1:] == (None, None, None)
        assert (partition.segments[0].log.base_offset, partition.segments[0].log.active) == (base, True)


def test_a_file_in_a_directory_on_its_way(logs: Path) -> None:
    segments(logs / f"t-0.{HEX}-delete", 0)
    (partition,) = partitions(logs / f"t-0.{HEX}-delete" / "00000000000000000000.log")
    assert (partition.topic_partition, partition.state) == (TopicPartition("t", 0), "delete")


def test_other_kinds_alone(tmp_path: Path) -> None:
    put(tmp_path, "00000000000000000090-0000000001.checkpoint.part", "00000000000000000000.kafka", "plain", "0.index")
    (partition,) = partitions(tmp_path / "00000000000000000090-0000000001.checkpoint.part")
    assert partition.segments == ()
    assert [(file.kind, file.base_offset) for file in partition.kraft_snapshots] == [(Kind.CHECKPOINT, 0)]
    (partition,) = partitions(tmp_path / "00000000000000000000.kafka")
    assert partition.segments[0].log.kind is Kind.KAFKA07
    for kind in (Kind.LOG, Kind.KAFKA07):
        (item,) = found(tmp_path / "plain", kind=kind)
        assert isinstance(item, Partition)
        assert item.segments[0].log.kind is kind
    (error,) = found(tmp_path / "0.index")
    assert isinstance(error, NotALog)
    (item,) = log_files([str(tmp_path / "0.index")])
    assert isinstance(item, LogFile)
    assert (item.kind, item.active) == (Kind.INDEX, True)


def test_a_file_does_not_come_beside_its_directory(logs: Path, tmp_path: Path) -> None:
    file = logs / "t-0" / "00000000000000000005.log"
    (tmp_path / "link.log").symlink_to(file)
    os.link(file, tmp_path / "hard.log")
    (partition,) = partitions(file, logs / "t-0", file, tmp_path / "link.log", tmp_path / "hard.log")
    assert (partition.whole, len(partition.segments)) == (True, 2)
    # a directory comes with all that is in it, whatever came before: a hole would look like damage
    alone, partition = partitions(tmp_path / "link.log", logs / "t-0")
    assert (alone.path, len(partition.segments)) == (str(tmp_path / "link.log"), 2)
    assert [item.path for item in partitions(file, tmp_path / "hard.log")] == [str(file)]


def test_standard_input() -> None:
    given = LogFile("-", Kind.LOG, None, True, 7, "/tmp/spool")
    (partition,) = discover(["-", "-"], standard_input=given)
    assert isinstance(partition, Partition)
    assert (partition.path, partition.topic_partition, partition.whole) == ("-", None, False)
    assert partition.segments == ((given, None, None, None),)
    assert list(log_files(["-"], standard_input=given)) == [given]
    (partition,) = discover(["-"], standard_input=given._replace(kind=Kind.CHECKPOINT))
    assert isinstance(partition, Partition)
    assert (partition.segments, len(partition.kraft_snapshots)) == ((), 1)
    closed = SourceError("-: standard input is closed")
    assert list(discover(["-"], standard_input=closed)) == list(log_files(["-"], standard_input=closed)) == [closed]


# ---- links, and what cannot be read


def test_links_that_lead_back(logs: Path) -> None:
    (logs / "t-0" / "again").symlink_to(".")
    (logs / "t-0" / "top").symlink_to("../../..")
    (logs / "loop-0").symlink_to(".")
    directory, *rest = found(logs)
    assert isinstance(directory, LogDirectory)
    assert directory.misplaced_files == ((str(logs / "loop-0"), 0, "loop"),)
    assert TopicPartition("loop", 0) not in directory.partitions
    assert len(rest) == 3
    assert isinstance(rest[0], Partition)
    assert [(os.path.basename(stray.path), stray.what) for stray in rest[0].misplaced_files] == [
        ("again", "loop"),
        ("top", "loop"),
    ]


def test_links_that_lead_nowhere(logs: Path) -> None:
    (logs / "t-0" / "round").symlink_to("round")
    (logs / "t-0" / "lost").symlink_to("nowhere")
    (logs / "t-0" / "00000000000000000009.index").symlink_to("nowhere")
    (logs / "t-0" / "00000000000000000009.log").symlink_to("nowhere")
    (logs / "lost").symlink_to("nowhere")
    (logs / "replication-offset-checkpoint").symlink_to("nowhere")
    items = found(logs)
    reported = [str(item) for item in items if isinstance(item, SourceError)]
    assert [line.split(": ")[0] for line in reported] == [
        str(logs / "replication-offset-checkpoint"),
        str(logs / "t-0" / "00000000000000000009.index"),
        str(logs / "t-0" / "00000000000000000009.log"),
    ]
    assert all(line.endswith(": no such file or directory") for line in reported)
    strays = [stray for item in items if isinstance(item, Partition | LogDirectory) for stray in item.misplaced_files]
    assert [(os.path.basename(stray.path), stray.what) for stray in strays] == [
        ("lost", "unknown"),
        ("lost", "unknown"),
        ("round", "loop"),
    ]
    # only log files matter to who walks by
    assert len([item for item in log_files([str(logs)]) if isinstance(item, SourceError)]) == 3


def test_a_directory_that_cannot_be_listed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def refused(path: str) -> object:
        if str(path).endswith("t-2"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    items = found(logs)
    assert [str(item) for item in items if isinstance(item, SourceError)] == [f"{logs / 't-2'}: permission denied"]
    assert len(items) == 4


def test_files_that_go_while_the_directory_is_listed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running broker deletes segments; one that is gone was never there."""
    put(logs / "t-2", "00000000000000000000.log.deleted")
    gone = list(logs.glob("t-2/*00.*"))
    listed = directory.list_directory

    def late(path: str) -> directory.Listing:
        found = listed(path)
        if path == str(logs / "t-2"):
            for file in gone:
                file.unlink()
        return found

    monkeypatch.setattr(discovery, "list_directory", late)
    (partition,) = partitions(logs / "t-2")
    assert [segment.log.base_offset for segment in partition.segments] == [5]
    assert (len(partition.producer_snapshots), partition.misplaced_files) == (1, ())


def test_missing_paths(tmp_path: Path) -> None:
    assert [str(item) for item in found(tmp_path / "no", "a\0b", tmp_path / "*.log")] == [
        f"{tmp_path / 'no'}: no such file or directory",
        "a\0b: embedded null byte",
        f"{tmp_path / '*.log'}: no such file or directory",
    ]


def test_names_that_no_terminal_should_see(logs: Path) -> None:
    if sys.platform == "darwin":
        pytest.skip("file names are UTF-8 there")
    raw = os.fsencode(logs / "t-0") + b"/\xff\x1b[2J\n.log"
    Path(os.fsdecode(raw)).write_bytes(b"")
    (partition,) = partitions(logs / "t-0")
    assert [stray.what for stray in partition.misplaced_files] == ["number"]
    assert os.fsencode(partition.misplaced_files[0].path) == raw


def test_one_listing_a_directory_and_one_stat_a_file(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    scanned, reported = os.scandir, os.stat
    stats: list[str] = []
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(str(path)), scanned(path))[1])
    monkeypatch.setattr(os, "stat", lambda path, **how: (stats.append(str(path)), reported(path, **how))[1])
    assert len(found(logs)) == 4
    assert sorted(listed) == sorted([str(logs), *(str(logs / f"t-{partition}") for partition in (0, 2, 10))])
    # each directory once more than its listing, to know it again; files by their directory entries
    assert len(stats) <= 1 + len(listed)


def test_the_walk_is_lazy(logs: Path) -> None:
    walk = discover([str(logs)])
    assert isinstance(next(walk), LogDirectory)
    segments(logs / "t-10", 99)
    last = list(walk)[-1]
    assert isinstance(last, Partition)
    assert len(last.segments) == 3


def test_any_segment_is_found_by_what_reads_it(tmp_path: Path) -> None:
    """The values carry what opening needs."""
    (tmp_path / "t-0").mkdir()
    data = build.batch([build.record(b"k", b"v")])
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(data)
    (partition,) = partitions(tmp_path / "t-0")
    with partition.segments[0].log.open() as source:
        assert source.size == partition.segments[0].log.size == len(data)


# --- to other processes and back --------------------------------------------------------------------------------------


def test_a_partition_travels(tmp_path: Path) -> None:
    here = tmp_path / "orders-0"
    segments(here, 0, 100)
    segments(here, 200, suffixes=("log", "txnindex"))
    (partition,) = partitions(here)
    copy = pickle.loads(pickle.dumps(partition))
    assert copy == partition
    assert [[type(file) for file in segment] for segment in copy.segments] == [
        [type(file) for file in segment] for segment in partition.segments
    ]
    assert all(type(segment) is Segment for segment in copy.segments)
    assert copy.segments[2].txnindex.kind is Kind.TXNINDEX


def test_the_report_of_a_file_travels() -> None:
    report = FileReport(LogFile("0.log", Kind.LOG, 0, True, 7), Counter({("batch/crc", Severity.ERROR): 2}), 3, None, 7)
    report.valid_bytes, report.error = 5, SourceError("0.log: gone")
    copy = pickle.loads(pickle.dumps(report))
    assert replace(copy, error=None) == replace(report, error=None)
    assert str(copy.error) == "0.log: gone"
    assert type(copy.counts) is Counter


def test_one_path_is_not_taken_for_several_of_one_character(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    expected = list(discover([str(directory)]))
    assert list(discover(str(directory))) == list(discover(directory)) == list(discover([directory])) == expected
    assert len(expected) == 1
