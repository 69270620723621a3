"""Writes the companions that are rebuilt from a log, and takes a second opinion on their checksums.

The only checksums that kdump writes into companions are those of producer snapshots: another implementation of CRC-32C
computes them again. Every other file is either a copy of bytes from before, or has no checksum.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from kdump.errors import KdumpError
from kdump.format.producer_snapshot import CRC_FROM, SnapshotError, read_snapshot
from kdump.storage.directory_handle import DirectoryHandle


def write_rebuilt(
    directory: DirectoryHandle,
    rebuilt: Iterable[tuple[str, bytes | None]],
    names: Collection[str],
    write: Callable[[str, bytes], int],
) -> dict[str, int | None]:
    """Write the companions `names` of those that kdump.broker.rebuild gives; what `write` returns for each, None for a
    file that must not be there.

    Raises KdumpError where one does not come. `check_snapshots` is the second opinion on what was written.
    """
    found: dict[str, int | None] = {}
    if names:
        for name, data in rebuilt:
            if name in names and name not in found:
                found[name] = None if data is None else write(name, data)
    if left := set(names) - found.keys():
        raise KdumpError(f"{directory.path_of(min(left))}: nothing writes this file; this is a bug in kdump")
    return found


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
