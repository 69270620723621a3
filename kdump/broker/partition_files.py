"""The files of a topic-partition directory while a broker loads it, as names and byte ranges. Nothing is written.

Deletions, truncations and renames of the load change the names and ranges here, and are noted for its result.
"""

from collections.abc import Iterator
from typing import Final

from kdump.broker.file_records import CorruptRecord, FileRecords, ReadBuffer, UncaughtReadError
from kdump.broker.refusal_reason import RefusalReason
from kdump.broker.result import NEW, DirectoryState, FileRange, Refusal
from kdump.format import index
from kdump.storage.source import Source

_OPEN_FILES: Final = 8


class PartitionFiles:
    """The files by name. `close` closes what was opened of the directory.

    `ranges` is the content of every name as it is now. `deleted_files`, `truncations` (the position from which on the
    bytes of a file go), `swap_targets`, `split_segments`, `refusals` and `later_refusals` are what LoadResult says of
    the whole start.
    """

    def __init__(self, state: DirectoryState) -> None:
        self.state = state
        self.ranges = {name: FileRange(name, 0, size) for name, size in state.files.items()}
        self.deleted_files: set[str] = set()
        self.truncations: dict[str, int] = {}
        self.swap_targets: dict[str, str] = {}
        self.split_segments: dict[str, tuple[int, ...]] = {}
        self.refusals: list[Refusal] = []
        self.later_refusals: list[Refusal] = []
        self._buffer = ReadBuffer()
        self._sources: dict[str, Source] = {}

    def close(self) -> None:
        """Close the files that were opened."""
        for source in self._sources.values():
            source.close()

    # ---- reading

    def source(self, name: str) -> Source:
        """A file from before the start. The last few stay open. Raises SourceError."""
        source = self._sources.pop(name, None) or self.state.open(name)
        self._sources[name] = source
        if len(self._sources) > _OPEN_FILES:
            self._sources.pop(next(iter(self._sources))).close()
        return source

    def records(self, content: FileRange) -> FileRecords:
        """The content of a log."""
        return FileRecords(self._buffer, lambda: self.source(content.origin), content.start, content.size)

    def read(self, name: str, limit: int) -> bytes:
        """The bytes of a companion, at most one more than `limit`, so that a parser with this limit refuses them."""
        content = self.ranges.get(name, NEW)
        return self.records(content).read(0, min(content.size, limit + 1)) if content.size else b""

    def index_entries(self, name: str, entry_size: int) -> Iterator[bytes]:
        """The whole entries of an index, in blocks; none without the file."""
        content = self.ranges.get(name, NEW)
        return index.blocks(self.records(content).read, content.size - content.size % entry_size, entry_size)

    def is_unchanged(self, name: str) -> bool:
        """Whether the content of the name is what it was before the start."""
        return self.ranges[name] == FileRange(name, 0, self.state.files.get(name, 0))

    # ---- changing

    def create(self, name: str) -> None:
        """Create the file if it is not there."""
        self.ranges.setdefault(name, NEW)

    def delete(self, name: str) -> None:
        """Delete the file if it is there."""
        content = self.ranges.pop(name, NEW)
        if content.origin in self.split_segments:
            self._note_truncation(content, 0)
        elif content.origin:
            self.deleted_files.add(content.origin)

    def truncate(self, name: str, content: FileRange, size: int) -> FileRange:
        """Keep `size` bytes of the file, which holds `content`; returns its new content."""
        self._note_truncation(content, size)
        self.ranges[name] = content = content._replace(size=size)
        return content

    def _note_truncation(self, content: FileRange, size: int) -> None:
        position = content.start + size
        self.truncations[content.origin] = min(position, self.truncations.get(content.origin, position))

    def replace_with_swap(self, name: str) -> None:
        """Rename a .swap file to the name without that suffix."""
        target = name.removesuffix(".swap")
        self.delete(target)
        self.ranges[target] = content = self.ranges.pop(name)
        if content.origin:
            self.swap_targets[content.origin] = target

    # ---- refusals

    def refuse(self, exception: str, name: str, position: int | None, reason: RefusalReason) -> None:
        """Note that the start fails. What is read twice is noted once."""
        refusal = Refusal(exception, name, position, reason)
        if refusal not in self.refusals:
            self.refusals.append(refusal)

    def refuse_later(self, exception: str, name: str, position: int | None, reason: RefusalReason) -> None:
        """Note that the start of LATER_RELEASE fails where this one goes on."""
        refusal = Refusal(exception, name, position, reason)
        if refusal not in self.later_refusals:
            self.later_refusals.append(refusal)

    def refuse_log(self, problem: CorruptRecord | UncaughtReadError, name: str, content: FileRange) -> None:
        """Note that the reader of a log throws an exception that no caller catches."""
        if isinstance(problem, CorruptRecord):
            problem = UncaughtReadError("CorruptRecordException", problem.position, RefusalReason.BATCH_SIZE)
        position = None if problem.position is None else problem.position + content.start
        self.refuse(problem.exception, content.origin or name, position, problem.reason)
