"""What Kafka's own dump tool prints, byte for byte (`org.apache.kafka.tools.DumpLogSegments` of 4.3.1, standard output).

Lines, in the order of the tool:

    Dumping <path>
    Log starting offset: <number in the file's name>            a name that ends in .log
    Snapshot end offset: <n>, epoch: <n>                        … in .checkpoint
    KRaft bootstrap snapshot                                    … bootstrap.checkpoint
    baseOffset: … lastOffset: … … crc: … isvalid: …             a batch; `offset: …` a message of magic 0 and 1
    | offset: … <TimestampType>: … keySize: … valueSize: … …    a record (--deep-iteration), ` key: … payload: …`
                                                                behind it (--print-data-log)
    Found <n> invalid bytes at the end of <name>                when the walk ends before the file; not with --max-bytes
    offset: … position: …                                       an entry of .index, of .timeindex `timestamp: … offset: …`,
                                                                of .txnindex `version: … producerId: …`, of .snapshot
                                                                `producerId: … producerEpoch: …`
    <path> is empty.                                            an .index without entries
    <path> passed sanity check.                                 an index (--index-sanity-check)

On standard error, after the last file, and of each kind in the order of a `java.util.HashMap` of the paths:

    Mismatches in :<path>                                       entries of an .index, `  Index offset: …, log offset: …`
    Found timestamp mismatch in :<path>                         of a .timeindex, `  Index timestamp: …, log timestamp: …`
    Found out of order timestamp in :<path>                     … `  Index timestamp: …, Previously indexed timestamp: …`
    The following indexed offsets are not found in :<path>      … `Indexed offset: …, found log offset: …`
    Non-consecutive offsets in <path>                           records of a log, `  … is followed by …`

* Text is decoded as Java's `new String(bytes, UTF_8)` does and written as UTF-8. The tool itself writes in the charset
  of the locale (Java 17: `file.encoding`, ASCII with `?` under the POSIX locale); its output under a UTF-8 locale is the
  model here. Newlines in keys and values are written as they are. Only on a terminal everything unprintable is escaped.
* Legacy `isValid` is the CRC of the message itself; the timestamp type of a record is the one of its batch.
* The walk is the one of Kafka's readers (FileLogInputStream): `frame_size` and `FileLogInputStream`. Where the tool ends with an
  exception, the output here goes on with the next batch; up to there both are the same.
* Where the tool would end with an exception, the line on standard error is one of kdump's. Gaps, tails and findings have
  no line.
"""

# the methods of all formats have one signature

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from posixpath import basename
from typing import IO, TYPE_CHECKING, Any

from kdump.broker.file_records import FileLogInputStream
from kdump.dump.kafka_tool import ReportKind
from kdump.errors import NotShown
from kdump.format import control
from kdump.format.batch import CODECS, HEADER_SIZE, LOG_OVERHEAD, MINIMUM_SIZE, Batch, previous_sequence, wrapped
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY
from kdump.format.java import string_order
from kdump.kernel.lines import Lines
from kdump.kernel.records import RECORD_COLUMNS
from kdump.render import base
from kdump.render.base import Path, Read, RenderOptions, StderrLine, printable
from kdump.storage.records import open_batch
from kdump.storage.walk import MAX_BATCH_BYTES

if TYPE_CHECKING:
    from kdump.dump.companion_files import CompanionDamage
    from kdump.dump.dump import DumpFailure, Event, Note
    from kdump.dump.kafka_tool import IndexReport
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.findings import Finding

_INT_MAX = 0x7FFF_FFFF

# --- lines ------------------------------------------------------------------------------------------------------------

# An encoded surrogate is three malformed bytes to Python and one malformed sequence to Java
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def java_text(data: bytes) -> str:
    """`new String(bytes, UTF_8)`: U+FFFD for each malformed sequence, cut where Java cuts it."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def _java_bytes(data: bytes) -> bytes:
    return java_text(data).encode()


def _boolean(value: object) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    """java.util.OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def batch_line(batch: Batch) -> str:
    """The line of a batch (DumpLogSegments.printBatchLevel)."""
    # the tool knows magic as a signed byte, and everything below 2 as a message
    magic = wrapped(batch.magic, 8)
    valid = batch.crc_ok and batch.size >= (HEADER_SIZE if magic >= 2 else LOG_OVERHEAD + MINIMUM_SIZE[0])
    if magic >= 2:
        head = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count}"
            f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence}"
            f" producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch}"
            f" partitionLeaderEpoch: {batch.partition_leader_epoch} isTransactional: {_boolean(batch.transactional)}"
            f" isControl: {_boolean(batch.control)} deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    else:
        head = f"offset: {batch.last_offset if batch.is_legacy else batch.base_offset}"
    return (
        f"{head} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size}"
        f" magic: {magic} compresscodec: {batch.codec_name} crc: {batch.crc} isvalid: {_boolean(valid)}\n"
    )


def control_text(key: bytes | None, value: bytes | None, text: Callable[[bytes], str] = java_text) -> str:
    """What follows the headers of a control record (DumpLogSegments.printControlRecord).

    A key or value that the tool cannot read ends it with an exception; here the type alone is shown, in the way of the
    types that the tool does not know.
    """
    try:
        kind = control.decode_key(key).type
    except ValueError:
        return " controlType: UNKNOWN"
    try:
        # the tool reads every leader change as version 0
        decoded = control.decode_value(kind, value, layout=0)
    except ValueError:
        decoded = None
    match decoded:
        case control.EndTransactionMarker():
            return f" endTxnMarker: {control.type_name(kind)} coordinatorEpoch: {decoded.coordinator_epoch}"
        case control.LeaderChange():
            directory = f',"voterDirectoryId":"{_ZERO_UUID}"' if decoded.version >= 1 else ""
            voters, granting = (
                ",".join(f'{{"voterId":{voter.voter_id}{directory}}}' for voter in side)
                for side in (decoded.voters, decoded.granting_voters)
            )
            return f' LeaderChange: {{"version":{decoded.version},"leaderId":{decoded.leader_id},"voters":[{voters}],"grantingVoters":[{granting}]}}'
        case control.SnapshotHeader():
            timestamp = decoded.last_contained_log_timestamp
            return f' SnapshotHeader {{"version":{decoded.version},"lastContainedLogTimestamp":{timestamp}}}'
        case control.SnapshotFooter():
            return f' SnapshotFooter {{"version":{decoded.version}}}'
        case control.KRaftVersion():
            return f' KRaftVersion {{"version":{decoded.version},"kRaftVersion":{decoded.kraft_version}}}'
        case control.KRaftVoters():
            voters = ",".join(_voter(voter, text) for voter in decoded.voters)
            return f' KRaftVoters {{"version":{decoded.version},"voters":[{voters}]}}'
    name = control.type_name(kind)
    return f" controlType: {'UNKNOWN' if name == str(kind) else name}({kind})"


_ZERO_UUID = "A" * 22
# Jackson's CharTypes: two-character escapes where JSON has them, upper-case hexadecimal digits else
_JACKSON = {point: f"\\u{point:04X}" for point in range(0x20)} | {
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}


def _voter(voter: control.KRaftVoter, text: Callable[[bytes], str]) -> str:
    def string(value: str) -> str:
        return f'"{text(value.translate(_JACKSON).encode())}"'

    endpoints = ",".join(
        f'{{"name":{string(endpoint.name)},"host":{string(endpoint.host)},"port":{endpoint.port}}}'
        for endpoint in voter.endpoints
    )
    lowest, highest = voter.kraft_version_feature
    return (
        f'{{"voterId":{voter.voter_id},"voterDirectoryId":"{voter.voter_directory_id}","endpoints":[{endpoints}],'
        f'"kRaftVersionFeature":{{"minSupportedVersion":{lowest},"maxSupportedVersion":{highest}}}}}'
    )


def entry_line(kind: str, fields: Mapping[str, Any]) -> str:
    """The line of an entry of a companion; empty for what the tool does not print."""
    match kind:
        case "index_entry":
            return f"offset: {fields['offset']} position: {fields['position']}\n"
        case "time_index_entry":
            return f"timestamp: {fields['timestamp']} offset: {fields['offset']}\n"
        case "aborted_transaction":
            return (
                f"version: {fields['version']} producerId: {fields['producer_id']} firstOffset: {fields['first_offset']}"
                f" lastOffset: {fields['last_offset']} lastStableOffset: {fields['last_stable_offset']}\n"
            )
        case "producer":
            return _producer_line(fields)
    return ""


def _producer_line(fields: Mapping[str, Any]) -> str:
    first = fields["current_txn_first_offset"]
    line = (
        f"producerId: {fields['producer_id']} producerEpoch: {fields['producer_epoch']}"
        f" coordinatorEpoch: {fields['coordinator_epoch']} currentTxnFirstOffset: {_optional(first if first >= 0 else None)}"
        f" lastTimestamp: {fields['timestamp']}"
    )
    if fields["last_offset"] >= 0:
        last, delta = fields["last_sequence"], fields["offset_delta"]
        line += f" firstSequence: {previous_sequence(last, delta)} lastSequence: {last} lastOffset: {fields['last_offset']} offsetDelta: {delta} timestamp: {fields['timestamp']}"
    return line + "\n"


_NUMBER = re.compile(r"[+-]?[0-9]+")
_SLASHES = re.compile("//+")


def _number(text: str, bits: int) -> int | None:
    """Long.parseLong, Integer.parseInt; None where they raise."""
    # a file name has at most 255 bytes, so the conversion is bounded
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and wrapped(number, bits) == number else None


def _java_path(path: Path) -> str:
    """`new File(path).toString()`: one slash where several are, none at the end."""
    text = _SLASHES.sub("/", os.fspath(path))
    return text if text == "/" else text.rstrip("/")


def head_lines(path: Path) -> str:
    """The lines before the first batch; the second one is left out where the tool cannot read the name."""
    text = _java_path(path)
    name = basename(text)
    line = f"Dumping {text}\n"
    if name.endswith(".log"):
        base_offset = _number(name.split(".")[0], 64)
        if base_offset is not None:
            line += f"Log starting offset: {base_offset}\n"
    elif name == "bootstrap.checkpoint":
        line += "KRaft bootstrap snapshot\n"
    elif name.endswith(".checkpoint"):
        offset, epoch = _number(name[:20], 64), _number(name[21:31], 32)
        if offset is not None and epoch is not None:
            line += f"Snapshot end offset: {offset}, epoch: {epoch}\n"
    return line


# --- reports ----------------------------------------------------------------------------------------------------------

_WIDTH = len(RECORD_COLUMNS)
_OFFSET = RECORD_COLUMNS.index("offset")

_REPORTS = {
    ReportKind.OFFSET: ("Mismatches in :", "  Index offset: {}, log offset: {}"),
    ReportKind.TIMESTAMP: ("Found timestamp mismatch in :", "  Index timestamp: {}, log timestamp: {}"),
    ReportKind.ORDER: (
        "Found out of order timestamp in :",
        "  Index timestamp: {}, Previously indexed timestamp: {}",
    ),
    ReportKind.NOT_FOUND: (
        "The following indexed offsets are not found in :",
        "Indexed offset: {}, found log offset: {}",
    ),
}


def _absolute(path: Path) -> str:
    """`new File(path).getAbsolutePath()`, which leaves . and .. alone."""
    return _java_path(os.path.join(os.getcwd(), os.fspath(path)))


def _report_lines(what: ReportKind, pairs: Iterable[tuple[int, int]]) -> Iterator[str]:
    if what is ReportKind.OFFSET:
        # the tool keeps them in a TreeMap, in which a later entry of the same offset takes the place of the one before
        pairs = sorted(dict(pairs).items(), reverse=True)
    return (_REPORTS[what][1].format(*pair) for pair in pairs)


class KafkaRenderer(base.Renderer):
    """Writes what Kafka's dump tool prints."""

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._text = _terminal_text if self.out.terminal else java_text
        self._lines = Lines("printable" if self.out.terminal else "raw", repair=_java_bytes)
        self._deep = options.deep_iteration or options.print_data_log
        self._read: Read | None = None
        self._walk: FileLogInputStream | None = None
        self._taken = True
        self._valid_end = 0
        self._base: int | None = None
        self._entries = 0
        self._padding = False
        self._refused = False
        self._last_offset = -1
        self._reports: dict[ReportKind, dict[str, list[tuple[int, int]]]] = {what: {} for what in _REPORTS}
        self._jumps: dict[str, dict[int, int]] = {}
        self._name = self._path = ""
        self._stopped: dict[str, str] = {}

    def show(
        self, events: Iterable[Event], *, everything: bool = True
    ) -> Iterator[DumpFailure | CompanionDamage | StderrLine | Note]:
        """What is for standard error comes in the words of the tool, where it has some; its reports come last."""
        from kdump.dump.companion_files import CompanionDamage
        from kdump.dump.dump import DumpFailure
        from kdump.verify.findings import Severity

        for told in super().show(events, everything=everything):
            match told:
                case DumpFailure(NotShown() as error):
                    self.begin(error.path)
                    yield StderrLine(f"Ignoring unknown file {_java_path(error.path)}", failed=True)
                case CompanionDamage(refusal=str() as refusal):
                    yield StderrLine(refusal)
                case _:
                    yield told
        for path, why in self._stopped.items():
            yield CompanionDamage(path, Severity.ERROR, f"Kafka's tool ends with an exception {why}")
        yield from map(StderrLine, self._told())

    def _told(self) -> Iterator[str]:
        for what, files in self._reports.items():
            for path in string_order(files):
                yield _REPORTS[what][0] + path
                yield from _report_lines(what, files[path])
        for path in string_order(self._jumps):
            yield f"Non-consecutive offsets in {path}"
            for previous, offset in sorted(self._jumps[path].items()):
                yield f"  {previous} is followed by {offset}"

    def begin(self, path: Path, size: int | None = None, read: Read | None = None) -> None:
        self._valid_end = self._entries = 0
        self._padding = self._refused = False
        self._base = _base_offset(path)
        self._name = os.fspath(path)
        self._path = _absolute(path)
        self._last_offset = -1
        self._read = read
        self._walk = None if read is None or size is None else FileLogInputStream(read, size, self.options.max_bytes)
        lines = head_lines(path)
        if self.out.terminal:
            lines = "".join(f"{printable(line)}\n" for line in lines.split("\n")[:-1])
        self.out.write(lines)

    def end(self, path: Path, size: int, *, whole: bool = True) -> None:
        text = _java_path(path)
        name = basename(text)
        shown = printable if self.out.terminal else str
        if name.endswith((".log", ".checkpoint")):
            if whole:
                self._catch_up(size)
            trailing = size - self._valid_end
            if whole and trailing > 0 and self.options.max_bytes in (None, _INT_MAX):
                self.out.write(f"Found {trailing} invalid bytes at the end of {shown(name)}\n")
        elif name.endswith(".index") and size < OFFSET_ENTRY.size:
            self.out.write(f"{shown(text)} is empty.\n")
        elif whole and not self._entries and self._base is not None:
            # the padding of an index is no entry, but the tool shows its first slot
            if name.endswith(".index"):
                self.out.write(entry_line("index_entry", {"offset": self._base, "position": 0}))
            elif name.endswith(".timeindex") and size >= TIME_ENTRY.size:
                self.out.write(entry_line("time_index_entry", {"timestamp": 0, "offset": self._base}))
        self._read = self._walk = None

    def _stop(self, why: str) -> None:
        """The tool would end here with an exception, and show nothing of what follows."""
        if self._walk is not None:
            self._stopped.setdefault(self._name, why)

    def batch(self, path: Path, batch: Batch, damage: str | None = None) -> None:
        self._catch_up(batch.position)
        self._taken = self._walk is None or self._walk.takes(batch)
        if self._taken:
            self._batch(batch)

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        if self._deep and self._taken:
            self._records(batch, records)

    def _catch_up(self, position: int) -> None:
        """Show what only Kafka's reader sees before `position`."""
        if self._walk is None or self._read is None:
            return
        for batch in self._walk.until(position):
            self._batch(batch)
            if self._deep and batch.size <= MAX_BATCH_BYTES:
                body = self._read(batch.position, batch.size)
                self._records(batch, open_batch(batch, body, MAX_BATCH_BYTES))
        if self._walk.raised_at is not None:
            self._stop(f"at byte {self._walk.raised_at}, where a batch would have less than {MINIMUM_SIZE[0]} bytes")

    def _batch(self, batch: Batch) -> None:
        self._valid_end = batch.position + batch.size
        if batch.codec >= len(CODECS):
            self._stop(f"at byte {batch.position}, at a batch of codec {batch.codec}, which there is not")
        self.out.write(batch_line(batch))

    def _records(self, batch: Batch, records: DecodedBatch) -> None:
        payload, rows, headers, problem = records
        if self._walk is not None:
            self._follow(rows[_OFFSET::_WIDTH].tolist())
        if problem not in (None, "batch/limit") and not batch.is_legacy:
            self._stop(f"in the records of the batch at byte {batch.position}, which cannot be read ({problem})")
        control = self._control if batch.control else None
        label = batch.timestamp_type.encode()
        metadata = not self.options.skip_record_metadata
        contents = self.options.print_data_log and not batch.control
        done, count = 0, records.records
        while done < count:
            lines, done = self._lines.kafka(
                payload,
                rows,
                headers,
                done,
                batch.base_offset,
                batch.base_sequence,
                control,
                label,
                metadata,
                contents,
                batch.is_legacy,
            )
            self.out.write(lines)

    def _follow(self, offsets: list[int]) -> None:
        """Keep what does not follow the offset before (DumpLogSegments.dumpBatchRecords)."""
        first, count = self._last_offset + 1, len(offsets)
        # most batches have no jump, and need no loop in Python to say so
        if offsets != list(range(first, first + count)):
            for previous, offset in zip([self._last_offset, *offsets], offsets, strict=False):
                if offset != wrapped(previous + 1, 64):
                    self._jumps.setdefault(self._path, {})[previous] = offset
        if offsets:
            self._last_offset = offsets[-1]

    def _control(self, key: bytes | None, value: bytes | None) -> bytes:
        return control_text(key, value, self._text).encode()

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """The tool has no line for it."""

    def tail(self, path: Path, tail: Tail) -> None:
        """The tool has no line for it but the one at the end of the file."""

    def entry(self, path: Path, kind: str, fields: Mapping[str, Any]) -> None:
        if kind in ("index_entry", "time_index_entry"):
            # an entry at the base after the first one is the zero padding of a crashed broker; the tool stops there
            if self._entries and fields["offset"] == self._base:
                self._padding = True
            self._entries += 1
            if self._padding:
                return
        if kind != "producer" or not self._refused:
            self.out.write(entry_line(kind, fields))

    def damage(self, damage: CompanionDamage) -> None:
        """The tool shows nothing of a producer snapshot that a broker would not load."""
        self._refused = True

    def report(self, report: IndexReport) -> None:
        self._reports[report.what].setdefault(_absolute(report.path), []).extend(report.pairs)

    def sane(self, path: Path) -> None:
        shown = printable if self.out.terminal else str
        self.out.write(f"{shown(_java_path(path))} passed sanity check.\n")

    def finding(self, finding: Finding) -> None:
        """The tool has no line for it."""

    def summary(self, fields: Mapping[str, Any]) -> None:
        """The tool has no line for it."""


def _base_offset(path: Path) -> int | None:
    return _number(basename(_java_path(path)).split(".")[0], 64)


def _terminal_text(data: bytes) -> str:
    return printable(java_text(data))
