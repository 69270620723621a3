"""The manual pages say everything that the program knows of itself, and are well-formed."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from kdump import DumpOptions, FollowOptions, cli, follow_logs
from kdump.cli import exit_status
from kdump.convert.parquet.manifest import PartitionKey, removal_lines
from kdump.convert.tables import RECORDS
from kdump.recover.plan import FILL, RecoverOptions, RecoveryResult
from kdump.recover.summary import RecoveryTotals
from kdump.recover.undo import Run, RunResult
from kdump.render import RenderOptions, renderer
from kdump.verify.catalogue import CATALOGUE
from support import build, coordinator_records, manual, manual_text, recovery_results
from support.cases import each
from support.fetch_results import MessageSetSend, build_multi_message_set_send
from support.growing_partition import GrowingPartition

PAGES = manual.pages()
NAMES = sorted(PAGES)


plain = cache(manual_text.plain)


@each("name", NAMES)
def test_the_generated_parts_are_those_of_the_program(name: str) -> None:
    assert manual.filled(PAGES[name]) == PAGES[name], "run python tests/support/manual.py"


def test_the_marks_of_generated_parts() -> None:
    assert manual.filled('a\n.\\" generated: purpose of dump\nold\n.\\" end\nb\n') == (
        f'a\n.\\" generated: purpose of dump\n.Nd {cli.COMMANDS["dump"]}\n.\\" end\nb\n'
    )
    with pytest.raises(ValueError, match="no end after"):
        manual.filled('.\\" generated: commands\nold\n')
    with pytest.raises(ValueError, match="no generated part of commands"):
        manual.filled('.\\" generated: of commands\nold\n.\\" end\n')


def test_what_tables_share_is_shared() -> None:
    marks = re.findall(r'^\.\\" generated: shared (.*)$', "".join(PAGES.values()), re.MULTILINE)
    files = [path.stem for path in manual.SHARED.iterdir()]
    assert sorted({*marks}) == sorted(files)
    assert all(marks.count(name) > 1 for name in files)
    assert sorted(path.name for path in manual.PAGES.iterdir()) == sorted([*PAGES, "shared"])


def test_a_page_for_every_command() -> None:
    assert NAMES == sorted(["kdump.1", *(f"kdump-{name}.1" for name in cli.COMMANDS), *manual_text.OTHERS])
    text = PAGES["kdump.1"]
    for name in cli.COMMANDS:
        assert f".Xr kdump-{name} 1" in text


@pytest.mark.parametrize("name", [None, *cli.COMMANDS])
def test_every_option(name: str | None) -> None:
    command: click.Command = cli.group if name is None else import_module(f"kdump.cli.{name}").command
    text = PAGES["kdump.1" if name is None else f"kdump-{name}.1"]
    context = click.Context(command, info_name="x", help_option_names=["-h", "--help"])
    shown = set(re.findall(r"--?[\w-]+", command.get_help(context)))
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert options
    for option in options:
        for flag in (*option.opts, *option.secondary_opts):
            assert f"Fl {flag[1:]}" in text, flag
            assert flag in shown
        assert option.help
        assert plain(option.help.rstrip("."))[:40] in plain(text)
    assert "Fl -help" in text


@each("code", CATALOGUE)
def test_every_code(code: str) -> None:
    entry = CATALOGUE[code]
    text = PAGES["kdump-verify.1"]
    assert f".It Cm {code} Pq {entry.severity.word}\n" in text
    words = plain(text)
    for said in (entry.title, entry.why, entry.recover, entry.source):
        assert " ".join(said.split()) in words
    for literal in re.split(r"\{\w+(?:[^?{}]*\}|:\?)|[|#}]", entry.sentence):
        assert literal.strip() in words


def test_every_exit_status() -> None:
    statuses = {
        0,
        exit_status.FOUND,
        exit_status.USAGE,
        exit_status.FAILED,
        exit_status.GAVE_UP,
        exit_status.BUG,
        exit_status.INTERRUPTED,
        exit_status.PIPE_CLOSED,
    }
    for name, text in PAGES.items():
        if name not in manual_text.OTHERS:
            assert {*map(int, manual_text.table(manual_text.section(text, "EXIT STATUS")))} == statuses


SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in manual_text.OTHERS])
def test_sections(name: str) -> None:
    found = re.findall(r"^\.Sh (.+)$", PAGES[name], re.MULTILINE)
    more = {
        "kdump.1": ["FILES", "HTML", "OBJECT STORES", "COMPATIBILITY"],
        "kdump-dump.1": [
            "BYTES",
            "JSON",
            "COMPATIBILITY",
            "FINDING RECORDS",
            "FORMATS OF RECORDS",
            "ISOLATION",
            "ORDER OF TIME",
            "SCHEMAS",
            "TEMPLATES",
        ],
        "kdump-verify.1": ["FINDINGS", "JSON"],
        "kdump-stat.1": ["JSON"],
        "kdump-convert.1": [
            *("COLUMNS", "COPIES OF A PARTITION", "DAMAGE", "ISOLATION", "JSON", "MANIFEST", "OUTPUT", "SEVERAL RUNS"),
        ],
        "kdump-recover.1": [
            "DIFFERENCES FROM A BROKER",
            "JSON",
            "OTHER COPIES",
            "REPLICATED PARTITIONS",
            "RUNBOOK",
            "UNDO",
        ],
    }
    assert sorted(found) == sorted(SECTIONS + more[name])


FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COMPANIONS = [
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "partition.metadata",
]


def fields_of_recover() -> dict[str, list[str]]:
    stream = io.BytesIO()
    with renderer("json", stream) as out:
        options = RecoverOptions(FILL, fill_from=("other",))  # which has more fields than the other strategies
        out.plan({**options.fields(), "paths": ("topic-0",)})
        plan = recovery_results.plan()._replace(options=options)
        out.recovery(RecoveryResult(plan, True, "run", None, (recovery_results.OLD,)))
        out.run(RunResult(Run("run", "over", "/data/orders-3", "/data/orders-3/.kdump-undo/run")))
        totals = RecoveryTotals(RecoverOptions(), ("topic-0",), applies=True).summary()
        out.recovery_summary(totals, 0, 0.0)
    return {
        line["type"]: [*line][1:] if "path" not in line else [*line][2:]
        for line in map(json.loads, stream.getvalue().splitlines())
    }


def fields_of_stat(kdump: Any, tmp_path: Path) -> dict[str, list[str]]:
    (tmp_path / "topic-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\n")
    batch = build.batch([build.record(b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
    (tmp_path / "topic-0" / f"{0:020}.log").write_bytes(batch)
    (tmp_path / "__consumer_offsets-0").mkdir()
    commit = build.record(coordinator_records.commit_key("g", "topic", 0), coordinator_records.commit_value(5))
    (tmp_path / "__consumer_offsets-0" / f"{0:020}.log").write_bytes(build.batch([commit]))
    others = ("finding", "total", "summary")
    kinds = [word for kind in manual_text.fields("stat") if kind not in others for word in ("--by", kind)]
    found: dict[str, list[str]] = {}
    for line in map(json.loads, kdump.inside("stat", "--format", "json", *kinds, ".").lines):
        found.setdefault(line["type"], [name for name in line if name not in ("type", "path")])
    return found


def damaged_log(directory: Path) -> None:
    """A partition with damage, an aborted and an open transaction."""
    directory.mkdir()
    aborted = build.batch([build.record(b"k", b"v")], base_offset=1, transactional=True, producer_id=7)
    data = [
        build.batch([build.record(b"k", b"v")]),
        aborted + build.marker("ABORT", base_offset=2, producer_id=7) + b"\xff" * 30,
        build.batch([build.record(b"k", b"v")], base_offset=4, transactional=True, producer_id=8),
        build.batch([build.record(b"k", b"v")], base_offset=5),
    ]
    (directory / f"{0:020}.log").write_bytes(b"".join(data))


def fields_of_convert(kdump: Any, tmp_path: Path) -> dict[str, list[str]]:
    damaged_log(tmp_path / "topic-0")
    out = tmp_path.parent / f"{tmp_path.name}-out"  # a directory that is not watched
    out.mkdir()
    lines = kdump.inside("convert", "--format", "json", "-o", f"../{out.name}/folder", "topic-0").lines
    return {line["type"]: [name for name in line if name not in ("type", "path")] for line in map(json.loads, lines)}


def test_every_field_of_the_manifest(kdump: Any, tmp_path: Path) -> None:
    fields_of_convert(kdump, tmp_path)
    found: dict[str, set[str]] = {}
    manifest = tmp_path.parent / f"{tmp_path.name}-out" / "folder" / "_manifest.jsonl"
    words = manual_text.tables(manual_text.section(manual_text.page_of("convert"), "MANIFEST"))
    for line in map(json.loads, manifest.read_text().splitlines()):
        found.setdefault(line["type"], set()).update({*line} - {"type"})
        if line["type"] == "settings":
            assert all(name in words["settings"]["settings"] for name in line["settings"])
    found["removed"] = {*next(removal_lines(PartitionKey(None)))} - {"type"}  # in the middle of a run
    assert found == {kind: {*fields} for kind, fields in words.items()}


def test_every_column() -> None:
    assert RECORDS.names == [*manual_text.table(manual_text.section(manual_text.page_of("convert"), "COLUMNS"))]


def fields_of_changes(directory: Path) -> dict[str, list[str]]:
    """The fields of the lines that tell of changes to a log that is followed."""
    log = GrowingPartition(directory, "t", 0)
    for value in (b"a", b"b"):
        log.append(value)
    steps = iter([lambda: log.truncate(1), lambda: log.restart_at(5), *[lambda: None] * 9, log.delete])
    out, seconds = io.BytesIO(), itertools.count()

    def wait(_: float, __: int | None) -> None:
        next(steps, lambda: None)()

    follow = FollowOptions(wait, lambda: next(seconds))
    with renderer("json", out, RenderOptions()) as lines:
        assert list(lines.show(follow_logs(str(log.path), DumpOptions(), follow_options=follow))) == []
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    return {
        line["type"]: [name for name in line if name not in ("type", "path")]
        for line in found
        if line["type"] not in ("batch", "record")
    }


AT = ("--at", "0", "-v", "0.log")
RESULT = ("--type", "multifetch", "result")
METADATA = ("--metadata-image", str(FIXTURES / "image"))
CHANGES = (*METADATA, "--diff", "1:")


def fields_of(kdump: Any, tmp_path: Path, command: str) -> dict[str, list[str]]:
    """The fields of every type of line that a command writes, in their order."""
    if command == "recover":
        return fields_of_recover()
    if command == "stat":
        return fields_of_stat(kdump, tmp_path)
    if command == "convert":
        return fields_of_convert(kdump, tmp_path)
    good = build.batch([build.record(b"k", b"v")], epoch=1)
    last = build.batch([build.record(b"k", b"v")], base_offset=2, epoch=1)
    (tmp_path / "0.log").write_bytes(
        good + build.marker("COMMIT", base_offset=1, epoch=1) + b"\xff" * 30 + last + good[:30]
    )
    paths, more = ["0.log"], ["-v"]
    if command == "dump":
        more = []
        paths.append(str(FIXTURES / "internal" / "__share_group_state-0" / "00000000000000000000.log"))
        (undecoded := tmp_path / "__share_group_state-1").mkdir()
        (undecoded / f"{0:020}.log").write_bytes(build.batch([build.record(None, b"v")]))
        paths.append(str(undecoded))
        producer = {"producer_id": 1, "producer_epoch": 0}
        aborted = build.batch([build.record(None, b"v")], transactional=True, base_sequence=0, **producer)
        (tmp_path / "aborted.log").write_bytes(aborted + build.marker("ABORT", base_offset=1, **producer))
        paths.append(str(tmp_path / "aborted.log"))
        for name in COMPANIONS:
            paths += sorted(str(path) for path in FIXTURES.rglob(f"*{name}") if path.stat().st_size)[:40]
    found: dict[str, list[str]] = {}
    for line in map(json.loads, kdump.inside(command, *more, "--format", "json", *paths).lines):
        names = [name for name in line if name not in ("type", "path")]
        if line.pop("aborted", False):
            names.remove("aborted")
            found["aborted"] = ["aborted"]
        last = "control" if "control_type" in line else "decoded" if "key_decoded" in line else None
        if last is not None:
            found[last] = names[-3:]
            assert names[:-3] == found["record"]
        else:
            assert found.setdefault(line["type"], names) == names
    if command == "dump":
        (tmp_path / "result").write_bytes(build_multi_message_set_send([MessageSetSend(0, good)]))
        more_runs = (
            AT,
            RESULT,
            METADATA,
            CHANGES,
            ["--count", "--isolation", "read-committed", "0.log"],
            ["--key", "k", "0.log"],
        )
        ran = [kdump.inside(command, "--format", "json", *how) for how in more_runs]
        for line in map(json.loads, [line for each in ran for line in each.lines]):
            found.setdefault(line["type"], [name for name in line if name not in ("type", "path")])
        found |= fields_of_changes(tmp_path / "logs")
    if command == "verify":
        line = json.loads(kdump.inside(command, "--summary", "--format", "json", *paths).lines[0])
        found[line["type"]] = [name for name in line if name not in ("type", "path")]
        assert list(found) == ["finding", "file", "summary", "partition"]
        found = {kind: found[kind] for kind in ("finding", "file", "partition", "summary")}
        fixture = Path(__file__).resolve().parents[2] / "fixtures/transactions"
        both = [str(shutil.copytree(fixture, tmp_path / name)) for name in ("one", "other")]
        line = json.loads(kdump.inside(command, "--compare", "--format", "json", *both).lines[0])
        found[line["type"]] = [name for name in line if name not in ("type", "path")]
    return found


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_field_of_json(kdump: Any, tmp_path: Path, command: str) -> None:
    words = manual_text.fields(command)
    assert all(text for fields in words.values() for text in fields.values())
    assert fields_of(kdump, tmp_path, command) == {kind: list(fields) for kind, fields in words.items()}


def examples() -> list[tuple[str, str]]:
    of_the_runbook = [("kdump", command) for command in manual_text.runbook() if "kdump " in command]
    of_the_pages = [(page, command) for page in ("kdump", *cli.COMMANDS) for command in manual_text.examples(page)]
    assert {page for page, _ in of_the_pages} == {"kdump", *cli.COMMANDS}
    return of_the_pages + of_the_runbook


@pytest.mark.parametrize(("page", "command"), examples())
def test_examples_parse(page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = next(part for part in (shlex.split(piece) for piece in command.split(" | ")) if part[0] == "kdump")
    name = words[1]
    assert page in ("kdump", name)
    target: click.Command = import_module(f"kdump.cli.{name}").command
    arguments = words[2 : words.index(">")] if ">" in words else words[2:]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan").touch()
    with contextlib.suppress(click.exceptions.Exit):  # --explain ends there
        target.make_context(f"kdump {name}", list(arguments), help_option_names=["-h", "--help"]).close()


# kafka-dump-log.sh of Kafka 4.3.1 (DumpLogSegments.DumpLogSegmentsOptions, CommandDefaultOptions)
OPTIONS_OF_KAFKAS_TOOL = (
    "--files",
    "--print-data-log",
    "--deep-iteration",
    "--verify-index-only",
    "--index-sanity-check",
    "--max-message-size",
    "--max-bytes",
    "--key-decoder-class",
    "--value-decoder-class",
    "--offsets-decoder",
    "--transaction-log-decoder",
    "--cluster-metadata-decoder",
    "--remote-log-metadata-decoder",
    "--share-group-state-decoder",
    "--skip-record-metadata",
    "--help",
    "--version",
)


def test_options_of_kafkas_tool() -> None:
    answers = manual_text.table(manual_text.section(PAGES["kdump-dump.1"], "COMPATIBILITY"))
    assert [option.split()[0] for option in answers] == list(OPTIONS_OF_KAFKAS_TOOL)
    # an option of the same name does the same thing
    ours = {flag for option in manual.options_of(import_module("kdump.cli.dump").command) for flag in option.opts}
    for option, answer in answers.items():
        refused = "-decoder-class" in option  # it is there to say what to use instead
        assert (option.split()[0] in ours) == (answer.startswith("The same") or refused), option
    known = {
        flag
        for name in cli.COMMANDS
        for option in manual.options_of(import_module(f"kdump.cli.{name}").command)
        for flag in option.opts
    }
    for answer in answers.values():
        for flag in re.findall(r"--[\w-]+", answer):
            assert flag in known | {"--version"}, flag


needs_mandoc = pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")


@needs_mandoc
@pytest.mark.parametrize("name", NAMES)
def test_lint(name: str) -> None:
    done = subprocess.run(
        ["mandoc", "-Tlint", manual.PAGES / name], capture_output=True, text=True, timeout=60, check=False
    )
    # the pages that these refer to are not installed
    complaints = [
        line for line in (done.stdout + done.stderr).splitlines() if "referenced manual not found: Xr kdump" not in line
    ]
    assert complaints == []


@needs_mandoc
@pytest.mark.parametrize("name", NAMES)
def test_rendered(name: str) -> None:
    done = subprocess.run(
        ["mandoc", "-Tascii", "-Owidth=78", manual.PAGES / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=os.environ | {"LC_ALL": "C"},
    )
    shown = re.sub(r".\x08", "", done.stdout)
    assert f"{Path(name).stem} - " in shown
    # A command can go on in the next line.
    assert "\\" not in re.sub(r"\\[nrtx]| \\\n|\\\\", "", shown)
    for section in SECTIONS if name not in manual_text.OTHERS else ():
        assert f"\n{section}\n" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
