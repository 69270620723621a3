"""Converts topic-partitions in one process, one after another, and each once where its log is healthy.

A log of an object store is read without its headers (kdump.convert.records.unread_headers). Where it turns out to be
another one, its rows are removed from the output again, and it is prepared and read as every other one. Rows that
cannot be removed are not written before the log was read once: what was read is kept for the second time.
"""

from typing import IO, TYPE_CHECKING

from kdump.convert.damage_log import DamageLog
from kdump.convert.options import ConvertOptions
from kdump.convert.output_file import truncate
from kdump.convert.preparation import PreparedPartition, PrepareOptions
from kdump.convert.records.part_tasks import size_of_log
from kdump.convert.records.unread_headers import headers_in_order
from kdump.convert.single_file.part_rows import PartRows, RowConversion
from kdump.convert.single_file.tasks import NO_OUTPUT, TablePartition
from kdump.errors import SourceError
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import kept, kept_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdump.convert.single_file.table_writer import TableWriter
    from kdump.log.header_pass import SliceHeaders


class SeekableOutput(NamedTuple):
    """The file that is written, from which rows can be removed again, and its path for messages."""

    file: IO[bytes]
    path: str


class SerialConversion:
    """Converts partitions in this process. Without a writer it counts only."""

    def __init__(
        self,
        conversion: RowConversion,
        options: ConvertOptions,
        how: PrepareOptions,
        writer: "TableWriter | None" = None,
        output: SeekableOutput | None = None,
    ) -> None:
        """`how` partitions were prepared. `output` is None for rows that cannot be removed again."""
        self._conversion, self._options, self._how = conversion, options, how
        self._writer, self._output = writer, output

    def convert(self, each: TablePartition) -> list[PartRows]:
        """What was converted of a partition; nothing of one that is refused, or cannot be prepared again."""
        if each.error is not None:
            return []
        with kept(each.log.path):
            if each.log.is_assumed:
                part = self._once(each) if self._writer is None or self._output is not None else self._twice(each)
                if part is not None:
                    return [part]
                each.settle(self._how)
            return [] if each.is_left_out else [self._rows_of(each)]

    def _rows_of(self, each: TablePartition) -> PartRows:
        outcome = "" if self._writer is None else NO_OUTPUT
        return self._conversion.convert(each.log, DamageLog(strict=self._options.strict, outcome=outcome), self._writer)

    def _once(self, each: TablePartition) -> PartRows | None:
        """The rows of a log that is read without its headers; None where it is another one: none of them is there."""
        begin = 0 if self._output is None else self._output.file.tell()
        part = self._rows_of(each)
        known = None if part.needs_headers or part.error is not None else self._known(each, part.headers, part.stable)
        if known is not None:
            each.of = known
            return part
        if self._output is not None and self._writer is not None:
            truncate(self._output.file, begin, self._output.path)
            self._writer.resume(self._output.file)
        return None

    def _twice(self, each: TablePartition) -> PartRows | None:
        """The rows of a log that is read before and is what it was taken for; None where it is another one."""
        with kept_whole(each.log.path, size_of_log(each.log)):
            return self._checked(each)

    def _checked(self, each: TablePartition) -> PartRows | None:
        try:
            headers = headers_in_order(each.log, self._options.max_batch_bytes)
        except SourceError:
            return None  # who prepares it says it
        if self._known(each, headers, None) is None:
            return None
        part = self._rows_of(each)
        each.of = self._known(each, headers, part.stable) or each.of
        if part.needs_headers:
            part = part._replace(error=SourceError(f"{each.log.path}: the log changed while it was read"))
        return part

    def _known(
        self, each: TablePartition, found: "Sequence[SliceHeaders]", stable: int | None
    ) -> PreparedPartition | None:
        committed = self._options.effective_isolation == "read-committed"
        try:
            return each.of.read_so(found, stable, self._options.max_batch_bytes, committed=committed)
        except SourceError:
            return None  # likewise
