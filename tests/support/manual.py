"""The generated parts of the manual pages in man/, which are written by hand otherwise.

    python tests/support/manual.py            writes these parts
    python tests/support/manual.py --check    says which pages differ, and ends with 1 when one does

A part stands between the comments `.\\" generated: NAME` and `.\\" end`; `part_of` has the names. What several pages
or tables share is a file in man/shared/.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import click

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `interop` is found

from interop import lake_recipes, spark_pipelines
from kdump.cli import COMMANDS, group
from kdump.cli.sections import SectionedCommand
from kdump.stat.rows import RowKind, disk_columns
from kdump.verify.catalogue import CATALOGUE
from support import public_names

LITERAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
"""Characters that roff shows as others, or obeys, and how to write them."""

PAGES = Path(__file__).resolve().parents[2] / "man"
SHARED = PAGES / "shared"

# ---- mdoc


def escaped(text: str) -> str:
    """Text that roff takes literally."""
    text = text.replace("\\", "\\e").replace("…", "...").replace("–", "-").replace("×", "x")
    text = re.sub(
        r"(?<!\w)(--?)(?=\w)", lambda match: "\\-" * len(match[1]), text
    )  # an option is typed with minus signs
    return "\\&" + text if text.startswith((".", "'", "%")) else text


def prose(text: str) -> Iterator[str]:
    """A paragraph; every sentence begins a line."""
    for sentence in re.split(r"(?<=[.?!]) (?=[A-Z`(])", text.strip()):
        yield from wrapped(escaped(sentence))


def wrapped(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 78, break_long_words=False, break_on_hyphens=False):
        yield "\\&" + line if line.startswith((".", "'")) else line


def quoted(text: str) -> str:
    """An argument of a macro."""
    return '"' + escaped(text).replace('"', '""') + '"'


def literal(lines: Iterable[str]) -> Iterator[str]:
    """Lines of a command or a program, as they are typed: a reader can copy them out of the page."""
    yield ".Bd -literal -offset 2n"
    for line in lines:
        yield "\\&" + "".join(LITERAL.get(char, char) for char in line)
    yield ".Ed"


# ---- what the program knows


def words_of(option: click.Option) -> str:
    """What an option takes."""
    if option.is_flag or option.count:
        return ""
    if option.metavar:
        return option.metavar
    if isinstance(option.type, click.Choice):
        return " | ".join(str(choice) for choice in option.type.choices)
    return option.type.name.upper()


def option_of(option: click.Option) -> Iterator[str]:
    names = [*option.opts, *option.secondary_opts]
    taken = words_of(option)
    flags = " , ".join(f"Fl {name[1:]}" for name in names)
    yield f".It {flags}" + (f" Ar {quoted(taken)}" if taken else "")
    text = option.help or ""
    if isinstance(option.show_default, str):
        text += f" Default: {option.show_default}."
    elif option.show_default and option.default is not None:
        text += f" Default: {option.default}."
    yield from prose(text)


def command_of(name: str) -> click.Command:
    if name == "kdump":
        return group
    found: click.Command = import_module(f"kdump.cli.{name}").command
    return found


def options_of(command: click.Command) -> list[click.Option]:
    """Every option of a command, --help too."""
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    return [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]


def sections_of(command: click.Command) -> dict[str, list[click.Option]]:
    """The options by the headings of the help; one without a name where it has none."""
    if not isinstance(command, SectionedCommand):
        return {"": options_of(command)}
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    found = command.options_by_section(context).items()
    return {heading: [one for one in options if isinstance(one, click.Option)] for heading, options in found}


def options(name: str) -> Iterator[str]:
    for heading, found in sections_of(command_of(name)).items():
        if heading:
            yield f".Ss {heading}"
        yield ".Bl -tag -width Ds"
        for option in found:
            yield from option_of(option)
        yield ".El"


def commands() -> Iterator[str]:
    for name, what in COMMANDS.items():
        yield f".It Cm {name}"
        yield from prose(what[0].upper() + what[1:] + ".")
        yield "See"
        yield f".Xr kdump-{name} 1 ."


def findings() -> Iterator[str]:
    yield ".Bl -tag -width Ds"
    for entry in CATALOGUE.values():
        yield f".It Cm {entry.code} Pq {entry.severity.word}"
        yield from prose(entry.title + ".")
        yield ".Pp"
        # Values can stand inside of words that depend on another one.
        sentence = re.sub(r"\{(\w+)\}", r"\\fI\1\\fR", escaped(entry.sentence))
        sentence = re.sub(r"\{(\w+)(?::\?([^}|]*)(?:\|([^}]*))?)?[^}]*\}", placeholder, sentence)
        yield from wrapped(f"\\(lq{sentence}\\(rq")
        yield ".Pp"
        yield from prose(entry.why)
        yield ".Pp"
        yield from prose(f"Recovery: {entry.recover}")
        yield ".br"
        yield from prose(f"Source: {entry.source}.")
    yield ".El"


def columns(kind: str) -> Iterator[str]:
    """The fields of the rows of stat about files, each with its meaning."""
    for column in disk_columns(RowKind(kind)):
        yield f'.It Li "{column.name}" Ta'
        yield from prose(column.meaning)


def names(package: str) -> Iterator[str]:
    """The public names of a package: at the top by what they are, in a room by the alphabet."""
    found = public_names.described(package)
    groups = {kind: [one for one in found if one.kind == kind] for kind in sorted({one.kind for one in found})}
    for kind, some in groups.items() if package == "kdump" else (("", found),):
        if kind:
            yield f".Ss {kind}"
        yield ".Bl -tag -width Ds"
        for one in some:
            yield f".It Cm {quoted(one.call)}"
            yield from prose(one.contract)
        yield ".El"


def placeholder(match: re.Match[str]) -> str:
    """A field of a sentence as the manual shows it: a name in italics, or the words that it stands for."""
    name, text, other = match.groups()
    if text is None:
        return f"\\fI{name}\\fR"
    text = text.replace("#", f"\\fI{name}\\fR")
    return f"({text} or {other})" if other else f"[{text}]"


def program(name: str) -> Iterator[str]:
    """A recipe that the tests run, without the types of its arguments."""
    recipe = getattr(lake_recipes if hasattr(lake_recipes, name) else spark_pipelines, name)
    lines = inspect.getsource(recipe).splitlines()
    body = next(number for number, line in enumerate(lines) if line.endswith(":")) + 1
    return literal([f"def {name}({', '.join(inspect.signature(recipe).parameters)}):", *lines[body:]])


# ---- the pages


def part_of(name: str) -> Iterable[str]:
    """The lines of the part with a name."""
    match name.split():
        case ["purpose", "of", command]:
            return [f".Nd {escaped(COMMANDS[command])}"]
        case ["options", "of", command]:
            return options(command)
        case ["commands"]:
            return commands()
        case ["findings"]:
            return findings()
        case ["columns", "of", kind]:
            return columns(kind)
        case ["names", "of", package]:
            return names(package)
        case ["program", recipe]:
            return program(recipe)
        case ["shared", file]:
            return (SHARED / f"{file}.mdoc").read_text(encoding="utf-8").splitlines()
    raise ValueError(f"there is no generated part {name}")


def filled(page: str) -> str:
    """A page with its generated parts as they should be."""
    lines = iter(page.splitlines())
    found = []
    for line in lines:
        found.append(line)
        if line.startswith('.\\" generated: '):
            found += part_of(line.partition(": ")[2])
            if not any(old == '.\\" end' for old in lines):
                raise ValueError(f"no end after {line}")
            found.append('.\\" end')
    return "\n".join(found) + "\n"


def pages() -> dict[str, str]:
    """File name and text of every page, as they are."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.[1-8]"))}


def main() -> int:
    check = "--check" in sys.argv
    differing = []
    for name, text in pages().items():
        if (right := filled(text)) != text:
            differing.append(name)
            if not check:
                (PAGES / name).write_text(right, encoding="utf-8")
    print(" ".join(differing) or "nothing", "differs" if check else "written")
    return 1 if differing and check else 0


if __name__ == "__main__":
    sys.exit(main())
