"""What the data source reads and reports of a log, in this process: its planning, its ranges, its losses."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path

from kdump.convert.ranges.cutting import RangeOfLog
from kdump.log.damage import DamagedRange
from kdump.log.ranges import OffsetRange
from kdump.replicas.batch_order import LeftOutBatch
from kdump.spark import source_reader
from kdump.spark.source_losses import LossPolicy
from kdump.spark.source_options import parse_batch_options
from kdump.spark.source_planning import assigned_logs, of_task
from kdump.verify.findings import Severity

Missing = list[tuple[int, int | None, bool]]


class Losses(LossPolicy):
    """Keeps what it is told."""

    missing: Missing
    codes: set[str]
    errors: int

    def __init__(self, of: object, *, fail: bool) -> None:
        super().__init__(None, fail=False)

    def lost(self, each: DamagedRange) -> None:
        super().lost(each)
        self.missing.append((each.offsets.start, each.last_offset, False))
        self._add(each.code, Severity.ERROR)

    def damaged(self, each: DamagedRange, offsets: OffsetRange, *, ends: bool) -> None:
        super().damaged(each, offsets, ends=ends)
        self.missing.append((offsets.start, None if ends else offsets.stop - 1, False))
        self._add(each.code, each.severity)

    def misplaced(self, each: DamagedRange, offsets: OffsetRange | None) -> None:
        super().misplaced(each, offsets)
        if offsets is not None:
            self.missing.append((offsets.start, offsets.stop - 1, False))
        self._add(each.code, each.severity)

    def left_out(self, each: LeftOutBatch) -> None:
        super().left_out(each)
        if each.severity is Severity.ERROR:
            self.missing.append((each.first_offset, each.last_offset, False))
        self._add(each.code, each.severity)

    def _add(self, code: str, severity: Severity) -> None:
        self.codes.add(code)
        Losses.errors += severity is Severity.ERROR


def read_ranges(paths: list[Path], name: str, seed: int) -> tuple[set[int], Missing, bool, set[str]]:
    """The offsets that are read, those that are reported, whether there is an error, and the codes."""
    Losses.missing, Losses.codes, Losses.errors = [], set(), 0
    rng = random.Random(seed)
    rows: set[int] = set()
    given = {"paths": json.dumps(list(map(str, paths))), "subscribe": name.rsplit("-", 1)[0], "failOnDataLoss": "false"}
    options = parse_batch_options(given)
    usual = source_reader.LossPolicy
    source_reader.LossPolicy = Losses  # type: ignore[misc]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for each in assigned_logs(options):
                if any("checkpoint/beyond" in str(one.message) for one in caught):
                    Losses.missing.append((each.log.end, None, False))
                    Losses.codes.add("checkpoint/beyond")
                    Losses.errors += 1
                inside = range(each.start + 1, each.end)
                cuts = sorted(rng.sample(inside, min(len(inside), rng.choice((0, 0, 1, 3)))))
                for start, stop in zip((each.start, *cuts), (*cuts, each.end), strict=True):
                    part = of_task(RangeOfLog(each.log, OffsetRange(start, stop)))
                    for batch in source_reader.read_range(part, options, ["offset"]):
                        rows.update(batch["offset"].to_pylist())
    finally:
        source_reader.LossPolicy = usual  # type: ignore[misc]
    return rows, Losses.missing, Losses.errors > 0, Losses.codes
