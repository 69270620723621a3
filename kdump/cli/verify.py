"""kdump verify."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from kdump.broker.result import LoadResult
from kdump.cli import INTERRUPTED, options
from kdump.cli.work import Found, ProblemLog, work
from kdump.render import RenderOptions as Look
from kdump.render import renderer
from kdump.render.base import Renderer
from kdump.render.sentences import tally
from kdump.verify import verify
from kdump.verify.findings import CATALOGUE, Finding, Severity

ALL = "all"


def _explain(ctx: click.Context, param: click.Parameter, code: str | None) -> None:
    if code is None:
        return
    if code == ALL:
        for entry in CATALOGUE.values():
            click.echo(f"{entry.code:<24}{entry.severity.word:<9}{entry.title}")
        ctx.exit()
    if code not in CATALOGUE:
        raise click.UsageError(f"no finding has the code {code!r}; kdump verify --explain lists them all")
    entry = CATALOGUE[code]
    click.echo(
        f"{entry.code} ({entry.severity.word}): {entry.title}\n\n{entry.why}\n\nRecovery: {entry.recover}\nSource: {entry.source}"
    )
    ctx.exit()


def _codes(ctx: click.Context, param: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if not any(_names(pattern, code) for code in CATALOGUE):
            raise click.BadParameter(f"no finding has the code {pattern!r} or begins with it", ctx, param)
    return patterns


def _names(pattern: str, code: str) -> bool:
    return code == pattern or code.startswith(pattern.rstrip("/") + "/")


@click.command("verify")
@options.paths
@click.option("--deep", is_flag=True, help="Open every record: decompress, parse, compare with the header.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODE",
    callback=_codes,
    help="Only findings whose code is CODE or begins with CODE/. May be given several times.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    callback=_codes,
    help="No findings whose code is CODE or begins with CODE/. May be given several times.",
)
@click.option(
    "--compacted",
    type=click.Choice(["yes", "no", "auto"]),
    default="auto",
    show_default=True,
    help="Whether a cleaner went over the log, so that missing offsets are legal.",
)
@click.option(
    "--no-companions",
    is_flag=True,
    help="Leave the files beside a log alone that was named itself: its indexes and its transaction index.",
)
@click.option(
    "--live",
    is_flag=True,
    help="A broker is writing: look again at what is wrong, and report what still is. By itself where .lock is held.",
)
@click.option(
    "--explain",
    metavar="[CODE]",
    is_flag=False,
    flag_value=ALL,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Say what a finding means, or list them all, and stop.",
)
@options.fail_on
@options.output_format("terminal", "text", "json")
@options.kind
@options.max_batch_bytes
@options.jobs
@options.progress
@options.color
@options.quiet
@click.option(
    "--summary", "by_partition", is_flag=True, help="A line for every partition instead of one for every finding."
)
@click.option("-v", "--verbose", is_flag=True, help="A line for every file, also for a clean one.")
def command(**chosen: Any) -> int:
    """Prove partitions: lengths, checksums, offsets, epochs, producers, transactions, indexes, snapshots, checkpoints; with --deep every record.

    PATH is a topic-partition directory, a log directory, any directory above, a segment, a KRaft snapshot, a glob, or - for standard input. Damage does not end
    the run: whatever can be read behind it is proved too. Nothing is ever written. Where PATH is a topic-partition or a log directory, files that do not belong
    there are findings too, and each finding says what a broker's next start does about it; below a directory above them neither is told.

    \b
    Examples:
      kdump verify --deep /data/kafka
      kdump verify --format json --fail-on warning '/data/kafka/*/*.log'
      kdump verify --summary /data/kafka
      kdump verify --explain batch/crc

    \b
    Exit status: 0 nothing at or above --fail-on, 1 damage, 2 usage, 3 something could not be read.
    """
    totals = VerifyTotals(chosen)
    with (
        options.partitions(chosen, companions=not chosen["no_companions"]) as found,
        renderer(chosen["format_name"], sys.stdout, Look(color=options.use_color(chosen["color"]))) as out,
    ):
        try:
            for report in _reports(found, chosen):
                totals.tell(report, out)
        except KeyboardInterrupt as stop:
            totals.interrupted = True
            if isinstance(stop, verify.VerifyInterrupted):
                totals.tell(stop.report, out)
        totals.end()
        if not chosen["quiet"]:
            out.summary(totals.fields())
    return totals.status


def _reports(found: Callable[[], Iterator[Found]], chosen: dict[str, Any]) -> Iterator[verify.Report]:
    compacted = {"yes": True, "no": False}.get(chosen["compacted"])
    what = verify.VerifyOptions(chosen["deep"], compacted, chosen["max_batch_bytes"], chosen["live"])
    with work(found, chosen) as (engine, on_bytes, items):
        yield from verify.verify(items, what, engine, on_bytes)


class VerifyTotals:
    """The sums over all files that the summary and the exit status come from."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        self._chosen = chosen
        self._started = time.monotonic()
        self._problems = ProblemLog()
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._shown = 0
        self._records: int | None = 0
        self._sums: Counter[str] = Counter()
        self._some = False
        self.interrupted = False

    def tell(self, report: verify.Report, out: Renderer) -> None:
        """Count a report and print what is wanted of it."""
        findings = self.take(report)
        if self._chosen["by_partition"]:
            self.show(report, out)
            return
        for finding in findings:
            out.finding(finding)
        for file in report.files if self._chosen["verbose"] else ():
            if file.error is None:
                out.file(file.file.path, self.of(file))

    def take(self, report: verify.Report) -> Iterable[Finding]:
        """Count a report; its findings that are to be shown."""
        self._problems.take(report.errors)
        for file in report.files:
            if file.error is not None and not file.batches and not file.counts:
                continue
            self._sums.update(files=1, segments=1, batches=file.batches, bytes=file.bytes, valid_bytes=file.valid_bytes)
            self._records = None if self._records is None or file.records is None else self._records + file.records
        self._some = self._some or bool(report.path)
        self._counts.update({key: count for key, count in report.counts.items() if self._wanted(key[0])})
        shown = [finding for finding in report.findings if self._wanted(finding.code)]
        self._shown += len(shown)
        return shown

    def end(self) -> None:
        """Complain of what was passed over, where there was nothing else."""
        self._problems.end(some=self._some)

    def of(self, report: verify.FileReport) -> dict[str, Any]:
        """The sums over one file."""
        return {
            "batches": report.batches,
            "records": report.records,
            "bytes": report.bytes,
            "valid_bytes": report.valid_bytes,
            "findings": sum(count for (code, _), count in report.counts.items() if self._wanted(code)),
        }

    def show(self, report: verify.Report, out: Renderer) -> None:
        """The line of a partition, or of a log directory's own files where something is wrong with them."""
        counts = Counter({key: count for key, count in report.counts.items() if self._wanted(key[0])})
        if not report.path or (not report.files and not counts):
            return
        records = [file.records for file in report.files]
        place, outcome = report.topic_partition, report.outcome
        out.partition(
            report.path,
            {
                "topic": None if place is None else place.topic,
                "partition": None if place is None else place.partition,
                "segments": len(report.files),
                "batches": sum(file.batches for file in report.files),
                "records": None if None in records else sum(count or 0 for count in records),
                "bytes": sum(file.bytes for file in report.files),
                "valid_bytes": sum(file.valid_bytes for file in report.files),
                "log_start_offset": report.log_start_offset,
                "log_end_offset": report.log_end_offset,
                "findings": tally(counts),
                "broker": None if outcome is None else _left(outcome),
            },
        )

    def _wanted(self, code: str) -> bool:
        def names(patterns: Iterable[str]) -> bool:
            return any(_names(pattern, code) for pattern in patterns)

        return (not self._chosen["select"] or names(self._chosen["select"])) and not names(self._chosen["ignore"])

    @property
    def status(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return options.status(
            self._problems.failed,
            {severity for (_, severity), count in self._counts.items() if count},
            self._chosen["fail_on"],
        )

    def fields(self) -> dict[str, Any]:
        """The summary, by the names of the contract."""
        return {
            "command": "verify",
            "files": self._sums["files"],
            "segments": self._sums["segments"],
            "batches": self._sums["batches"],
            "records": self._records,
            "bytes": self._sums["bytes"],
            "valid_bytes": self._sums["valid_bytes"],
            "findings": tally(self._counts),
            "findings_dropped": sum(self._counts.values()) - self._shown,
            "interrupted": self.interrupted,
            "exit_status": self.status,
            "seconds": round(time.monotonic() - self._started, 3),
        }


def _left(outcome: LoadResult) -> dict[str, Any]:
    """What a broker's next start would leave of a partition."""
    return {
        "refuses": [refusal.exception for refusal in outcome.refusals],
        "log_start_offset": outcome.log_start_offset,
        "log_end_offset": outcome.log_end_offset,
        "segments": len(outcome.segments),
        "cuts": dict(outcome.cuts),
        "deletes": list(outcome.deleted),
    }
