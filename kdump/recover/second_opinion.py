"""A second opinion on the checksums that a recovery wrote: another implementation of CRC-32C computes them again.

The only checksums that kdump writes into files of a log are those of producer snapshots. Every other file is either a
copy of bytes from before, or has no checksum.
"""

from collections.abc import Mapping

from kdump.errors import KdumpError
from kdump.format.producer_snapshot import CRC_FROM, SnapshotError, read_snapshot
from kdump.storage.directory_handle import DirectoryHandle


def check_snapshots(directory: DirectoryHandle, written: Mapping[str, str]) -> None:
    """Check the producer snapshots among the files that were rebuilt: the name of each, and where it was written.

    Raises KdumpError where a checksum is wrong: that is a bug of kdump. The package takes 45 ms to import, so it is
    imported only where there is a snapshot.
    """
    snapshots = {name: path for name, path in written.items() if name.endswith(".snapshot")}
    if not snapshots:
        return
    import crc32c

    for name, path in snapshots.items():
        data = directory.read(path)
        try:
            stored = read_snapshot(data).crc
        except SnapshotError:
            stored = None
        if stored is None or stored != crc32c.crc32c(memoryview(data)[CRC_FROM:]):
            raise KdumpError(
                f"{directory.path_of(name)}: the producer snapshot that kdump rebuilt has a wrong checksum;"
                " this is a bug in kdump"
            )
