"""The high watermarks that a broker writes every five seconds: replication-offset-checkpoint of each log directory."""

import os

from kdump.format import naming
from kdump.storage.directory_watch import PartitionPath
from kdump.storage.file_store import parent_of
from kdump.storage.offset_checkpoints import CheckpointOffsets, read_offset_checkpoints
from kdump.storage.partition import Partition
from kdump.storage.path_watch import PathWatch

_NAME = "replication-offset-checkpoint"


class HighWatermarks:
    """The high watermarks of partitions, as they were at the last `refresh`."""

    def __init__(self) -> None:
        self._files: dict[str, PathWatch] = {}
        self._offsets: dict[str, CheckpointOffsets] = {}

    def refresh(self) -> None:
        """Read again what has changed."""
        for directory, file in self._files.items():
            if file.has_changed():
                file.note()
                self._offsets[directory] = read_offset_checkpoints(directory)

    def of(self, where: PartitionPath) -> int | None:
        """The high watermark of a partition; None where the checkpoint has no line for it."""
        directory = parent_of(where.directory)
        if directory not in self._files:
            self._files[directory] = PathWatch(os.path.join(directory, _NAME))
            self._files[directory].note()
            self._offsets[directory] = read_offset_checkpoints(directory)
        name = where.topic_partition
        if name is None or naming.state_of(where.directory):
            return None
        partition = Partition(path=where.directory, topic_partition=name, whole=False, segments=())
        return self._offsets[directory].context(partition).high_watermark
