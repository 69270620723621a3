"""Which build of kdump this is: the driver and all workers need the same."""

import hashlib
import os
import socket
from functools import cache
from typing import Final

import kdump
from kdump.errors import KdumpError

_SOURCES: Final = (".py", ".pyi", ".pyx", ".pxd", ".h")
"""The sources, those of the kernel too. What is compiled of them is another file on another machine."""
_NOT_INSTALLED: Final = ("pyspark_kdump", "__pycache__")
"""Folders of a source tree; an installed package has the first beside kdump."""
_DIGITS: Final = 12


@cache
def build_name() -> str:
    """The version of kdump, and a digest of its sources: `0.1.0 build 3fa9c0d1e2ab`."""
    return f"{kdump.__version__} build {digest_of(os.path.dirname(kdump.__file__))}"


def digest_of(package: str) -> str:
    """A digest of the names and bytes of the sources in the directory of a package."""
    found = hashlib.sha256()
    for directory, folders, files in os.walk(package):
        folders[:] = sorted(set(folders).difference(_NOT_INSTALLED))
        for name in sorted(files):
            if name.endswith(_SOURCES):
                path = os.path.join(directory, name)
                with open(path, "rb") as source:
                    data = hashlib.file_digest(source, "sha256").digest()
                found.update(os.path.relpath(path, package).replace(os.sep, "/").encode() + b"\0" + data)
    return found.hexdigest()[:_DIGITS]


def check_build(driver: str) -> None:
    """Raises KdumpError on a worker that has another build than the driver."""
    if driver != build_name():
        raise KdumpError(other_build(socket.gethostname(), build_name(), driver))


def other_build(host: str, worker: str, driver: str) -> str:
    """The sentence about a worker with another build."""
    return f"the worker {host} has kdump {worker}, and the driver has kdump {driver}; both must be the same build"
