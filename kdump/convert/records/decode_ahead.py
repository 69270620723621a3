"""Decodes record batches in a thread of its own, a few ahead of what is written."""

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

import pyarrow as pa

DEPTH: Final = 2
"""So many record batches wait for a writer that writes each of them. Each holds its memory until it is written."""
BYTES: Final = 64 << 20
"""What is waiting or being written has at most so many bytes before the next one is decoded."""


def decode_ahead(
    batches: Iterator[pa.RecordBatch], depth: int = DEPTH, most_bytes: int = BYTES
) -> Generator[pa.RecordBatch, None, None]:
    """The same record batches in the same order, of which up to `depth` wait. What `batches` raises is raised here.

    A record batch counts into `most_bytes` until the next one is asked for: one that is larger alone is written before
    the next one is decoded. Close it where not all are read: the thread ends then.
    """
    window = _Window(batches, depth, most_bytes)
    thread = threading.Thread(target=window.decode, name="kdump-decode", daemon=True)
    thread.start()
    try:
        while (batch := window.take()) is not None:
            yield batch
            del batch
    finally:
        window.stop()
        thread.join()


class _Window:
    """The record batches that wait, between the thread that decodes them and the one that takes them."""

    def __init__(self, batches: Iterator[pa.RecordBatch], depth: int, most_bytes: int) -> None:
        self._batches, self._depth, self._most_bytes = batches, depth, most_bytes
        self._changed = threading.Condition()
        self._waiting: deque[tuple[pa.RecordBatch, int]] = deque()
        self._bytes = self._taken = 0
        self._ended = self._stopped = False
        self._error: BaseException | None = None

    def decode(self) -> None:
        """Decode until the end, or until `stop`."""
        try:
            for batch in self._batches:
                size = batch.get_total_buffer_size()
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or len(self._waiting) < self._depth)
                    self._waiting.append((batch, size))
                    del batch  # its memory takes another one when it is written
                    self._bytes += size
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._stopped or self._bytes <= self._most_bytes)
                    if self._stopped:
                        break
        except BaseException as raised:  # noqa: BLE001  # raised again where it is read
            self._error = raised
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self) -> pa.RecordBatch | None:
        """The next one, None after the last; the one before is written."""
        with self._changed:
            self._bytes -= self._taken
            self._taken = 0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._waiting:
                batch, self._taken = self._waiting.popleft()
                self._changed.notify_all()
                return batch
        if self._error is not None:
            raise self._error
        return None

    def stop(self) -> None:
        """Nothing more is taken."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify_all()
