"""The command `kdump completion`: the script with which a shell completes commands, options, choices, codes and paths.

What the options and arguments complete to is a function `shell_complete` of theirs; those that several share are here.
"""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VARIABLE = "_KDUMP_COMPLETE"
"""The environment variable with which the script asks kdump."""
_SHELLS = {
    "bash": 'eval "$(kdump completion bash)", in ~/.bashrc',
    "zsh": 'eval "$(kdump completion zsh)" after compinit, in ~/.zshrc',
    "fish": "kdump completion fish | source, in ~/.config/fish/config.fish",
}


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Files and directories: the shell completes them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def directories(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Directories."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def columns(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The last one of several columns of a table; the script of fish passes over what has a comma."""
    from click.shell_completion import CompletionItem

    from kdump.convert.tables import RECORDS

    before, comma, begun = incomplete.rpartition(",")
    names = [name for name in RECORDS.names if name.startswith(begun) and name not in before.split(",")]
    return [CompletionItem(f"{before}{comma}{name}") for name in names]


def codes(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """The codes of findings with their titles, and their families."""
    from click.shell_completion import CompletionItem

    from kdump.verify.catalogue import CATALOGUE

    families = dict.fromkeys(code.partition("/")[0] for code in CATALOGUE)
    titles = {**dict.fromkeys(families, "all codes of the family"), **{c: e.title for c, e in CATALOGUE.items()}}
    return [CompletionItem(code, help=title) for code, title in titles.items() if code.startswith(incomplete)]


def script(shell: str) -> str:
    """The script for a shell."""
    from click.shell_completion import ShellComplete, get_completion_class

    from kdump.cli import group

    kind = get_completion_class(shell)
    assert kind is not None
    # Not the method of the class: that of bash runs bash to ask for its version.
    return ShellComplete.source(kind(group, {}, "kdump", VARIABLE))


@click.command(
    "completion",
    epilog="\b\n" + "\n".join(f"{name}: {how}" for name, how in _SHELLS.items()),
)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def command(**chosen: Any) -> None:
    """Print the script with which SHELL completes commands, options, choices, finding codes and paths."""
    click.echo(script(chosen["shell"]))
