"""What becomes a new log of any bytes at all: records of the valid batches, in order, by the reference decoder."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest import mock

from fuzz.check import LIMIT_BYTES, Case, Difference, bounds
from kdump.convert.log_options import LogOutputOptions
from kdump.convert.log_output.conversion import LogConversion
from kdump.convert.log_output.tasks import LogTarget, convert_to_log
from kdump.format.naming import Kind, TopicPartition
from kdump.log.log_slice import LogSlice, SlicedPartition
from kdump.storage.partition import LogFile
from support import oracle
from support.new_logs import Row, batch_rows, prepared


def check_copied(case: Case) -> None:
    """Raises Difference where the new log has other records, or lacks some although nothing was left out."""
    if case.kind is not Kind.LOG:
        return
    rng = random.Random(len(case.data))
    options = LogOutputOptions(
        codec=rng.choice((None, None, "none", "gzip")),
        segment_bytes=rng.choice((14, 300, 1 << 30)),
        batch_bytes=rng.choice((1, 300, 20_000)),
        max_batch_bytes=case.max_batch_bytes,
    )
    with bounds(case), TemporaryDirectory(prefix="kdump-fuzz-") as place, mock.patch.object(os, "fsync"):
        path = Path(place) / "in" / "x.log"
        path.parent.mkdir()
        path.write_bytes(case.data)
        log = LogFile(str(path), case.kind, case.base_offset, case.newest, len(case.data))
        given = prepared(SlicedPartition("x", TopicPartition("t", 0), (LogSlice(log),)))
        (result,) = convert_to_log([given], Path(place) / "out", LogTarget(options))
        if not isinstance(result.conversion, LogConversion):
            raise Difference(f"not converted: {result.conversion}")
        logs = sorted((Path(place) / "out" / "t-0").glob("*.log"))
        made = [contents(log.read_bytes(), int(log.stem), LIMIT_BYTES) for log in logs]
        given_rows = contents(case.data, case.base_offset, case.max_batch_bytes)
    found = [row for each in made for row in each.rows]
    spans = [span for each in made for span in each.spans]
    if any(span[1] >= after[0] for span, after in pairwise(spans)):
        raise Difference(f"offsets that do not rise: {spans}")
    left = iter(given_rows.rows)
    foreign = [row for row in found if not given_rows.may_have(row) and row not in left]
    if foreign:
        raise Difference(f"records\n  kdump:     {foreign}\n  reference: {given_rows.rows}")
    wanted = [row for row in given_rows.rows if row.offset >= 0 or row in found]
    if result.conversion.cut:  # what repeats the offset of a record before it was left out
        offsets = [row.offset for row in found]
        wanted = [row for row in wanted if row in found or row.offset not in offsets]
    if not result.conversion.damaged_ranges and not given_rows.broken and found != wanted:
        raise Difference(f"nothing left out\n  kdump:     {found}\n  reference: {wanted}")


class Contents(NamedTuple):
    """The records of the batches that can be read as a whole, the offsets of the batches of magic 2, and the last
    offsets of batches that cannot be read as a whole."""

    rows: list[Row]
    spans: list[tuple[int, int]]
    broken: list[int]

    def may_have(self, row: Row) -> bool:
        """Whether a record can be of a batch of which the records up to a bad one are converted."""
        return any(row.offset <= last for last in self.broken) and row not in self.rows


def contents(data: bytes, base_offset: int | None, limit: int) -> Contents:
    """What the valid batches hold by the reference decoder."""
    found = Contents([], [], [])
    for item in oracle.walk(data, base_offset=base_offset, max_batch_bytes=limit):
        if isinstance(item, oracle.Batch):
            if item.base_offset is not None:
                found.spans.append((item.base_offset, item.last_offset))
            try:
                found.rows.extend(batch_rows(data, item, limit))
            except oracle.Malformed:
                found.broken.append(item.last_offset)
    return found
