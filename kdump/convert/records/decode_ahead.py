"""Decodes record batches in a thread of its own, a few ahead of what is written."""

import queue
import threading
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import pyarrow as pa

DEPTH: Final = 2
"""So many record batches wait for a writer that writes each of them. Each holds its memory until it is written."""


class _End(NamedTuple):
    error: BaseException | None


def decode_ahead(batches: Iterator[pa.RecordBatch], depth: int = DEPTH) -> Generator[pa.RecordBatch, None, None]:
    """The same record batches in the same order, of which up to `depth` wait. What `batches` raises is raised here.

    Close it where not all are read: the thread ends then.
    """
    ready: queue.Queue[pa.RecordBatch | _End] = queue.Queue(depth)
    stopped = threading.Event()

    def decode() -> None:
        error: BaseException | None = None
        try:
            for batch in batches:
                ready.put(batch)
                del batch  # its memory takes another one when it is written
                if stopped.is_set():
                    break
        except BaseException as raised:  # noqa: BLE001  # raised again where it is read
            error = raised
        ready.put(_End(error))

    thread = threading.Thread(target=decode, name="kdump-decode", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
            del item
        if item.error is not None:
            raise item.error
    finally:
        stopped.set()
        while thread.is_alive():  # it waits for room, at most once
            try:
                ready.get_nowait()
            except queue.Empty:
                thread.join(0.01)
