"""A program of a user of the library. mypy checks it with the package (pyproject.toml), a test runs it.

What is public has a type, also by `import kdump` alone; what moved, and what there is not, has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import assert_type

import kdump
from kdump.recover import Run
from kdump.verify import CATALOGUE, Severity


def errors(path: Path) -> Iterator[str]:
    for report in kdump.verify_logs(kdump.discover(path), kdump.VerifyOptions(deep=True)):
        assert_type(report, kdump.Report)
        for finding in report.findings:
            assert_type(finding.severity, Severity)
            if finding.severity is kdump.verify.Severity.ERROR:
                assert_type(CATALOGUE[finding.code], kdump.verify.CatalogueEntry)
                yield finding.code


def damage(path: Path) -> Iterator[str]:
    for event in kdump.dump_logs(kdump.log_files(path)):
        if isinstance(event, kdump.dump.DamageNote):
            assert_type(event.code, str | None)
            yield event.code or event.path


def given_up(path: Path) -> Iterator[int | None]:
    for plan in kdump.plan_recovery(kdump.discover(path), engine=kdump.engine.Processes(2)):
        if isinstance(plan, kdump.Plan):
            assert_type(plan.lost, kdump.recover.Lost)
            yield plan.lost.given_up.records


def undone(path: Path) -> list[Run]:
    list(kdump.recover_logs(kdump.discover(path), apply_options=kdump.ApplyOptions("first")))
    return [each.run for each in kdump.undo_recovery(path, run="first")]


def batches(path: Path) -> int:
    found = 0
    for each in kdump.stat_logs(kdump.discover(path)):
        if isinstance(each, kdump.PartitionStatistics):
            assert_type(each.totals, kdump.stat.BatchStatistics)
        elif isinstance(each, kdump.stat.LogDirectoryStatistics):
            assert_type(each.sums, kdump.stat.Sums)
        elif not isinstance(each, kdump.SourceError):
            assert_type(each, kdump.groups.CoordinatorStatistics)
        found += each.totals.batches if isinstance(each, kdump.PartitionStatistics) else 0
    return found


def converted(path: Path, output: Path) -> int:
    options = kdump.ConvertOptions(kdump.convert.Target.CSV, choice=kdump.convert.Choice(offset=(0, 5)))
    made = kdump.convert_logs(kdump.discover(path), output, options)
    return sum(each.rows for each in made if isinstance(each, kdump.PartitionConversion))


def names_that_are_not_there() -> Iterator[str]:
    try:
        kdump.EpochRun  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        yield str(error)
    try:
        kdump.stat.nothing  # type: ignore[attr-defined]  # noqa: B018
    except AttributeError as error:
        yield str(error)
