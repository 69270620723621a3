"""The command `kdump help`: the help of kdump or of a command."""

import click

from kdump.cli import group
from kdump.cli.sections import SectionedCommand


@click.command("help")
@click.argument(
    "name",
    metavar="[COMMAND]",
    required=False,
    shell_complete=lambda ctx, param, incomplete: [
        name for name in group.list_commands(ctx) if name.startswith(incomplete)
    ],
)
@click.option("--all", "everything", is_flag=True, help="Show all options of COMMAND in full, as its --help-all does.")
@click.pass_context
def command(context: click.Context, name: str | None, everything: bool) -> None:
    """Show the help of kdump, or of COMMAND."""
    parent = context.parent
    assert parent is not None
    if name is None:
        click.echo(parent.get_help())
        return
    _, named, _ = group.resolve_command(parent, [name])
    assert named is not None
    with named.make_context(name, [], parent=parent, resilient_parsing=True) as inner:
        click.echo(named.full_help(inner) if isinstance(named, SectionedCommand) and everything else inner.get_help())
