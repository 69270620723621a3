"""The manual pages in man/, made from Click's options and the catalogue of findings.

    python tests/support/manual.py            writes man/*.1
    python tests/support/manual.py --check    says which pages differ, and ends with 1 when one does

The words that the program cannot know of itself are in manual_text.py. The test of the manual fails when a field, an
option or a code has none.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `support` is found

from kdump.cli import COMMANDS, group
from kdump.cli.sections import SectionedCommand
from kdump.verify.findings import CATALOGUE
from support import (
    manual_convert,
    manual_dump,
    manual_filters,
    manual_isolation,
    manual_schemas,
    manual_spark,
    runbook_text,
)
from support.manual_spark_cloud import OBJECT_STORES
from support.manual_text import (
    ABOUT,
    COMPLETION,
    DATE,
    EXAMPLES,
    EXIT_STATUS,
    FILES,
    JSON,
    KAFKA,
    KAFKA_DIFFERENT,
    KAFKA_SAME,
    LINES,
    PATHS,
    PATHS_OF_RECOVER,
    REPLICATED,
    STATUS_RULE,
    UNDO,
)

COMMAND_WIDTH = 66
LITERAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
"""Characters that roff shows as others, or obeys, and how to write them."""

PAGES = Path(__file__).resolve().parents[2] / "man"

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


def listed(items: Iterable[tuple[str, str]], macro: str = "Li", width: str = "Ds") -> Iterator[str]:
    yield f".Bl -tag -width {width}"
    for name, text in items:
        yield f".It {macro} {quoted(name)}"
        yield from prose(text)
    yield ".El"


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


def options_of(command: click.Command) -> list[click.Option]:
    """Every option of a command, --help too."""
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    return [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]


def command_lines(commands: Iterable[str]) -> Iterator[str]:
    """Commands as they are typed: a reader can copy them out of the page. A long one goes on after a |."""
    yield ".Bd -literal -offset 2n"
    for command in commands:
        lines = [command] if len(command) <= COMMAND_WIDTH else re.split(r"(?<= \|) (?=kdump|jq|tee|tail)", command)
        for number, line in enumerate(lines):
            text = ("    " if number else "") + line
            for char, escape in LITERAL.items():
                text = text.replace(char, escape)
            yield "\\&" + text
    yield ".Ed"


def paragraphs(title: str, texts: Iterable[str]) -> Iterator[str]:
    """A section."""
    yield f".Sh {title}"
    for number, text in enumerate(texts):
        if number:
            yield ".Pp"
        yield from prose(text)


def table(fields: Mapping[str, str], what: str = "field") -> Iterator[str]:
    """The fields of a JSON line or the columns of a table, a row for each."""
    yield f".Bl -column {max(fields, key=len)}"
    yield f".It Em {what} Ta Em meaning"
    for name, text in fields.items():
        yield f".It Li {quoted(name)} Ta"
        yield from prose(text)
    yield ".El"


def sections_of(command: click.Command) -> dict[str, list[click.Option]]:
    """The options by the headings of the help; one without a name where it has none."""
    if not isinstance(command, SectionedCommand):
        return {"": options_of(command)}
    context = click.Context(command, info_name=command.name, help_option_names=["-h", "--help"])
    found = command.options_by_section(context).items()
    return {heading: [one for one in options if isinstance(one, click.Option)] for heading, options in found}


def examples(name: str) -> Iterator[str]:
    yield ".Sh EXAMPLES"
    for number, (what, command) in enumerate(EXAMPLES[name]):
        if number:
            yield ".Pp"
        yield from prose(what)
        yield from command_lines([command])


def exit_status() -> Iterator[str]:
    yield ".Sh EXIT STATUS"
    yield from prose(STATUS_RULE)
    yield from listed(EXIT_STATUS["kdump"].items(), width="130")


def head(name: str, what: str) -> Iterator[str]:
    page = "kdump" if name == "kdump" else f"kdump-{name}"
    yield '.\\" Made by tests/support/manual.py from the options and the catalogue; change those.'
    yield f".Dd {DATE}"
    yield f".Dt {page.upper()} 1"
    yield ".Os"
    yield ".Sh NAME"
    yield f".Nm {page}"
    yield f".Nd {escaped(what)}"


def page_of_the_group() -> Iterator[str]:
    yield from head(
        "kdump", "read, verify, recover, measure and convert the log segments that Apache Kafka left on disk"
    )
    yield ".Sh SYNOPSIS"
    for name in COMMANDS:
        yield ".Nm"
        yield f".Cm {name}"
        yield ".Op Ar options"
        yield ".Ar PATH ..."
    yield ".Nm"
    yield ".Cm help"
    yield ".Op Ar COMMAND"
    yield ".Nm"
    yield ".Cm version"
    yield ".Nm"
    yield ".Cm completion"
    yield ".Ar SHELL"
    yield ".Nm"
    yield ".Fl -help | Fl -version"
    yield ".Sh DESCRIPTION"
    for number, paragraph in enumerate(ABOUT["kdump"]):
        if number:
            yield ".Pp"
        yield from prose(paragraph)
    yield ".Pp"
    yield "The commands are:"
    yield ".Bl -tag -width verify"
    for name, what in COMMANDS.items():
        yield f".It Cm {name}"
        yield from prose(what[0].upper() + what[1:] + ".")
        yield "See"
        yield f".Xr kdump-{name} 1 ."
    yield ".It Cm help"
    yield from prose("Show the help of kdump or of a command.")
    yield ".It Cm version"
    yield from prose("Show the versions of kdump, its kernel and the codec libraries.")
    yield ".It Cm completion"
    yield from prose(COMPLETION)
    yield ".El"
    yield ".Pp"
    yield from prose(PATHS)
    yield ".Sh OPTIONS"
    yield ".Bl -tag -width Ds"
    for option in options_of(group):
        yield from option_of(option)
    yield ".El"
    yield ".Sh FILES"
    yield from listed(FILES.items(), "Pa")
    yield from exit_status()
    yield from examples("kdump")
    yield ".Sh OBJECT STORES"
    for number, paragraph in enumerate(OBJECT_STORES):
        yield from [".Pp"] * bool(number)
        yield from prose(paragraph)
    yield ".Sh COMPATIBILITY"
    yield ".Xr kdump-dump 1"
    yield "has a table of the options of Kafka's own tool,"
    yield ".Nm kafka-dump-log.sh ,"
    yield "and of what does the same."
    yield ".Sh SEE ALSO"
    names = sorted(COMMANDS)
    yield from (f".Xr kdump-{name} 1{' ,' if name != names[-1] else ''}" for name in names)


def page_of(name: str) -> Iterator[str]:
    command: click.Command = import_module(f"kdump.cli.{name}").command
    yield from head(name, COMMANDS[name])
    yield ".Sh SYNOPSIS"
    yield ".Nm kdump"
    yield f".Cm {name}"
    yield ".Op Ar options"
    yield ".Ar PATH ..."
    yield ".Sh DESCRIPTION"
    for paragraph in ABOUT[name]:
        yield from prose(paragraph)
        yield ".Pp"
    yield from prose(PATHS if name != "recover" else PATHS_OF_RECOVER)
    yield ".Sh OPTIONS"
    for heading, options in sections_of(command).items():
        if heading:
            yield f".Ss {heading}"
        yield ".Bl -tag -width Ds"
        for option in options:
            yield from option_of(option)
        yield ".El"
    if name == "dump":
        yield from finding_records()
        yield from record_formats()
    if name == "recover":
        yield from guidance()
    if name == "convert":
        yield from conversions()
    yield from exit_status()
    if name == "verify":
        yield from findings()
    yield ".Sh JSON"
    yield from prose(JSON)
    for kind, (what, fields) in LINES[name].items():
        yield f".Ss {kind}"
        yield from prose(what)
        yield from table(fields)
    if name == "convert":
        yield from manifest()
    yield from examples(name)
    if name == "dump":
        yield ".Sh COMPATIBILITY"
        yield from prose(KAFKA_SAME)
        yield from listed(KAFKA.items())
        yield ".Pp"
        yield "What is different:"
        yield ".Bl -bullet"
        for difference in KAFKA_DIFFERENT:
            yield ".It"
            yield from prose(difference)
        yield ".El"
    yield ".Sh SEE ALSO"
    others = sorted({*COMMANDS} - {name})
    yield ".Xr kdump 1 ,"
    yield from (f".Xr kdump-{other} 1{' ,' if other != others[-1] else ''}" for other in others)


def finding_records() -> Iterator[str]:
    """The options that choose records."""
    yield from paragraphs("FINDING RECORDS", manual_filters.FINDING)
    yield from listed(manual_filters.PATTERNS.items())
    for text in manual_filters.COST:
        yield ".Pp"
        yield from prose(text)
    yield from paragraphs("ORDER OF TIME", manual_filters.TIME_ORDER)
    yield from paragraphs("ISOLATION", manual_isolation.ABOUT)


def record_formats() -> Iterator[str]:
    """The formats of records."""
    yield ".Sh TEMPLATES"
    yield from prose(manual_dump.TEMPLATE_INTRO)
    yield from listed(manual_dump.TOKENS.items())
    yield from paragraphs("FORMATS OF RECORDS", manual_dump.RECORDS_ALONE)
    yield from paragraphs("BYTES", manual_dump.HEX)
    yield from paragraphs("SCHEMAS", manual_schemas.SCHEMAS)


def guidance() -> Iterator[str]:
    """What to do at night, and what to know before."""
    yield ".Sh RUNBOOK"
    yield from prose(runbook_text.INTRO)
    yield ".Bl -enum"
    for step in runbook_text.STEPS:
        yield ".It"
        yield from prose(step.text)
        if step.commands:
            yield from command_lines(step.commands)
        if step.outcomes:
            yield ".Pp"
            yield ".Bl -tag -width Ds -compact"
            for seen, what in step.outcomes:
                yield f".It {escaped(seen)}"
                yield from prose(what)
            yield ".El"
    yield ".El"
    yield from paragraphs("UNDO", UNDO)
    yield from paragraphs("REPLICATED PARTITIONS", REPLICATED)


def conversions() -> Iterator[str]:
    """What an output holds, and how it comes to be."""
    yield ".Sh OUTPUT"
    yield from listed(manual_convert.OUTPUTS.items())
    yield ".Pp"
    yield from prose(manual_convert.GIVE_BACK)
    yield ".Sh COLUMNS"
    yield from prose(manual_convert.OF_COLUMNS)
    yield from table(manual_convert.COLUMNS, "column")
    yield from paragraphs("SEVERAL RUNS", manual_convert.RUNS)
    yield from paragraphs("ISOLATION", manual_convert.ISOLATION)
    yield from paragraphs("COPIES OF A PARTITION", manual_convert.COPIES)
    yield ".Bl -enum"
    for rule in manual_convert.RULES:
        yield ".It"
        yield from prose(rule)
    yield ".El"
    yield ".Pp"
    yield from prose(manual_convert.MISSING)
    yield from paragraphs("DAMAGE", manual_convert.DAMAGE)


def manifest() -> Iterator[str]:
    """The lines of the manifest of a folder."""
    yield ".Sh MANIFEST"
    yield from prose(manual_convert.OF_THE_MANIFEST)
    for kind, (what, fields) in manual_convert.MANIFEST.items():
        yield f".Ss {kind}"
        yield from prose(what)
        yield from table(fields)


def findings() -> Iterator[str]:
    yield ".Sh FINDINGS"
    yield from prose(
        "An error is data that cannot be read, or that a broker would truncate or refuse. "
        "A warning is a broken invariant of data that can be read. Info is legal and worth knowing. "
        "Words in italics stand for values."
    )
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


def placeholder(match: re.Match[str]) -> str:
    """A field of a sentence as the manual shows it: a name in italics, or the words that it stands for."""
    name, text, other = match.groups()
    if text is None:
        return f"\\fI{name}\\fR"
    text = text.replace("#", f"\\fI{name}\\fR")
    return f"({text} or {other})" if other else f"[{text}]"


def page_of_spark() -> Iterator[str]:
    yield '.\\" Made by tests/support/manual.py from tests/support/manual_spark*.py; change those.'
    yield f".Dd {DATE}"
    yield ".Dt KDUMP-SPARK 7"
    yield ".Os"
    yield ".Sh NAME"
    yield ".Nm kdump-spark"
    yield f".Nd {escaped(manual_spark.ABOUT)}"
    yield from manual_spark.sections()
    yield ".Sh SEE ALSO"
    yield ".Xr kdump 1 ,"
    others = ("convert", "recover", "stat", "verify")
    yield from (f".Xr kdump-{other} 1{' ,' if other != others[-1] else ''}" for other in others)


def pages() -> dict[str, str]:
    """File name and text of every page."""
    built = {"kdump.1": page_of_the_group(), **{f"kdump-{name}.1": page_of(name) for name in COMMANDS}}
    built[manual_spark.NAME] = page_of_spark()
    return {name: "\n".join(lines) + "\n" for name, lines in built.items()}


def main() -> int:
    differing = []
    for name, text in pages().items():
        path = PAGES / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            differing.append(name)
            if "--check" not in sys.argv:
                PAGES.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(" ".join(differing) or "nothing", "differs" if "--check" in sys.argv else "written")
    return 1 if differing and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
