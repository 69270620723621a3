"""The leader epochs of a partition, each with its start offset, as a broker keeps them (LeaderEpochFileCache)."""

from kdump.broker.file_records import UncaughtReadError
from kdump.broker.refusal_reason import RefusalReason


class LeaderEpochFileCache:
    """The entries (epoch, start offset) in order. `written`: Kafka wrote the checkpoint since it read it."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []
        self.written = False

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last entry, -1 without one."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start: int) -> None:
        """Add an entry. Those that it contradicts go. Raises UncaughtReadError for a number below zero."""
        if epoch < 0 or start < 0:
            raise UncaughtReadError("IllegalArgumentException", None, RefusalReason.LEADER_EPOCHS)
        entries = self.entries
        if entries and entries[-1][0] == epoch and start >= entries[-1][1]:
            return
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start):
            entries.pop()
        entries.append((epoch, start))

    def assign_if_later(self, epoch: int, start: int) -> None:
        """Add the epoch of a batch if it is above the latest one (LogSegment.recover). Raises UncaughtReadError."""
        if epoch >= 0 and (not self.entries or epoch > self.entries[-1][0]):
            self.assign(epoch, start)
            self.written = True

    def truncate(self, log_start: int, log_end: int) -> None:
        """Keep the entries of [log_start, log_end) (truncateFromEndAsyncFlush, truncateFromStartAsyncFlush)."""
        entries = self.entries
        while entries and entries[-1][1] >= log_end:
            entries.pop()
            self.written = True
        dropped = 0
        while dropped < len(entries) and entries[dropped][1] <= log_start:
            dropped += 1
        if dropped:
            self.written = True
            entries[:dropped] = [(entries[dropped - 1][0], log_start)]

    def clear(self) -> None:
        """Remove all entries (clearAndFlush)."""
        self.entries.clear()
        self.written = True
