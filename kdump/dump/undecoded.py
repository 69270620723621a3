"""Counts the records that the decoder of their internal topic cannot decode, for the finding internal/record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdump.format.batch import first_known_offset
from kdump.format.internal_topics.decoded import DecodedRecord, RecordDecoder
from kdump.verify.findings import Finding, make_finding

if TYPE_CHECKING:
    from collections.abc import Callable

    from kdump.format.batch import Batch


class CountingDecoder:
    """The decoder of a log file. It counts what `is_raw(found, key)` says is shown as it is.

    `batch` is the one whose records are decoded. With `remembers` all calls up to `forget` are about one record, and
    are one in the count.
    """

    def __init__(
        self, decoder: RecordDecoder, is_raw: Callable[[DecodedRecord, bytes | None], bool], *, remembers: bool
    ) -> None:
        self.topic, self.tables = decoder.topic, decoder.tables
        self.batch: Batch | None = None
        self._decoder, self._remembers = decoder, remembers
        self._is_raw = is_raw
        self._found: DecodedRecord | None = None
        self._raw = 0
        self._first: Batch | None = None

    def decode(self, key: bytes | None, value: bytes | None) -> DecodedRecord:
        """See RecordDecoder."""
        if self._found is not None:
            return self._found
        found = self._decoder.decode(key, value)
        if self._is_raw(found, key):
            self._raw += 1
            self._first = self._first or self.batch
        if self._remembers:
            self._found = found
        return found

    def forget(self) -> None:
        """Another record follows."""
        self._found = None

    def finding(self, path: str) -> Finding | None:
        """What is to be said of the file; None where every record was decoded."""
        batch = self._first
        if batch is None:
            return None
        where, offset = (path, batch.position, batch.size), first_known_offset(batch)
        return make_finding("internal/record", *where, offset=offset, records=self._raw, topic=self.topic)
