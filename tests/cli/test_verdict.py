"""Text and terminal begin with the verdict: whether a broker starts, what is lost, what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LABELS = ["broker", "lost", "do"]


def copied(to: Path) -> Path:
    """A log directory that a broker left without a clean shutdown."""
    shutil.copytree(FIXTURES / "killed", to, ignore=shutil.ignore_patterns("expected", "case.toml"))
    return to


def damage(directory: Path, name: str = "retained-0") -> None:
    """Flip a bit in the last segment of a partition."""
    log = max((directory / name).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(bytes(data))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return copied(tmp_path / "d")


def starts(changing: Any, *words: str) -> bool | None:
    command, *more = words
    summary = json.loads(changing.inside(command, "--format", "json", *more).lines[-1])
    value: bool | None = summary["starts"]
    return value


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_the_first_lines_are_the_verdict(changing: Any, logs: Path, command: str) -> None:
    damage(logs)
    ran = changing.inside(command, "d")
    assert [line.partition(":")[0] for line in ran.lines[:3]] == LABELS
    assert ran.lines[0] == (
        "broker: starts: nothing that was looked at prevents it; a start truncates the log of 1 partition"
        " (d/retained-0)"
    )
    step = ran.lines[-1].removeprefix("next: ")
    assert ran.lines[2] == f"do: {step}"
    assert sum(line.startswith("next: ") for line in ran.lines) == 1
    assert starts(changing, command, "d") is True
    shown = changing.inside(command, "--format", "terminal", "d").lines
    assert shown[0].split()[:2] == ["broker", "starts:"]


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_what_a_broker_refuses_is_named(changing: Any, logs: Path, command: str) -> None:
    (logs / "no partition").mkdir()
    assert changing.inside(command, "d").lines[0] == "broker: does not start: file/name of d/no partition"
    assert starts(changing, command, "d") is False


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_an_attempt_that_fails_may_truncate_other_logs(changing: Any, logs: Path, command: str) -> None:
    """A broker loads the logs of a disk side by side, and gives up at the one that it refuses."""
    damage(logs)
    (logs / "no partition").mkdir()
    assert changing.inside(command, "d").lines[0] == (
        "broker: does not start: file/name of d/no partition; the attempt can truncate the log of 1 partition"
        " (d/retained-0)"
    )
    if command == "verify":
        assert changing.inside("verify", "d").lines[1].startswith("lost: the attempt to start can give up ")


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_what_is_renamed_is_named(changing: Any, logs: Path, command: str) -> None:
    shutil.rmtree(logs / "__cluster_metadata-0", ignore_errors=True)
    (logs / "retained-0" / "partition.metadata").unlink()
    said = changing.inside(command, "d").lines[0]
    assert "a start renames 1 partition (d/retained-0) to NAME-stray and begins empty ones" in said


@pytest.mark.parametrize("command", ["verify", "recover"])
def test_healthy_logs_have_none(changing: Any, logs: Path, command: str) -> None:
    ran = changing.inside(command, "d/__consumer_offsets-0")
    assert not any(line.partition(":")[0] in LABELS for line in ran.lines)


def test_what_a_start_does_about_the_damage_may_be_unknown(changing: Any, logs: Path) -> None:
    """Nothing says that the directory is a broker's, so that no start is predicted."""
    damage(logs)
    (logs / "alone" / "t-0").mkdir(parents=True)
    shutil.copy(max((logs / "retained-0").glob("*.log")), logs / "alone" / "t-0")
    said, lost = changing.inside("verify", "d/alone").lines[:2]
    assert said.startswith("broker: whether it starts is not known: ")
    assert said.endswith("; a start may truncate the log of, or leave the damage in, 1 partition (d/alone/t-0)")
    assert lost == "lost: 393 bytes damaged in 1 partition"


def test_on_its_own_it_is_not_known(changing: Any, logs: Path) -> None:
    damage(logs)
    logs.joinpath("retained-0").rename(logs.parent / "retained-0")
    for command in ("verify", "recover"):
        said = changing.inside(command, "retained-0").lines[0]
        assert said.startswith("broker: whether it starts is not known: retained-0 is not in a log directory")
        assert starts(changing, command, "retained-0") is None


def test_after_a_repair(changing: Any, logs: Path) -> None:
    damage(logs)
    ran = changing.inside("recover", "--truncate", "d")
    assert ran.lines[0] == "broker: starts: nothing that was looked at prevents it"
    assert ran.lines[2] == f"do: {ran.lines[-1].removeprefix('next: ')}"


def test_a_high_watermark_above_the_end_is_a_loss(changing: Any, logs: Path) -> None:
    """No byte in the log shows that its end is gone."""
    marks = logs / "replication-offset-checkpoint"
    marks.write_bytes(marks.read_bytes().replace(b"retained 0 64", b"retained 0 640"))
    assert changing.inside("verify", "d").lines[1] == "lost: 1 log ends below its high watermark"
    damage(logs)
    assert changing.inside("verify", "d").lines[1].endswith("; 1 log ends below its high watermark")


def test_details_above_the_bound_are_not_kept(changing: Any, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(logs)
    before = changing.inside("verify", "d").lines
    monkeypatch.setattr("kdump.render.text.HELD_BYTES", 10)
    after = changing.inside("verify", "d").lines
    assert after == [*before[3:-2], *before[:3], *before[-2:]]


def test_verify_names_the_command_that_fills_a_copy(changing: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        copied(tmp_path / name)
    paths = ["one/retained-0", "two/retained-0"]
    assert "next: " not in changing.inside("verify", *paths).text
    damage(tmp_path / "one")
    ran = changing.inside("verify", *paths)
    assert ran.lines[-1] == "next: kdump convert --to log -o DIR -- one/retained-0 two/retained-0"
    assert changing.inside("verify", "one", "two").lines[-1] == ran.lines[-1]
    assert changing.inside("verify", "one").lines[-1] == "next: kdump recover one/retained-0"


def test_an_undo_says_that_the_damage_is_back(changing: Any, logs: Path) -> None:
    """As a preview does of the partition."""
    damage(logs)
    preview = changing.inside("recover", "d/retained-0").lines
    assert changing.inside("recover", "--salvage", "d").status == 4
    ran = changing.inside("recover", "--undo", "d")
    assert (ran.status, ran.lines[:3], ran.lines[-1]) == (0, preview[:3], preview[-1])
    assert any("d/retained-0: undone: run " in line for line in ran.lines)
    changing.inside("recover", "--truncate", "d")
    shown = changing.inside("recover", "--undo", "--format", "terminal", "d").lines
    assert shown[0].split()[:2] == ["broker", "starts:"]


def test_an_undo_that_is_not_whole_promises_no_start(changing: Any, logs: Path) -> None:
    for name in ("retained-0", "trimmed-0"):
        damage(logs, name)
    assert changing.inside("recover", "--truncate", "d").status == 4
    log = max((logs / "trimmed-0").glob("*.log"))
    log.write_bytes(b"another")
    ran = changing.inside("recover", "--undo", "d/retained-0", "d/trimmed-0")
    assert ran.status == 3
    assert any("d/retained-0: undone: run " in line for line in ran.lines)
    assert ran.lines[0].startswith("broker: whether it starts is not known: not all of the run was undone; a start ")
    assert not any("start the broker" in line for line in ran.lines)


@pytest.mark.parametrize(
    "options", [("--reindex",), ("--reindex", "--dry-run"), ("--salvage", "--dry-run"), ("--from", "all")]
)
def test_a_plan_that_follows_no_start_says_none(changing: Any, logs: Path, options: tuple[str, ...]) -> None:
    """The damage is after the recovery point, where a start truncates; these plans do not look for it."""
    damage(logs)
    said = changing.inside("recover", *options, "d").lines[0]
    assert said.endswith("; a start may truncate the log of, or leave the damage in, 1 partition (d/retained-0)")


def seven_segments(tmp_path: Path) -> Path:
    """A partition in a log directory, with its checkpoints."""
    shutil.copytree(FIXTURES / "segments" / "segments-0", tmp_path / "d" / "t-0")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (tmp_path / "d" / name).write_text("0\n0\n")
    return tmp_path / "d" / "t-0"


def lost_in(changing: Any) -> str:
    """What a verify says is lost."""
    (lost,) = (line for line in changing.inside("verify", "d").lines if line.startswith("lost: "))
    return str(lost)


def test_verify_counts_records_that_a_start_gives_up(changing: Any, tmp_path: Path) -> None:
    """Of the damaged segment they are not known, where valid batches come after the damage."""
    log = seven_segments(tmp_path) / f"{0:020}.log"
    data = log.read_bytes()
    log.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    assert lost_in(changing) == (
        "lost: a start gives up 499 valid records, offsets 0..508, next 509; 2101 bytes damaged in 1 partition"
    )
    log.write_bytes(data[:9000] + bytes([data[9000] ^ 1]) + data[9001:])
    assert lost_in(changing).startswith("lost: a start gives up at least 433 records, offsets ")
    log.write_bytes(bytes(len(data)))
    assert lost_in(changing) == (
        "lost: a start gives up 433 valid records, offsets 0..508, next 509; 15793 bytes damaged and 76"
        " offsets missing in 1 partition"
    )


def test_verify_says_when_a_start_gives_up_nothing(changing: Any, tmp_path: Path) -> None:
    log = max(seven_segments(tmp_path).glob("*.log"))
    log.write_bytes(log.read_bytes()[:-5])
    assert lost_in(changing) == "lost: a start gives up no valid record; 464 bytes damaged in 1 partition"


def test_verify_counts_missing_offsets(changing: Any, tmp_path: Path) -> None:
    for path in seven_segments(tmp_path).glob(f"{231:020}.*"):
        path.unlink()
    assert lost_in(changing) == "lost: 71 offsets missing in 1 partition"


def test_a_narrow_table_keeps_the_number_of_segments(changing: Any, tmp_path: Path) -> None:
    log = seven_segments(tmp_path) / f"{231:020}.log"
    log.write_bytes(bytes(log.stat().st_size))
    shown = changing.inside("recover", "--format", "terminal", "d", COLUMNS="80").text
    assert "3 segments + companions" in shown
