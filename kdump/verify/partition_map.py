"""Makes the map of a partition from its report and the cells that the scans of its segments added up."""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kdump.format.naming import Kind
from kdump.kernel.scan import CELL_COLUMNS
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Finding, Severity
from kdump.verify.log_map import MOST_CELLS, MOST_OPEN, LogMap, MapCell, MapPlace, RangeCells, joined
from kdump.verify.report import FileReport, Report

MOST_DAMAGES: Final = 500
"""So many damaged places are listed; the cells have the bytes of all."""
_BYTES: Final = CELL_COLUMNS.index("bytes")
_DAMAGED: Final = CELL_COLUMNS.index("damaged_bytes")


def partition_map(report: Report, cells: Mapping[str, RangeCells]) -> LogMap | None:
    """The map of a partition from the cells of its segments, by path; None without any."""
    files = [each for each in report.files if each.file.kind is Kind.LOG and each.file.path in cells]
    if not files:
        return None
    numbers = {os.path.basename(each.file.path): number for number, each in enumerate(files)}
    rows = [row for each in files for row in _cells_of(cells[each.file.path], each.file.size)]
    several = -(-len(rows) // MOST_CELLS)
    grouped = [rows[at : at + several] for at in range(0, len(rows), several)]
    outcome, context = report.outcome, report.context
    return LogMap(
        tuple((each.file.base_offset or 0, each.file.size) for each in files),
        tuple(_map_cell(group) for group in grouped),
        report.log_start_offset,
        report.log_end_offset,
        context.recovery_point,
        context.high_watermark,
        tuple(_damage(report.findings, numbers)),
        () if outcome is None else tuple(_cuts(outcome.truncations, outcome.deleted_files, numbers, files)),
        tuple((one.producer_id, one.first_offset) for one in report.open[:MOST_OPEN]),
    )


class _CellRow(NamedTuple):
    """A cell of a segment: its size, the bytes in valid batches and in none, and the row that the scan made."""

    size: int
    valid: int
    damaged: int
    row: "array[int]"


def _cells_of(cells: RangeCells, size: int) -> Iterator[_CellRow]:
    """The cells of a segment. What begins in a cell and does not fit in it goes on in the next one."""
    valid = damaged = 0
    for number, row in enumerate(cells.cells):
        room = min(cells.cell_bytes, size - (cells.first + number) * cells.cell_bytes)
        valid, damaged = valid + row[_BYTES], damaged + row[_DAMAGED]
        bad = min(damaged, room)
        good = min(valid, room - bad)
        valid, damaged = valid - good, damaged - bad
        yield _CellRow(room, good, bad, row)


def _map_cell(group: Sequence[_CellRow]) -> MapCell:
    row = joined(each.row for each in group)
    batches, _, _, offsets, first, last, transactional, control, timestamp = row
    missing = max(0, last - first + 1 - offsets) if batches else 0
    return MapCell(
        sum(each.size for each in group),
        batches,
        sum(each.valid for each in group),
        sum(each.damaged for each in group),
        first if batches else None,
        last if batches else None,
        missing,
        transactional,
        control,
        timestamp if batches else -1,
    )


def _damage(findings: Iterable[Finding], numbers: Mapping[str, int]) -> Iterator[MapPlace]:
    """The places of the errors and warnings about bytes of the segments, the first ones of many."""
    left = MOST_DAMAGES
    for each in findings:
        number = numbers.get(os.path.basename(each.path))
        if number is not None and each.severity >= Severity.WARNING and each.length and left:
            left -= 1
            yield MapPlace(number, each.position, each.length, each.code)


def _cuts(
    truncations: Mapping[str, int], deleted: Iterable[str], numbers: Mapping[str, int], files: Sequence[FileReport]
) -> Iterator[MapPlace]:
    """What a broker removes of each segment, in log order."""
    from_of = {**dict.fromkeys(deleted, 0), **truncations}
    for name, number in sorted(numbers.items(), key=lambda one: one[1]):
        if name in from_of:
            size = files[number].file.size
            yield MapPlace(number, from_of[name], max(0, size - from_of[name]), "")
