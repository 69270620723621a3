"""Planning and applying over directories: what is chosen, what a log directory's checkpoints say afterwards, what is done about runs that were killed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kdump import apply, recover
from kdump.discovery import discover
from kdump.format.checkpoint import offset_entries
from kdump.plan import SALVAGE, Options, Plan
from kdump.report import Report

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The log directory of a broker that was killed, with a flipped bit in the newest segment of transfers-0, and a recovery point behind it."""
    target = tmp_path / "logs"
    shutil.copytree(FIXTURES / "killed", target, ignore=shutil.ignore_patterns("expected", "case.toml"))
    log = target / "transfers-0" / f"{64:020d}.log"
    data = bytearray(log.read_bytes())
    data[400] ^= 1
    log.write_bytes(data)
    points = target / RECOVERY_POINTS
    points.write_text(points.read_text().replace("transfers 0 64", "transfers 0 70"))
    return target


def points(directory: Path) -> dict[tuple[str, int], int]:
    found = offset_entries((directory / RECOVERY_POINTS).read_bytes())
    return {(entry.topic, entry.partition): entry.offset for entry in found}


def planned(*paths: Path, options: Options | None = None) -> list[Plan]:
    found = list(recover.plans(discover([str(path) for path in paths]), options or Options()))
    assert not [item for item in found if isinstance(item, Report)]
    return [item for item in found if isinstance(item, Plan)]


def test_the_recovery_point_of_a_log_that_is_cut_is_lowered_at_the_end(directory: Path) -> None:
    before = points(directory)
    plans = [plan for plan in planned(directory) if not plan.empty]
    assert [Path(plan.path).name for plan in plans] == ["transfers-0", "logs"]
    results = list(recover.run(discover([str(directory)]), Options(), recover.How("one")))
    assert not [result for result in results if isinstance(result, Report) or result.error is not None]
    cut = plans[0].log_end_offset
    assert cut is not None
    assert cut < 70
    assert points(directory) == {**before, ("transfers", 0): cut}
    assert not [plan for plan in planned(directory) if not plan.empty]


def test_a_partition_named_alone_lowers_its_line_too(directory: Path) -> None:
    list(recover.run(discover([str(directory / "transfers-0")]), Options(), recover.How("one")))
    assert points(directory)["transfers", 0] == 66


def test_what_nothing_is_wrong_with_stays(directory: Path) -> None:
    (directory / "transfers-0" / f"{64:020d}.log").write_bytes(
        (FIXTURES / "killed" / "transfers-0" / f"{64:020d}.log").read_bytes()
    )
    assert not [plan for plan in planned(directory) if not plan.empty]


def test_a_run_that_was_killed_before_the_checkpoint_is_finished_with_it(directory: Path) -> None:
    (plan,) = [plan for plan in planned(directory / "transfers-0") if not plan.is_root]
    apply.apply(plan, "one")
    journal = directory / "transfers-0" / ".kdump-undo" / "one" / "applied.jsonl"
    journal.rename(journal.with_name("applying.jsonl"))
    found = list(recover.plans(discover([str(directory)]), Options()))
    (refused,) = [item for item in found if isinstance(item, Report)]
    assert "--resume" in str(refused.errors[0])
    assert "--undo" in str(refused.errors[0])
    assert points(directory)["transfers", 0] == 70
    recover.resume(str(directory))
    assert points(directory)["transfers", 0] == plan.log_end_offset


def test_a_segment_named_alone(directory: Path) -> None:
    newest, older = (directory / "transfers-0" / f"{base:020d}.log" for base in (64, 0))
    (plan,) = (plan for plan in planned(newest) if not plan.is_root)
    assert (plan.path, plan.options.walk, plan.alone) == (str(newest.parent), "newest", False)
    older.write_bytes(older.read_bytes()[:-5])
    (plan,) = planned(older)
    assert plan.alone
    assert {Path(action.path).name.partition(".")[0] for action in plan.actions} <= {
        older.stem,
        f"{plan.log_end_offset:020d}",
    }
    (result,) = recover.apply_all([plan], Options(), recover.How("one"))
    assert isinstance(result, recover.Result)
    assert "leave a hole" in str(result.error)
    # All of them are the directory.
    assert [Path(plan.path).name for plan in planned(older, newest) if not plan.is_root] == ["transfers-0"]


def test_the_metadata_log_only_when_it_is_named(directory: Path) -> None:
    metadata = directory / "__cluster_metadata-0"
    shutil.copytree(FIXTURES / "log-directory" / "__cluster_metadata-0", metadata)
    assert str(metadata) not in [plan.path for plan in planned(directory)]
    assert str(metadata) in [plan.path for plan in planned(metadata)]


def test_what_lies_below_a_directory_that_is_none_of_kafkas(directory: Path) -> None:
    names = sorted(Path(plan.path).name for plan in planned(directory.parent) if not plan.is_root)
    assert names == sorted(path.name for path in directory.iterdir() if path.is_dir())


def test_metadata_that_cannot_be_read_is_written_as_in_another_partition(directory: Path) -> None:
    metadata = directory / "transfers-1" / "partition.metadata"
    before = metadata.read_bytes()
    metadata.write_bytes(b"version: 0\ntopic")
    list(recover.run(discover([str(metadata.parent)]), Options(), recover.How("one")))
    assert metadata.read_bytes() == (directory / "transfers-0" / "partition.metadata").read_bytes() == before


def test_a_salvage_keeps_what_a_truncation_gives_up(directory: Path) -> None:
    (cut,) = (plan for plan in planned(directory / "transfers-0") if not plan.is_root)
    (kept,) = (
        plan for plan in planned(directory / "transfers-0", options=Options(strategy=SALVAGE)) if not plan.is_root
    )
    assert cut.lost.batches > 0 == kept.lost.batches
    assert cut.lost.committed
    assert kept.log_end_offset == 81
