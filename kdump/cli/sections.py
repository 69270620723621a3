"""A command whose options stand in sections: `--help` shows those that come first, `--help-all` all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


def _show_all(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    assert isinstance(ctx.command, SectionedCommand)
    click.echo(ctx.command.full_help(ctx))
    ctx.exit()


class SectionedCommand(click.Command):
    """Shows options under headings. `sections` are the names of the parameters by heading, in order.

    An option that no section names stands under the last one. `first` are those that `--help` shows in full.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Sequence[str]], first: Sequence[str], **how: Any
    ) -> None:
        super().__init__(*arguments, **how)
        self.sections = sections
        self.first = first
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_show_all,
                help="Show all options in full and exit.",
            )
        )

    def options_by_section(self, context: click.Context) -> Mapping[str, list[click.Parameter]]:
        """The options in the order of their sections."""
        found: dict[str, list[click.Parameter]] = {heading: [] for heading in self.sections}
        headings = {name: heading for heading, names in self.sections.items() for name in names}
        order = {name: number for number, name in enumerate(headings)}
        options = [parameter for parameter in self.get_params(context) if isinstance(parameter, click.Option)]
        for option in sorted(options, key=lambda option: order.get(option.name or "", len(order))):
            found[headings.get(option.name or "", list(found)[-1])].append(option)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self.options_by_section(ctx)
        options = {option.name or "": option for options in sections.values() for option in options}
        help_option = self.get_help_option(ctx)
        shown = [*(options[name] for name in self.first), *([help_option] if help_option else []), options["help_all"]]
        import textwrap  # it compiles expressions, and no other run needs it

        _write(ctx, formatter, "Options", shown)
        rest = {heading: [option for option in found if option not in shown] for heading, found in sections.items()}
        formatter.write_paragraph()
        formatter.write_text(f"More options, in full with --help-all and in OPTIONS of kdump-{self.name}(1):")
        indent = max(map(len, rest)) + 5
        for heading, found in ((heading, found) for heading, found in rest.items() if found):
            flags = " ".join(map(_flags, found))
            lines = textwrap.wrap(flags, formatter.width - indent, break_long_words=False, break_on_hyphens=False)
            formatter.write(f"  {heading}:".ljust(indent) + f"\n{'':{indent}}".join(lines) + "\n")

    def full_help(self, context: click.Context) -> str:
        """The help with all options in full, by section."""
        formatter = context.make_formatter()
        self.format_usage(context, formatter)
        self.format_help_text(context, formatter)
        for heading, options in self.options_by_section(context).items():
            _write(context, formatter, heading, options)
        return formatter.getvalue().rstrip("\n")


def _flags(option: click.Parameter) -> str:
    return "/".join((*option.opts, *option.secondary_opts))


def _write(
    context: click.Context, formatter: click.HelpFormatter, heading: str, options: Sequence[click.Parameter]
) -> None:
    with formatter.section(heading):
        formatter.write_dl([record for option in options if (record := option.get_help_record(context)) is not None])
