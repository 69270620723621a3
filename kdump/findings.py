"""What can be wrong: Finding, and the catalogue of all codes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from string import Formatter
from typing import Any, Final

from kdump.format import naming


class Severity(IntEnum):
    """How bad: INFO is legal and worth knowing, WARNING breaks an invariant but reads, ERROR cannot be read or a broker would cut it or refuse to start."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue says of a code. `sentence` is a template over the finding's data, position, length and offset."""

    code: str
    severity: Severity
    title: str
    sentence: str
    why: str
    recover: str
    source: str


PROBLEMS: Final = {
    "record-length": "its length is negative or reaches past the end of the records",
    "varint": "a number has no end",
    "key-length": "its key reaches past its end",
    "value-length": "its value reaches past its end",
    "header-count": "its number of headers is negative or more than its bytes can hold",
    "header-key": "a header key has a negative length or reaches past its end",
    "header-value": "a header value reaches past its end",
    "body-end": "its fields do not end where its length says",
    "missing": "the records end before it",
    "leftover": "bytes follow the last record",
    "control-key": "its key is no version and type",
    "control-value": "its value is no version and coordinator epoch",
    "message-fields": "its key or value reaches past its end",
    "wrapper-size": "the size of an entry is less than 14",
    "wrapper-size-07": "the size of an entry is negative, too small or, in the first one, more than there is",
    "wrapper-magic": "an entry has a magic other than 0 and 1",
    "wrapper-nested": "an entry is compressed itself",
    "wrapper-nested-07": "compressed messages lie more than 16 deep in one another",
    "wrapper-empty": "there is none",
    "wrapper-offset": "the wrapper's offset is below the last inner one",
}
"""What is wrong with records, as a clause; the words are those of kdump.kernel.records.STATUSES."""


def _clause(table: str, problem: str) -> str:
    if table == "records":
        return PROBLEMS[problem]
    from kdump.format import codec  # only findings of compressed data need it

    return (codec.REASONS if table == "codec" else codec.NOTES)[problem]


class _Sentence(Formatter):
    """Two forms beyond the usual: `{name:?text|other}` is the text, with the value for #, where there is a value, else the other one or nothing.

    `{name:@table}` is the clause that the value, a short word, stands for.
    """

    def format_field(self, value: Any, spec: str) -> str:
        if spec.startswith("@"):
            return _clause(spec[1:], value)
        if not spec.startswith("?"):
            return str(super().format_field(value, spec))
        text, _, other = spec[1:].partition("|")
        return text.replace("#", str(value)) if value else other


_SENTENCE: Final = _Sentence()


@dataclass(frozen=True, slots=True)
class Finding:
    """One observed defect. `data` holds numbers and short words, never prose; `offset` is None where no record offset is known.

    `broker` says what the next unclean start of Kafka does about it, None for a file without its directory.
    """

    code: str
    severity: Severity
    path: str
    position: int
    length: int
    offset: int | None = None
    broker: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """The catalogue's sentence with this finding's values in it."""
        values = {"position": self.position, "length": self.length, "offset": self.offset, **self.data}
        return _SENTENCE.vformat(CATALOGUE[self.code].sentence, (), values)

    @property
    def topic_partition(self) -> naming.TopicPartition | None:
        return naming.topic_partition_of_file(self.path)

    @property
    def segment(self) -> int | None:
        """The base offset that the file's name says."""
        return naming.base_offset_of(self.path)


KEPT: Final = 1000
"""How many findings of one code and file are kept; the counts stay exact."""


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_CUT = "A broker's recovery cuts the log here, and everything behind with it."
_KEPT = "A broker's recovery does not notice it."
_TAIL = "A broker's recovery cuts it off."

_ENTRIES = (
    Entry(
        "batch/crc",
        _E,
        "Checksum of a batch is wrong",
        "the batch of {length} bytes has checksum {computed:#010x}, its header says {stored:#010x}",
        "At least one byte that the checksum covers is not what was written. Consumers refuse the batch; no field of it can be believed.",
        _CUT,
        "DefaultRecordBatch.ensureValid, LegacyRecord.ensureValid",
    ),
    Entry(
        "batch/length",
        _E,
        "Length of a batch lies",
        "a batch begins here and claims {claimed} bytes, but the next batch of this log comes after {length}",
        "Readers step from batch to batch by this length. Kafka's own reader ends silently at a length that is too large, so everything behind is lost to it.",
        _CUT,
        "FileLogInputStream.nextBatch",
    ),
    Entry(
        "batch/magic",
        _E,
        "Magic that no Kafka release writes",
        "the batch has magic {magic}; its checksum is right for magic {like}",
        "The magic byte lies outside the checksum. A broker's recovery takes any magic above 1 for 2 and notices nothing; consumers refuse the batch.",
        _KEPT,
        "FileLogInputStream.nextBatch, ByteBufferLogInputStream.nextBatch",
    ),
    Entry(
        "batch/codec",
        _E,
        "Records cannot be decompressed",
        "the records of this batch (codec {codec}) cannot be decompressed: {problem:@codec}",
        "The checksum is right, so these bytes are what was written; a writer or an undetected fault before the checksum broke them. No consumer can read them.",
        _KEPT,
        "CompressionType.forId, org.apache.kafka.common.compress",
    ),
    Entry(
        "batch/codec-odd",
        _W,
        "Compressed data departs from its codec's format",
        "the data of this batch (codec {codec}) is not as its format says: {problem:@odd}",
        "Kafka's reader accepts it. Other readers may not.",
        _KEPT,
        "org.apache.kafka.common.compress",
    ),
    Entry(
        "batch/count",
        _E,
        "Number of records cannot be right",
        "the header counts {count} records in {offsets} offsets and {length} bytes",
        "A negative count stops every reader; a count of zero with bytes behind it hides them; more records than offsets cannot have different offsets.",
        _KEPT,
        "DefaultRecordBatch.iterator",
    ),
    Entry(
        "batch/attributes",
        _W,
        "Unused attribute bits are set",
        "attributes {attributes:#06x} have bits set that magic {magic} does not use",
        "No release writes them. The checksum covers them, so a writer set them.",
        _KEPT,
        "DefaultRecordBatch attributes, KIP-98, KIP-32",
    ),
    Entry(
        "batch/limit",
        _W,
        "Batch too large to be proved",
        "the batch of {length} bytes was not proved: {decompressed:?its records decompress to|it claims} more than {limit} bytes (--max-batch-bytes)",
        "A length that lies could otherwise use up the machine's memory.",
        "Unknown before it is proved with a larger --max-batch-bytes.",
        "DefaultRecordBatch",
    ),
    Entry(
        "offset/backwards",
        _E,
        "Offsets go back",
        "offset {offset} follows offset {previous}",
        "Lookups by offset go wrong from here on. When two indexed batches go back, a broker's recovery empties the whole segment.",
        _KEPT,
        "LogSegment.recover, OffsetIndex.append",
    ),
    Entry(
        "offset/gap",
        _W,
        "Offsets are missing between batches",
        "gaps between batches: {count}, offsets missing: {missing}, in the largest: {largest}; first {offset} follows {previous}",
        "Normal where a cleaner compacted the log (then this is info). Elsewhere a leader assigns offsets without gaps, so records are gone.",
        _KEPT,
        "LogCleaner, UnifiedLog.append",
    ),
    Entry(
        "offset/range",
        _E,
        "Offsets outside what the segment can hold",
        "offsets {offset} to {last}, segment base {base}",
        "A segment holds offsets from its base to 2147483647 above it. A broker splits such a segment, or refuses to start when it cannot.",
        _KEPT,
        "LogSegment.canConvertToRelativeOffset, LocalLog.splitOverflowedSegment (KAFKA-6264)",
    ),
    Entry(
        "epoch/backwards",
        _W,
        "Leader epoch goes back",
        "leader epoch {epoch} follows {previous}",
        "Epochs only grow along a log. The field lies outside the checksum; followers truncate by it.",
        _KEPT,
        "LeaderEpochFileCache.assign, KIP-101",
    ),
    Entry(
        "control/structure",
        _E,
        "Control record cannot be parsed",
        "record {record} of this control batch is malformed: {problem:@records}",
        "A broker that replays it refuses to load the log; a consumer cannot tell a commit from an abort.",
        "A broker that has to replay it does not start.",
        "ControlRecordType.parse, EndTransactionMarker.deserialize",
    ),
    Entry(
        "record/structure",
        _E,
        "Record does not parse",
        "record {record} of this batch does not parse: {problem:@records}, at byte {at} of the records",
        "The checksum is right, so these bytes are what was written. Consumers stop here.",
        _KEPT,
        "DefaultRecord.readFrom, AbstractLegacyRecordBatch",
    ),
    Entry(
        "record/varint",
        _W,
        "Number written longer than needed",
        "record {record} of this batch has a varint with surplus bytes or bits",
        "Kafka's reader drops what is surplus. Other readers may refuse it.",
        _KEPT,
        "ByteUtils.readVarint",
    ),
    Entry(
        "record/delta",
        _W,
        "Record offsets out of order or out of range",
        "record {record} of this batch has offset {delta} (relative to the batch in magic 1 and 2), out of order or outside the batch's offsets",
        "Readers return it as it is; committed positions and lookups then go wrong.",
        _KEPT,
        "DefaultRecord.offset, AbstractLegacyRecordBatch.DeepRecordsIterator",
    ),
    Entry(
        "time/max",
        _W,
        "Largest timestamp of a batch is not that of its records",
        "the header says that the largest timestamp is {stored}, the largest of the records is {found}",
        "Lookups by time, the time index and retention go by the header.",
        _KEPT,
        "LogValidator, KIP-32",
    ),
    Entry(
        "legacy/wrapper",
        _E,
        "Compressed message without readable messages inside",
        "the messages inside this wrapper cannot be read: {problem:@records}, at inner message {record}",
        "Consumers stop here.",
        _KEPT,
        "AbstractLegacyRecordBatch.DeepRecordsIterator",
    ),
    Entry(
        "legacy/inner-crc",
        _E,
        "Checksum of a message inside a wrapper is wrong",
        "inner message {record} of this wrapper has a wrong checksum",
        "Consumers check it and refuse the message.",
        _KEPT,
        "LegacyRecord.ensureValid",
    ),
    Entry(
        "legacy/inner-magic",
        _I,
        "Messages of another magic inside wrappers",
        "{count} messages inside wrappers have another magic than their wrapper, the first here",
        "Compaction of a log with mixed formats left it (KAFKA-4298). Readers tolerate it.",
        _KEPT,
        "AbstractLegacyRecordBatch",
    ),
    Entry(
        "legacy/partial",
        _W,
        "Bytes behind the last message of a wrapper",
        "{bytes} bytes at the end of this wrapper are no whole message",
        "Kafka's reader drops them without a word.",
        _KEPT,
        "AbstractLegacyRecordBatch.DataLogInputStream",
    ),
    Entry(
        "legacy/trailing",
        _W,
        "Bytes behind the value of a message",
        "message {record} has bytes behind its value",
        "Kafka's reader ignores them.",
        _KEPT,
        "LegacyRecord",
    ),
    Entry(
        "gap/bytes",
        _E,
        "Bytes between batches that are no batch",
        "{length} bytes are no batch{zeros:?, all zero}; the log goes on behind them",
        "Kafka's reader stops here, so what follows is lost to it, though it is intact.",
        _CUT,
        "FileLogInputStream.nextBatch",
    ),
    Entry(
        "gap/foreign-batch",
        _I,
        "Whole batch inside damaged bytes that is not this log's",
        "{length} bytes with a right checksum and offset {offset} lie inside damaged bytes, and do not fit this log",
        "A value can contain Kafka batches. It is shown, never taken.",
        "Nothing.",
        "kdump",
    ),
    Entry(
        "gap/unsearched",
        _W,
        "The search for the next batch gave up",
        "no next batch was found with bounded work; the last {length} bytes were not searched",
        "These bytes look like the beginnings of batches over and over. There may be good batches behind.",
        _CUT,
        "kdump",
    ),
    Entry(
        "tail/torn",
        _E,
        "The last batch is not whole",
        "{length} bytes are the beginning of a batch{claimed:? of # bytes}",
        "The machine or the broker stopped while it was written, or the file was cut.",
        _TAIL,
        "FileLogInputStream.nextBatch, LogSegment.recover",
    ),
    Entry(
        "tail/zeros",
        _W,
        "Zeros behind the last batch",
        "{length} bytes at the end of the file are zero",
        "Preallocation leaves them in the newest segment when the broker did not stop cleanly; so does a power loss. Elsewhere, or when they are fewer than 18, this is an error.",
        _TAIL,
        "FileRecords, LogSegment.recover, preallocate",
    ),
    Entry(
        "tail/garbage",
        _E,
        "Bytes behind the last batch",
        "{length} bytes at the end of the file are no batch",
        "A broker's recovery cuts them off, and every later segment with them.",
        _TAIL,
        "LogSegment.recover",
    ),
    Entry(
        "kraft/snapshot-header",
        _E,
        "Snapshot without its header",
        "the first record of this snapshot is no SnapshotHeader control record",
        "A controller or broker refuses to load it.",
        "Nothing: take an older snapshot.",
        "RecordsSnapshotReader, KIP-630",
    ),
    Entry(
        "kraft/snapshot-footer",
        _E,
        "Snapshot without its footer",
        "the last record of this snapshot is no SnapshotFooter control record",
        "The snapshot was not written to its end, so records are missing.",
        "Nothing: take an older snapshot.",
        "RecordsSnapshotReader, KIP-630",
    ),
    Entry(
        "file/shrunk",
        _E,
        "The file became shorter while it was read",
        "the file ends here; it was {length} bytes longer when it was opened",
        "Somebody else truncates it, probably a running broker.",
        "Stop the broker first.",
        "kdump",
    ),
    Entry(
        "file/grown",
        _I,
        "The file became longer while it was read",
        "the file grew by {length} bytes while it was read; they were not looked at",
        "Somebody else writes to it, probably a running broker.",
        "Stop the broker first.",
        "kdump",
    ),
)

CATALOGUE: Final[Mapping[str, Entry]] = {entry.code: entry for entry in _ENTRIES}


def found(
    code: str,
    path: str,
    position: int,
    length: int,
    *,
    offset: int | None = None,
    severity: Severity | None = None,
    **data: Any,
) -> Finding:
    """A finding of this code, with the catalogue's severity unless another one is given."""
    return Finding(
        code, CATALOGUE[code].severity if severity is None else severity, path, position, length, offset, None, data
    )
