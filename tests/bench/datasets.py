"""The logs that the benchmark reads, made once and kept in a cache directory outside the repository."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from zlib import crc32

from . import streams
from .generate import Segment, read_manifest, write_log_directory, write_partition

SCALES = {"small": 64 << 20, "full": 1 << 30}  # bytes of one unit, decompressed
CACHE_TAG = "CACHEDIR.TAG"
_CACHE_TAG_TEXT = (
    "Signature: 8a477f597d28d172789f06886806bc55\n# Segments and tools of kdump's benchmark; safe to delete.\n"
)
_SPARE_BYTES = 1 << 30  # left free on the disk
_FORMAT = 2  # changes whenever the generator would write other bytes


@dataclass(frozen=True, slots=True)
class Spec:
    """How one data set is made: `segments` of `units` each."""

    stream: Callable[[Random], streams.Stream]
    segments: int = 1
    units: float = 1
    partitions: int = 0
    """So many partitions of so many segments in a log directory, whatever the scale; 0: one partition."""
    damaged_share: float = 0
    """This share of the batches of a segment have a flipped bit, at least one of them, evenly spread; 0: none."""


@dataclass(frozen=True, slots=True)
class Data:
    """Segments of one topic-partition."""

    name: str
    directory: Path
    segments: tuple[Segment, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the `.log` files in order."""
        return tuple(str(segment.path) for segment in self.segments)

    @property
    def bytes(self) -> int:
        """Bytes of all `.log` files."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def batches(self) -> int:
        """Batches of all segments; messages for magic 1."""
        return sum(segment.batches for segment in self.segments)

    @property
    def records(self) -> int:
        """Records of all segments."""
        return sum(segment.records for segment in self.segments)

    @property
    def decoded_bytes(self) -> int:
        """Bytes of headers and decompressed records."""
        return sum(segment.decoded_bytes for segment in self.segments)

    def first(self) -> Data:
        """Only the first segment."""
        return Data(self.name, self.directory, self.segments[:1])


SPECS: dict[str, Spec] = {
    "plain": Spec(partial(streams.plain, batch_bytes=16 << 10), segments=4),
    "idempotent": Spec(partial(streams.idempotent, batch_bytes=16 << 10), segments=4),
    "transactional": Spec(partial(streams.transactional, batch_bytes=16 << 10), segments=4),
    "compacted": Spec(partial(streams.compacted, batch_bytes=16 << 10), segments=4),
    "one-record": Spec(partial(streams.one_record, batch_bytes=140)),
    "flipped-bit": Spec(partial(streams.plain, batch_bytes=16 << 10), damaged_share=1e-9),
    "flipped-bit-transactional": Spec(partial(streams.transactional, batch_bytes=16 << 10), damaged_share=1e-9),
    "damaged": Spec(partial(streams.plain, batch_bytes=16 << 10), damaged_share=0.01),
    "magic1": Spec(partial(streams.magic1, append_bytes=16 << 10)),
    "log": Spec(partial(streams.plain, batch_bytes=16 << 10), segments=4, units=1 / 4),
    "plain-32m": Spec(partial(streams.plain, batch_bytes=16 << 10), units=1 / 32),
    "__consumer_offsets": Spec(streams.commits, units=1 / 8),
    "many": Spec(partial(streams.idempotent, batch_bytes=1 << 10), segments=10, units=4 / (1 << 20), partitions=2000),
    **{
        f"{codec}-{size}": Spec(partial(streams.plain, batch_bytes=batch_bytes, codec=codec), segments=2, units=0.5)
        for size, batch_bytes in (("64k", 64 << 10), ("1k", 1177))
        for codec in ("zstd", "gzip", "snappy", "lz4")
    },
}


class Cache:
    """The data sets of one scale below one directory."""

    def __init__(self, root: Path, scale: str) -> None:
        self.root = root
        self.scale = scale
        root.mkdir(parents=True, exist_ok=True)
        (root / CACHE_TAG).write_text(_CACHE_TAG_TEXT, encoding="ascii")

    def get(self, name: str, log: Callable[[str], None]) -> Data:
        """The data set, made now unless it is there.

        Raises OSError when the disk has no room for it.
        """
        spec = SPECS[name]
        home = self.root / f"data-{_FORMAT}" / self.scale / name
        directory = home / ("log-directory-0" if spec.partitions else f"{name}-0")
        segments = read_manifest(home)
        if segments is None:
            shutil.rmtree(home, ignore_errors=True)
            segment_bytes = int(SCALES["full" if spec.partitions else self.scale] * spec.units)
            count = spec.segments * max(1, spec.partitions)
            log(f"making {name}: {count} x {segment_bytes >> 10} KiB")
            self._check_room(count * segment_bytes)
            seed = crc32(name.encode())
            if spec.partitions:
                segments = write_log_directory(
                    home,
                    lambda number: spec.stream(Random(seed + number)),
                    partitions=spec.partitions,
                    segments=spec.segments,
                    segment_bytes=segment_bytes,
                )
            else:
                segments = write_partition(
                    directory,
                    spec.stream(Random(seed)),
                    segments=spec.segments,
                    segment_bytes=segment_bytes,
                    damaged_share=spec.damaged_share,
                )
        return Data(name, directory, tuple(segments))

    def _check_room(self, size: int) -> None:
        free = shutil.disk_usage(self.root).free
        if free < size + _SPARE_BYTES:
            message = f"{self.root}: {free >> 20} MiB free, {(size + _SPARE_BYTES) >> 20} MiB needed"
            raise OSError(message)


def clean(root: Path) -> bool:
    """Delete a cache directory; False when it is none."""
    if not (root / CACHE_TAG).is_file() or (root / CACHE_TAG).read_text(encoding="ascii") != _CACHE_TAG_TEXT:
        return False
    shutil.rmtree(root)
    return True
