"""Small files that are written as a whole beside a log."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kdump.storage.directory_handle import DirectoryHandle, write


def replace(place: DirectoryHandle, name: str, data: bytes) -> None:
    """Put a file in the place of another one, so that after a crash it is one of the two: a checkpoint, as a broker writes it. Raises OSError."""
    temporary = f"{name}.tmp"
    place.remove(temporary)
    with _or_gone(place, temporary):
        with place.create(temporary) as descriptor:
            write(descriptor, data)
        place.rename(temporary, name)
    place.sync()


def renew(place: DirectoryHandle, name: str, data: bytes) -> None:
    """Write a file anew; after a crash it may be missing, or half: a companion, which a start makes again. Raises OSError.

    A broker would never clear away a file under another name.
    """
    place.remove(name)
    with _or_gone(place, name), place.create(name) as descriptor:
        write(descriptor, data)
    place.sync()


@contextmanager
def _or_gone(place: DirectoryHandle, name: str) -> Iterator[None]:
    """Whoever fails to write a file leaves nothing of it."""
    try:
        yield
    except OSError:
        with suppress(OSError):
            place.remove(name)
        raise
