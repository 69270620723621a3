"""What a dump shows, and how much of it is left to be shown."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from kdump.dump.events import SHOWN_BATCH_BYTES, SearchedRecords
from kdump.format import naming
from kdump.format.batch import Batch
from kdump.kernel.results import NO_VALUE
from kdump.named_tuple import NamedTuple
from kdump.storage.window import BUFFER_BYTES

if TYPE_CHECKING:
    from kdump.dump.filters import RecordPredicates
    from kdump.dump.isolation import UncommittedRead
    from kdump.dump.log_end import FromEnd
    from kdump.format.value_schemas.value_decoder import ValueDecoders
    from kdump.log.isolation import Isolation


class DumpOptions(NamedTuple):
    """What to show.

    `offsets` is half open. `limit` bounds the number of records (of batches, where `records` is false), and of entries
    of companions. `force` shows the records of batches whose CRC is wrong. `max_bytes` ends a log file early.

    The others concern offset and time indexes: `compare_indexes` compares them with the log beside them as Kafka's dump
    tool does, `check_indexes` does nothing but the tool's sanity check, `index_entries` shows their entries.

    `runs`: a consumer of the events takes BatchRun, too.

    `decode` is `auto` (records of internal topics, by the name of the directory), `none`, or the word for an internal
    topic that all logs are of (kdump.format.internal_topics.decoders.TOPICS). `topic` is that of log files whose
    directory does not name one. `value_decoders` decode the records of the logs that are left.

    `control`: control records are shown too, and count.

    `fields`: the bytes of batches, and between and after them, are events too (StoredBytes).

    `predicates`: only records that match are shown, and only batches that hold one; what is damaged is shown as always,
    and files of which nothing is shown are left out.
    Without `records`, only what a header says can be asked for. `topics` and `partitions`: only logs of these, where
    their directory names a topic-partition; a topic may be a glob. `counts`: batches whose matching records could be
    counted are left out; RecordCount says how many there are. `from_end`: bounds that each log has of its own.

    `buffer_bytes` of a log are read at once.

    `isolation`: batches that a consumer with this isolation level does not get are left out. With read-committed an
    IsolationNote comes after each log, but where it is followed; `committed_read` is that of the log, which `dump_logs`
    and `follow_logs` set. `marks_aborted`: batches of log files say where their transaction is known to be aborted,
    with the isolation `all`.
    """

    records: bool = True
    offsets: tuple[int | None, int | None] = (None, None)
    limit: int | None = None
    force: bool = False
    max_bytes: int | None = None
    max_batch_bytes: int = SHOWN_BATCH_BYTES
    compare_indexes: bool = False
    check_indexes: bool = False
    index_entries: bool = True
    runs: bool = False
    decode: str = "none"
    topic: str | None = None
    control: bool = True
    fields: bool = False
    value_decoders: "ValueDecoders | None" = None
    predicates: "RecordPredicates | None" = None
    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    counts: bool = False
    from_end: "FromEnd | None" = None
    buffer_bytes: int = BUFFER_BYTES
    isolation: "Isolation" = "all"
    committed_read: "UncommittedRead | None" = None
    marks_aborted: bool = False

    @property
    def everything(self) -> bool:
        """Whether no batch is left out because of its offsets."""
        return self.offsets == (None, None)

    @property
    def whole(self) -> bool:
        """Whether no batch is left out, but for `limit` and `max_bytes`."""
        return self.everything and self.predicates is None and not self.counts and self.isolation == "all"

    def includes_log(self, topic_partition: naming.TopicPartition | None) -> bool:
        """Whether a log is to be shown."""
        if topic_partition is None:
            return True
        topics = self.topics or (() if self.topic is None else (self.topic,))
        return (not topics or any(fnmatchcase(topic_partition.topic, topic) for topic in topics)) and (
            not self.partitions or topic_partition.partition in self.partitions
        )

    def includes(self, first_offset: int, last_offset: int) -> bool:
        """Whether an entry about these offsets is to be shown."""
        first, stop = self.offsets
        return (first is None or last_offset >= first) and (stop is None or first_offset < stop)

    def includes_batch(self, batch: Batch) -> bool:
        """Whether a batch is to be shown. Where its base offset is not known (NO_VALUE), its last offset decides."""
        first, stop = self.offsets
        if first is not None and (
            max(batch.base_offset, batch.last_offset) < first or (stop is not None and stop <= first)
        ):
            return False
        return stop is None or batch.base_offset < stop or batch.base_offset == NO_VALUE


class RecordLimit:
    """How many more records, batches or entries may be shown, None for no limit, and how many were.

    `skip`: so many of the next records that match are left out. `searched`: those of the file that were compared.
    """

    def __init__(self, remaining: int | None) -> None:
        self.remaining = remaining
        self.taken = 0
        self.skip = 0
        self.searched: SearchedRecords | None = None

    def take(self, count: int) -> None:
        """Count what was shown."""
        self.taken += count
        if self.remaining is not None:
            self.remaining -= count

    @property
    def reached(self) -> bool:
        """Whether nothing more may be shown."""
        return self.remaining is not None and self.remaining <= 0
