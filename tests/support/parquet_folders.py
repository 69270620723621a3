"""Logs that are converted, and what a folder of Parquet files has then."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import kdump
from kdump.convert.choice import Choice, ChosenCopies, Included, choose
from kdump.convert.damage_log import DamagedRanges
from kdump.convert.parquet.continuation import continue_after
from kdump.convert.parquet.manifest import MANIFEST, ConversionSettings, ConvertedPartition, LeftOut, Manifest
from kdump.convert.parquet.manifest_reader import read_manifest
from kdump.convert.parquet.output_directory import OutputDirectory
from kdump.convert.parquet.run import WrittenPart, join_parts, write_part
from kdump.convert.tables import DEFAULT_COLUMNS
from kdump.errors import KdumpError
from kdump.log.log_slice import SlicedPartition, whole_log
from kdump.storage.walk import MAX_BATCH_BYTES
from support import build

SETTINGS = ConversionSettings(DEFAULT_COLUMNS)
RUN = "c0ffee"
EVERYTHING = Choice(include=frozenset({Included.INTERNAL}))


def records(first: int, stop: int, **how: Any) -> bytes:
    """A batch of records with these offsets."""
    made = [
        build.Record(
            b"k%d" % (offset % 7) if offset % 5 else None,
            b"value %d" % offset if offset % 11 else None,
            ((b"source", b"web"),) if offset % 3 else (),
            1_600_000_000_000 + offset,
        )
        for offset in range(first, stop)
    ]
    return build.batch(made, base_offset=first, **how)


def convert_to_parquet(
    partition: SlicedPartition,
    output: OutputDirectory,
    *,
    cleaner_offset: int | None = None,
    rewrite: bool = False,
    left_out: Iterable[LeftOut] = (),
    damage: DamagedRanges | None = None,
) -> ConvertedPartition | KdumpError:
    """Convert a topic-partition as one part. Returns what the manifest says of it, or why it cannot be converted."""
    try:
        entry = output.entry_of(partition, rewrite=rewrite)
        start = continue_after(entry, partition, cleaner_offset, MAX_BATCH_BYTES)
        parts: list[WrittenPart] = []
        if not start.is_done(partition):
            chosen = partition._replace(offset=(start.offset, partition.offset[1]))
            parts.append(write_part(output.staging, output.settings, chosen, damage=damage))
        return output.commit(join_parts(partition, start, parts, left_out))
    except KdumpError as error:
        return error


def write_log(directory: Path, *batches: bytes, base: int = 0, more: bool = False) -> Path:
    """Write a segment; `more` appends to it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{base:020d}.log").open("ab" if more else "wb") as file:
        file.write(b"".join(batches))
    return directory


def sliced(*paths: Path) -> list[SlicedPartition]:
    named = [str(path) for path in paths]
    chosen = choose(kdump.discover(named), EVERYTHING, named)
    return [whole_log(each.copies[0], each.offset) for each in chosen if isinstance(each, ChosenCopies)]


def convert(
    source: Path, out: Path, settings: ConversionSettings = SETTINGS, **how: Any
) -> list[ConvertedPartition | KdumpError]:
    """What a run over all partitions of a directory gives."""
    with OutputDirectory(str(out), settings, [str(source)], run=RUN) as output:
        return [convert_to_parquet(each, output, **how) for each in sliced(source)]


def converted(source: Path, out: Path, settings: ConversionSettings = SETTINGS, **how: Any) -> ConvertedPartition:
    """What a run over one partition gives, which is no error."""
    (entry,) = convert(source, out, settings, **how)
    assert isinstance(entry, ConvertedPartition), entry
    return entry


def refused(source: Path, out: Path, settings: ConversionSettings = SETTINGS, **how: Any) -> str:
    (error,) = convert(source, out, settings, **how)
    assert isinstance(error, KdumpError), error
    return str(error)


def manifest_of(out: Path) -> Manifest:
    return read_manifest((out / MANIFEST).read_bytes(), str(out / MANIFEST))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def table_of(out: Path, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of the files, one file after the other."""
    files = sorted(path for path in out.rglob("*.parquet")) if names is None else [out / name for name in names]
    return pa.concat_tables(pq.ParquetFile(path).read() for path in files).replace_schema_metadata(None)


def offsets_of(out: Path, names: Sequence[str] | None = None) -> list[int]:
    found: list[int] = table_of(out, names)["offset"].to_pylist()
    return found
