"""What a run of kdump convert is asked for."""

import os
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from kdump.convert.choice import Choice
from kdump.convert.field_formats import FieldFormat
from kdump.convert.output_file import STANDARD_OUTPUT
from kdump.convert.tables import DEFAULT_COLUMNS, RECORDS, VALUE_JSON
from kdump.format.naming import TopicPartition
from kdump.log.isolation import Isolation
from kdump.log.log_slice import EVERYTHING
from kdump.named_tuple import NamedTuple
from kdump.replicas.merge import ReplicaUse
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.walk import MAX_BATCH_BYTES


class Target(StrEnum):
    """What the output is."""

    PARQUET = "parquet"
    """A folder of Parquet files with a manifest."""
    ARROW = "arrow"
    """An Arrow IPC file; on standard output an IPC stream."""
    NDJSON = "ndjson"
    CSV = "csv"
    LOG = "log"
    """A log directory in record batch v2."""

    @property
    def is_folder(self) -> bool:
        return self in (Target.PARQUET, Target.LOG)


_SUFFIXES: Final = {
    ".arrow": Target.ARROW,
    ".arrows": Target.ARROW,
    ".ndjson": Target.NDJSON,
    ".jsonl": Target.NDJSON,
    ".csv": Target.CSV,
}


def target_of(name: str) -> Target | None:
    """The target that the name of an output says: by its suffix, else Parquet; None for standard output."""
    if name == "-":
        return None
    return _SUFFIXES.get(os.path.splitext(name)[1].lower(), Target.PARQUET)


class ConvertOptions(NamedTuple):
    """How a conversion is done. `replica`: what becomes of several copies of a topic-partition.

    `isolation` None: read-committed for tables, all for a log. `until_stable`: stop at the last stable offset of each
    partition, as a consumer that reads committed records does. `strict`: a partition with damage is not converted.
    `schemas`: where the schemas of values are for the column value_json (kdump.storage.value_schemas.chosen_schemas).
    `codec` and `level`: of Parquet, Arrow or the new log; None for what these do by default. `overwrite`: replace an
    output that is one file. `rewrite`: the partitions of a folder of Parquet files to convert anew. `dry_run`: read
    and count everything, write nothing.
    """

    target: Target = Target.PARQUET
    columns: Sequence[str] = DEFAULT_COLUMNS
    choice: Choice = Choice()
    isolation: Isolation | None = None
    until_stable: bool = False
    strict: bool = False
    keys: FieldFormat = FieldFormat.BINARY
    values: FieldFormat = FieldFormat.BINARY
    schemas: str | None = None
    codec: str | None = None
    level: int | None = None
    segment_bytes: int = 1 << 30
    partition_folders: bool = False
    overwrite: bool = False
    rewrite: frozenset[TopicPartition] = frozenset()
    dry_run: bool = False
    replica: ReplicaUse = ReplicaUse.MERGE
    max_batch_bytes: int = MAX_BATCH_BYTES
    read_policy: ReadPolicy = ReadPolicy()

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The columns, with that of the copies where each is converted on its own, and that of values with schemas."""
        own = ("replica",) if self.replica is ReplicaUse.ALL and "replica" not in self.columns else ()
        text = (VALUE_JSON.name,) if self.schemas is not None and VALUE_JSON.name not in self.columns else ()
        return (*self.columns, *own, *text)

    @property
    def effective_isolation(self) -> Isolation:
        if self.isolation is not None:
            return self.isolation
        return "all" if self.target is Target.LOG else "read-committed"

    def writes_parts(self, output: str) -> bool:
        """Whether several processes write parts of one file, where there are some: only schemas are worth it."""
        is_rows = self.target in (Target.NDJSON, Target.CSV) and not self.dry_run
        return is_rows and self.schemas is not None and output != STANDARD_OUTPUT


_PARQUET_CODECS: Final = {"none": None, "snappy": None, "gzip": (1, 9), "lz4": None, "zstd": (1, 22)}
_ARROW_CODECS: Final = {"none": None, "lz4": None, "zstd": None}


def parse_codec(text: str, target: Target) -> tuple[str | None, int | None]:
    """The codec and the level of `zstd` or `zstd:9` for a target. Raises ValueError."""
    if target is Target.LOG:
        from kdump.convert.log_options import parse_codec as parse_log_codec

        return parse_log_codec(text)
    if target not in (Target.PARQUET, Target.ARROW):
        raise ValueError(f"{target} is not compressed")
    name, colon, level = text.partition(":")
    known: Mapping[str, tuple[int, int] | None] = _PARQUET_CODECS if target is Target.PARQUET else _ARROW_CODECS
    if name not in known:
        raise ValueError(f"{target} has no codec {name!r}, only {', '.join(known)}")
    if not colon:
        return (None if name == "none" and target is Target.ARROW else name), None
    levels = known[name]
    if levels is None or not level.isascii() or not level.isdigit() or not levels[0] <= int(level) <= levels[1]:
        raise ValueError(
            f"{target} has no levels of {name}"
            if levels is None
            else f"{name} has the levels {levels[0]} to {levels[1]}"
        )
    return name, int(level)


def problems(options: ConvertOptions) -> Iterator[str]:
    """What does not fit together, as sentences."""
    if options.schemas is not None and options.target is Target.LOG:
        yield "--schemas makes a column of a table, and a log has none"
    for name in options.columns:
        if name == VALUE_JSON.name:
            if options.schemas is None:
                yield f"the column {name} needs --schemas"
        elif name not in RECORDS.names:
            near = get_close_matches(name, RECORDS.names, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else f"; the columns are {', '.join(RECORDS.names)}"
            yield f"no column {name!r}{hint}"
    if len(set(options.columns)) < len(options.columns):
        yield "--columns names a column twice"
    for name, how in (("key", options.keys), ("value", options.values)):
        if how is not FieldFormat.BINARY and name not in options.columns:
            yield f"--{name}s has no effect without the column {name}"
    if options.partition_folders and not {"topic", "partition"} <= set(options.columns):
        yield "--partition-folders needs the columns topic and partition"
    if options.choice.offset != EVERYTHING and options.choice.offsets is not None:
        yield "--offset and --from-json cannot be combined"
    if options.replica is ReplicaUse.ALL and options.target is Target.LOG:
        yield "--replica all cannot be combined with --to log: each partition is one log"
    if options.until_stable and options.effective_isolation != "read-committed":
        yield "--until last-stable-offset needs --isolation read-committed"
