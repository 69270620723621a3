"""When a log is put on the disk: before more than so many messages wait for it, and before one waits for longer than so many milliseconds."""

import time
from collections.abc import Callable
from threading import TIMEOUT_MAX, Condition, RLock, Thread


class Flusher:
    """Calls `sync`, with the mutex held, when `flush_messages` messages wait, or the oldest for `flush_ms`; None: never of itself.

    `counts`: whether it has to be told of messages. What `sync` raises in the background is `error` from then on, and comes out of the next call. Only to be used with the mutex held, which the background thread takes for itself.
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
        self._most = flush_messages
        self._seconds = None if flush_ms is None else flush_ms / 1000
        self._changed = Condition(mutex)
        self._messages = 0
        self._since: float | None = None
        self.error: OSError | None = None
        self._closed = False
        self._thread: Thread | None = None

    def wrote(self, messages: int) -> None:
        """So many more messages wait."""
        self._messages += messages
        if self._most is not None and self._messages >= self._most:
            self.flush()
        elif self._since is None and self._seconds is not None:
            self._since = time.monotonic()
            if self._thread is None:
                self._thread = Thread(target=self._watch, name="kdump flush", daemon=True)
                self._thread.start()
            self._changed.notify()

    def flush(self) -> None:
        """Sync now."""
        if self.error is not None:
            raise self.error
        self._sync()
        self.done()

    def done(self) -> None:
        """Nothing waits any more."""
        self._messages, self._since = 0, None

    def close(self) -> None:
        """Without a last sync."""
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
                self.done()
