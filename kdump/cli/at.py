"""kdump dump --at: what stands at an offset of a log."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli import FAILED, complain, options
from kdump.dump.companion_files import CompanionEntry
from kdump.dump.dump import DumpFailure, Event
from kdump.dump.dump import DumpOptions as What
from kdump.errors import KdumpError, MessageTooLarge, NotALog, OffsetOutOfRange, SourceError
from kdump.format import fetch, naming
from kdump.format.fetch import ErrorCode
from kdump.render.base import printable
from kdump.storage import discovery
from kdump.storage.partition import Partition
from kdump.verify.findings import CATALOGUE, Severity

if TYPE_CHECKING:
    from kdump.dump.read_at import At, ReadResult
    from kdump.log.log import Log

READ_BYTES: Final = 1 << 20
NO_07_FOR_KAFKA: Final = "--format kafka shows what Kafka's tool shows, and that cannot read the log of Kafka 0.7"

_ALONE: Final = {
    "offset": "--at reads on from its offset, and -n says how far",
    "force": "a reader is never given a batch whose checksum is wrong",
    "verify_index_only": "the one is about indexes, the other about the log",
    "index_sanity_check": "the one is about indexes, the other about the log",
}


class OffsetParam(click.ParamType["At"]):
    """An offset, earliest, latest, or @ and a time: milliseconds since the epoch, or ISO 8601, in UTC where it names no zone."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "At":
        from kdump.dump.read_at import LogEdge, TimeQuery

        text = str(value)
        if text in (LogEdge.EARLIEST, LogEdge.LATEST):
            return LogEdge(text)
        if text.startswith("@"):
            try:
                return TimeQuery(_milliseconds(text[1:]))
            except (ValueError, OverflowError):
                self.fail(
                    f"{text!r} is no time; write @ and milliseconds since the epoch, or as in @2026-11-21T18:03:09Z",
                    param,
                    ctx,
                )
        if re.fullmatch(r"[0-9]{1,19}", text) is None or int(text) >= 1 << 63:
            self.fail(f"{text!r} is no offset; write a number, earliest, latest, or @ and a time", param, ctx)
        return int(text)


def _milliseconds(text: str) -> int:
    """The first whole millisecond at or after a time."""
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    time = datetime.fromisoformat(text)
    since = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return -(-since // timedelta(milliseconds=1))


def check(chosen: dict[str, Any]) -> None:
    """Refuse what makes no sense with --at, or without it."""
    sends = chosen["format_name"] == "fetch"
    if chosen["at"] is None:
        if sends:
            raise click.UsageError("--format fetch writes what --at reads; without it there is nothing to write")
        if chosen["verbose"]:
            raise click.UsageError("--verbose says how --at found its offset; without it there is nothing to say")
        return
    if len(chosen["paths"]) > 1 or "-" in chosen["paths"]:
        raise click.UsageError("--at reads one log; PATH is a topic-partition or a segment")
    for name, why in _ALONE.items():
        if chosen["offsets" if name == "offset" else name]:
            raise click.UsageError(f"--{name.replace('_', '-')} and --at exclude each other: {why}")
    if chosen["kind"] is not None:
        raise click.UsageError("--type and --at exclude each other: the log is read by the names of its files")
    if not sends:
        return
    for name in ("batches", "records", "count"):
        if chosen[name] is not None and chosen[name] is not False:
            raise click.UsageError(
                "--format fetch writes the bytes that were read, to which --batches, --records and -n do not apply"
            )
    if sys.stdout.isatty():
        raise click.UsageError("--format fetch writes bytes, which go to a file or a pipe and not to a terminal")


@contextmanager
def _opened(chosen: dict[str, Any]) -> Iterator["Log"]:
    """The one log that the path names."""
    from kdump.log.log import Log
    from kdump.log.options import LogOptions

    largest = min(chosen["max_batch_bytes"], fetch.LARGEST)
    with Log(_path(chosen["paths"][0]), options=LogOptions(max_message_bytes=largest)) as log:
        yield log


def _path(path: str) -> str:
    """Of the topic-partition or segment that the path names, or that is alone below it."""
    found: list[Partition] = []
    problem = None
    for item in discovery.discover([path]):
        if isinstance(item, Partition) and item.segments and item.only is None:
            found.append(item)
        elif isinstance(item, SourceError):
            problem = problem or item
        if len(found) > 1:
            raise click.UsageError(
                f"--at reads one log, and {path} has several: {printable(found[0].path)}, {printable(found[1].path)} ..."
            )
    if found:
        return found[0].path
    if problem is None or isinstance(problem, NotALog):
        what = naming.companion_of(path)
        problem = NotALog(f"{path}: {'no log here' if what is None else f'{what}, not a log'}")
    raise problem


def _read(log: "Log", chosen: dict[str, Any]) -> "ReadResult":
    from kdump.dump import read_at as lookup

    return lookup.find(log, chosen["at"], min(chosen["max_bytes"] or READ_BYTES, fetch.LARGEST))


def events(chosen: dict[str, Any], what: What, on_damage: Callable[[Severity], None]) -> Iterator[Event]:
    """What stands there, as kdump.dump.dump shows it."""
    from kdump.dump import read_at as lookup

    try:
        with _opened(chosen) as log:
            found = _read(log, chosen)
            if chosen["format_name"] == "kafka":
                if naming.kind_of(found.fetched.segment) is naming.Kind.KAFKA07:
                    raise click.UsageError(f"{NO_07_FOR_KAFKA}: {found.fetched.segment}")
                if chosen["verbose"]:
                    _tell_how(lookup.how(log, found))
            yield from lookup.dump(log, found, what, on_damage, verbose=chosen["verbose"])
    except KdumpError as error:
        yield DumpFailure(_placed(error, chosen))


def send(chosen: dict[str, Any]) -> int:
    """Write a MessageSetSend of what stands there to standard output; the exit status. What cannot be read there is an error code of the result, too."""
    from kdump.dump import read_at as lookup

    met: set[Severity] = set()
    try:
        with _opened(chosen) as log:
            found = _read(log, chosen)
            for passed in (*found.fetched.damage, *found.behind):
                met.add(CATALOGUE[passed.what].severity)
                complain(lookup.sentence(passed))
            if chosen["verbose"]:
                _tell_how(lookup.how(log, found))
            _write(fetch.build_header(found.fetched.size_bytes), found.fetched.data)
    except KdumpError as error:
        if isinstance(error, OffsetOutOfRange | MessageTooLarge | lookup.NoSuchTime):
            too_large = isinstance(error, MessageTooLarge)
            _write(
                fetch.build_message_set_send(
                    b"", ErrorCode.INVALID_FETCH_SIZE if too_large else ErrorCode.OFFSET_OUT_OF_RANGE
                )
            )
        complain(_placed(error, chosen))
        return FAILED
    return options.status(False, met, chosen["fail_on"])


def _tell_how(entry: CompanionEntry) -> None:
    """On standard error, where the format has no line for it."""
    from kdump.render.text import words

    complain(f"{entry.kind} {' '.join(words(entry.fields))}")


def _write(*parts: bytes | memoryview) -> None:
    for part in parts:
        sys.stdout.buffer.write(part)


def _placed(error: KdumpError, chosen: dict[str, Any]) -> KdumpError:
    """With the path, where the sentence does not have it."""
    from kdump.dump import read_at as lookup

    path = chosen["paths"][0]
    return KdumpError(f"{path}: {error}") if isinstance(error, OffsetOutOfRange | lookup.NoSuchTime) else error
