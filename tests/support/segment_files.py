"""Segments of a partition as files, with their indexes."""

from __future__ import annotations

from pathlib import Path

from kdump.format.naming import Kind
from kdump.storage.partition import LogFile, Segment
from support.build import PartSegment


def written(directory: Path, segment: PartSegment, offsets: bytes, times: bytes) -> Segment:
    """The segment and its indexes as files."""
    stem = f"{segment.base_offset:020d}"
    files = []
    for suffix, kind, data in (
        (".log", Kind.LOG, segment.data),
        (".index", Kind.INDEX, offsets),
        (".timeindex", Kind.TIMEINDEX, times),
    ):
        path = directory / f"{stem}{suffix}"
        path.write_bytes(data)
        files.append(LogFile(str(path), kind, segment.base_offset, True, len(data)))
    return Segment(*files)
