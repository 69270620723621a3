"""The values that a dump consists of, in the order of the bytes in the files: batches, entries, gaps, damage, failures.

A log file is `FileBegin`, then `BatchEvent`, `Gap`, `ForeignBatch`, `SearchLimit`, `Tail` and `ShrunkFile`, then
`FileEnd`. A companion is `FileBegin`, then `CompanionEntry`, `Tail` and `CompanionDamage`, then `FileEnd`. `DamageNote`
comes before what is wrong.
`TrailingBytes`, `EmptyIndex`, `IndexReport`, `SanityCheckPassed` and `NonConsecutiveOffsets` are what Kafka's dump
tool adds (`kdump.dump.kafka_tool`).
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kdump.errors import CodecMissing, KdumpError
from kdump.format.batch import Batch
from kdump.format.codec import CodecError
from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogFile
from kdump.storage.records import OpenedBatch
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, SearchLimit, ShrunkFile, Tail
from kdump.verify.findings import Finding, Severity

if TYPE_CHECKING:
    from kdump.format.codec import Data
    from kdump.format.index import OffsetIndexEntry
    from kdump.format.internal_topics.decoded import RecordDecoder
    from kdump.format.json_types import Fields
    from kdump.format.value_schemas.value_decoder import ValueDecoder

SHOWN_BATCH_BYTES: Final = 256 << 20
"""What a dump reads and decompresses of one batch by default."""
_RUN_BYTES: Final = 1 << 20
"""The most decompressed bytes of a batch in a run."""


class FileBegin(NamedTuple):
    """A file begins.

    `read(position, size)` returns bytes of a log file until the file ends. It is None where the dump leaves batches
    out. `decoder` is that of the internal topic whose records are to be shown as messages, `value_decoder` that of the
    records of any other topic. `again`: the file that ended last goes on. A file that did not end can begin once more,
    after others (kdump.dump.time_order).
    """

    file: LogFile
    topic_partition: TopicPartition | None
    read: Callable[[int, int], bytes] | None
    decoder: "RecordDecoder | None" = None
    value_decoder: "ValueDecoder | None" = None
    again: bool = False


class BatchEvent(NamedTuple):
    """A batch with its selected records; `records` is None where none were asked for.

    `kdump.storage.records.records` turns them into values; `records.pieces()` gives rows, of a batch with many records
    a piece at a time. `damage` is the code of what is wrong with the whole batch or ended its records. `crc_ok` says
    whether the CRC is right. It is None for a batch above the limit of size, whose CRC was not computed. The bytes of
    the records are valid until the next event. `again`: more records of a batch of which some were shown.
    `aborted`: its transaction is known to be aborted, only with DumpOptions.marks_aborted.
    """

    batch: Batch
    damage: str | None
    records: OpenedBatch | None
    crc_ok: bool | None
    again: bool = False
    aborted: bool = False


class StoredBytes(NamedTuple):
    """The bytes of the batch, gap or tail that came before, only with DumpOptions.fields.

    `position` and `length` are those in the file. `claimed` is the size of the batch whose header they begin with, 0
    where they begin with none. `records` says whether records are wanted, `max_bytes` what may be read and decompressed
    of a batch. `read(position, size)` returns bytes until the next event.
    """

    position: int
    length: int
    claimed: int
    kafka07: bool
    records: bool
    max_bytes: int
    read: Callable[[int, int], bytes]


class BatchRun:
    """The batches [first, stop) of a chunk, which a consumer may take at once, only with DumpOptions.runs.

    It sets `taken` to how many it has taken. The next one comes alone after that. None of those that it takes may have
    a defect.
    """

    __slots__ = ("_max_bytes", "chunk", "first", "stop", "taken")

    def __init__(self, chunk: BatchChunk, first: int, stop: int, max_bytes: int) -> None:
        """`max_bytes`: what may be decompressed of a batch."""
        self.chunk = chunk
        self.first = first
        self.stop = stop
        self.taken = 0
        self._max_bytes = min(max_bytes, _RUN_BYTES)

    def payload(self, index: int) -> "Data | None":
        """The decompressed records of a batch; None where they cannot be had, or are many."""
        try:
            return self.chunk.payload(index, self._max_bytes)
        except (CodecError, CodecMissing):
            return None


class FileEnd(NamedTuple):
    """A file ends. `size` is its length in bytes when it was opened; `whole` says that nothing of it was left out.

    `searched` are the records that were compared with DumpOptions.predicates, batches where only these are shown.
    """

    file: LogFile
    size: int
    whole: bool
    searched: "SearchedRecords | None" = None


class SearchedRecords(NamedTuple):
    """How many records were compared with what is wanted. There may be more where it is not `exact`: compressed
    messages of magic 0 and 1 say only when they are opened how many they hold.
    """

    records: int = 0
    exact: bool = True

    def plus(self, other: "SearchedRecords | None") -> "SearchedRecords":
        return self if other is None else SearchedRecords(self.records + other.records, self.exact and other.exact)


class CompanionEntry(NamedTuple):
    """An entry of a companion, or another line that is a name and values.

    `offsets` is the first and last offset of the entry, where these are record offsets of its segment.
    """

    kind: str
    fields: "Fields"
    offsets: tuple[int, int] | None = None


class ReadEntry(NamedTuple):
    """The fields of the entry `read`: how a read at an offset was found.

    `timestamp` is None unless the read was by time, `index_entry` without one. `base_offset` is that of the segment.
    """

    offset: int
    timestamp: int | None
    log_start_offset: int
    log_end_offset: int
    base_offset: int
    position: int
    size: int
    next_offset: int
    index_entry: "OffsetIndexEntry | None"
    walked_bytes: int


class CompanionDamage(NamedTuple):
    """Why Kafka's reader refuses a companion or misreads it: words about a file, not a range of it.

    `refusal` is the message of Kafka's reader, where Kafka's dump tool prints it.
    """

    path: str
    severity: Severity
    reason: str
    refusal: str | None = None

    @property
    def message(self) -> str:
        """The reason, after the path."""
        return f"{self.path}: {self.reason}"


class DamageNote(NamedTuple):
    """A mark in a stream: something is wrong with what comes next, whether or not it is shown.

    One comes for each thing that is wrong, before the event that shows it; `kdump verify` finds more. `code` is that of
    the finding of `kdump verify`; None for what is wrong with a companion.
    """

    path: str
    severity: Severity
    code: str | None = None


class DumpFailure(NamedTuple):
    """Something could not be read, or not to its end."""

    error: KdumpError


class NothingAtOffset(NamedTuple):
    """A read at the end of a log found no record. It is neither damage nor a failure."""

    path: str
    log_start_offset: int
    log_end_offset: int

    @property
    def message(self) -> str:
        """What the log has, after its path."""
        start, end = self.log_start_offset, self.log_end_offset
        if start == end:
            return f"{self.path}: the log is empty; its first offset will be {end}"
        return f"{self.path}: nothing has offset {end} yet; the log has offsets {start} to {end - 1}"


class LogChange(NamedTuple):
    """What became of a log that is followed. The fields begin with its topic and partition, null where not known.

    ==============  ================================================================================================
    kind            further fields
    ==============  ================================================================================================
    truncated       offset: what was shown from it on is not in the log any more; other records come in its place
    deleted         offset, log_start_offset: the records from the one up to the other were deleted before they were
                    shown
    partition_end   offset: the one after the last that was shown; the directory was deleted or renamed
    ==============  ================================================================================================
    """

    path: str
    kind: str
    fields: "Fields"

    @property
    def text(self) -> str:
        """The change in a sentence."""
        offset = self._number("offset")
        match self.kind:
            case "truncated":
                return f"truncated at offset {offset}: what was shown from there on is no longer in the log"
            case "deleted":
                last = self._number("log_start_offset") - 1
                return f"the offsets {offset} to {last} were deleted before they were shown"
            case _:
                return f"the partition is gone; the next offset would have been {offset}"

    @property
    def message(self) -> str:
        """The sentence, after the path."""
        return f"{self.path}: {self.text}"

    def _number(self, name: str) -> int:
        value = self.fields[name]
        assert isinstance(value, int)
        return value


class FollowNote(NamedTuple):
    """What a follow waits for; a line for people."""

    path: str
    text: str

    @property
    def message(self) -> str:
        """The line."""
        return f"{self.path}: {self.text}"


class IsolationNote(NamedTuple):
    """Where a committed read of a log ends, and what it leaves out; after the files of the log.

    `outcome` is that of the transaction at the last stable offset, `open` or `undecided` (its marker cannot be read, or
    damage or missing offsets may hold it). It is None where each transaction ends: then the last stable offset is the
    log end offset, None of an empty log whose name does not say it. `whole_log`: no segment of the log lies elsewhere.
    `aborted_records` and `unstable_records`, those from the last stable offset on, have the offsets that were asked
    for. They are None where not all of that was read, and `exact` is false where fewer may have these offsets.
    `filtered`: there are other filters than offsets, which these numbers do not obey.
    """

    path: str
    topic: str | None
    partition: int | None
    isolation: str
    last_stable_offset: int | None
    log_end_offset: int | None
    outcome: str | None
    producer_id: int | None
    producer_epoch: int | None
    whole_log: bool
    aborted_records: int | None
    unstable_records: int | None
    exact: bool
    filtered: bool

    @property
    def fields(self) -> "Fields":
        """All but the path."""
        return {name: value for name, value in self._asdict().items() if name != "path"}

    @property
    def message(self) -> str:
        """The note in a sentence, after the path."""
        words = [f"{self.path}: {self.isolation} {self._end()}", self._left_out()]
        if not self.whole_log:
            words.append("other segments may have earlier transactions and later markers, which were not read")
        return "; ".join(words)

    def _end(self) -> str:
        if self.last_stable_offset is None:
            return "has nothing to read"
        if self.outcome is None:
            return f"ends at offset {self.last_stable_offset}, the log end offset"
        what = "is open" if self.outcome == "open" else "is undecided, as its marker cannot be read or may be missing"
        whose = "a transaction" if self.producer_id is None else f"the transaction of producer {self.producer_id}"
        return f"ends at offset {self.last_stable_offset}, the last stable offset: {whose} from there on {what}"

    def _left_out(self) -> str:
        if self.aborted_records is None or self.unstable_records is None:
            return "how many records are left out is not known, because not everything was read"
        most = "" if self.exact else "at most "
        counts = (
            (self.aborted_records, "of aborted transactions"),
            (self.unstable_records, f"from offset {self.last_stable_offset} on"),
        )
        words = [f"{most}{count} record{'s' * (count != 1)} {what}" for count, what in counts if count]
        if not words:
            return "no records are left out because of it"
        return f"left out: {', '.join(words)}{' (other filters aside)' if self.filtered else ''}"


class OutputFlush(NamedTuple):
    """A follow waits for more: everything up to here is to be written now."""


class ReportKind(Enum):
    """What the two numbers of a pair of an `IndexReport` are: what the index says, and what was found."""

    OFFSET = auto()  # offset of the entry, last offset of the batch at its position
    TIMESTAMP = auto()  # timestamp of the entry, largest timestamp of the batch with its offset
    ORDER = auto()  # timestamp of the entry, timestamp of the entry before
    NOT_FOUND = auto()  # offset of the entry, last offset of the batch around it, -1 without one


class IndexReport(NamedTuple):
    """How an index differs from its log: pairs in the order of the entries, with the worst severity among them."""

    path: str
    kind: ReportKind
    pairs: list[tuple[int, int]]
    severity: Severity


class SanityCheckPassed(NamedTuple):
    """An index passed its sanity check."""

    path: str


class EmptyIndex(NamedTuple):
    """An offset index without entries."""

    path: str


class TrailingBytes(NamedTuple):
    """Bytes after the last batch that Kafka's readers find in a log file."""

    path: str
    size_bytes: int


class NonConsecutiveOffsets(NamedTuple):
    """Offsets of records in a log file that do not follow the offset before them: pairs (offset before, offset)."""

    path: str
    pairs: list[tuple[int, int]]


class ImageLine(NamedTuple):
    """Something of a metadata image (kdump.dump.metadata_image): `image` says where it comes from, the other kinds are
    those of its entries, or `change`.
    """

    path: str
    kind: str
    fields: "Fields"


class RecordCount(NamedTuple):
    """How many records a dump with DumpOptions.counts has found."""

    records: int


class MatchCount(NamedTuple):
    """How many of the records that a dump with DumpOptions.predicates compared are what is wanted: the last event.

    `batches`: these are batches, as no record was read.
    """

    matches: int
    searched: SearchedRecords
    batches: bool = False


Event = (
    FileBegin
    | BatchEvent
    | BatchRun
    | StoredBytes
    | CompanionEntry
    | Gap
    | ForeignBatch
    | SearchLimit
    | Tail
    | ShrunkFile
    | CompanionDamage
    | IndexReport
    | SanityCheckPassed
    | EmptyIndex
    | TrailingBytes
    | NonConsecutiveOffsets
    | FileEnd
    | DamageNote
    | DumpFailure
    | NothingAtOffset
    | ImageLine
    | Finding
    | RecordCount
    | MatchCount
    | LogChange
    | FollowNote
    | IsolationNote
    | OutputFlush
)

StderrEvent = DumpFailure | CompanionDamage | NothingAtOffset | FollowNote | IsolationNote
"""The events that belong on standard error."""
