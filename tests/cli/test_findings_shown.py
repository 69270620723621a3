"""Which findings a person is shown, how many of them, and what a verify says at its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import KEPT
from support import build
from support.command_runs import lines, slow, unwatched, workers_of
from support.directories import META, clean, write

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"(.+?):(\d+): (error|warning|info) (\S+): (.+)")


def one(offset: int, **fields: Any) -> bytes:
    return build.batch([build.record(b"k", b"v")], base_offset=offset, **fields)


MANY = b"".join(one(number, attributes=0x80) for number in range(45))
"""45 warnings of one code."""


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A directory with an error, a warning and an info in one file."""
    (tmp_path / "mixed.log").write_bytes(
        build.segment(
            one(0, attributes=0x80),
            one(1, crc=1),
            build.wrapper([build.record(b"k", b"v")], base_offset=2, inner_magic=0),
        )
    )
    return tmp_path


def severities(ran: Any) -> list[str]:
    if ran.text.startswith("{"):
        return [line["severity"] for line in lines(ran) if line["type"] == "finding"]
    return [match[3] for line in ran.lines if (match := LINE.fullmatch(line))]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["warning", "error"]),
        (["--level", "error"], ["error"]),
        (["--level", "info"], ["warning", "error", "info"]),
        (["--fail-on", "info"], ["warning", "error", "info"]),
        (["--fail-on", "never"], ["warning", "error"]),
        (["--fail-on", "error", "--level", "warning"], ["warning", "error"]),
        (["--select", "legacy"], ["info"]),
        (["--select", "legacy", "--level", "error"], ["info"]),
        (["-v"], ["warning", "error", "info"]),
        (["-v", "--level", "error"], ["error"]),
        (["--format", "json"], ["warning", "error", "info"]),
        (["--format", "json", "--level", "error"], ["error"]),
    ],
    ids=" ".join,
)
def test_levels(kdump: Any, mixed: Path, options: list[str], shown: list[str]) -> None:
    assert severities(kdump.inside("verify", "--deep", *options, "mixed.log")) == shown


def test_the_level_changes_neither_counts_nor_status(kdump: Any, mixed: Path) -> None:
    runs = [kdump.inside("verify", "--deep", "--level", level, "mixed.log") for level in ("error", "warning", "info")]
    assert {ran.status for ran in runs} == {1}
    assert len({ran.lines[-1] for ran in runs}) == 1
    assert runs[0].lines[-1].endswith("1 error, 1 warning, 1 info")


@pytest.mark.parametrize("output_format", ["text", "terminal"])
def test_a_healthy_directory_has_its_summary_alone(kdump: Any, tmp_path: Path, output_format: str) -> None:
    write(tmp_path / "d", clean())
    for name in ("d", str(ROOT / "fixtures/segments/segments-0"), str(ROOT / "fixtures/v2-offsets-2.8.2")):
        ran = kdump.inside("verify", "--deep", "--format", output_format, name, COLUMNS="200")
        assert (ran.status, ran.text.count("\n")) == (0, 1)
        assert re.fullmatch(r"\d+ files?, \d+ batch.*: 0 errors, 0 warnings, \d+ info", ran.lines[0])


def test_all_fixtures_have_few_lines(kdump: Any) -> None:
    ran = kdump("verify", "--deep", str(ROOT / "fixtures"))
    assert ran.status == 0
    assert len(ran.lines) < 10


# ---- many of one code


@pytest.mark.parametrize("output_format", ["text", "terminal"])
def test_repeated_findings_are_folded(kdump: Any, tmp_path: Path, output_format: str) -> None:
    (tmp_path / "a.log").write_bytes(MANY)
    (tmp_path / "b.log").write_bytes(MANY[: len(one(0)) * 20])
    ran = kdump.inside("verify", "--format", output_format, "a.log", "b.log")
    assert ran.text.count("warning batch/attributes") == 40
    assert ran.text.count("25 more of batch/attributes; --all shows them") == 1
    whole = kdump.inside("verify", "--all", "--format", output_format, "a.log", "b.log")
    assert whole.text.count("warning batch/attributes") == 65
    assert "more of" not in whole.text
    assert len(lines(kdump.inside("verify", "--format", "json", "a.log", "b.log"))) == 66


def test_findings_that_were_not_kept_are_counted(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"".join(one(number, attributes=0x80) for number in range(KEPT + 50)))
    ran = kdump.inside("verify", "0.log")
    assert ran.lines[20] == f"0.log: {KEPT + 30} more of batch/attributes; --all shows {KEPT - 20} of them"
    whole = kdump.inside("verify", "--all", "0.log")
    assert whole.lines[KEPT] == "0.log: 50 more of batch/attributes, which were counted and not kept"
    verbose = kdump.inside("verify", "-v", "0.log")
    assert verbose.lines[21].endswith(f" findings={KEPT + 50}")


def test_recover_folds_too(kdump: Any, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(b"".join(one(number, crc=number + 1) for number in range(50)) + one(50))
    (directory / f"{51:020}.log").write_bytes(one(51))
    how = ["recover", "--reindex", "--dry-run", "t-0"]
    ran = kdump.inside(*how)
    assert ran.text.count("error batch/crc") == 20
    assert "30 more of batch/crc; --all shows them" in ran.text
    assert kdump.inside(*how, "--all").text.count("error batch/crc") == 50
    assert kdump.inside(*how, "--level", "error").text.count("warning") == 0


def test_a_saved_plan_is_whole_at_every_level(kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    write(tmp_path, {f"t-0/{0:020}.log": one(0, attributes=0x80) + one(1)[:-1], f"t-0/{2:020}.log": one(2)})
    saved = kdump.inside("recover", "--reindex", "--dry-run", "--format", "json", "--level", "error", "t-0")
    (tmp_path / "plan").write_bytes(saved.out)
    assert '"warning"' in saved.text
    assert "make the plan again" not in kdump.inside("recover", "--plan", "plan").problems


def test_the_number_of_a_file_is_the_number_above_it(kdump: Any, mixed: Path) -> None:
    """In -v: the findings of the file that are shown before its line, and those that are folded."""
    (mixed / "many.log").write_bytes(MANY)
    for path in (str(mixed), str(ROOT / "fixtures" / "crash"), str(ROOT / "fixtures" / "v2-transactions-1.1.1")):
        above: Counter[str] = Counter()
        files = 0
        for line in kdump.inside("verify", "-v", "--deep", path).lines:
            if match := LINE.fullmatch(line):
                above[match[1]] += 1
            elif match := re.match(r"(.+): (\d+) more of", line):
                above[match[1]] += int(match[2])
            elif match := re.fullmatch(r"file (\S+) .* findings=(\d+)", line):
                files += 1
                assert above[match[1]] == int(match[2]), line
        assert files


# ---- the end


def test_the_worst_partitions_come_in_a_table(kdump: Any, tmp_path: Path) -> None:
    for number in range(25):
        (tmp_path / f"t-{number}").mkdir()
        damaged = b"".join(one(at, crc=1) for at in range(number)) + one(number)
        (tmp_path / f"t-{number}" / f"{0:020}.log").write_bytes(damaged)
    shown = kdump.inside("verify", "--format", "terminal", ".").text
    table = re.findall(r"^(?:\./)?(t-\d+) +(\d+) +0 ", shown, re.MULTILINE)
    assert table == [(f"t-{number}", str(number)) for number in range(24, 4, -1)]
    assert "4 more partitions with errors or warnings" in shown
    assert not any("partition" in line for line in kdump.inside("verify", "--format", "text", ".").lines[3:])


def test_what_comes_next(kdump: Any, tmp_path: Path) -> None:
    def following(*paths: str) -> str | None:
        text = kdump.inside("verify", *paths).lines[-1]
        said: str | None = lines(kdump.inside("verify", "--format", "json", *paths))[-1]["next"]
        assert (text == f"next: {said}") is (said is not None)
        return said

    log = one(0) + one(1)
    files = {f"{name}-0/{0:020}.log": log for name in ("ok", "bad", "worse", "with space", "-dash")}
    write(tmp_path, {**files, f"index-0/{0:020}.log": log, f"index-0/{0:020}.index": b"\0\0\0\1\0\0\0\1"})
    for name in ("bad", "worse", "with space", "-dash"):
        (tmp_path / f"{name}-0" / f"{0:020}.log").write_bytes(log[:-1])
    assert following("ok-0") is None
    assert following("ok-0", "bad-0") == "kdump recover bad-0"
    assert following("bad-0", "worse-0") == "kdump recover bad-0 worse-0"
    assert following("with space-0") == "kdump recover 'with space-0'"
    assert following("--", "-dash-0") == "kdump recover -- -dash-0"
    assert following("index-0") == "kdump recover --reindex --dry-run index-0"
    assert kdump("verify", "-", stdin=log[:-1]).lines[-1].startswith("1 file")
    for command in ("kdump recover bad-0", "kdump recover --reindex --dry-run index-0"):
        assert kdump.inside(*command.split()[1:]).status == 1


def test_an_unfinished_run_of_a_log_directory_comes_before_everything_else(kdump: Any, tmp_path: Path) -> None:
    files = {f"logs/{name}-0/{0:020}.log": (one(0) + one(1))[:-1] for name in ("a", "b", "c")}
    root = ("meta.properties", b"version=1\nnode.id=1\n"), (".kdump-undo-1-plan-applying.jsonl", b"")
    write(tmp_path, {**files, **{f"logs/{name}": data for name, data in root}})
    assert kdump.inside("verify", "logs").lines[-1] == "next: kdump recover --resume logs"


def test_a_partition_line_and_findings_in_one_run_of_json(kdump: Any, mixed: Path) -> None:
    found = lines(kdump.inside("verify", "--summary", "--format", "json", "mixed.log"))
    assert [line["type"] for line in found] == ["partition", "finding", "finding", "summary"]
    assert "batch/crc:" not in kdump.inside("verify", "--summary", "mixed.log").text


def test_an_interrupted_verify_says_how_far_it_came(
    kdump: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    (tmp_path / "a.log").write_bytes(one(0))
    (tmp_path / "b.log").write_bytes(slow(b""))
    for output_format in ("text", "json"):
        process = subprocess.Popen(
            [kdump.program, "verify", "--deep", "--jobs", "1", "--format", output_format, "a.log", "b.log"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            env=kdump.environment(),
        )
        workers_of(process, 0)  # it alone is at work
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        last = out.decode().splitlines()[-1]
        if output_format == "json":
            at = json.loads(last)["interrupted_at"]
            assert at["path"] == "b.log"
            assert 0 <= at["position"] < at["size"] == (tmp_path / "b.log").stat().st_size
        else:
            assert re.match(r"interrupted at byte \d+ of \d+ in b\.log: \d files?, ", last)


# ---- explanations, help


def test_a_family_is_explained(kdump: Any) -> None:
    ran = kdump.inside("verify", "--explain", "txnindex")
    heads = [line.split()[0] for line in ran.lines if re.match(r"\S+/\S+ \((error|warning|info)\)", line)]
    assert heads == [code for code in CATALOGUE if code.startswith("txnindex/")]
    assert kdump.inside("verify", "--explain", "txnindex/").text == ran.text
    commands = [line for line in ran.lines if line.startswith("Command: ")]
    assert set(commands) == {"Command: kdump recover --reindex PATH"}


def test_every_explanation_names_a_command(kdump: Any) -> None:
    for code in CATALOGUE:
        (command,) = [line for line in kdump.inside("verify", "--explain", code).lines if line.startswith("Command: ")]
        options = set(re.findall(r"--[a-z]+", command))
        assert options <= {"--reindex", "--truncate", "--salvage", "--resume", "--undo"}
        assert "kdump recover" in command


def test_the_explanation_of_a_name_says_that_no_command_moves_a_directory(kdump: Any) -> None:
    (command,) = [
        line for line in kdump.inside("verify", "--explain", "file/name").lines if line.startswith("Command: ")
    ]
    assert command.endswith("none for a directory: move it out of the log directory")
    assert "--salvage" not in command


def test_help_of_a_command(kdump: Any) -> None:
    assert kdump.inside("help").text == kdump.inside("--help").text
    for name in ("dump", "verify", "recover", "completion"):
        assert kdump.inside("help", name).text == kdump.inside(name, "--help").text
    assert kdump.inside("help", "nonsense").status == 2
    assert kdump.inside("-V").text == kdump.inside("--version").text == kdump.inside("version").text


@pytest.mark.parametrize(
    ("word", "near"),
    [("verfy", "verify"), ("recovr", "recover"), ("dmp", "dump"), ("rec", "recover"), ("ver", "verify")],
)
def test_an_unknown_command_gets_a_suggestion(kdump: Any, word: str, near: str) -> None:
    ran = kdump.inside(word, "x")
    assert ran.status == 2
    assert re.search(rf"Did you mean .*\b{near}\b.*\?", ran.problems)
    assert "Did you mean" not in kdump.inside("xyz").problems


def test_the_options_of_recover_stand_in_groups(kdump: Any) -> None:
    text = kdump.inside("recover", "--help-all").text
    heads = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert heads == ["Strategy", "Scope", "Safety", "Output"]
    starts = [text.index(f"\n{head}:") for head in heads] + [len(text)]
    for head, options in (("Strategy", ("--truncate", "--undo")), ("Scope", ("--from",)), ("Safety", ("--no-keep",))):
        number = heads.index(head)
        for option in options:
            assert f"\n  {option}" in text[starts[number] : starts[number + 1]]


# ---- colours, paths, what is not Kafka's


@pytest.mark.parametrize("term", ["", "dumb", "xterm"])
def test_colours_in_a_pipe(kdump: Any, logs: Path, term: str) -> None:
    for command in ("verify", "dump", "recover"):
        ran = kdump.inside(command, "--color", "always", "damaged.log", TERM=term)
        assert b"\x1b[1;31m" in ran.out, command
    assert b"\x1b" not in kdump.inside("verify", "--color", "always", "--format", "text", "damaged.log").out


@pytest.mark.parametrize("command", ["verify", "dump", "recover"])
def test_a_directory_without_kafkas_files(kdump: Any, tmp_path: Path, command: str) -> None:
    write(
        tmp_path,
        {
            "junk/a/b.txt": b"x",
            "junk/up": "..",
            "junk/here": ".",
            "loop/one/two": "../../loop",
            "named-0/notes.txt": b"",
            "empty-0": None,
            "above/empty-0": None,
            "meta/meta.properties": META,
        },
    )
    for path in ("junk", "loop", "named-0"):
        ran = kdump.inside(command, path)
        assert (ran.status, ran.problems) == (3, f"kdump: {path}: no log files here\n"), path
    for path in ("empty-0", "above", "meta"):
        ran = kdump.inside(command, path)
        assert (ran.status, ran.err) == (0, b""), path


@pytest.mark.parametrize("name", ["d", "d/", "./d", "../{here}/d"])
def test_paths_have_one_style(kdump: Any, tmp_path: Path, name: str) -> None:
    """Every line begins with the path as it was given."""
    name = name.format(here=tmp_path.name)
    log = one(0) + one(1)
    write(
        tmp_path,
        {
            f"d/t-0/{0:020}.log": log[:-1],
            "d/t-0/partition.metadata": b"version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA",
            "d/recovery-point-offset-checkpoint": b"0\n1\nt 0 9\n",
            "d/replication-offset-checkpoint": b"0\n1\ngone 0 9\n",
        },
    )
    prefix = name.rstrip("/")
    for command in (["verify"], ["verify", "--summary"], ["recover"], ["recover", "--truncate", "--dry-run"]):
        for line in lines(kdump.inside(*command, "--format", "json", name)):
            if "path" in line:
                assert line["path"] == prefix or line["path"].startswith(f"{prefix}/"), (command, line)
