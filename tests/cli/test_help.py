"""The help of the commands: the options that come first, and where all of them are."""

import re
from importlib import import_module
from typing import Any

import click
import pytest

from kdump.cli import COMMANDS
from kdump.cli.sections import SectionedCommand

SCREENS = 75
"""So many lines of 80 columns have the first options of a command: a screen and a half."""
GROUPS_OF_DUMP = ["What is shown", "Filter", "How it is shown", "Decode", "Follow", "Kafka's tool"]


def command_of(name: str) -> SectionedCommand:
    command = import_module(f"kdump.cli.{name}").command
    assert isinstance(command, SectionedCommand)
    return command


def options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


@pytest.mark.parametrize("command", [[], *([name] for name in (*COMMANDS, "help", "version", "completion"))], ids=str)
def test_help_fits_80_columns(kdump: Any, command: list[str]) -> None:
    lines = kdump.inside(*command, "--help").lines
    assert max(map(len, lines)) <= 80
    assert len(lines) <= SCREENS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_ten_options_in_full_and_names_the_others(kdump: Any, name: str) -> None:
    command, text = command_of(name), kdump.inside(name, "--help").text
    assert len(set(command.first)) == 10
    in_full, names = text.split("\nMore options, in full with --help-all and in OPTIONS of kdump-" + f"{name}(1):\n")
    in_full = in_full.partition("\nOptions:\n")[2]
    shown = re.findall(r"(?<![^\s/])--?[\w-]+(?![^\s/])", names)
    for option in options_of(command):
        if option.name in (*command.first, "help_all"):
            assert re.search(rf"^  .*{re.escape(option.opts[-1])}\b", in_full, re.MULTILINE)
        else:
            assert {*option.opts, *option.secondary_opts} <= {*shown}
    assert len(shown) == len(set(shown))
    assert not re.search(r":\s*$", names, re.MULTILINE), "a section without an option that is left"


@pytest.mark.parametrize("name", COMMANDS)
def test_all_options_stand_in_full_under_headings(kdump: Any, name: str) -> None:
    command, text = command_of(name), kdump.inside(name, "--help-all").text
    assert re.findall(r"^(\w[\w' ]*):$", text, re.MULTILINE) == [*command.sections]
    words = " ".join(text.split())
    for option in options_of(command):
        assert option.help
        assert option.help.split(" ")[0] in words
        assert all(flag in words for flag in (*option.opts, *option.secondary_opts))
    assert max(map(len, text.splitlines())) <= 80
    assert kdump.inside("help", "--all", name).text == text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_one_section(name: str) -> None:
    command = command_of(name)
    placed = [option for section in command.sections.values() for option in section]
    assert sorted(placed) == sorted({option.name for option in options_of(command)})


def test_groups_of_dump() -> None:
    assert [*command_of("dump").sections] == GROUPS_OF_DUMP


def test_all_help_of_a_short_command(kdump: Any) -> None:
    assert kdump.inside("help", "--all", "version").text == kdump.inside("version", "--help").text
