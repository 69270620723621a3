"""The rows of a topic-partition, or of a part of one, for an output that is one file: read, formatted and counted."""

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from kdump.convert.field_formats import FieldFormats
from kdump.convert.options import ConvertOptions
from kdump.convert.records.decode_ahead import decode_ahead
from kdump.convert.records.holes import PartHoles
from kdump.convert.records.reader import RecordStream
from kdump.convert.records.unread_headers import HeadersNeeded
from kdump.convert.results import ConvertFindings, LeftOutCounts
from kdump.convert.tables import FreeMemory, output_schema, record_schema
from kdump.convert.value_texts import ValueTexts, log_columns
from kdump.errors import SourceError, only
from kdump.log.header_pass import SliceHeaders
from kdump.log.log_slice import SlicedPartition
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.convert.damage_log import DamageLog
    from kdump.convert.single_file.table_writer import TableWriter

_OFFSET = "offset"


class PartRows(NamedTuple):
    """What was converted of a part of a topic-partition.

    `end` is the offset after the last batch, `sources` the paths of the log files. `left_out` has what only reading
    shows. `problem`: why the first value cannot be decoded. `is_beyond`: damage hid where the part ends
    (RecordStream). `holes`: the offsets that are lost. `error`: reading ended with it, after `rows` were written.
    `headers`: what those of a log say that was read without them; `needs_headers`: it was taken for another one.
    """

    rows: int
    first_offset: int | None
    last_offset: int | None
    end: int | None
    left_out: LeftOutCounts
    sources: tuple[str, ...]
    findings: tuple[ConvertFindings, ...]
    problem: str | None = None
    is_beyond: bool = False
    holes: PartHoles = PartHoles(None, None, None, ())  # it never changes
    error: SourceError | None = None
    headers: tuple[SliceHeaders, ...] = ()
    needs_headers: bool = False
    stable: int | None = None


class RowConversion:
    """Converts one part after another. `on_bytes` gets the number of bytes that were read since the last call."""

    def __init__(self, options: ConvertOptions, on_bytes: Callable[[int], object] | None = None) -> None:
        """Raises SourceError for a path without schemas."""
        self._options, self._on_bytes = options, on_bytes
        self._texts = None if options.schemas is None else ValueTexts(options.schemas)
        schema = output_schema(options.all_columns)
        self.formats = FieldFormats(schema, options.keys, options.values, self._texts)
        self._memory = FreeMemory()
        columns = log_columns(options.all_columns)
        self._columns = list(columns)
        self._stream_schema = record_schema(columns if _OFFSET in columns else (*columns, _OFFSET))

    def convert(self, part: SlicedPartition, damage: "DamageLog", writer: "TableWriter | None") -> PartRows:
        """Write the rows of a part; None only counts them. `damage` is for this part alone."""
        options, formats, texts = self._options, self.formats, self._texts
        stream = RecordStream(
            self._stream_schema,
            options.choice.time,
            damage,
            max_batch_bytes=options.max_batch_bytes,
            isolation=options.effective_isolation,
            read_policy=options.read_policy,
            on_bytes=self._on_bytes,
            memory=self._memory,
        )
        malformed, not_json = formats.malformed, formats.not_json
        if texts is not None:
            texts.undecoded, texts.problem = 0, None
        rows, first, last, failure, needs_headers = 0, None, None, None, False
        try:
            if texts is not None:
                texts.begin(part)
            with only(part.path, writes=True), closing(decode_ahead(stream.batches([part]))) as batches:
                for batch in batches:
                    offsets = batch.column(_OFFSET)
                    if batch.num_rows:
                        first = offsets[0].as_py() if first is None else first
                        last = offsets[-1].as_py()
                    self._write(batch, writer)
                    rows += batch.num_rows
        except HeadersNeeded:
            needs_headers = True
        except SourceError as error:
            failure = error
        left_out = LeftOutCounts(
            aborted=stream.aborted,
            undecided=stream.undecided,
            damaged_ranges=damage.ranges,
            damaged_bytes=damage.bytes,
            unfit_timestamps=stream.unfit_timestamps,
            malformed=formats.malformed - malformed,
            not_json=formats.not_json - not_json,
            undecoded=0 if texts is None else texts.undecoded,
        )
        return PartRows(
            rows,
            first,
            last,
            None if stream.last_batch is None else stream.last_batch.last_offset + 1,
            left_out,
            tuple(one.log.path for one in stream.slices),
            tuple(damage.values()),
            None if texts is None else texts.problem,
            stream.is_beyond,
            stream.holes,
            failure,
            tuple(stream.slice_headers),
            needs_headers,
            stream.stable,
        )

    def _write(self, batch: pa.RecordBatch, writer: "TableWriter | None") -> None:
        batch = self.formats.apply(batch.select(self._columns))
        if writer is not None:
            writer.write(batch)
