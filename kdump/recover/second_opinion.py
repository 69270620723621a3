"""A second opinion on the checksums that a recovery wrote: another implementation of CRC-32C computes them again.

The only checksums that kdump writes into files of a log are those of producer snapshots. Every other file is either a
copy of bytes from before, or has no checksum.
"""

from collections.abc import Callable, Mapping

from kdump.errors import KdumpError
from kdump.format.producer_snapshot import CRC_FROM, SnapshotError, read_snapshot
from kdump.storage.directory_handle import DirectoryHandle


def check_snapshots(directory: DirectoryHandle, written: Mapping[str, str]) -> None:
    """Check the producer snapshots among the files that were rebuilt: the name of each, and where it was written.

    Raises KdumpError where a checksum is wrong: that is a bug of kdump.
    """
    snapshots = {name: path for name, path in written.items() if name.endswith(".snapshot")}
    if not snapshots:
        return
    crc32c = _load_crc32c()
    for name, path in snapshots.items():
        data = directory.read(path)
        try:
            stored = read_snapshot(data).crc
        except SnapshotError:
            stored = None
        if stored is None or stored != crc32c(data[CRC_FROM:]):
            raise KdumpError(
                f"{directory.path_of(name)}: the producer snapshot that kdump rebuilt has a wrong checksum;"
                " this is a bug in kdump"
            )


def _load_crc32c() -> Callable[[bytes], int]:
    """The function of the package crc32c. Raises ImportError.

    Only its extension module is loaded. The package itself looks up its own version when it is imported, which takes
    50 ms: a quarter of a recovery of 64 MiB.
    """
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("crc32c")
    spec = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if not spec or spec.loader is None:
        raise ImportError("the package crc32c has no extension module _crc32c")
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    function: Callable[[bytes], int] = extension.crc32c
    return function
