from collections.abc import Iterable, Sequence

from typing_extensions import Buffer

MAX_BYTES: int
"""Sizes are 32 bits wide: a batch has at most so many bytes, and so has what a compressed one holds."""

_Headers = Sequence[tuple[str | Buffer, Buffer | None]]
_New = tuple[Buffer | None, Buffer | None, _Headers, int, int | None]

class Encoder:
    """The records of one batch of magic 2, or a set of messages of magic 0 or 1, as they come; not for several threads.

    Offsets count on from `base_offset` where none are given. `attributes` and `log_append_ms` are those of every message of magic 0 and 1; `base_timestamp` is what
    the timestamps of magic 2 are counted from, else the first one. `relative`: messages have offsets from `base_offset` on, as those inside a wrapper of magic 1.
    Raises ValueError for what the format cannot hold; then the record is not there, and those before it are.
    """

    def __init__(
        self,
        magic: int,
        base_offset: int,
        attributes: int = 0,
        base_timestamp: int | None = None,
        log_append_ms: int | None = None,
        relative: bool = False,
    ) -> None: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int:
        """Bytes of the records."""

    @property
    def last_offset(self) -> int:
        """The one before the base offset while there are no records."""

    @property
    def base_timestamp(self) -> int:
        """-1 while there are no records and none was given."""

    @property
    def max_timestamp(self) -> int:
        """-1 without timestamps."""

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        headers: _Headers = (),
        timestamp_ms: int = -1,
        offset: int | None = None,
    ) -> int:
        """One record; its offset."""

    def extend(self, records: Iterable[_New]) -> None:
        """Records as tuples of the arguments of `append`."""

    def payload(self) -> bytes:
        """The bytes of the records."""

    def seal(self, header: bytes, payload: Buffer | None = None) -> bytes:
        """The whole batch of magic 2: the header with its CRC made right, and the records, or `payload` in their place."""

    def close(self) -> None:
        """Nothing can be appended any more, and the bytes are gone."""
