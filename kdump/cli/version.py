"""The command `kdump version`: the versions of kdump, its kernel and the codec libraries."""

import sys

import click

from kdump import __version__
from kdump.cli import streams


def version_text() -> str:
    """The versions, a line each."""
    from kdump.format import codec
    from kdump.kernel import crc

    libraries = ", ".join(f"{name} {version}" for name, version in codec.versions().items())
    versions = f"kdump {__version__}\nkernel: CRC-32C {crc.CRC_IMPL}\ncodecs: {libraries}"
    return streams.folded(f"{versions}\npython: {sys.version.split()[0]}")


@click.command("version")
def command() -> None:
    """Show the versions of kdump, its kernel and the codec libraries."""
    click.echo(version_text())
