"""Planning lists each topic-partition directory once, before anything reads its files."""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kdump.broker.predict import directory_state
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.recover import planner, recover
from kdump.recover.plan import REINDEX, SALVAGE, STRATEGIES, TRUNCATE, Plan, RecoverOptions, RecoveryResult
from kdump.storage.discovery import discover
from kdump.storage.listing import list_directory, partition_of_listing
from kdump.storage.partition import Listing, Partition
from kdump.storage.stamps import DirectoryFiles, Stamp, read_stamps
from kdump.verify import verify
from kdump.verify.range_summary import RangeSummary
from kdump.verify.report import Report
from kdump.verify.scan import ScanTask
from support.cases import each
from support.laws import QUICK, of_the_day

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = sorted({path.parent for path in FIXTURES.glob("*/*/*.log")})
OLDER, ACTIVE = f"{0:020d}.log", f"{64:020d}.log"

Count = Callable[[], Counter[str]]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A log directory with a damaged log in transfers-0. Each partition has a wrong index and wrong leader epochs."""
    target = tmp_path / "above" / "logs"
    shutil.copytree(FIXTURES / "killed", target, ignore=shutil.ignore_patterns("expected", "case.toml"))
    for partition in target.glob("*-?"):
        (partition / "leader-epoch-checkpoint").write_text("wrong")
        min(partition.glob("*.index")).write_bytes(b"\0\0\0\7" * 4)
    for name in (OLDER, ACTIVE):
        log = target / "transfers-0" / name
        os.truncate(log, log.stat().st_size - 5)
    return target


@pytest.fixture
def listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Count:
    """How often each directory was listed, also by processes that were forked; without the path up to logs."""
    log = os.open(tmp_path / "listings", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    scandir, listdir = os.scandir, os.listdir

    def note(path: str) -> str:
        os.write(log, f"{os.path.relpath(path, tmp_path / 'above')}\n".encode())
        return path

    monkeypatch.setattr(os, "scandir", lambda path: scandir(note(path)))
    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(note(path)))
    return lambda: Counter((tmp_path / "listings").read_text().splitlines())


def planned(path: Path, options: RecoverOptions, engine: Engine | None = None) -> list[Plan]:
    found = list(planner.plan_recovery(discover([str(path)]), options, engine=engine))
    assert not [item for item in found if isinstance(item, Report)]
    plans = [item for item in found if isinstance(item, Plan) and not item.is_root]
    assert any(not plan.is_empty for plan in plans)
    return plans


@pytest.mark.daily(2)
@pytest.mark.laws
@pytest.mark.parametrize(
    ("engine", "given", "strategy", "rebuild_all"),
    of_the_day(
        product(
            [Serial(), Processes(2)],
            ["logs/transfers-0", "logs/transfers-1", "logs", "."],
            STRATEGIES,
            [False, True],
        ),
        5,
        whole=not QUICK,
    ),
)
def test_planning_lists_each_partition_once(
    directory: Path, listings: Count, given: str, strategy: str, engine: Engine, *, rebuild_all: bool
) -> None:
    options = RecoverOptions(strategy=strategy, rebuild_all=rebuild_all)
    plans = planned(directory.parent / given, options, engine)
    count = listings()
    paths = [os.path.relpath(plan.path, directory.parent) for plan in plans]
    assert len(paths) == (1 if "transfers" in given else 7)
    assert {path: count[path] for path in paths} == dict.fromkeys(paths, 1)


@pytest.mark.parametrize("name", [OLDER, ACTIVE])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_segment_alone_needs_a_second_listing_for_names(
    directory: Path, listings: Count, strategy: str, name: str
) -> None:
    """Discovery looks for a later segment. Only then it is clear what the plan is about."""
    planned(directory / "transfers-0" / name, RecoverOptions(strategy=strategy))
    assert listings()["logs/transfers-0"] == 2


@pytest.mark.daily(2)
@pytest.mark.parametrize("strategy", [TRUNCATE, SALVAGE])
@pytest.mark.parametrize("given", ["transfers-0", f"transfers-0/{OLDER}", f"transfers-0/{ACTIVE}", ".", ".."])
def test_a_file_that_changes_while_it_is_verified_has_another_stamp_than_the_plan(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, strategy: str
) -> None:
    name = OLDER if given.endswith(OLDER) else ACTIVE
    log = directory / "transfers-0" / name
    scan, size = verify.scan, log.stat().st_size

    def scan_before_it_grows(task: ScanTask, **how: Any) -> RangeSummary:
        summary = scan(task, **how)
        if os.path.samefile(task.range.segment.log.path, log):
            os.truncate(log, size + 1)
        return summary

    monkeypatch.setattr(verify, "scan", scan_before_it_grows)
    options = RecoverOptions(strategy=strategy)
    how = recover.ApplyOptions("one", output=str(tmp_path / "copy"))
    results = list(recover.recover_logs(discover([str(directory / given)]), options, apply_options=how))
    (result,) = [
        one for one in results if isinstance(one, RecoveryResult) and "transfers-0" in one.plan.path.split("/")
    ]
    assert not result.applied
    assert str(result.error).startswith(f"{os.path.join(result.plan.path, name)}: the file has changed since the plan")


# ---- the files of a listing


def listed(path: Path) -> DirectoryFiles | None:
    (partition,) = [item for item in discover([str(path)]) if isinstance(item, Partition) and item.path == str(path)]
    return partition.directory_files


def same_as_listed_again(path: Path) -> DirectoryFiles:
    files = listed(path)
    assert files is not None
    assert files.stamps == read_stamps(str(path))
    assert files.sizes() == directory_state(str(path)).files
    return files


@each("path", PARTITIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_files_are_those_of_another_listing(path: Path) -> None:
    files = same_as_listed_again(path)
    assert list(files.stamps) == list(read_stamps(str(path)))
    assert pickle.loads(pickle.dumps(files)) == files


def test_links_have_a_size_and_no_stamp(directory: Path) -> None:
    partition = directory / "transfers-0"
    (partition / "unknown").write_bytes(b"12345")
    (partition / f"{99:020d}.txnindex").symlink_to("unknown")
    (partition / f"{99:020d}.timeindex").symlink_to("nowhere")
    (partition / "round").symlink_to("round")
    (partition / "folder").symlink_to(directory)
    (partition / "inside").mkdir()
    (partition / ".kdump-undo-one").write_bytes(b"1")
    os.mkfifo(partition / "pipe")
    files = same_as_listed_again(partition)
    assert files.link_sizes == {f"{99:020d}.txnindex": 5}
    assert {"unknown", ".kdump-undo-one"} < files.stamps.keys()


def test_a_file_that_goes_between_listing_and_stat_was_never_there(directory: Path) -> None:
    partition = directory / "transfers-0"
    gone = [partition / name for name in ("unknown", ".kdump-undo-one", f"{99:020d}.index")]
    for path in gone:
        path.write_bytes(b"1")
    found = list_directory(str(partition))
    for path in gone:
        path.unlink()
    files = partition_of_listing(found, None, whole=True)[0].directory_files
    assert files is not None
    assert not {path.name for path in gone} & files.stamps.keys()


class _Unreadable:
    """An entry whose status cannot be read, as in a directory without permission to search it."""

    name, path = "unknown", "t-0/unknown"

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return True

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        raise PermissionError(13, "Permission denied")


def test_a_directory_of_which_a_file_has_no_status_is_listed_again(directory: Path) -> None:
    """So that the error is that of the listing that needs the status."""
    found: Listing = list_directory(str(directory / "transfers-0"))
    found.files.append(_Unreadable())  # type: ignore[arg-type]
    partition, errors = partition_of_listing(found, None, whole=True)
    assert partition.directory_files is None
    assert [str(error) for error in errors] == ["t-0/unknown: permission denied"]


def test_only_a_whole_directory_has_files_and_any_other_its_listing(directory: Path) -> None:
    def partitions(path: Path) -> Iterator[Partition]:
        found = (item for item in discover([str(path)]) if isinstance(item, Partition))
        return (one for one in found if one.path != str(directory))  # the loose snapshot that KRaft starts from

    assert all(one.directory_files and one.listing is None for one in partitions(directory))
    assert all(one.directory_files is None and one.listing for one in partitions(directory.parent))
    (alone,) = partitions(directory / "transfers-0" / ACTIVE)
    assert alone.directory_files is None
    assert alone.listing is None


def test_a_saved_plan_has_the_stamps_of_every_file(directory: Path) -> None:
    for plan in planned(directory, RecoverOptions(strategy=REINDEX)):
        assert dict(plan.files) in ({}, read_stamps(plan.path))
        assert all(isinstance(stamp, Stamp) for stamp in plan.files.values())
