"""Partitions as what kdump.convert reads."""

from __future__ import annotations

from pathlib import Path

import kdump
from kdump.convert.records.ordered_log import ordered_log
from kdump.log.log_slice import SlicedPartition, whole_log
from kdump.storage.partition import Partition

MAX_BATCH_BYTES = 1 << 30


def sliced(path: Path) -> SlicedPartition:
    """All of the partition, or of the file, at a path."""
    (partition,) = (each for each in kdump.discover(path) if isinstance(each, Partition))
    return whole_log(partition)


def positions_left_out(path: Path) -> set[tuple[str, int]]:
    """The files and positions of the batches that are not in the order of the log."""
    return {(each.path, each.position) for each in ordered_log(sliced(path), MAX_BATCH_BYTES).left_out}
