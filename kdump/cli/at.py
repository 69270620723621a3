"""The option `--at` of `kdump dump`: reads a log at an offset or a time."""

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli import complain, exit_status, options
from kdump.cli.exit_status import FAILED
from kdump.cli.param_type import ParamType
from kdump.dump.dump import DumpOptions
from kdump.dump.events import CompanionEntry, DumpFailure, Event
from kdump.errors import KdumpError
from kdump.format import naming
from kdump.render import RECORD_FORMATS
from kdump.render.escaping import printable

if TYPE_CHECKING:
    from kdump.dump.read_at import ReadResult, StartOffset
    from kdump.writer.log import Log

_EXCLUDED: Final = {
    "offset": "--at reads on from its offset, and -n says how far",
    "force": "a consumer never gets a batch whose CRC is wrong",
    "verify_index_only": "the one is about indexes, the other about the log",
    "index_sanity_check": "the one is about indexes, the other about the log",
}


class OffsetParam(ParamType["StartOffset"]):
    """An offset, earliest, latest, or @ and a time: milliseconds since the epoch, or ISO 8601 (UTC without a zone)."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "StartOffset":
        from kdump.dump.read_at import LogEdge, TimeQuery

        text = str(value)
        if text in (LogEdge.EARLIEST, LogEdge.LATEST):
            return LogEdge(text)
        if text.startswith("@"):
            try:
                return TimeQuery(options.milliseconds(text[1:]))
            except (ValueError, OverflowError):
                self.fail(
                    f"{text!r} is not a time; write @ and milliseconds since the epoch, or as in @2026-11-21T18:03:09Z",
                    param,
                    ctx,
                )
        if re.fullmatch(r"[0-9]{1,19}", text) is None or int(text) >= 1 << 63:
            self.fail(f"{text!r} is not an offset; write a number, earliest, latest, or @ and a time", param, ctx)
        return int(text)


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense with --at, or without it."""
    sends = chosen["format_name"] == "fetch"
    if chosen["at"] is None:
        if sends:
            raise click.UsageError("--format fetch writes what --at reads; it needs --at")
        if chosen["verbose"]:
            raise click.UsageError("--verbose says how --at found its offset; it needs --at")
        return
    if len(chosen["paths"]) > 1 or "-" in chosen["paths"]:
        raise click.UsageError("--at reads one log; PATH is a topic-partition or a segment")
    for name, why in _EXCLUDED.items():
        if chosen["offsets" if name == "offset" else name]:
            raise click.UsageError(f"--{name.replace('_', '-')} and --at cannot be combined: {why}")
    if chosen["kind"] is not None:
        raise click.UsageError("--type and --at cannot be combined: the log is read by the names of its files")
    if not sends:
        return
    for name in ("batches", "records", "count"):
        if chosen[name] is not None and chosen[name] is not False:
            raise click.UsageError(
                "--format fetch writes the bytes of the read; --batches, --records and -n do not apply to them"
            )
    if sys.stdout.isatty():
        raise click.UsageError(
            "--format fetch writes binary data, which goes to a file or a pipe and not to a terminal"
        )


def _open(chosen: dict[str, Any]) -> "Log":
    from kdump.dump.read_at import SeveralLogs, open_log

    try:
        return open_log(chosen["paths"][0], chosen["max_batch_bytes"])
    except SeveralLogs as error:
        raise click.UsageError(printable(str(error))) from None


def _read(log: "Log", chosen: dict[str, Any]) -> "ReadResult":
    from kdump.dump import read_at

    return read_at.read(log, chosen["at"], chosen["max_bytes"] or read_at.READ_BYTES)


def events(chosen: dict[str, Any], wanted: DumpOptions) -> Iterator[Event]:
    """What the read returns, as events of a dump."""
    from kdump.dump import read_at

    try:
        with _open(chosen) as log:
            result = _read(log, chosen)
            if chosen["format_name"] == "kafka":
                _check_kafka_format(result.fetched.segment)
            if chosen["verbose"] and chosen["format_name"] in ("kafka", *RECORD_FORMATS):
                _complain_entry(read_at.read_entry(log, result))
            yield from read_at.dump_read(log, result, wanted, verbose=chosen["verbose"])
    except KdumpError as error:
        yield DumpFailure(read_at.located(error, chosen["paths"][0]))


def _check_kafka_format(segment: str) -> None:
    from kdump.dump.kafka_tool.dump_log_segments import UnreadableByTool

    if naming.kind_of(segment) is naming.Kind.KAFKA07:
        raise click.UsageError(str(UnreadableByTool(segment)))


def write_fetch_result(chosen: dict[str, Any]) -> int:
    """Write what the read returns to standard output, as the result of a fetch (MessageSetSend); the exit status.

    A read that fails becomes an error code of the result, too.
    """
    from kdump.dump import read_at
    from kdump.format import fetch

    try:
        with _open(chosen) as log:
            result = _read(log, chosen)
            for damaged in (*result.fetched.damage, *result.stopped_by):
                complain(read_at.skip_message(damaged))
            if chosen["verbose"]:
                _complain_entry(read_at.read_entry(log, result))
            sys.stdout.buffer.write(fetch.build_header(result.fetched.size_bytes))
            sys.stdout.buffer.write(result.fetched.data)
    except KdumpError as error:
        sys.stdout.buffer.write(read_at.error_result(error))
        complain(read_at.located(error, chosen["paths"][0]))
        return FAILED
    return exit_status.of_findings(max(result.severities(), default=None), chosen["fail_on"])


def _complain_entry(entry: CompanionEntry) -> None:
    """Write an entry to standard error, where the format has no line for it."""
    from kdump.render.words import words

    complain(f"{entry.kind} {' '.join(words(entry.fields))}")
