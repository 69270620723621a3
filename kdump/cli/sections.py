"""A command whose options stand in sections in its help."""

from collections.abc import Mapping, Sequence
from typing import Any

import click


class SectionedCommand(click.Command):
    """Shows its options under headings. `sections` are the names of the parameters by heading, in order.

    An option that no section names stands under the last one.
    """

    def __init__(self, *arguments: Any, sections: Mapping[str, Sequence[str]], **how: Any) -> None:
        super().__init__(*arguments, **how)
        self.sections = sections

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
        for heading, options in self.options_by_section(ctx).items():
            records = [record for option in options if (record := option.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
