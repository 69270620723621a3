"""One self-contained page in HTML: what a verify, a recovery or a stat found, to look at and to attach to a ticket.

The page holds its data as columns of JSON, and scripts that show them; it loads nothing. It formats values and reads
no log. What it shows is bounded (kdump.render.html.budget), and it says what it does not hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from kdump import __version__
from kdump.render.base import RecoveryRenderer, RenderOptions, StatRenderer, VerifyRenderer
from kdump.render.html import page
from kdump.render.html.budget import TABLE_BYTES, Budget
from kdump.render.html.copies import CopyTable
from kdump.render.html.finding_table import FindingTable
from kdump.render.html.maps import MapTable
from kdump.render.html.names import PathNames
from kdump.render.html.recoveries import RecoveryTable
from kdump.render.html.script_data import Column, numbers_size
from kdump.render.measures import size_text
from kdump.render.sentences import comparison_summary, counted, verify_summary, verify_verdict

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue
    from kdump.recover.plan import GivenUp, Plan, RecoveryResult
    from kdump.recover.summary import RecoverySummary
    from kdump.recover.undo import RunResult
    from kdump.render.escaping import Path
    from kdump.replicas.compare import ComparisonSummary, PartitionComparison
    from kdump.stat.row_sections import StatResult
    from kdump.verify.findings import Finding
    from kdump.verify.log_map import LogMap
    from kdump.verify.summary import PartitionSummary, VerifySummary

_NOTHING: Mapping[tuple[str, str], int] = {}
_NO_KEYS: Final = "This page holds no keys, header values or values of records."
_NO_VALUES: Final = "This page holds keys of records (--show-keys), and no header values or values of records."
_NOT_ALL: Final = 3
"""The exit status where something could not be read or done."""
_PARTITION_BYTES: Final = 768 << 10
"""The bytes of the page for a line for each partition with errors or warnings."""
_MOST_PATHS: Final = 20
_LONGEST_PATHS: Final = 16 << 10
"""How many characters they have together."""
_LONGEST_COMMAND: Final = 32 << 10
GOOD, BAD, DOUBTFUL, PLAIN = "good", "bad", "doubtful", "plain"


class HtmlRenderer(VerifyRenderer, RecoveryRenderer, StatRenderer):
    """Collects what it is given, and writes a page when it gets the summary."""

    shows_maps = True

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        page.check_libraries()
        of = options.page
        self._names = PathNames(of.paths, reproducible=of.reproducible)
        self._budget = budget = Budget(TABLE_BYTES)
        self._findings = FindingTable(self._names.text, budget)
        self._partitions = _PartitionTable(self._names, budget)
        self._stat: StatResult | None = None
        self._keys = _NO_KEYS
        self._maps = MapTable(budget)
        self._recoveries = RecoveryTable(self._names, self._command, budget)
        self._copies = CopyTable(self._names, self._command, budget)

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        """Lines of files are not on the page."""

    def finding(self, finding: Finding) -> None:
        if finding.code == "txn/hanging" and finding.offset is not None:
            self._maps.add_hanging(self._names.text(os.path.dirname(finding.path)), finding.offset)
        display = self.options.display
        if display is None or display.takes(finding.code, finding.severity):
            self._findings.add(finding)

    def findings(
        self,
        findings: Iterable[Finding],
        not_kept: Mapping[tuple[str, str], int] = _NOTHING,
        show: Callable[[Finding], None] | None = None,
    ) -> None:
        for finding in findings:
            self.finding(finding)
        self._findings.not_kept += sum(not_kept.values())

    def partition(self, path: Path, summary: PartitionSummary) -> None:
        errors, warnings = self._partitions.add(path, summary)
        if summary.map is not None:
            self._maps.add(self._names.text(str(path)), errors, warnings, summary.map)

    def verify_summary(self, summary: VerifySummary, exit_status: int) -> None:
        tone, headline = _verify_headline(summary)
        lines = dict(verify_verdict(summary))
        verdict = {"tone": tone, "headline": headline, "sentence": lines.get("broker", ""), "lost": lines.get("lost")}
        counts, damaged = self._partitions, summary.bytes - summary.valid_bytes
        tiles = [
            _tile("Partitions with errors or warnings", counts.bad, tone=BAD if counts.bad else GOOD),
            _tile("Healthy partitions", counts.healthy, tone=GOOD if counts.healthy else PLAIN),
            _tile("Log files", summary.files),
            _tile("Batches", summary.batches),
            _tile("Records", summary.records),
            _tile("Bytes in no valid batch", damaged, "bytes", tone=BAD if damaged else GOOD, of=summary.bytes),
        ]
        self._write("verify", verdict, summary.next, tiles, verify_summary(summary), exit_status, summary.seconds)

    def plan_map(self, plan: Plan, of: LogMap) -> None:
        from kdump.verify.findings import Severity

        found = [finding.severity for finding in (*plan.covered, *plan.not_covered)]
        errors, warnings = found.count(Severity.ERROR), found.count(Severity.WARNING)
        self._maps.add(self._names.text(plan.path), errors, warnings, of)

    def recovery(self, result: RecoveryResult) -> None:
        self._recoveries.add(result)
        kept = result.left if result.applied else (*result.plan.covered, *result.plan.not_covered)
        self.findings(kept)

    def run(self, result: RunResult) -> None:
        self._recoveries.add_run(result)

    def recovery_summary(self, summary: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        tone, headline = _recovery_headline(summary)
        lines = dict(recovery.verdict_lines(summary))
        verdict = {"tone": tone, "headline": headline, "sentence": lines.get("broker", ""), "lost": lines.get("lost")}
        lost = summary.lost
        tiles = [
            _tile("Partitions", summary.partitions, tone=BAD if summary.failed else PLAIN),
            _tile("Valid records given up", lost.given_up.records, tone=DOUBTFUL if lost.given_up.records else GOOD),
            _tile("Valid bytes given up", lost.given_up.bytes, "bytes", tone=DOUBTFUL if lost.given_up.bytes else GOOD),
            _tile("Damaged bytes", lost.damaged.bytes, "bytes", tone=BAD if lost.damaged.bytes else GOOD),
            _tile("Actions", sum(summary.actions.values())),
        ]
        sections = [self._recoveries.section(applied=summary.applied)]
        sums = recovery.verdict(summary)
        self._write("recover", verdict, summary.next, tiles, sums, exit_status, seconds, sections)

    def undo_summary(self, start: RecoverySummary, exit_status: int, seconds: float) -> None:
        from kdump.render import recovery

        lines = dict(recovery.verdict_lines(start))
        headline = "The run is undone: the files are as they were before"
        verdict = {"tone": GOOD, "headline": headline, "sentence": lines.get("broker", ""), "lost": lines.get("lost")}
        sections = [self._recoveries.section(applied=True)]
        self._write("recover", verdict, start.next, [], "", exit_status, seconds, sections)

    def statistics(self, result: StatResult) -> None:
        self._stat = result
        self.findings(*result.group_findings)

    def _write_stat(self, result: StatResult, exit_status: int, seconds: float) -> None:
        from kdump.render.html.statistics import StatPage, stat_tiles

        total, of = result.total, self.options.page
        full = [row for row in result.log_directories if row.is_nearly_full and not of.reproducible]
        tone, headline = GOOD, f"{size_text(total.disk_bytes)} on disk, in {counted(total.partitions, 'partition')}"
        lines: list[FieldValue] = []
        if full:
            tone = DOUBTFUL
            lines += [
                ["Disk", f"less than a tenth is free on the file system of {self._names.text(row.path or '')}"]
                for row in full[:3]
            ]
        if total.is_damaged:
            damage = total.sums.damage
            tone = BAD
            said = f"{counted(damage.count, 'stretch', 'stretches')}, {size_text(damage.bytes)} in no valid batch"
            lines.append(["Damage", f"{said}; kdump verify --deep says more"])
        elif total.deep and not total.interrupted:
            lines.append(["Damage", "none: every checksum was checked, and every record was read"])
        if total.interrupted:
            tone = DOUBTFUL
            lines.append(["Run", "it was interrupted: there is more that was not read"])
        verdict: Fields = {"tone": tone, "headline": headline, "sentence": "", "lines": lines}
        tiles = [_tile(*each) for each in stat_tiles(total, reproducible=of.reproducible)]
        sections = StatPage(result, self._names, self._budget, show_keys=of.show_keys).sections()
        self._keys = _NO_VALUES if of.show_keys and any(each["id"] == "keys" for each in sections) else _NO_KEYS
        self._write("stat", verdict, None, tiles, "", exit_status, seconds, sections, charts=True)

    def exit_summary(self, command: str, exit_status: int, seconds: float) -> None:
        if self._stat is not None:
            self._write_stat(self._stat, exit_status, seconds)
            return
        words = "Nothing was measured" if command == "stat" else "Nothing was undone or finished"
        verdict = {"tone": PLAIN, "headline": words, "sentence": ""}
        sections = [self._recoveries.section(applied=True)]
        self._write(command, verdict, None, [], "", exit_status, seconds, sections)

    def comparison(self, compared: PartitionComparison) -> None:
        self._copies.add(compared)

    def comparison_summary(self, summary: ComparisonSummary, exit_status: int, seconds: float) -> None:
        verdict: Fields = {"tone": GOOD, "headline": "All copies that were compared agree"}
        if not summary.pairs:
            verdict = {"tone": DOUBTFUL, "headline": "Nothing was compared"}
        if summary.undecided:
            verdict = {"tone": DOUBTFUL, "headline": f"{counted(summary.undecided, 'pair')} of copies undecided"}
        if summary.diverged:
            verdict = {"tone": BAD, "headline": f"{counted(summary.diverged, 'pair')} of copies diverged"}
        tiles = [
            _tile("Topic-partitions compared", summary.partitions),
            _tile("Pairs that agree", summary.agree, tone=GOOD if summary.agree else PLAIN),
            _tile("Pairs that diverged", summary.diverged, tone=BAD if summary.diverged else PLAIN),
            _tile("Pairs undecided", summary.undecided, tone=DOUBTFUL if summary.undecided else PLAIN),
        ]
        self._keys = _NO_VALUES if self.options.page.show_keys else _NO_KEYS
        sums = comparison_summary(summary)
        verdict, following, section = {**verdict, "sentence": ""}, self._copies.following, self._copies.section()
        self._write("verify", verdict, following, tiles, sums, exit_status, seconds, [section])

    def _write(
        self,
        command: str,
        verdict: Fields,
        next_command: str | None,
        tiles: Sequence[Fields],
        sums: str,
        exit_status: int,
        seconds: float,
        several: Sequence[Fields | None] = (),
        *,
        charts: bool = False,
    ) -> None:
        """Write the page."""
        of, names = self.options.page, self._names
        if exit_status == _NOT_ALL and verdict["tone"] == GOOD:
            words = f"{verdict['headline']!s}, but something could not be read or done: see standard error"
            verdict = {**verdict, "tone": DOUBTFUL, "headline": words}
        sections = [section for section in several if section is not None]
        head: Fields | None = None
        if not of.reproducible:
            head = {"paths": _first_paths(of.paths), "root": names.root, "now_ms": of.now_ms, "seconds": seconds}
        short = {name: names.text(value) if isinstance(value, str) else value for name, value in verdict.items()}
        tables = self._findings, self._partitions, self._maps, self._recoveries, self._copies
        values: Fields = {
            "title": f"kdump {command}: {short['headline']}",
            "command": command,
            "verdict": short,
            "next": self._command(next_command),
            "tiles": tiles,
            "sums": names.text(sums),
            "head": head,
            "version": __version__,
            "exit_status": exit_status,
            "keys": self._keys,
            "cut": [said for table in tables for said in table.cut],
            "findings": self._findings.count,
            "partitions": self._partitions.count,
            "sections": sections,
            "undo": self._command(self._recoveries.undo),
            "maps": self._maps.count,
        }
        data: Fields = {
            "command": command,
            "findings": self._findings.data(),
            "partitions": self._partitions.data(),
            "maps": self._maps.data(),
            "hanging": self._maps.hanging,
            **{str(each["id"]): each["data"] for each in sections},
        }
        for text in page.page(values, data, charts=charts):
            self.out.write(text)

    def _command(self, command: str | None) -> str | None:
        """A command as the page has it."""
        if command is None or len(command) <= _LONGEST_COMMAND:
            return command if command is None or not self.options.page.reproducible else self._names.text(command)
        return "a command with more paths than this page has room for: --format text has it"


class _PartitionTable:
    """The partitions with errors or warnings as columns; the others are counted."""

    def __init__(self, names: PathNames, budget: Budget) -> None:
        self._names = names
        self._paths = Column()
        self._rows: list[tuple[int | None, ...]] = []
        self._budget = budget.part(_PARTITION_BYTES)
        self.bad = self.healthy = 0

    def add(self, path: Path, summary: PartitionSummary) -> tuple[int, int]:
        """Add a partition. Returns its errors and warnings."""
        from kdump.verify.findings import Severity

        by: dict[Severity, int] = dict.fromkeys(Severity, 0)
        for (_, severity), count in summary.counts.items():
            by[severity] += count
        if not by[Severity.ERROR] and not by[Severity.WARNING]:
            self.healthy += summary.topic_partition is not None or summary.segments > 0
            return 0, 0
        self.bad += 1
        errors, warnings, outcome = by[Severity.ERROR], by[Severity.WARNING], summary.outcome
        name = self._names.text(str(path))
        row = (
            errors,
            warnings,
            summary.segments,
            summary.bytes,
            summary.bytes - summary.valid_bytes,
            summary.log_start_offset,
            summary.log_end_offset,
            None if outcome is None else outcome.log_end_offset,
            None if outcome is None else 2 if outcome.refusals else int(bool(outcome.truncations)),
        )
        if self._budget.take(self._paths.size(name) + numbers_size((len(self._rows), *row))):
            self._rows.append((self._paths.index(name), *row))
        return errors, warnings

    @property
    def count(self) -> int:
        return len(self._rows)

    @property
    def cut(self) -> list[str]:
        hidden = self.bad - len(self._rows)
        return [f"{counted(hidden, 'more partition')} with errors or warnings not on this page"] if hidden else []

    def data(self) -> Fields:
        """The columns."""
        names = (
            *("path", "errors", "warnings", "segments", "bytes", "damaged", "start", "end"),
            *("broker_end", "broker"),
        )
        return {"paths": self._paths.texts} | {
            name: [row[number] for row in self._rows] for number, name in enumerate(names)
        }


def _first_paths(paths: Sequence[str]) -> list[str]:
    """The first paths that were named, and how many more there are."""
    shown, left = list[str](), _LONGEST_PATHS
    for path in paths[:_MOST_PATHS]:
        if len(path) > left:
            break
        left -= len(path)
        shown.append(path)
    return shown + ([f"and {len(paths) - len(shown)} more"] if len(paths) > len(shown) else [])


def _tile(label: str, value: int | None, unit: str = "count", *, tone: str = PLAIN, of: int | None = None) -> Fields:
    return {"label": label, "value": value, "unit": unit, "tone": tone, "of": of}


def _verify_headline(summary: VerifySummary) -> tuple[str, str]:
    """The tone and the words of the verdict."""
    from kdump.verify.findings import Severity

    worst, verdict = summary.worst, summary.verdict
    if summary.interrupted:
        return DOUBTFUL, "The run was interrupted"
    if verdict.refused is not None:
        return BAD, "A broker does not start on these files"
    if not summary.files and worst is None:
        return DOUBTFUL, "No log was verified"
    if worst is not Severity.ERROR:
        found = "No errors, but warnings" if worst is Severity.WARNING else "No errors and no warnings"
        return DOUBTFUL if worst is Severity.WARNING else GOOD, found
    if verdict.starts is None:
        return BAD, "Damage was found; whether a broker starts is not known"
    if verdict.truncated.number:
        return BAD, f"A broker starts, and truncates {counted(verdict.truncated.number, 'log')}"
    return BAD, "A broker starts; errors were found"


def _recovery_headline(summary: RecoverySummary) -> tuple[str, str]:
    """The tone and the words of the verdict on a recovery."""
    gone, verdict = summary.lost.given_up, summary.verdict
    if summary.interrupted:
        return DOUBTFUL, "The run was interrupted"
    if summary.failed:
        return BAD, f"{counted(summary.failed, 'partition')} of {summary.partitions} failed"
    if summary.applied:
        tone = BAD if verdict.refused is not None or summary.lost.committed else GOOD
        left = "; a broker does not start on what is left" if verdict.refused is not None else ""
        return tone, f"Done: {_records(gone)} {'was' if gone.batches == 0 else 'were'} given up{left}"
    if verdict.refused is not None:
        return BAD, "A broker does not start on these files"
    if not summary.actions:
        return (BAD, "Nothing to do, and errors stay") if summary.has_errors else (GOOD, "Nothing to do")
    return DOUBTFUL if gone.batches == 0 else BAD, f"A {_ACTS[summary.strategy]} gives up {_records(gone)}"


_ACTS: Final = {"truncate": "truncation", "salvage": "salvage", "reindex": "rebuild of indexes", "fill": "fill"}


def _records(gone: GivenUp) -> str:
    """What is given up, in a few words."""
    if gone.batches == 0:
        return "no valid batch"
    return "an unknown number of records" if gone.records is None else counted(gone.records, "valid record")
