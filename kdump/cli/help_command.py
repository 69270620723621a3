"""The command `kdump help`: the help of kdump or of a command."""

import click

from kdump.cli import group


@click.command("help")
@click.argument(
    "name",
    metavar="[COMMAND]",
    required=False,
    shell_complete=lambda ctx, param, incomplete: [
        name for name in group.list_commands(ctx) if name.startswith(incomplete)
    ],
)
@click.pass_context
def command(context: click.Context, name: str | None) -> None:
    """Show the help of kdump, or of COMMAND."""
    parent = context.parent
    assert parent is not None
    if name is None:
        click.echo(parent.get_help())
        return
    _, named, _ = group.resolve_command(parent, [name])
    assert named is not None
    with named.make_context(name, [], parent=parent, resilient_parsing=True) as inner:
        click.echo(inner.get_help())
