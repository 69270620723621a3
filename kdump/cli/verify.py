"""The command `kdump verify`: its options, and what it prints of each report."""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kdump.cli import complain, completion, exit_status, options, streams
from kdump.cli.execution import Found, ProblemLog, execution, master_of
from kdump.cli.progress import Progress
from kdump.cli.sections import SectionedCommand
from kdump.errors import SourceError
from kdump.log.severity import Severity
from kdump.render import PAGE_FORMATS, REPORT_FORMATS, renderer
from kdump.render import RenderOptions as Look
from kdump.render.base import VerifyRenderer
from kdump.storage.discovery import is_fingerprint, named_fingerprints
from kdump.storage.file_store import require_local
from kdump.verify import verify
from kdump.verify.next_step import repair_of
from kdump.verify.summary import (
    FindingFilter,
    PartitionSummary,
    VerifyTotals,
    findings_by_file,
    names_code,
    summarize_partition,
)

if TYPE_CHECKING:
    from kdump.replicas.fingerprint.copy_sketch import FingerprintOptions, HashKey
    from kdump.replicas.fingerprint.share_file import ShareMemory
    from kdump.verify.findings import Finding

SECTIONS = {
    "What is checked": (
        "deep",
        "compare",
        "metadata",
        "show_keys",
        "fingerprint",
        "full",
        "as_of",
        "key_file",
        "overwrite",
        "compacted",
        "no_companions",
        "live",
        "kind",
        "max_batch_bytes",
    ),
    "Which findings": ("select", "ignore", "level", "everything", "explain"),
    "Reading": ("jobs", "master", "spark_settings", "io_limit", "keep_cache"),
    "Report": (
        "format_name",
        "reproducible",
        "by_partition",
        "verbose",
        "fail_on",
        "color",
        "progress",
        "quiet",
        "help_all",
    ),
}
FIRST = (
    *("deep", "compare", "live", "select", "explain", "by_partition", "verbose"),
    *("format_name", "fail_on", "quiet"),
)
OF_CHECKS = ("deep", "live", "no_companions", "by_partition", "verbose", "compacted")
OF_FINDINGS = ("select", "ignore", "level", "everything", "fail_on")
OF_LOGS = ("kind", "max_batch_bytes", "master", "spark_settings", "io_limit", "keep_cache")
OPTION_NAMES = {"by_partition": "summary", "everything": "all", "kind": "type", "spark_settings": "spark-conf"}
ALL = "all"


def _explain(ctx: click.Context, param: click.Parameter, code: str | None) -> None:
    if code is None or ctx.resilient_parsing:
        return
    from kdump.verify.catalogue import CATALOGUE

    if code == ALL:
        for entry in CATALOGUE.values():
            click.echo(streams.folded(f"{entry.code:<24}{entry.severity.word:<9}{entry.title}"))
        ctx.exit()
    found = [entry for entry in CATALOGUE.values() if names_code(code, entry.code)]
    if not found:
        raise click.UsageError(f"no finding has the code {code!r}; kdump verify --explain lists them all")
    for number, entry in enumerate(found):
        click.echo("\n" if number else "", nl=False)
        click.echo(
            streams.folded(
                f"{entry.code} ({entry.severity.word}): {entry.title}\n\n{entry.why}\n\n"
                f"Recovery: {entry.recover}\nCommand: {repair_of(entry.code)}\nSource: {entry.source}"
            )
        )
    ctx.exit()


def _codes(ctx: click.Context, param: click.Parameter, patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        from kdump.verify.catalogue import CATALOGUE

        if not any(names_code(pattern, code) for code in CATALOGUE):
            raise click.BadParameter(f"no finding has the code {pattern!r} or begins with it", ctx, param)
    return patterns


@click.command("verify", cls=SectionedCommand, sections=SECTIONS, first=FIRST)
@options.paths
@click.option(
    "--deep", is_flag=True, help="Open every batch: decompress and parse its records, and compare them with the header."
)
@click.option(
    "--compare",
    is_flag=True,
    help="Compare the copies of each topic-partition below PATH with each other, in place of the checks: whether they"
    " mean the same.",
)
@click.option(
    "--metadata",
    metavar="PATH",
    shell_complete=completion.files,
    help="Say by this __cluster_metadata-0 whether a topic is compacted, and with --compare which copy was away too"
    " long. Default: one beside the copies.",
)
@click.option(
    "--show-keys",
    is_flag=True,
    help="With --compare, show the first keys that differ; without it, their hashes and offsets.",
)
@click.option(
    "--fingerprint",
    metavar="FILE",
    shell_complete=completion.files,
    help="Write a fingerprint of the copies below PATH to FILE, in place of the checks: --compare takes it as a PATH,"
    " instead of the disks. It has no keys and no values. Replaces an older fingerprint, and reads only segments that"
    " have changed since: FILE.shares has what the others add.",
)
@click.option(
    "--full",
    is_flag=True,
    help="With --fingerprint, read all segments, also those that have not changed since the last fingerprint.",
)
@click.option(
    "--as-of",
    multiple=True,
    metavar="FILE",
    callback=options.without_passwords,
    shell_complete=completion.files,
    help="With --fingerprint, look only at the offsets that all copies have in common, by the fingerprint FILE of each."
    " May be given several times.",
)
@click.option(
    "--key-file",
    metavar="FILE",
    shell_complete=completion.files,
    help="With --fingerprint, and with --compare of fingerprints and disks: the secret key of the hashes, 16 bytes or"
    " more, the same for all. Default: a key that everybody knows, with which short values can be guessed.",
)
@click.option("--overwrite", is_flag=True, help="With --fingerprint, replace FILE also where it is no fingerprint.")
@click.option(
    "--select",
    multiple=True,
    metavar="CODE",
    callback=_codes,
    shell_complete=completion.codes,
    help="Report only findings whose code is CODE or begins with CODE/. May be given several times.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="CODE",
    callback=_codes,
    shell_complete=completion.codes,
    help="Report no findings whose code is CODE or begins with CODE/. May be given several times.",
)
@click.option(
    "--compacted",
    type=click.Choice(["yes", "no", "auto"]),
    default="auto",
    show_default=True,
    help="Whether the log cleaner compacted the log, so that missing offsets are legal.",
)
@click.option(
    "--no-companions",
    is_flag=True,
    help="Do not read the indexes and the transaction index beside a log file that PATH names directly.",
)
@click.option(
    "--live",
    is_flag=True,
    help="A broker is running: read damaged partitions again, and report what is still wrong. Default where .lock is"
    " held.",
)
@click.option(
    "--explain",
    metavar="[CODE]",
    is_flag=False,
    flag_value=ALL,
    is_eager=True,
    expose_value=False,
    callback=_explain,
    shell_complete=completion.codes,
    help="Explain a finding code or all codes of a family, or list all codes, and stop.",
)
@options.fail_on_undecided
@options.level
@options.everything
@options.output_format(*REPORT_FORMATS)
@options.page_options
@options.kind
@options.max_batch_bytes
@options.jobs
@options.spark
@options.io_limit
@options.keep_cache
@options.progress
@options.color
@options.quiet
@click.option(
    "--summary",
    "by_partition",
    is_flag=True,
    help="Print a line for each partition with findings instead of a line for each finding, with -v for every one; with"
    " --format json a line for every one beside the findings.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each file, and also findings of severity info.")
def command(**chosen: Any) -> int:
    """Verify partitions: batches, producers, transactions, indexes, snapshots, checkpoints; with --deep every record.

    PATH is a topic-partition directory, a log directory, any directory above these, a segment, a KRaft snapshot, a
    glob, or - for standard input. Damage does not stop the run: it verifies everything that can be read after the
    damage. It never writes to the files. If PATH is a topic-partition directory or a log directory, files that do not
    belong there are findings, and each finding says what a broker's next start does about it. If PATH is a directory
    above them, it reports neither.

    \b
    Examples:
      kdump verify --deep /data/kafka
      kdump verify --format json --fail-on warning '/data/kafka/*/*.log'
      kdump verify --summary /data/kafka
      kdump verify --compare /broker1/data /broker2/data
      kdump verify --fingerprint broker1.fingerprint /data/kafka
      kdump verify --explain batch/crc

    \b
    Exit status: 0 no finding at or above --fail-on, 1 findings, 2 usage,
    3 a path could not be read.
    """
    wanted = FindingFilter(chosen["select"], chosen["ignore"])
    _refuse_only_in_fingerprints(chosen)
    if chosen["fingerprint"] is not None:
        return _fingerprint(chosen)
    if chosen["compare"]:
        return _compare(chosen, wanted)
    _refuse_only_compared(chosen)
    files, others = named_fingerprints(chosen["paths"])
    if files and not others:
        return _check_fingerprints(chosen, files)
    chosen = {**chosen, "paths": others} if files else chosen
    totals, problems, progress = VerifyTotals(wanted, chosen["paths"]), ProblemLog(), Progress(chosen["progress"])
    with (
        options.partitions(chosen, companions=not chosen["no_companions"]) as found,
        renderer(chosen["format_name"], sys.stdout, _look(chosen), VerifyRenderer) as out,
    ):
        if not chosen["quiet"]:
            out.hold()
        _check_each(files, problems, chosen, out)
        try:
            for report in _reports(found, chosen, progress):
                problems.take(report.errors)
                _show(report, totals.add(report), wanted, chosen, out)
        except KeyboardInterrupt as stop:
            totals.interrupted, totals.interrupted_at = True, progress.position
            if isinstance(stop, verify.VerifyInterrupted):
                problems.take(stop.report.errors)
                _show(stop.report, totals.add(stop.report), wanted, chosen, out)
        problems.end(some=totals.has_path)
        return _end(totals, problems, chosen, out)


def _refuse(names: Iterable[str], why: str) -> None:
    """Raise UsageError for the first of some options that was given."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and context.params[name] != "auto":
            option = OPTION_NAMES.get(name, name).replace("_", "-")
            raise click.UsageError(f"{why}: leave out --{option}")


def _refuse_only_compared(chosen: dict[str, Any]) -> None:
    """Raise UsageError for an option that nothing but a comparison heeds."""
    for option, given in (
        ("--show-keys", chosen["show_keys"]),
        (f"--fail-on {options.UNDECIDED}", chosen["fail_on"] == options.UNDECIDED),
    ):
        if given:
            raise click.UsageError(f"{option} is about copies: give --compare, too")


def _refuse_only_in_fingerprints(chosen: dict[str, Any]) -> None:
    """Raise UsageError for an option that is about fingerprints, and for one that a fingerprint would not heed."""
    is_written = chosen["fingerprint"] is not None
    for option, given in (
        ("--as-of", chosen["as_of"]),
        ("--overwrite", chosen["overwrite"]),
        ("--full", chosen["full"]),
    ):
        if given and not is_written:
            raise click.UsageError(f"{option} is about a fingerprint: give --fingerprint FILE, too")
    if chosen["key_file"] is not None and not (is_written or chosen["compare"]):
        raise click.UsageError("--key-file is about fingerprints: give --fingerprint FILE or --compare, too")
    if not is_written:
        return
    _refuse((*OF_CHECKS, "compare", "metadata", *OF_FINDINGS), "--fingerprint writes a file, and checks nothing")
    if chosen["format_name"] in PAGE_FORMATS:
        raise click.UsageError("a fingerprint is compared, and is no page: leave out --format html")
    if chosen["fingerprint"] == "-":
        raise click.UsageError("a fingerprint is a file: standard output says what it is")


def _fingerprint(chosen: dict[str, Any]) -> int:
    """Write a fingerprint. Returns the exit status."""
    from kdump.convert.output_file import single_file
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary, fingerprinted_copies, take_fingerprint

    _refuse_only_compared(chosen)
    path, started, problems = chosen["fingerprint"], time.monotonic(), ProblemLog("fingerprinted")
    require_local(path)
    what = _fingerprint_options(chosen)
    copies = fingerprinted_copies(chosen["as_of"], what.hash_key)
    overwrite, summary = chosen["overwrite"] or is_fingerprint(path), FingerprintSummary(path)
    with (
        options.partitions(chosen) as found,
        execution(found, chosen) as job,
        renderer(chosen["format_name"], sys.stdout, _look(chosen), VerifyRenderer) as out,
    ):
        with ExitStack() as outputs:
            file = outputs.enter_context(
                single_file(path, sys.stdout.buffer, overwrite=overwrite, inputs=chosen["paths"])
            )
            memory = _share_memory(chosen, what.hash_key, outputs)
            for each in take_fingerprint(
                path, job.found, file, what, engine=job.engine, fingerprints=copies, memory=memory
            ):
                if isinstance(each, FingerprintSummary):
                    summary = each
                elif isinstance(each, SourceError):
                    problems.take([each])
                else:
                    complain(each)
        if not chosen["quiet"]:
            out.fingerprint_summary(summary, problems.failed, round(time.monotonic() - started, 3))
    return problems.failed


def _fingerprint_options(chosen: dict[str, Any]) -> "FingerprintOptions":
    from kdump.replicas.fingerprint.copy_sketch import NO_KEY, FingerprintOptions
    from kdump.replicas.fingerprint.fingerprint_file import read_hash_key

    key = NO_KEY if chosen["key_file"] is None else read_hash_key(chosen["key_file"])
    how = {"io_limit": chosen["io_limit"], "keep_cache": chosen["keep_cache"] is not False}
    return FingerprintOptions(chosen["max_batch_bytes"], hash_key=key, **how)


def _share_memory(chosen: dict[str, Any], key: "HashKey", outputs: ExitStack) -> "ShareMemory | None":
    """What segments added to the last fingerprint; None on a cluster, and where only some offsets are looked at."""
    from kdump.convert.output_file import check_single_file, single_file
    from kdump.replicas.fingerprint.share_file import SUFFIX, ShareIndex, ShareMemory, may_replace, read_share_index

    if chosen["as_of"] or master_of(chosen) is not None:
        return None
    path = f"{chosen['fingerprint']}{SUFFIX}"
    overwrite = chosen["overwrite"] or may_replace(path)
    check_single_file(path, overwrite=overwrite, inputs=chosen["paths"])
    index = ShareIndex() if chosen["full"] else read_share_index(path, key)
    return ShareMemory(
        index, key, lambda: outputs.enter_context(single_file(path, sys.stdout.buffer, overwrite=overwrite))
    )


def _check_fingerprints(chosen: dict[str, Any], files: Collection[str]) -> int:
    """Read fingerprints whole. Returns the exit status."""
    _refuse((*OF_CHECKS, "metadata", *OF_FINDINGS, *OF_LOGS), "a fingerprint is read whole, and has no findings")
    if chosen["format_name"] in PAGE_FORMATS:
        raise click.UsageError("a fingerprint is compared, and is no page: leave out --format html")
    problems = ProblemLog("checked")
    with renderer(chosen["format_name"], sys.stdout, _look(chosen), VerifyRenderer) as out:
        _check_each(files, problems, chosen, out)
    return problems.failed


def _check_each(files: Collection[str], problems: ProblemLog, chosen: dict[str, Any], out: VerifyRenderer) -> None:
    """Read fingerprints whole, and print what each has."""
    if not files:
        return
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary, check_fingerprint

    started = time.monotonic()
    for path in files:
        try:
            for each in check_fingerprint(path):
                if not isinstance(each, FingerprintSummary):
                    problems.take([each])
                elif not chosen["quiet"]:
                    out.fingerprint_summary(each, problems.failed, round(time.monotonic() - started, 3))
        except SourceError as error:
            problems.take([error])


def _compare(chosen: dict[str, Any], wanted: FindingFilter) -> int:
    """Compare copies. Returns the exit status."""
    from kdump.replicas.compare import CompareOptions, ComparisonSummary, PartitionComparison, compare_logs
    from kdump.replicas.comparison import Verdict
    from kdump.replicas.findings import comparison_findings
    from kdump.replicas.fingerprint import fingerprint_file as files
    from kdump.replicas.fingerprint.copy_sketch import NO_KEY

    _refuse((*OF_CHECKS, "io_limit"), "--compare checks nothing but copies")
    fails_undecided = chosen["fail_on"] == options.UNDECIDED
    chosen = {**chosen, "fail_on": Severity.ERROR if fails_undecided else chosen["fail_on"]}
    started, problems = time.monotonic(), ProblemLog("compared")
    names, disks = named_fingerprints(chosen["paths"])
    if chosen["show_keys"] and not disks:
        raise click.UsageError("a fingerprint has no keys: leave out --show-keys")
    key = None if chosen["key_file"] is None else files.read_hash_key(chosen["key_file"])
    copies = files.fingerprinted_copies(names, key or (NO_KEY if disks else None))
    severities, summary = list[Severity](), ComparisonSummary()
    what = CompareOptions(
        chosen["max_batch_bytes"],
        with_keys=chosen["show_keys"],
        metadata=chosen["metadata"],
        merges=chosen["format_name"] in PAGE_FORMATS,
        hash_key=key,
    )
    with (
        options.partitions({**chosen, "paths": disks}) as found,
        execution(found, chosen) as job,
        renderer(chosen["format_name"], sys.stdout, _look(chosen), VerifyRenderer) as out,
    ):
        for compared in compare_logs(job.found, what, engine=job.engine, fingerprints=copies):
            if not isinstance(compared, PartitionComparison):
                problems.take([compared])
                continue
            summary = summary.with_pairs(compared)
            findings = [each for each in comparison_findings(compared) if wanted.selects(each.code)]
            severities += [each.severity for each in findings]
            severities += [Severity.ERROR] * (fails_undecided and compared.verdict is Verdict.UNDECIDED)
            out.comparison(compared)
            out.findings(findings)
        if not summary.pairs:
            problems.take([SourceError("nothing to compare: no topic-partition has two copies at these paths")])
        status = exit_status.of_findings(max(severities, default=None), chosen["fail_on"], failed=problems.failed)
        if not chosen["quiet"]:
            out.comparison_summary(summary, status, round(time.monotonic() - started, 3))
    return status


def _look(chosen: dict[str, Any]) -> Look:
    display = options.display(chosen, chosen["select"], verbose=chosen["verbose"])
    return Look(
        color=options.use_color(chosen["color"]),
        ascii_lines=options.is_ascii(),
        display=display,
        page=options.page(chosen),
    )


def _reports(
    found: Callable[[], Iterator[Found]], chosen: dict[str, Any], progress: Progress
) -> Iterator[verify.Report]:
    compacted = {"yes": True, "no": False}.get(chosen["compacted"])
    if chosen["metadata"] is not None:
        from kdump.broker.log_manager import check_cluster_metadata

        check_cluster_metadata(chosen["metadata"])  # what cannot be read is said before anything else
    what = verify.VerifyOptions(
        chosen["deep"],
        compacted,
        chosen["max_batch_bytes"],
        chosen["live"],
        io_limit=chosen["io_limit"],
        keep_cache=chosen["keep_cache"],
        maps=chosen["format_name"] in PAGE_FORMATS,
        metadata=chosen["metadata"],
    )
    with execution(found, chosen, progress) as job:
        yield from verify.verify_logs(job.found, what, engine=job.engine, on_bytes=job.progress.advance)


def _show(
    report: verify.Report, findings: "list[Finding]", wanted: FindingFilter, chosen: dict[str, Any], out: VerifyRenderer
) -> None:
    """Print what the options ask for of one report."""
    is_page = chosen["format_name"] in PAGE_FORMATS
    if chosen["by_partition"] or is_page:
        summary = summarize_partition(report, wanted)
        is_whole = is_page or chosen["format_name"] == "json"
        if summary is not None and (is_whole or chosen["verbose"] or _is_shown(summary, out)):
            out.partition(report.path, summary)
        if not is_whole:
            return
    if not chosen["verbose"]:
        if findings:
            out.findings(findings, report.not_kept)
        return
    for finding_group, file in findings_by_file(report, findings, wanted):
        out.findings(finding_group, report.not_kept)
        if file is not None:
            out.file(file.path, file.summary)


def _is_shown(summary: PartitionSummary, out: VerifyRenderer) -> bool:
    """Whether the partition has a finding that is shown."""
    display = out.options.display
    return display is None or any(count and display.takes(*key) for key, count in summary.counts.items())


def _end(totals: VerifyTotals, problems: ProblemLog, chosen: dict[str, Any], out: VerifyRenderer) -> int:
    """Print the summary. Returns the exit status."""
    summary = totals.summary()
    failed, interrupted = problems.failed, summary.interrupted
    status = exit_status.of_findings(summary.worst, chosen["fail_on"], failed=failed, interrupted=interrupted)
    if not chosen["quiet"]:
        if totals.has_several and not chosen["by_partition"]:
            out.worst(totals.worst_partitions(), totals.hides_partitions)
        out.verify_summary(summary, status)
    return status
