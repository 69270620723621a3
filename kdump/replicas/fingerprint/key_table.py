"""The last record of each key of a log, in a bounded memory.

Up to a number of keys it is a table. With more, the hashes of all records go to a temporary file (32 bytes a record),
sorted into parts by the first bits of the hash of their key, and each part gets the table for itself. A part that is
still too large is read again for each half of its keys.
"""

import os
from collections.abc import Iterator
from typing import IO, Final

from kdump.errors import SourceError, reason
from kdump.kernel.record_hashes import RecordHasher
from kdump.kernel.sketches import KEY_PARTS, KeyParts, LastRecords

MOST_KEYS: Final = 1 << 19
"""So many keys are kept in memory at a time: 20 MiB."""
_PART_BITS: Final = KEY_PARTS.bit_length() - 1
_ROW_BYTES: Final = 32


class KeyTable:
    """The last committed record of each key, of the records that came so far. Raises SourceError."""

    def __init__(self, most_keys: int) -> None:
        self._last, self._parts = LastRecords(most_keys), KeyParts()
        self._file: IO[bytes] | None = None
        self._written = [list[tuple[int, int]]() for _ in range(KEY_PARTS)]
        self._position = 0

    def close(self) -> None:
        """Delete the file."""
        if self._file is not None:
            self._file.close()

    def fill(self, hasher: RecordHasher) -> None:
        """Note the records of the last call."""
        at = 0
        if self._file is None:
            at = self._last.fill(hasher.rows, 0, hasher.count)
            if at == hasher.count:
                return
            self._begin_file()
        while at < hasher.count:
            at, full = self._parts.add(hasher.rows, at, hasher.count)
            if full >= 0:
                self._write(full)

    def fill_last(self, packed: bytes) -> None:
        """Note the last records of keys that LastRecords packed: they come after all before."""
        at = 0
        if self._file is None:
            at = self._last.fill_part(packed, 0) * _ROW_BYTES
            if at == len(packed):
                return
            self._begin_file()
        rest = LastRecords(len(packed) // _ROW_BYTES)
        rest.fill_part(packed[at:], 0)
        self._add_last(rest)

    def _add_last(self, last: LastRecords) -> None:
        at = 0
        while at < len(last):
            at, full = self._parts.add_last(last, at)
            if full >= 0:
                self._write(full)

    def _begin_file(self) -> None:
        import tempfile  # which takes longer to import than all else here

        try:
            self._file = tempfile.TemporaryFile(prefix="kdump-", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise SourceError(f"{tempfile.gettempdir()}: {reason(error)}") from None
        self._add_last(self._last)

    def _write(self, part: int) -> None:
        data = self._parts.take(part)
        assert self._file is not None
        try:
            written = os.pwrite(self._file.fileno(), data, self._position)
        except OSError as error:
            raise SourceError(f"the temporary file of the hashes of keys: {reason(error)}") from None
        if written != len(data):
            raise SourceError("the temporary file of the hashes of keys: no space left")
        self._written[part].append((self._position, len(data)))
        self._position += len(data)

    def parts(self) -> Iterator[LastRecords]:
        """The last records of all keys, each key once."""
        if self._file is None:
            yield self._last
            return
        for part in range(KEY_PARTS):
            self._write(part)
            waiting = [(_PART_BITS, part)]
            while waiting:
                self._last.restart(*waiting.pop())
                for position, size in self._written[part]:
                    data = os.pread(self._file.fileno(), size, position)
                    at = self._last.fill_part(data, 0)
                    while at * _ROW_BYTES < len(data):
                        waiting.append(self._last.split())
                        at = self._last.fill_part(data, at)
                yield self._last
