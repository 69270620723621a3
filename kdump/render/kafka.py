"""The format `kafka`: what Kafka's own dump tool prints, byte for byte.

The model is `org.apache.kafka.tools.DumpLogSegments` of Kafka 4.3.1.

Lines on standard output, in the order of the tool:

    Dumping <path>
    Log starting offset: <number in the file's name>         a name that ends in .log
    Snapshot end offset: <n>, epoch: <n>                     … in .checkpoint
    KRaft bootstrap snapshot                                 … bootstrap.checkpoint
    baseOffset: … lastOffset: … … crc: … isvalid: …          a batch; `offset: …` a message of magic 0 and 1
    | offset: … <TimestampType>: … keySize: … valueSize: …   a record (--deep-iteration), ` key: … payload: …`
                                                             after it (--print-data-log)
    Found <n> invalid bytes at the end of <name>             the walk ends before the file; without --max-bytes
    offset: … position: …                                    an entry of .index, of .timeindex
                                                             `timestamp: … offset: …`, of .txnindex
                                                             `version: … producerId: …`, of .snapshot
                                                             `producerId: … producerEpoch: …`
    <path> is empty.                                         an .index without entries
    <path> passed sanity check.                              an index (--index-sanity-check)

On standard error, after the last file, and of each kind in the order of a `java.util.HashMap` of the paths:

    Mismatches in :<path>                                    of an .index, `  Index offset: …, log offset: …`
    Found timestamp mismatch in :<path>                      of a .timeindex,
                                                             `  Index timestamp: …, log timestamp: …`
    Found out of order timestamp in :<path>                  … `  Index timestamp: …, Previously indexed timestamp: …`
    The following indexed offsets are not found in :<path>   … `Indexed offset: …, found log offset: …`
    Non-consecutive offsets in <path>                        records of a log, `  … is followed by …`

* Text is decoded as Java's `new String(bytes, UTF_8)` decodes it and written as UTF-8. The tool itself writes in the
  charset of the locale (Java 17: `file.encoding`, ASCII with `?` under the POSIX locale). The model here is its output
  under a UTF-8 locale. Newlines in keys and values are written as they are. Only a terminal gets escapes.
* Legacy `isValid` is the CRC of the message itself. The timestamp type of a record is that of its batch.
* `kdump.dump.kafka_tool` decides which batches, entries and messages the tool shows.
* Where the tool would end with an exception, the line on standard error is one of kdump's. Gaps, tails and findings
  have no line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from posixpath import basename
from typing import IO, TYPE_CHECKING, Any

from kdump.dump.events import DumpFailure, NonConsecutiveOffsets, ReportKind
from kdump.dump.kafka_tool.dump_log_segments import heading
from kdump.dump.kafka_tool.jackson import json_string
from kdump.dump.kafka_tool.java_paths import file_path
from kdump.errors import NotShown
from kdump.format import control
from kdump.format.batch import HEADER_SIZE, LOG_OVERHEAD, MINIMUM_SIZE, Batch, previous_sequence, wrapped
from kdump.format.java import java_text
from kdump.kernel.lines import Lines
from kdump.kernel.records import RECORD_COLUMNS
from kdump.render.base import RenderOptions
from kdump.render.dump_renderer import DumpRenderer, StderrLine
from kdump.render.escaping import Path, printable

if TYPE_CHECKING:
    from kdump.dump.events import Event, IndexReport
    from kdump.format.internal_topics.decoded import DecodedRecord
    from kdump.format.json_types import Fields
    from kdump.format.producer_snapshot import ProducerEntry
    from kdump.render.dump_renderer import DumpMessage
    from kdump.storage.records import DecodedBatch
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail
    from kdump.verify.findings import Finding

# --- lines ------------------------------------------------------------------------------------------------------------


def _java_bytes(data: bytes) -> bytes:
    return java_text(data).encode()


def _boolean(value: object) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    """java.util.OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def batch_line(batch: Batch, crc_ok: bool | None) -> str:
    """The line of a batch (DumpLogSegments.printBatchLevel)."""
    # to the tool magic is a signed byte, and everything below 2 is a message
    magic = wrapped(batch.magic, 8)
    valid = crc_ok and batch.size >= (HEADER_SIZE if magic >= 2 else LOG_OVERHEAD + MINIMUM_SIZE[0])
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

    The tool ends with an exception at a key or value that it cannot read. Here the type alone is shown, as for the
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
            return (
                f' LeaderChange: {{"version":{decoded.version},"leaderId":{decoded.leader_id},'
                f'"voters":[{voters}],"grantingVoters":[{granting}]}}'
            )
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
_ROW = len(RECORD_COLUMNS)


def _voter(voter: control.KRaftVoter, text: Callable[[bytes], str]) -> str:
    def string(value: str) -> str:
        return text(json_string(value).encode())

    endpoints = ",".join(
        f'{{"name":{string(endpoint.name)},"host":{string(endpoint.host)},"port":{endpoint.port}}}'
        for endpoint in voter.endpoints
    )
    lowest, highest = voter.kraft_version_feature
    return (
        f'{{"voterId":{voter.voter_id},"voterDirectoryId":"{voter.voter_directory_id}","endpoints":[{endpoints}],'
        f'"kRaftVersionFeature":{{"minSupportedVersion":{lowest},"maxSupportedVersion":{highest}}}}}'
    )


def entry_line(kind: str, fields: Fields) -> str:
    """The line of an entry of a companion; empty for what the tool does not print."""
    match kind:
        case "index_entry":
            return "offset: {offset} position: {position}\n".format_map(fields)
        case "time_index_entry":
            return "timestamp: {timestamp} offset: {offset}\n".format_map(fields)
        case "aborted_transaction":
            return (
                "version: {version} producerId: {producer_id} firstOffset: {first_offset} lastOffset: {last_offset}"
                " lastStableOffset: {last_stable_offset}\n"
            ).format_map(fields)
        case "producer":
            from kdump.format.producer_snapshot import ProducerEntry  # only snapshots need it

            return _producer_line(ProducerEntry._make(fields[name] for name in ProducerEntry._fields))
    return ""


def _producer_line(entry: ProducerEntry) -> str:
    first = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch}"
        f" coordinatorEpoch: {entry.coordinator_epoch}"
        f" currentTxnFirstOffset: {_optional(first if first >= 0 else None)} lastTimestamp: {entry.timestamp}"
    )
    if entry.last_offset >= 0:
        last, delta = entry.last_sequence, entry.offset_delta
        line += (
            f" firstSequence: {previous_sequence(last, delta)} lastSequence: {last}"
            f" lastOffset: {entry.last_offset} offsetDelta: {delta} timestamp: {entry.timestamp}"
        )
    return line + "\n"


def head_lines(path: Path) -> str:
    """The lines before the first batch. The second one is left out where the tool cannot read the name."""
    found = heading(path)
    line = f"Dumping {found.path}\n"
    if found.log_start_offset is not None:
        line += f"Log starting offset: {found.log_start_offset}\n"
    elif found.bootstrap:
        line += "KRaft bootstrap snapshot\n"
    elif found.snapshot_id is not None:
        line += f"Snapshot end offset: {found.snapshot_id[0]}, epoch: {found.snapshot_id[1]}\n"
    return line


# --- reports ----------------------------------------------------------------------------------------------------------

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


class KafkaRenderer(DumpRenderer):
    """Writes what Kafka's dump tool prints.

    The events come from `kdump.dump.kafka_tool.dump_log_segments.tool_events`.
    """

    def __init__(self, stream: IO[Any], options: RenderOptions) -> None:
        super().__init__(stream, options)
        self._text = _terminal_text if self.out.terminal else java_text
        self._lines = Lines("printable" if self.out.terminal else "raw", repair=_java_bytes, write=self.out.write)
        self._deep = options.deep_iteration or options.print_data_log

    def show(self, events: Iterable[Event]) -> Iterator[DumpMessage]:
        """Render the events of the tool. Yields messages for standard error in the words of the tool, if it has any."""
        from kdump.dump.events import CompanionDamage

        for message in super().show(events):
            match message:
                case DumpFailure(NotShown() as error):
                    self.begin(error.path)
                    yield StderrLine(f"Ignoring unknown file {file_path(error.path)}", failed=True)
                case CompanionDamage(refusal=str() as refusal):
                    yield StderrLine(refusal)
                case _:
                    yield message

    def shows_raw(self, found: DecodedRecord, key: bytes | None) -> bool:
        """Whether the tool ends with an exception; of any other record that it cannot decode it has words."""
        from kdump.dump.kafka_tool.message_parsers import ends_the_tool

        assert self.counting_decoder is not None
        return ends_the_tool(self.counting_decoder.topic, key)

    def begin(self, path: Path) -> None:
        lines = head_lines(path)
        if self.out.terminal:
            lines = "".join(f"{printable(line)}\n" for line in lines.split("\n")[:-1])
        self.out.write(lines)

    def batch(self, path: Path, batch: Batch, damage: str | None = None, crc_ok: bool | None = True) -> None:
        self.out.write(batch_line(batch, crc_ok))

    def records(
        self, path: Path, topic: str | None, partition: int | None, batch: Batch, records: DecodedBatch
    ) -> None:
        if not self._deep:
            return
        if self.decoder is not None and self.options.print_data_log:
            self._decoded(batch, records)
            return
        payload, rows, headers, _ = records
        control = self._control if batch.control else None
        label = batch.timestamp_type.encode()
        metadata = not self.options.skip_record_metadata
        contents = self.options.print_data_log and not batch.control
        done, count = 0, records.records
        while done < count:
            with self.out.in_pieces(len(payload)):
                place = batch.base_offset, batch.base_sequence
                lines, done = self._lines.kafka(
                    payload, rows, headers, done, *place, control, label, metadata, contents, batch.is_legacy
                )
                self.out.write(lines)
                del lines

    def _decoded(self, batch: Batch, records: DecodedBatch) -> None:
        """Records with the texts of the tool's decoders in place of key and value."""
        from kdump.dump.kafka_tool.message_parsers import MessageParser  # only internal topics need it
        from kdump.storage.records import records as values

        assert self.decoder is not None
        parser, label = MessageParser(self.decoder), batch.timestamp_type.encode()
        metadata = not self.options.skip_record_metadata
        for index, record in enumerate(values(batch, records)):
            found = parser.parse(record.offset, record.key, record.value)
            line, _ = self._lines.kafka(
                records.payload,
                records.rows[index * _ROW : (index + 1) * _ROW],
                records.headers,
                0,
                batch.base_offset,
                batch.base_sequence,
                None,
                label,
                metadata,
                found is None,
                batch.is_legacy,
            )
            if found is not None:
                texts = [f"key: {found.key}"] if found.key is not None else []
                texts += [f"payload: {found.payload}"] if found.payload is not None else []
                text = f"{' ' if metadata else '| '}{' '.join(texts)}"
                line = bytes(line[:-1]) + (printable(text) if self.out.terminal else text).encode() + b"\n"
            self.out.write(line)

    def _control(self, key: bytes | None, value: bytes | None) -> bytes:
        return control_text(key, value, self._text).encode()

    def gap(self, path: Path, gap: Gap | ForeignBatch | SearchLimit) -> None:
        """The tool has no line for it."""

    def tail(self, path: Path, tail: Tail) -> None:
        """The tool has no line for it; it counts bytes at the end of the file (`trailing_bytes`)."""

    def entry(self, path: Path, kind: str, fields: Fields) -> None:
        self.out.write(entry_line(kind, fields))

    def trailing_bytes(self, path: Path, size_bytes: int) -> None:
        self.out.write(f"Found {size_bytes} invalid bytes at the end of {self._name(basename(file_path(path)))}\n")

    def empty_index(self, path: Path) -> None:
        self.out.write(f"{self._name(file_path(path))} is empty.\n")

    def sanity_check_passed(self, path: Path) -> None:
        self.out.write(f"{self._name(file_path(path))} passed sanity check.\n")

    def _name(self, text: str) -> str:
        return printable(text) if self.out.terminal else text

    def report(self, report: IndexReport | NonConsecutiveOffsets) -> Iterator[StderrLine]:
        if isinstance(report, NonConsecutiveOffsets):
            title, line = "Non-consecutive offsets in ", "  {} is followed by {}"
        else:
            title, line = _REPORTS[report.kind]
        yield StderrLine(title + report.path)
        for pair in report.pairs:
            yield StderrLine(line.format(*pair))

    def finding(self, finding: Finding) -> None:
        """The tool has no line for it."""


def _terminal_text(data: bytes) -> str:
    return printable(java_text(data))
