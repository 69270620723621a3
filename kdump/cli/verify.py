"""kdump verify."""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kdump import verify
from kdump.cli import INTERRUPTED, complain, options
from kdump.cli.progress import Progress
from kdump.engine import Engine, Processes, Serial
from kdump.errors import NotALog, SourceError
from kdump.findings import CATALOGUE, Finding, Severity
from kdump.partition import LogFile
from kdump.render import Options as Look
from kdump.render import renderer

SMALL_BYTES = 8 << 20  # below it, starting processes takes longer than the work


def _explain(ctx: click.Context, param: click.Parameter, code: str | None) -> None:
    if code is None:
        return
    if code not in CATALOGUE:
        raise click.UsageError(f"no finding has the code {code!r}; the codes are {', '.join(CATALOGUE)}")
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
    "--explain",
    metavar="CODE",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Say what a finding means, and stop.",
)
@options.fail_on
@options.output_format("terminal", "text", "json")
@options.kind
@options.max_batch_bytes
@options.jobs
@options.progress
@options.color
@options.quiet
@click.option("-v", "--verbose", is_flag=True, help="A line for every file, also for a clean one.")
def command(**chosen: Any) -> int:
    """Prove log files: lengths, checksums, order of offsets and epochs; with --deep every record.

    PATH is a segment, a snapshot, a directory of them, a glob, or - for standard input. Damage does not end the run: whatever can be read behind it is
    proved too. Nothing is ever written.

    \b
    Examples:
      kdump verify --deep /data/kafka/topic-0
      kdump verify --format json --fail-on warning '/data/kafka/*/*.log'
      kdump verify --explain batch/crc

    \b
    Exit status: 0 nothing at or above --fail-on, 1 damage, 2 usage, 3 something could not be read.
    """
    totals = Totals(chosen)
    with (
        options.inputs(chosen) as found,
        renderer(chosen["format_name"], sys.stdout, Look(color=options.use_color(chosen["color"]))) as out,
    ):
        try:
            for report in _reports(list(found), chosen, totals):
                for finding in totals.take(report):
                    out.finding(finding)
                if chosen["verbose"] and report.error is None:
                    out.file(report.file.path, totals.of(report))
        except KeyboardInterrupt:
            totals.interrupted = True
        if not chosen["quiet"]:
            out.summary(totals.fields())
    return totals.status


def _reports(
    found: list[LogFile | SourceError], chosen: dict[str, Any], totals: "Totals"
) -> Iterator[verify.FileReport]:
    files = [file for file in found if isinstance(file, LogFile)]
    for error in found:
        # A shell's * names the indexes beside the logs too; that is no failure unless there is nothing else.
        if isinstance(error, SourceError) and not (files and isinstance(error, NotALog)):
            totals.fail(error)
    size = sum(file.size for file in files)
    engine: Engine = Processes(chosen["jobs"]) if chosen["jobs"] > 1 and size > SMALL_BYTES else Serial()
    compacted = {"yes": True, "no": False}.get(chosen["compacted"])
    what = verify.Options(chosen["deep"], compacted, chosen["max_batch_bytes"])
    with Progress(size, chosen["progress"]) as progress:
        yield from verify.verify(files, what, engine, progress.advance)


class Totals:
    """The sums over all files that the summary and the exit status come from."""

    def __init__(self, chosen: dict[str, Any]) -> None:
        self._chosen = chosen
        self._started = time.monotonic()
        self._failed = False
        self._counts: Counter[tuple[str, Severity]] = Counter()
        self._shown = 0
        self._records: int | None = 0
        self._sums: Counter[str] = Counter()
        self.interrupted = False

    def fail(self, error: SourceError) -> None:
        self._failed = True
        complain(error)

    def take(self, report: verify.FileReport) -> Iterable[Finding]:
        """Count a report; its findings that are to be shown."""
        if report.error is not None:
            self.fail(report.error)
            if not report.batches and not report.counts:
                return ()
        self._sums.update(
            files=1, segments=1, batches=report.batches, bytes=report.bytes, valid_bytes=report.valid_bytes
        )
        self._records = None if self._records is None or report.records is None else self._records + report.records
        self._counts.update({key: count for key, count in report.counts.items() if self._wanted(key[0])})
        shown = [finding for finding in report.findings if self._wanted(finding.code)]
        self._shown += len(shown)
        return shown

    def of(self, report: verify.FileReport) -> dict[str, Any]:
        """The sums over one file."""
        return {
            "batches": report.batches,
            "records": report.records,
            "bytes": report.bytes,
            "valid_bytes": report.valid_bytes,
            "findings": sum(count for (code, _), count in report.counts.items() if self._wanted(code)),
        }

    def _wanted(self, code: str) -> bool:
        def names(patterns: Iterable[str]) -> bool:
            return any(_names(pattern, code) for pattern in patterns)

        return (not self._chosen["select"] or names(self._chosen["select"])) and not names(self._chosen["ignore"])

    @property
    def status(self) -> int:
        if self.interrupted:
            return INTERRUPTED
        return options.status(
            self._failed, {severity for (_, severity), count in self._counts.items() if count}, self._chosen["fail_on"]
        )

    def fields(self) -> dict[str, Any]:
        """The summary, by the names of the contract."""
        by_severity = {
            severity.word: sum(count for (_, its), count in self._counts.items() if its is severity)
            for severity in reversed(Severity)
        }
        by_code: Counter[str] = Counter()
        for (code, _), count in sorted(self._counts.items()):
            by_code[code] += count
        return {
            "command": "verify",
            "files": self._sums["files"],
            "segments": self._sums["segments"],
            "batches": self._sums["batches"],
            "records": self._records,
            "bytes": self._sums["bytes"],
            "valid_bytes": self._sums["valid_bytes"],
            "findings": {"by_severity": by_severity, "by_code": dict(by_code)},
            "findings_dropped": sum(self._counts.values()) - self._shown,
            "interrupted": self.interrupted,
            "exit_status": self.status,
            "seconds": round(time.monotonic() - self._started, 3),
        }
