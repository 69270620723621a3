"""What --master takes: Spark's master URLs, and those of Spark Connect."""

import re
from typing import Final
from urllib.parse import urlsplit

from kdump.errors import KdumpError
from kdump.named_tuple import NamedTuple

CONNECT: Final = "sc://"
STANDALONE: Final = "spark://"
CONNECT_PORT: Final = 15002
"""The port of a Connect server, where the URL names none."""
_PORTS: Final = range(1, 1 << 16)
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d{0,3})(, ?[1-9]\d{0,3})?\])?", re.ASCII)
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[ ?\d+ ?, ?\d+ ?, ?\d+ ?\]", re.ASCII)
EXAMPLES: Final = "local[*], spark://host:7077, yarn, k8s://https://host:6443, sc://host:15002"


class MasterAddress(NamedTuple):
    """A host and a port that has to answer."""

    host: str
    port: int


class MasterError(KdumpError):
    """A master URL that Spark would not understand."""


def is_local(master: str) -> bool:
    """Whether the work runs in processes of this machine."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether the master is a server of Spark Connect."""
    return master.startswith(CONNECT)


def check_master(master: str) -> str:
    """The master URL without space around it. Raises MasterError for what is none."""
    master = master.strip()
    known = _LOCAL.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master) or master == "yarn"
    if known or master.startswith("k8s://"):
        return master
    if master.startswith((CONNECT, STANDALONE)):
        addresses(master)
        return master
    raise MasterError(f"{master!r} is not a master of Spark; it is one of {EXAMPLES}")


def addresses(master: str) -> list[MasterAddress]:
    """The addresses of which one has to answer before anything starts; none where the URL has no such address.

    A standalone cluster can have several masters. Raises MasterError.
    """
    if master.startswith(STANDALONE):
        return [_address(f"//{one}", master, None) for one in master[len(STANDALONE) :].split(",")]
    if is_connect(master):
        return [_address(f"//{master[len(CONNECT) :].split(';')[0].rstrip('/')}", master, CONNECT_PORT)]
    return []


def _address(text: str, master: str, default: int | None) -> MasterAddress:
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or default
    except ValueError:
        host, port = None, None
    if not host or port not in _PORTS or parts.path:
        raise MasterError(f"{master!r} names no host and port; it is one of {EXAMPLES}")
    assert port is not None
    return MasterAddress(host, port)
