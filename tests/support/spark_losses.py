"""What the data source reads and reports of a log, in this process: its planning, its ranges, its losses."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Sequence
from pathlib import Path

from kdump.convert.ranges.cutting import RangeOfLog, RangeSizes, cut
from kdump.format.naming import TopicPartition
from kdump.log.damage import DamagedRange
from kdump.log.ranges import OffsetRange
from kdump.replicas.batch_order import LeftOutBatch
from kdump.spark import source_reader
from kdump.spark.source_losses import Loss, LossPolicy
from kdump.spark.source_options import parse_batch_options
from kdump.spark.source_planning import assigned_logs, of_task
from kdump.verify.findings import Severity

Missing = list[tuple[int, int | None, bool]]


class Losses(LossPolicy):
    """Notes the codes and the severities of what it is told, warnings too."""

    codes: set[str]
    errors: int

    def __init__(self, of: TopicPartition | None, *, fail: bool, is_quiet: bool = False) -> None:
        super().__init__(of, fail=False, is_quiet=is_quiet)

    def lost(self, each: DamagedRange) -> None:
        super().lost(each)
        self._add(each.code, Severity.ERROR)

    def damaged(
        self,
        each: DamagedRange,
        offsets: OffsetRange,
        *,
        ends: bool,
        gone: Sequence[OffsetRange] | None = None,
        is_last: bool = True,
    ) -> None:
        super().damaged(each, offsets, ends=ends, gone=gone, is_last=is_last)
        self._add(each.code, each.severity)

    def misplaced(self, each: DamagedRange, offsets: OffsetRange | None) -> None:
        super().misplaced(each, offsets)
        self._add(each.code, each.severity)

    def left_out(self, each: LeftOutBatch) -> None:
        super().left_out(each)
        self._add(each.code, each.severity)

    def _add(self, code: str, severity: Severity) -> None:
        self.codes.add(code)
        Losses.errors += severity is Severity.ERROR


def read_ranges(paths: list[Path], name: str, seed: int) -> tuple[set[int], Missing, bool, set[str]]:
    """The offsets that are read, the rows of the table losses, whether there is an error, and the codes.

    The number of the records of a loss is known, where its offsets are exact.
    """
    missing: Missing = []
    Losses.codes, Losses.errors = set(), 0
    rng = random.Random(seed)
    rows: set[int] = set()
    given = {"paths": json.dumps(list(map(str, paths))), "subscribe": name.rsplit("-", 1)[0], "failOnDataLoss": "false"}
    options = parse_batch_options(given)
    usual = source_reader.LossPolicy
    source_reader.LossPolicy = Losses  # type: ignore[misc]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for each in assigned_logs(options):
                for loss in each.losses:
                    missing.append((loss.first_offset, loss.last_offset, False))
                    Losses.codes.add(loss.code)
                    Losses.errors += 1
                if not cut([RangeOfLog(each.log, OffsetRange(each.start, each.end))], RangeSizes()):
                    continue
                inside = range(each.start + 1, each.end)
                cuts = sorted(rng.sample(inside, min(len(inside), rng.choice((0, 0, 1, 3)))))
                for start, stop in zip((each.start, *cuts), (*cuts, each.end), strict=True):
                    part = of_task(RangeOfLog(each.log, OffsetRange(start, stop)))
                    losses: list[Loss] = []
                    for batch in source_reader.read_range(part, options, ["offset"], losses=losses):
                        rows.update(batch["offset"].to_pylist())
                    for loss in losses:
                        missing.append((loss.first_offset, loss.last_offset, loss.records is not None))
                        if loss.records is not None:
                            assert loss.last_offset is not None
                            assert loss.records == loss.last_offset + 1 - loss.first_offset
                            assert start <= loss.first_offset <= loss.last_offset < stop
    finally:
        source_reader.LossPolicy = usual  # type: ignore[misc]
    return rows, missing, Losses.errors > 0, Losses.codes
