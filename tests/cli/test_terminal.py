"""What a person at a terminal gets, looked at through a pseudo-terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from support import build
from support.command_runs import unwatched

ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
BAR = re.compile(rb"\x1b\[\?25l.*?\x1b\[\?25h\r\x1b\[1A\x1b\[2K", re.DOTALL)
"""A bar from its first drawing until it is erased."""
HOSTILE = b"\x1b[31m\x1b]0;title\x07\x9b5m\r\x08\xe2\x80\xae"


def plain(output: bytes) -> str:
    """What is left to read when the terminal has done what it was asked."""
    return ESCAPE.sub(b"", output).replace(b"\r\n", b"\n").decode()


@pytest.fixture
def hostile(tmp_path: Path) -> str:
    name = "\x1b[41mred\x07.log"
    items = [
        build.record(HOSTILE, HOSTILE, headers=[(HOSTILE, HOSTILE)]),
        build.record(b"[bold]no markup[/bold]", b":smile:"),
    ]
    (tmp_path / name).write_bytes(
        build.batch(items) + build.batch(items, base_offset=2, crc=1) + build.batch(items, base_offset=4)[:-3]
    )
    return name


def test_tables_by_default(kdump: Any, logs: Path) -> None:
    ran = kdump.terminal("dump", "--batches", "clean.log")
    assert ran.status == 0
    assert COLOUR.search(ran.out)
    shown = plain(ran.out)
    assert re.search(r"position +size +offsets +count +magic +codec +crc", shown)
    assert re.search(r"^ *\d+ +\d+ +3\.\.5 +3 +2 +zstd +ok", shown, re.MULTILINE)
    assert "batch position=" not in shown


def test_records_as_a_tree(kdump: Any, logs: Path) -> None:
    shown = plain(kdump.terminal("dump", "clean.log").out)
    assert len(re.findall(r'^[├└]── \d+ .*"key-\d" "value-\d"$', shown, re.MULTILINE)) == 9


def test_text_when_the_output_goes_elsewhere(kdump: Any, logs: Path) -> None:
    assert kdump("dump", "clean.log").out.startswith(b"file clean.log\nbatch position=0 ")
    assert b"\x1b" not in kdump("dump", "--format", "terminal", "clean.log").out


def test_findings_below_their_files(kdump: Any, logs: Path) -> None:
    names = ["noted.log", "warned.log", "damaged.log"]
    shown = plain(kdump.terminal("verify", "--level", "info", *names, stderr=False).out)
    lines = [line.split()[:3] for line in shown.split("\n")]
    heads = [line for line in lines if line[1:2] in (["error"], ["warning"], ["info"]) or line in [[n] for n in names]]
    assert [line[-1] for line in heads] == [names[0], "offset/gap", names[1], "offset/gap", names[2], "batch/crc"]
    assert re.search(r"^3 files, 6 batches, .*: 1\s+error, 1 warning, 1 info$", shown, re.MULTILINE)
    assert "next:" not in shown  # recover takes no segment of this name


@pytest.mark.parametrize("command", ["dump", "verify"])
def test_colours(kdump: Any, logs: Path, command: str) -> None:
    for option, wanted in (("never", False), ("always", True), ("auto", True)):
        ran = kdump.terminal(command, "--color", option, "damaged.log", stderr=False)
        assert ran.status == 1
        assert bool(COLOUR.search(ran.out)) is wanted, option
    assert COLOUR.search(kdump(command, "--color", "always", "--format", "terminal", "damaged.log").out)


@pytest.mark.parametrize(
    "arguments", [["dump"], ["dump", "--force"], ["dump", "--batches"], ["verify"], ["verify", "-v"]], ids=" ".join
)
def test_nothing_from_a_file_reaches_the_terminal_raw(kdump: Any, hostile: str, arguments: list[str]) -> None:
    for more in (["--format", "terminal", "--color", "never"], ["--format", "text"], ["--format", "json"]):
        ran = kdump.terminal(*arguments, *more, hostile, stderr=False)
        assert ran.status == 1
        shown = ran.out.replace(b"\r\n", b"\n").decode()
        assert all(line.isprintable() for line in shown.split("\n")), more
    coloured = kdump.terminal(*arguments, "--color", "always", hostile, stderr=False).out
    assert all(line.isprintable() for line in plain(coloured).split("\n"))
    assert b"\x1b[41m" not in coloured
    assert b"\x1b[31m" not in coloured.replace(b"\x1b[1;31m", b"")
    if arguments[0] == "dump" and "--batches" not in arguments:
        assert "[bold]no markup[/bold]" in plain(coloured)
        assert ":smile:" in plain(coloured)


def test_kafka_format_is_harmless_at_a_terminal(kdump: Any, hostile: str) -> None:
    ran = kdump.terminal("dump", "--format", "kafka", "--print-data-log", hostile, stderr=False)
    assert all(line.isprintable() for line in ran.out.replace(b"\r\n", b"\n").decode().split("\n"))


def test_complaints_are_harmless(kdump: Any) -> None:
    ran = kdump.terminal("verify", "--no-progress", "\x1b[31mmissing\n.log", stdout=False)
    assert ran.status == 3
    assert ran.out == b"kdump: \\x1b[31mmissing\\n.log: no such file or directory\r\n"


def test_lines_fit_the_terminal(kdump: Any, logs: Path) -> None:
    (logs / "wide.log").write_bytes(build.batch([build.record(b"k" * 500, b"v" * 5000)]))
    for arguments in (["dump", "wide.log"], ["dump", "--batches", "wide.log"], ["verify", "damaged.log", "warned.log"]):
        for columns in (60, 100, 200):
            shown = plain(kdump.terminal(*arguments, "--color", "never", columns=columns, stderr=False).out)
            assert max(len(line.rstrip()) for line in shown.split("\n")) <= columns


# ---- progress


def test_progress_only_on_a_terminal(kdump: Any, logs: Path) -> None:
    assert kdump("verify", "clean.log").err == b""
    assert BAR.search(kdump.terminal("verify", "clean.log", stdout=False).out)
    assert kdump.terminal("verify", "--no-progress", "clean.log", stdout=False).out == b""
    assert kdump.terminal("verify", "clean.log", stderr=False).out.count(b"\x1b[?25l") == 0


def test_progress_leaves_the_terminal_as_it_was(kdump: Any, logs: Path) -> None:
    shown = kdump.terminal("verify", "clean.log", "damaged.log", "missing.log")
    assert shown.status == 3
    assert shown.out.count(b"\x1b[?25l") == shown.out.count(b"\x1b[?25h")  # the cursor
    assert b"kdump: missing.log: no such file or directory\r\n" in shown.out


def test_progress_when_it_is_wanted(kdump: Any, logs: Path) -> None:
    ran = kdump("verify", "--progress", "clean.log")
    assert ran.status == 0
    size = (logs / "clean.log").stat().st_size
    assert re.fullmatch(rf"kdump: {size} of {size} bytes, 100 %, \d+ MiB/s\n", ran.problems)
    assert b"\x1b" not in ran.out
    assert kdump.inside("verify", "--progress", "clean.log").err.startswith(b"kdump: ")


def test_the_phases_of_a_conversion(kdump: Any, logs: Path) -> None:
    ran = kdump("convert", "--progress", "-q", "topic-0", "-o", "-", "--to", "csv")
    size = sum(log.stat().st_size for log in (logs / "topic-0").glob("*.log"))
    lines = ran.problems.splitlines()
    assert lines[0] == "kdump: preparing topic-0"
    assert re.fullmatch(rf"kdump: {size} of {size} bytes, 100 %, \d+ MiB/s", lines[1])


def test_progress_never_mixes_with_the_output(kdump: Any, logs: Path) -> None:
    quiet = kdump("verify", "--no-progress", "-q", "damaged.log", "warned.log")
    loud = kdump("verify", "--progress", "-q", "damaged.log", "warned.log")
    assert quiet.out == loud.out


@pytest.mark.parametrize("output_format", ["text", "json", "terminal"])
def test_the_bar_is_erased_before_anything_is_printed(kdump: Any, logs: Path, output_format: str) -> None:
    names = ["damaged.log", "missing.log", "warned.log", "damaged.log", "topic-0", "gone.log"]
    arguments = ["--format", output_format, "--color", "never", *names]
    for command in (["verify", "-v"], ["recover"]):
        shown = kdump.terminal(*command, *arguments)
        silent = kdump.terminal(*command, *arguments, "--no-progress")
        assert BAR.search(shown.out), command
        rest = BAR.sub(b"", shown.out)
        seconds = rb'"(seconds|now_ms)":[0-9.]+'
        assert re.sub(seconds, b"", rest) == re.sub(seconds, b"", silent.out), command
        for bar in BAR.findall(shown.out):
            assert b"kdump:" not in bar
            assert b"batch/crc" not in bar


def test_the_phases_of_a_recovery(kdump: Any, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    log = logs / "topic-0" / "00000000000000000000.log"
    log.write_bytes(log.read_bytes() + b"\1" * 40)
    drawn = b"".join(BAR.findall(kdump.terminal("recover", "--truncate", "--from", "all", "topic-0").out)).decode()
    phases = ("verifying", "copying aside", "applying", "verifying again")
    places = [drawn.find(phase) for phase in phases]
    assert -1 not in places
    assert places == sorted(places)
    assert "topic-0/" in drawn[places[1] : places[2]]
    assert "topic-0/" in drawn[places[2] : places[3]]
    assert "100" not in drawn
    drawn = b"".join(BAR.findall(kdump.terminal("recover", "--undo", "topic-0").out)).decode()
    assert "undoing" in drawn
    assert (
        "undoing"
        in kdump("recover", "--truncate", "--from", "all", "topic-0").text
        + kdump("recover", "--undo", "--progress", "topic-0").problems
    )


def test_colours_for_light_and_dark_backgrounds(kdump: Any, logs: Path) -> None:
    """Red and magenta: yellow, green and cyan cannot be read on white, blue not on black."""
    (logs / "topic-0" / "00000000000000000009.log").write_bytes(b"\0\0" + (logs / "damaged.log").read_bytes())
    for given in (
        ["dump", "mixed.log", "damaged.log"],
        ["dump", "--batches", "mixed.log", "damaged.log"],
        ["verify", "-v", "."],
        ["recover", "topic-0"],
        ["recover", "--salvage", "--dry-run", "topic-0"],
    ):
        out = kdump(*given, "--color", "always").out
        numbers = {
            number for codes in re.findall(rb"\x1b\[([0-9;]*)m", out) for number in codes.split(b";") if number != b""
        }
        assert numbers <= {b"0", b"1", b"2", b"31", b"35"}, (given, numbers)
        assert b"1" in numbers


def test_commands_to_be_copied_stay_on_one_line(kdump: Any, tmp_path: Path) -> None:
    directory = tmp_path / ("a" * 70) / "topic-0"
    directory.mkdir(parents=True)
    (directory / "00000000000000000000.log").write_bytes(build.batch([build.record(b"k", b"v")])[:-3])
    ran = kdump("recover", "--color", "always", str(directory), COLUMNS="80")
    lines = [COLOUR.sub(b"", line) for line in ran.out.splitlines()]
    assert b"next: kdump recover --truncate " + bytes(directory) in lines


def test_what_is_not_lost_is_not_alarming(kdump: Any, tmp_path: Path) -> None:
    directory = tmp_path / "topic-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(build.batch([build.record(b"k", b"v")]) + bytes(3))
    out = kdump("recover", "--color", "always", "topic-0").out
    assert b"\x1b[2mgiven up" in out


def test_no_bar_on_a_dumb_terminal(kdump: Any, logs: Path) -> None:
    ran = kdump.terminal("verify", "damaged.log", TERM="dumb")
    assert b"\x1b" not in ran.out
    assert plain(ran.out).startswith("damaged.log\n")
    ran = kdump.terminal("recover", "topic-0", TERM="dumb")
    assert plain(ran.out).splitlines()[0].strip()


@pytest.mark.parametrize("given", [["verify", "--explain"], ["verify", "--explain", "batch"], ["-V"]])
def test_what_is_explained_is_folded_between_words(kdump: Any, given: list[str]) -> None:
    whole = kdump(*given).text
    shown = plain(kdump.terminal(*given, columns=60).out)
    assert max(map(len, shown.splitlines())) <= 60
    assert shown.split() == whole.split()


@pytest.mark.parametrize("command", [("stat",), ("dump",), ("dump", "--batches"), ("verify",)])
def test_a_locale_of_ascii_gets_lines_and_bars_of_ascii(kdump: Any, logs: Path, command: tuple[str, ...]) -> None:
    ran = kdump.terminal(*command, "clean.log", LC_ALL="C")
    assert ran.status == 0
    assert ran.out.isascii()
    assert not kdump.terminal(*command, "clean.log").out.isascii()
