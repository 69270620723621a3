"""What all renderers share: the methods, the options, the buffered output, and what may reach a terminal.

Bytes of a file are shown as text only after `printable` or `json_string`: control characters, terminal escapes,
characters that turn the direction of text (bidirectional overrides), line separators and other unprintable code points
come out as escapes. The one exception is the format `kafka` in a pipe or a file, which repeats what Kafka's tool prints.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from kdump.dump.companion_files import CompanionDamage
    from kdump.dump.dump import DumpFailure, Event, Note
    from kdump.dump.kafka_tool import IndexReport
    from kdump.format.batch import Batch
    from kdump.format.naming import TopicPartition
    from kdump.recover.plan import Action
    from kdump.recover.recover import RecoveryResult
    from kdump.recover.undo import RunResult
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.findings import Finding, Severity

# text when it is valid UTF-8 (auto), or the same form for every field
BYTES_MODES = ("auto", "base64", "hex", "utf8")

CHUNK_BYTES = 64 * 1024
LARGE_BYTES = 32 * 1024

Path = str | os.PathLike[str]
Control = Callable[[bytes | None, bytes | None], bytes]
Read = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """How values are shown; every format takes what it knows of them.

    `bytes_mode` is one of BYTES_MODES. `deep_iteration`, `print_data_log`, `skip_record_metadata` and `max_bytes` are
    the options of Kafka's dump tool and belong to the format `kafka` alone. `color` and `width` belong to the terminal;
    None leaves the choice to it. `records_only` leaves the lines of sound batches out.
    """

    bytes_mode: str = "auto"
    color: bool | None = None
    width: int | None = None
    records_only: bool = False
    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    max_bytes: int | None = None


class StderrLine(NamedTuple):
    """A line for standard error as it stands; `failed` when it says that something could not be shown."""

    text: str
    failed: bool = False


class Output:
    """Collects text and writes it in chunks of at least 64 KiB; after every value when the stream is a terminal.

    A piece of 32 KiB or more is written at once: to wait for another one would cost a copy of both.

    Takes a binary stream, or a text stream: of one that has a binary stream below it (`sys.stdout`), that one is used,
    so that the bytes are UTF-8 whatever the locale says.
    """

    def __init__(self, stream: IO[Any]) -> None:
        self.terminal = _is_terminal(stream)
        if isinstance(stream, io.TextIOBase):
            below = getattr(stream, "buffer", None)
            if below is not None:
                stream.flush()
                stream = below
        self._stream = stream
        self._text = isinstance(stream, io.TextIOBase)
        self._parts: list[bytes] = []
        self._held = 0

    def write(self, text: str | bytes) -> None:
        """Take text that belongs together, or its UTF-8: a line, or the lines of a batch."""
        # a file name that is no UTF-8 arrives as surrogates and leaves as the bytes that it is
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        self._parts.append(data)
        self._held += len(data)
        if self._held >= CHUNK_BYTES or len(data) >= LARGE_BYTES or self.terminal:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the stream, and make the stream hand it on."""
        if self._parts:
            data = b"".join(self._parts)
            self._parts.clear()
            self._held = 0
            self._stream.write(data.decode("utf-8", "surrogateescape") if self._text else data)
        self._stream.flush()


def _is_terminal(stream: IO[Any]) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class Renderer(ABC):
    """Writes values in one format; the methods are called in the order of the bytes in the files."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        self.options = options
        self.out = Output(stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # a reader that went away must not be written to again
        if not isinstance(error, BrokenPipeError):
            self.close()

    def begin(self, path: Path, size: int | None = None, read: Read | None = None) -> None:  # noqa: B027  # not every format shows it
        """A file of `size` bytes begins: what follows up to `end` is in it.

        `read(position, size)` gives its bytes until then; it is given where every batch of the file is going to be shown.
        """

    def end(self, path: Path, size: int, *, whole: bool = True) -> None:  # noqa: B027
        """The file that began ends; `size` is its length in bytes, `whole` whether everything in it was shown."""

    @abstractmethod
    def batch(self, path: Path, batch: Batch, damage: str | None = None) -> None:
        """A record batch, or a message of magic 0 or 1; `damage` is the code of what is wrong with all of it."""

    @abstractmethod
    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        """Records of the batch that came last; may be called several times for one batch."""

    @abstractmethod
    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """Bytes between batches that are no batch of this log."""

    @abstractmethod
    def tail(self, path: Path, tail: Tail) -> None:
        """Bytes after the last batch."""

    @abstractmethod
    def entry(self, path: Path, kind: str, fields: Mapping[str, Any]) -> None:
        """An entry of a companion, or another line that is a name and values: `index_entry`, `producer`, `action` …"""

    def damage(self, damage: CompanionDamage) -> None:  # noqa: B027  # it is told elsewhere
        """What follows of a companion is not what Kafka's reader would take for it."""

    def report(self, report: IndexReport) -> None:  # noqa: B027  # only Kafka's tool compares while it shows
        """What came of comparing an index with its log."""

    def sane(self, path: Path) -> None:  # noqa: B027
        """An index passed its sanity check."""

    def file(self, path: Path, fields: Mapping[str, Any]) -> None:
        """A file that was proved, with its totals."""
        self.entry(path, "file", fields)

    def partition(self, path: Path, fields: Mapping[str, Any]) -> None:
        """A partition that was proved, with its totals and what a broker's next start would leave."""
        self.entry(path, "partition", fields)

    @abstractmethod
    def finding(self, finding: Finding) -> None:
        """A finding, with the sentence of the catalogue."""

    def plan(self, fields: Mapping[str, Any]) -> None:  # noqa: B027  # only a saved plan has to begin with it
        """What a recovery is asked for: its options and paths."""

    def recovery(self, result: RecoveryResult) -> None:
        """A partition, with what a recovery would do or has done."""
        for action in result.plan.actions:
            self.action(action, result.plan.topic_partition)
        for finding in result.plan.not_covered:
            self.not_covered(finding)
        for finding in result.left:
            self.finding(finding)
        self.recovered(result)

    def action(self, action: Action, place: TopicPartition | None) -> None:
        """One thing that a recovery does."""
        from kdump.recover.plan_lines import action_fields

        self.entry(action.path, "action", action_fields(action, place))

    def not_covered(self, finding: Finding) -> None:
        """A finding that a recovery leaves as it is."""
        self.finding(finding)

    def recovered(self, result: RecoveryResult) -> None:
        """A partition as a whole, behind its actions."""
        from kdump.recover.plan_lines import partition_fields

        self.entry(result.plan.path, "partition", partition_fields(result))

    def run(self, done: RunResult) -> None:
        """What became in one directory of a run that was to be taken back or finished."""
        from kdump.recover.plan_lines import run_fields

        self.entry(done.run.directory, "run", run_fields(done))

    @abstractmethod
    def summary(self, fields: Mapping[str, Any]) -> None:
        """The last value of a run: its totals, and `command`, `exit_status`, `seconds`."""

    def show(
        self, events: Iterable[Event], *, everything: bool = True
    ) -> Iterator[DumpFailure | CompanionDamage | StderrLine | Note]:
        """The values of a dump as they come; what could not be read is handed on, what is wrong with a companion, and notes, for standard error.

        `everything` says that the dump leaves no batch of a file out, so that a renderer may look beside the batches.
        """
        # A verify renders too, and does without what only a dump needs.
        from kdump.dump.companion_files import CompanionDamage, CompanionEntry
        from kdump.dump.dump import BatchEvent, DumpFailure, FileBegin, FileEnd, Note
        from kdump.dump.kafka_tool import IndexReport, SanityCheckPassed
        from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail

        path, topic, partition = "", None, None
        for event in events:
            match event:
                case BatchEvent(batch, damage, records):
                    self.batch(path, batch, damage)
                    if records is not None:
                        self.records(path, topic, partition, batch, records)
                case FileBegin(file, place, read):
                    path = file.path
                    topic, partition = (None, None) if place is None else place
                    self.begin(path, file.size, read if everything else None)
                case Gap() | ForeignBatch() | SearchLimit():
                    self.gap(path, event)
                case Tail():
                    self.tail(path, event)
                case FileEnd(_, size, whole):
                    self.end(path, size, whole=whole)
                case CompanionEntry(kind, fields):
                    self.entry(path, kind, fields)
                case CompanionDamage():
                    self.damage(event)
                    yield event
                case IndexReport():
                    self.report(event)
                case SanityCheckPassed():
                    self.sane(event.path)
                case DumpFailure() | Note():
                    yield event

    def close(self) -> None:
        """Write everything that is still held."""
        self.out.flush()


def tally(counts: Mapping[tuple[str, Severity], int]) -> dict[str, dict[str, int]]:
    """Counts of findings by code and severity as the fields `by_severity`, the worst first, and `by_code`."""
    by_code: dict[str, int] = {}
    by_severity: dict[str, int] = dict.fromkeys(("error", "warning", "info"), 0)
    for (code, severity), count in sorted(counts.items()):
        by_severity[severity.word] += count
        if count:
            by_code[code] = by_code.get(code, 0) + count
    return {"by_severity": by_severity, "by_code": by_code}


def verdict(fields: Mapping[str, Any]) -> str:
    """The summary of a verify or a recovery as one sentence."""
    if fields["command"] == "recover":
        from kdump.render import recovery

        return recovery.verdict(fields)
    records = "an unknown number of" if fields["records"] is None else fields["records"]
    severities = fields["findings"]["by_severity"]
    found = ", ".join(f"{counted(count, word)}" for word, count in severities.items())
    dropped = f" ({fields['findings_dropped']} of them not shown)" if fields["findings_dropped"] else ""
    ended = "interrupted: " if fields["interrupted"] else ""
    return (
        f"{ended}{counted(fields['files'], 'file')}, {counted(fields['batches'], 'batch', 'batches')}, {records} records,"
        f" {fields['valid_bytes']} of {fields['bytes']} bytes in valid batches: {found}{dropped}"
    )


def partition_line(fields: Mapping[str, Any]) -> str:
    """A partition of a verify as one sentence."""
    counts, broker = fields["findings"], fields["broker"]
    line = f"{counted(fields['segments'], 'segment')}, {counted(fields['batches'], 'batch', 'batches')}"
    if not fields["segments"] and fields["topic"] is None:
        line = "the log directory itself"
    if fields["log_end_offset"] is not None:
        line += f", offsets {fields['log_start_offset']} to {fields['log_end_offset']}"
    found = ", ".join(counted(count, word) for word, count in counts["by_severity"].items() if count)
    codes = ", ".join(f"{code} {count}" for code, count in counts["by_code"].items())
    line += f": {found} ({codes})" if found else ": clean"
    if broker is None:
        return line
    if broker["refuses"]:
        return f"{line}; a broker refuses to start"
    if broker["log_end_offset"] != fields["log_end_offset"] or broker["cuts"]:
        line += f"; a broker's next start leaves offsets {broker['log_start_offset']} to {broker['log_end_offset']}"
    return line


def read_line(fields: Mapping[str, Any]) -> str:
    """How an offset of a log was found, as one sentence."""
    time = "" if fields["timestamp"] is None else f" ({iso_time(fields['timestamp'])})"
    walked = counted(fields["walked_bytes"], "byte")
    entry = fields["index_entry"]
    if not fields["size"]:
        how = f"nothing at position {fields['position']} yet"
    elif entry is None:
        how = f"position {fields['position']}, without an index entry, {walked} walked"
    else:
        how = f"position {fields['position']}, by the index entry of offset {entry.offset} at position {entry.position}, {walked} walked"
    start, end = fields["log_start_offset"], fields["log_end_offset"]
    there = "the log is empty" if start == end else f"the log has the offsets {start} to {end - 1}"
    return f"offset {fields['offset']}{time}: {how}; {counted(fields['size'], 'byte')} read, the next read is at offset {fields['next_offset']}; {there}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its word: `1 batch`, `2 batches`."""
    if one == "info":
        return f"{count} info"
    return f"{count} {one if count == 1 else many or one + 's'}"


def gap_reason(gap: Gap | ForeignBatch | SearchLimit) -> str:
    """Why bytes are no batch of the log, in the words of the findings' codes (`batch/length`, `gap/bytes` …)."""
    from kdump.storage.walk import ForeignBatch, SearchLimit

    if isinstance(gap, ForeignBatch):
        return "foreign-batch"
    if isinstance(gap, SearchLimit):
        return "unsearched"
    return "length" if gap.headed else "zeros" if gap.zeros else "bytes"


def hides_batch(options: RenderOptions, damage: str | None) -> bool:
    """Whether only records are wanted; a damaged batch is shown all the same, since its records are missing."""
    return options.records_only and damage is None


def crc_state(batch: Batch, damage: str | None) -> bool | None:
    """Whether the checksum of a batch is right; None for a batch above the limit of size, which nobody computed."""
    return None if damage == "batch/limit" and not batch.crc_ok else batch.crc_ok


class _Escapes(dict[int, int | str]):
    """What `str.translate` puts for a code point; only those of one byte are remembered, so it does not grow."""

    def __missing__(self, point: int) -> int | str:
        if chr(point).isprintable():
            return point
        if 0xDC80 <= point <= 0xDCFF:
            # a byte of a file name that is no UTF-8 (surrogateescape)
            return f"\\x{point - 0xDC00:02x}"
        if point < 0x100:
            return f"\\x{point:02x}"
        return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


_ESCAPES = _Escapes()
_ESCAPES.update({point: _ESCAPES[point] for point in range(0x100)})


def printable(text: str) -> str:
    r"""The text with everything unprintable escaped (`\n`, `\x1b`, `\u202e`); a space is the only blank left."""
    if text.isprintable():
        return text
    # the three that ordinary text has, at the speed of replace
    text = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return text if text.isprintable() else text.translate(_ESCAPES)


def quoted(text: str) -> str:
    """The text between double quotes, unprintable characters, quotes and backslashes escaped."""
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    return f'"{text if text.isprintable() else printable(text)}"'


def path_text(path: Path) -> str:
    """A file name as one word of printable text: unprintable characters and bytes that are no UTF-8 are escaped."""
    return printable(os.fspath(path))


def bytes_text(data: bytes | None, mode: str = "auto") -> str:
    """A binary field as one word of text.

    auto: `"text"` with escapes when it is valid UTF-8, else `0x` and hexadecimal digits; null is `null`, empty `""`.
    base64 and hex: the encoding, between double quotes; utf8: text with U+FFFD for malformed bytes.
    """
    if data is None:
        return "null"
    if mode == "auto":
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            return "0x" + data.hex()
        return quoted(text)
    if mode == "base64":
        from base64 import b64encode

        return f'"{b64encode(data).decode("ascii")}"'
    if mode == "hex":
        return f'"{data.hex()}"'
    return quoted(str(data, "utf-8", "replace"))


def replaced(data: bytes) -> bytes:
    """UTF-8 with U+FFFD for malformed bytes."""
    return str(data, "utf-8", "replace").encode()


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = range(-62_135_596_800, 253_402_300_800)  # the years 1 to 9999


def iso_time(timestamp_ms: int | None) -> str:
    """Milliseconds since the epoch as ISO-8601 in UTC; `-` for none (null, -1) and outside the years 1 to 9999."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    seconds, ms = divmod(timestamp_ms, 1000)
    if seconds not in _SECONDS:
        return "-"
    return f"{_iso_seconds(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=64)
def _iso_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]
