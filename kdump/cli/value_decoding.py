"""The options that name what decodes the values of records: --schemas, and entry points as --decode."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli import complain, completion
from kdump.cli.param_type import Choice
from kdump.format.internal_topics.decoders import TOPICS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kdump.format.value_schemas.value_decoder import ValueDecoders

DECODE_WORDS: Final = ("auto", *TOPICS, "none")
GROUP: Final = "kdump.decoders"
"""The group of entry points that name decoders: functions of topic, value and headers that return a JSON value."""


class DecodeParam(Choice[str]):
    """A word for the decoder of an internal topic, or the name of an entry point."""

    def __init__(self) -> None:
        super().__init__(DECODE_WORDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = [] if value in DECODE_WORDS else sorted({each.name for each in _entry_points()})
        if value not in (*DECODE_WORDS, *known):
            others = f"has only {', '.join(map(repr, known))}" if known else "is empty"
            self.fail(f"{value!r} is not one of {', '.join(DECODE_WORDS)}, and the group {GROUP} {others}", param, ctx)
        return str(value)


def schemas_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option --schemas."""
    return click.option(
        "--schemas",
        metavar="DIR|auto",
        shell_complete=completion.files,
        help="Decode keys and values in the wire format of a schema registry, with the schemas in the files of DIR, or"
        " in a copy of the topic _schemas. auto: in the topic _schemas beside each topic-partition.",
    )(command)


def check(chosen: dict[str, Any]) -> None:
    """Refuse what does not go together."""
    own = _named_by_entry_point(chosen)
    for option, given in (("--schemas", chosen["schemas"] is not None), (f"--decode {chosen['decode']}", own)):
        if given and chosen["format_name"] in ("kafka", "fetch", "hex"):
            raise click.UsageError(f"{option} cannot be combined with --format {chosen['format_name']}")
        if given and chosen["batches"]:
            raise click.UsageError(f"{option} is about records, which --batches leaves out")
    if own and chosen["schemas"] is not None:
        raise click.UsageError(f"--schemas and --decode {chosen['decode']} cannot be combined")


def topic_word(chosen: dict[str, Any], word: str) -> str:
    """What DumpOptions.decode is: an entry point decodes all topics."""
    return "none" if _named_by_entry_point(chosen) else word


def value_decoders(chosen: dict[str, Any]) -> "ValueDecoders | None":
    """The decoders that the options name. Raises SourceError where the schemas cannot be read."""
    if _named_by_entry_point(chosen):
        from kdump.format.value_schemas.value_decoder import FunctionDecoders

        return FunctionDecoders(chosen["decode"], _loaded(chosen["decode"]))
    if chosen["schemas"] is None:
        return None
    from kdump.storage.value_schemas.chosen_schemas import SchemaDecoders

    note_missing_packages()
    return SchemaDecoders(chosen["schemas"])


def note_missing_packages() -> None:
    """Say on standard error which packages --schemas lacks."""
    from kdump.format.value_schemas.value_decoder import INSTALL, missing_packages

    if missing := missing_packages():
        complain(f"note: not all values can be decoded without {', '.join(missing)}: {INSTALL}")


def _named_by_entry_point(chosen: dict[str, Any]) -> bool:
    return chosen["decode"] not in DECODE_WORDS


def _entry_points() -> "list[EntryPoint]":
    from importlib.metadata import entry_points  # reads the metadata of all packages

    return list(entry_points(group=GROUP))


def _loaded(name: str) -> Callable[..., Any]:
    found = next(each for each in _entry_points() if each.name == name)
    try:
        function = found.load()
    except Exception as error:  # noqa: BLE001  # the program is not ours
        raise click.UsageError(f"--decode {name}: {found.value} cannot be loaded: {error}") from None
    if not callable(function):
        raise click.UsageError(f"--decode {name}: {found.value} is not a function")
    return function  # type: ignore[no-any-return]
