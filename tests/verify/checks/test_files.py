"""file/*: names that a broker makes and those that it stumbles over, throws away or never looks at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kdump.storage.discovery import discover
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.checks import files
from kdump.verify.checks.files import MISPLACED
from kdump.verify.findings import Severity

HEX = "3ee7cc0af0c147a1b23e6c9a6c99a490"
ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
ZERO, FIVE, NINE = (f"{base:020}" for base in (0, 5, 9))
SOUND = (
    *(f"{ZERO}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")),
    f"{FIVE}.log",
    f"{FIVE}.index",
)


def reported(directory: Path, *names: str) -> list[tuple[str, str, Severity, dict[str, object]]]:
    """The findings about the names in a sound partition with these files beside, by name."""
    directory.mkdir(parents=True)
    for name in (*SOUND, *names):
        (directory / name).write_bytes(b"")
    (partition,) = discover([str(directory)])
    assert isinstance(partition, Partition)
    found = list(files.check_partition(partition))
    for finding in found:
        assert finding.message
        assert (finding.position, finding.length, finding.offset) == (0, 0, None)
        assert finding.topic_partition == partition.topic_partition
    return [(os.path.basename(finding.path), finding.code, finding.severity, dict(finding.data)) for finding in found]


BELONGS = [
    f"{FIVE}.txnindex",
    f"{FIVE}.timeindex",
    f"{FIVE}.snapshot",
    f"{NINE}.snapshot",  # what a clean stop leaves at the end of the log
    "5.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "remote_log_snapshot",
    f"{ZERO}-0000000000.checkpoint.deleted",
]


@pytest.mark.parametrize("name", BELONGS)
def test_what_belongs(tmp_path: Path, name: str) -> None:
    assert reported(tmp_path / "t-0", name) == []


ODD = [
    (f"{ZERO}.log.deleted", "file/leftover", WARNING, {"what": "deleted"}),
    ("anything.deleted", "file/leftover", WARNING, {"what": "deleted"}),
    (f"{ZERO}.log.cleaned", "file/leftover", WARNING, {"what": "cleaned"}),
    (f"{ZERO}.timeindex.cleaned", "file/leftover", WARNING, {"what": "cleaned"}),
    (f"{ZERO}.log.swap", "file/leftover", WARNING, {"what": "swap"}),
    (f"{ZERO}.index.swap", "file/leftover", WARNING, {"what": "swap"}),
    ("leader-epoch-checkpoint.tmp", "file/leftover", WARNING, {"what": "tmp"}),
    ("partition.metadata.tmp", "file/leftover", WARNING, {"what": "tmp"}),
    (f"{NINE}.index", "file/orphan", WARNING, {"what": "index"}),
    (f"{NINE}.timeindex", "file/orphan", WARNING, {"what": "index"}),
    (f"{NINE}.txnindex", "file/orphan", WARNING, {"what": "index"}),
    ("9.index", "file/orphan", WARNING, {"what": "index"}),
    ("-1.index", "file/orphan", WARNING, {"what": "index"}),
    ("5.index", "file/unknown", INFO, {}),
    ("notes.txt", "file/unknown", INFO, {}),
    ("00000000000000000000", "file/unknown", INFO, {}),
    (f"{ZERO}.log.bak", "file/unknown", INFO, {}),
    (f"{ZERO}.log~", "file/unknown", INFO, {}),
    (".hidden", "file/unknown", INFO, {}),
    ("notes.tmp", "file/unknown", INFO, {}),
    ("quorum-state", "file/unknown", INFO, {}),
    (f"{ZERO}-0000000000.checkpoint", "file/unknown", INFO, {}),
    ("bootstrap.checkpoint", "file/unknown", INFO, {}),
    *(
        (f"{stem}{suffix}", "file/name", ERROR, {"problem": "number"})
        for stem in ("letters", "", "9223372036854775808", "99999999999999999999", "0x5", "5 ", "1_0", "--1", "-")
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.swap", ".swap", ".index.cleaned")
    ),
    ("5.log", "file/name", ERROR, {"problem": "short"}),
    ("+5.log", "file/name", ERROR, {"problem": "short"}),
    ("000000000000000000005.log", "file/name", ERROR, {"problem": "short"}),
    ("\u0665.log", "file/name", ERROR, {"problem": "short"}),  # Java reads any script's digits
    ("-1.log", "file/name", ERROR, {"problem": "negative"}),
]


@pytest.mark.parametrize(("name", "code", "severity", "data"), ODD)
def test_what_does_not(tmp_path: Path, name: str, code: str, severity: Severity, data: dict[str, object]) -> None:
    assert reported(tmp_path / "t-0", name) == [(name, code, severity, data)]


def test_a_directory_on_its_way_out(tmp_path: Path) -> None:
    """All of it goes, so that a file that goes first is nothing; a name that keeps a broker from starting still
    does."""
    assert reported(tmp_path / f"t-0.{HEX}-delete", f"{ZERO}.log.deleted", "letters.log") == [
        ("letters.log", "file/name", ERROR, {"problem": "number"})
    ]
    for state in ("future", "stray"):
        assert reported(tmp_path / f"t-0.{HEX}-{state}", f"{ZERO}.log.deleted") == [
            (f"{ZERO}.log.deleted", "file/leftover", WARNING, {"what": "deleted"})
        ]


def test_replacements_after_an_unfinished_split(tmp_path: Path) -> None:
    names = (f"{FIVE}.log.cleaned", f"{ZERO}.log.swap", f"{FIVE}.log.swap", f"{NINE}.index.swap")
    found = {name: data["what"] for name, _, _, data in reported(tmp_path / "t-0", *names)}
    assert found == dict(zip(names, ("cleaned", "swap", "swap-dropped", "swap-dropped"), strict=True))


def test_the_metadata_log(tmp_path: Path) -> None:
    names = (
        f"{FIVE}-0000000001.checkpoint",
        f"{FIVE}-0000000001.checkpoint.deleted",
        f"{NINE}-0000000001-7321.checkpoint.part",
        "quorum-state",
        "letters.checkpoint",
        "bootstrap.checkpoint",
        f"{NINE}-9999999999.checkpoint",
    )
    assert reported(tmp_path / "__cluster_metadata-0", *names) == [
        (names[2], "file/leftover", WARNING, {"what": "part"}),
        (names[6], "file/name", ERROR, {"problem": "number"}),
        (names[5], "file/name", ERROR, {"problem": "number"}),
        (names[4], "file/name", ERROR, {"problem": "number"}),
    ]


def test_directories(tmp_path: Path) -> None:
    for name in ("backup.log", "old"):
        (tmp_path / "t-0" / name).mkdir(parents=True)
    (tmp_path / "t-0" / "round").symlink_to("..")
    for name in SOUND:
        (tmp_path / "t-0" / name).write_bytes(b"")
    (partition,) = discover([str(tmp_path / "t-0")])
    assert isinstance(partition, Partition)
    assert [
        (os.path.basename(finding.path), finding.code, finding.severity) for finding in files.check_partition(partition)
    ] == [
        ("backup.log", "file/directory", INFO),
        ("old", "file/directory", INFO),
        ("round", "file/loop", INFO),
    ]


def test_a_log_directory(tmp_path: Path) -> None:
    files_there = (
        "meta.properties",
        ".lock",
        "bootstrap.checkpoint",
        "_rlmm_committed_offsets",
        "cleaner-offset-checkpoint",
    )
    for name in (*files_there, "notes.txt", "0.log", "recovery-point-offset-checkpoint.tmp"):
        (tmp_path / name).write_bytes(b"")
    for name in ("t-0", f"t-0.{HEX}-future", "t-00", "remote-log-index-cache", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "here-0").symlink_to(".")
    directory, *_ = discover([str(tmp_path)])
    assert isinstance(directory, LogDirectory)
    found = list(files.check_log_directory(directory))
    assert [(os.path.basename(finding.path), finding.code, dict(finding.data)) for finding in found] == [
        ("0.log", "file/unknown", {}),
        ("here-0", "file/loop", {}),
        ("lost+found", "file/name", {"problem": "partition"}),
        ("notes.txt", "file/unknown", {}),
        ("recovery-point-offset-checkpoint.tmp", "file/leftover", {"what": "tmp"}),
        ("t-00", "file/name", {"problem": "duplicate"}),
    ]
    assert all(finding.message for finding in found)


def test_every_stray_is_met_here() -> None:
    met = {tuple(data.values())[:1] or (code,) for _, code, _, data in ODD}
    met |= {("swap-dropped",), ("part",), ("partition",), ("duplicate",), ("file/directory",), ("file/loop",)}
    met |= {("undo/unfinished",)}  # tests/recover/test_undo.py
    assert met == {tuple(data.values()) or (code,) for code, data in MISPLACED.values()}
