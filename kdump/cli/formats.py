"""The options of `kdump dump` about formats of records: --template, --separator, -0, -Z, and --no-summary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click
from click.core import ParameterSource

from kdump.render import BYTE_FORMATS, FORMATS, RECORD_FORMATS, RenderOptions

DUMP_FORMATS: Final = (*FORMATS, *(name for name in RECORD_FORMATS if name != "template"), *BYTE_FORMATS)
"""What --format takes; a template has an option of its own."""
_TEMPLATE: Final = "template"


def record_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    for option in (
        click.option(
            "--no-summary", is_flag=True, help="With --format json: leave out the last line, the summary, as -q does."
        ),
        click.option(
            "-Z", "null_words", is_flag=True, help="With --template and --format values: write NULL for a null."
        ),
        click.option("-0", "nul", is_flag=True, help="With --format values: a NUL byte after each value."),
        click.option(
            "--separator",
            metavar="TEXT",
            help="With --format values: what comes after each value, with the escapes of --template. Default: \\n.",
        ),
        click.option(
            "--template",
            metavar="TEXT",
            help="Write each record as TEXT, in which tokens stand for its parts, as with kcat -f: %t %p %o topic,"
            " partition, offset; %k %s key, value; %K %S their lengths; %R length of the value as 4 bytes; %T"
            " timestamp; %h headers; %% a percent sign; %{field} a field of --format json. \\n \\r \\t \\xNN \\\\ are"
            " escapes. No end of a line is added.",
        ),
    ):
        command = option(command)
    return command


def check(chosen: dict[str, Any]) -> None:
    """Refuse what does not go together. Afterwards `format_name` is the format of the template, where there is one."""
    if chosen["template"] is not None:
        if _is_given("format_name"):
            raise click.UsageError("--template and --format cannot be combined: a template is the format")
        chosen["format_name"] = _TEMPLATE
    name = chosen["format_name"]
    if chosen["no_summary"] and name != "json":
        raise click.UsageError("--no-summary needs --format json; the other formats have no summary")
    if (chosen["separator"] is not None or chosen["nul"]) and name != "values":
        raise click.UsageError("--separator and -0 need --format values; a template says what comes after a record")
    if chosen["separator"] is not None and chosen["nul"]:
        raise click.UsageError("--separator and -0 cannot be combined: -0 is a NUL byte")
    if chosen["null_words"] and name not in ("values", _TEMPLATE):
        raise click.UsageError("-Z needs --template or --format values")
    if name in RECORD_FORMATS and chosen["batches"]:
        raise click.UsageError("--batches shows batches; csv, values and templates are formats of records")
    if name in RECORD_FORMATS and chosen["control"]:
        raise click.UsageError("--control shows control records, which csv, values and templates leave out")
    if name in BYTE_FORMATS and chosen["records"]:
        raise click.UsageError("--records leaves out batches; --format hex shows the bytes of batches")
    if name != _TEMPLATE and not chosen["separator"]:
        return
    from kdump.render.template import TemplateError, template_pieces, unescaped  # which loads the renderer of JSON

    try:
        unescaped(chosen["separator"] or "")
        if name == _TEMPLATE:
            template_pieces(chosen["template"], decoded=is_decoded(chosen))
    except TemplateError as error:
        raise click.UsageError(f"--{'template' if name == _TEMPLATE else 'separator'}: {error}") from None


def is_decoded(chosen: dict[str, Any]) -> bool:
    """Whether records are to be decoded; in formats of records only with --decode or --schemas."""
    if chosen["schemas"] is not None:
        return True
    if chosen["decode"] == "none":
        return False
    return chosen["format_name"] not in RECORD_FORMATS or _is_given("decode")


def _is_given(name: str) -> bool:
    """Whether an option was typed."""
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT


def look(chosen: dict[str, Any], others: RenderOptions) -> RenderOptions:
    """The options of rendering with those that are set here."""
    separator = b"\0" if chosen["nul"] else b"\n"
    if chosen["separator"] is not None and not chosen["nul"]:
        from kdump.render.template import unescaped

        separator = unescaped(chosen["separator"])
    return others._replace(
        template=chosen["template"] or "",
        null=b"NULL" if chosen["null_words"] else b"",
        separator=separator,
        decoded=is_decoded(chosen),
    )
