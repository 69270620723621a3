"""The segments and the leader epochs of one topic-partition, as they were when its directory was listed last."""

import os

from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.checkpoint import EpochEntry
from kdump.format.naming import Kind
from kdump.named_tuple import NamedTuple
from kdump.storage.copies import epochs_of
from kdump.storage.directory_watch import PartitionPath
from kdump.storage.file_store import names_in
from kdump.storage.partition import LogFile
from kdump.storage.path_watch import PathWatch


class SegmentPath(NamedTuple):
    """A log file by its path; `base_offset` is None where its name does not say it."""

    path: str
    base_offset: int | None

    @property
    def first_offset(self) -> int:
        """No record of the segment has a lower offset."""
        return self.base_offset or 0


class PartitionListing:
    """What is in the directory of a partition. `refresh` reads it again where its status shows a change."""

    def __init__(self, where: PartitionPath) -> None:
        self._where = where
        self._directory = PathWatch(where.directory)
        self._epochs = PathWatch(os.path.join(where.directory, naming.LEADER_EPOCH_CHECKPOINT))
        self._inode: int | None = None
        self.segments: tuple[SegmentPath, ...] = ()
        """In the order of their base offsets."""
        self.epochs: tuple[EpochEntry, ...] = ()
        self.is_replacing = False
        """A broker replaces segments by what the cleaner made of them: for a moment neither have their names."""

    def has_changed(self) -> bool:
        """Whether a file of the directory was made, renamed or deleted since it was listed."""
        return self._directory.has_changed()

    def refresh(self) -> bool:
        """List the directory where it changed. Returns whether it is still there, and not another one of its name."""
        if not self._directory.has_changed():
            return True
        stamp = self._directory.note()
        if stamp is None or self._inode not in (None, stamp.inode):
            return False
        self._inode = stamp.inode
        try:
            names = names_in(self._where.directory)
        except OSError:
            return os.path.isdir(self._where.directory)
        if self._where.file is not None:
            names = [os.path.basename(self._where.file)] if os.path.exists(self._where.file) else []
        self._list(names)
        if self._epochs.has_changed():
            self._epochs.note()
            self.epochs = tuple(epochs_of(LogFile(self._epochs.path, Kind.EPOCHS, None, True, 0)) or ())
        return bool(names) or self._where.file is None

    def _list(self, names: list[str]) -> None:
        found = []
        for name in names:
            if self._where.file is not None:
                found.append(SegmentPath(self._where.file, naming.base_offset_of(name)))
            elif naming.kind_of(name) is Kind.LOG and naming.plain_name(name) == name:
                found.append(SegmentPath(os.path.join(self._where.directory, name), naming.base_offset_of(name)))
        self.segments = tuple(sorted(found, key=lambda segment: (segment.base_offset is None, segment[::-1])))
        self.is_replacing = any(name.endswith(".log.swap") for name in names)

    def holding(self, offset: int) -> SegmentPath | None:
        """The segment that has an offset, or will have it; the first one for an offset before it."""
        found = None
        for segment in self.segments:
            if found is not None and segment.first_offset > offset:
                break
            found = segment
        return found

    def after(self, segment: SegmentPath) -> SegmentPath | None:
        """The next segment."""
        return next((each for each in self.segments if each.first_offset > segment.first_offset), None)

    def unreadable(self) -> SourceError | None:
        """Why the directory cannot be listed; None where it can be."""
        try:
            names_in(self._where.directory)
        except OSError as error:
            return SourceError(f"{self._where.directory}: {(error.strerror or str(error)).lower()}")
        return None
