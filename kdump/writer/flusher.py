"""When a log is synced to the disk: after a number of messages, or a number of milliseconds after the first unsynced
one (flush.messages, flush.ms).
"""

import time
from collections.abc import Callable
from threading import TIMEOUT_MAX, Condition, RLock, Thread


class Flusher:
    """Calls `sync` when `flush_messages` messages are unsynced, or the oldest for `flush_ms`; with None for both it
    never does.

    `counts` says whether `count_messages` has to be called. `error` is what `sync` raised in the background; the next
    call raises it. The caller holds the mutex in every call; the background thread takes it itself.
    """

    def __init__(
        self,
        sync: Callable[[], None],
        flush_messages: int | None,
        flush_ms: int | None,
        mutex: RLock,
    ) -> None:
        self._sync = sync
        self.counts = flush_messages is not None or flush_ms is not None
        self._flush_messages = flush_messages
        self._seconds = None if flush_ms is None else flush_ms / 1000
        self._changed = Condition(mutex)
        self._messages = 0
        self._since: float | None = None
        self.error: OSError | None = None
        self._closed = False
        self._thread: Thread | None = None

    def count_messages(self, messages: int) -> None:
        """Count messages that were written; sync if the limit is reached."""
        self._messages += messages
        if self._flush_messages is not None and self._messages >= self._flush_messages:
            self.flush()
        elif self._since is None and self._seconds is not None:
            self._since = time.monotonic()
            if self._thread is None:
                self._thread = Thread(target=self._watch, name="kdump flush", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Sync now. Raises OSError."""
        if self.error is not None:
            raise self.error
        self._sync()
        self.reset()

    def reset(self) -> None:
        """Note that everything is synced."""
        self._messages, self._since = 0, None

    def close(self) -> None:
        """End the background thread, without a last sync."""
        self._closed = True
        self._changed.notify()

    def _watch(self) -> None:
        assert self._seconds is not None
        with self._changed:
            while not self._closed:
                left = None if self._since is None else self._since + self._seconds - time.monotonic()
                if left is None or left > 0:
                    self._changed.wait(None if left is None else min(left, TIMEOUT_MAX))
                    continue
                try:
                    self._sync()
                except OSError as error:
                    self.error = error
                    return
                self.reset()
