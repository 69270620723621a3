"""The options that name the decoder of an internal topic: --decode, and those of Kafka's dump tool."""

from collections.abc import Callable
from typing import Any, Final

import click

from kdump.format.internal_topics.decoders import TOPICS

_TOOL_OPTIONS: Final = {
    "offsets": "--offsets-decoder",
    "transactions": "--transaction-log-decoder",
    "metadata": "--cluster-metadata-decoder",
    "remote-log": "--remote-log-metadata-decoder",
    "shares": "--share-group-state-decoder",
}
"""The options of Kafka's tool by the topic that they decode. The first one that is given counts, as there."""


def tool_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of Kafka's tool that name a decoder."""
    for option in ("--value-decoder-class", "--key-decoder-class"):
        text = "A Java class for Kafka's tool. It cannot run here: use --decode, or --format json and a program."
        command = click.option(option, metavar="CLASS", help=text)(command)
    for topic_word, option in reversed(_TOOL_OPTIONS.items()):
        text = f"With --format kafka: as --print-data-log, with the messages of {TOPICS[topic_word]}."
        command = click.option(option, is_flag=True, help=text)(command)
    return command


def check(chosen: dict[str, Any]) -> None:
    """Refuse what cannot be combined with the format."""
    for name in ("key_decoder_class", "value_decoder_class"):
        if chosen[name] is not None:
            raise click.UsageError(
                f"--{name.replace('_', '-')} names a Java class, which cannot run here; --decode shows internal topics,"
                " and --format json gives keys and values to a program"
            )
    if chosen["format_name"] == "kafka":
        if chosen["decode"] not in ("auto", "none"):
            raise click.UsageError(f"with --format kafka, use {_TOOL_OPTIONS[chosen['decode']]}")
        return
    for topic_word, option in _TOOL_OPTIONS.items():
        if chosen[_name(option)]:
            raise click.UsageError(f"{option} needs --format kafka; use --decode {topic_word}")


def topic(chosen: dict[str, Any]) -> str:
    """What DumpOptions.decode is: in Kafka's format only what the options of its tool name."""
    if chosen["format_name"] != "kafka":
        return str(chosen["decode"])
    return next((word for word, option in _TOOL_OPTIONS.items() if chosen[_name(option)]), "none")


def prints_data(chosen: dict[str, Any]) -> bool:
    """Whether Kafka's tool would print keys and values."""
    return bool(chosen["print_data_log"]) or topic(chosen) != "none"


def _name(option: str) -> str:
    return option[2:].replace("-", "_")
