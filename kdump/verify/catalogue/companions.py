"""Catalogue entries for the files beside a log: indexes, producer snapshots, the leader epoch checkpoint."""

from kdump.log.severity import Severity
from kdump.verify.catalogue.entry import CatalogueEntry

_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
_TRUSTED = (
    "A broker trusts the file after a clean shutdown. After an unclean one it rebuilds the file of "
    "each segment that it recovers."
)
_REBUILT = "Rebuilt from the log."
_INDEX = "OffsetIndex, AbstractIndex"
_TIME = "TimeIndex, KIP-33"
_TXN = "TransactionIndex, AbortedTxn, KIP-98"
_STATE = "ProducerStateManager, KIP-98"
_EPOCH = "LeaderEpochCheckpointFile, LeaderEpochFileCache, KIP-101"

ENTRIES = (
    CatalogueEntry(
        "index/missing",
        _W,
        "Segment has no offset index",
        "the segment has no offset index",
        (
            "A broker recovers such a segment when it starts, even after a clean shutdown. It does not report "
            "what that recovery truncates. In an active segment that is too small for an entry this is info: "
            "a broker creates the file when it first needs it."
        ),
        _REBUILT,
        "LogLoader.loadSegmentFiles",
    ),
    CatalogueEntry(
        "index/torn",
        _W,
        "Offset index ends inside an entry",
        "the last {length} bytes are not a whole entry",
        "The file was truncated, or another program wrote to it. " + _TRUSTED,
        _REBUILT,
        _INDEX,
    ),
    CatalogueEntry(
        "index/padding",
        _W,
        "Zeros after the last entry of an offset index",
        "{length} zero bytes follow the last entry",
        (
            "A broker preallocates an index while it writes to it, so zeros are legal in the active segment: "
            "then this is info. In another segment a broker reads them as entries. The next append or lookup "
            "then fails, or begins at the start of the segment."
        ),
        _REBUILT,
        "AbstractIndex, KAFKA-12734, KAFKA-19200",
    ),
    CatalogueEntry(
        "index/order",
        _E,
        "Entries of an offset index are out of order",
        (
            "entry {entry} (offset {offset}, position {target}) {entry:?follows offset {previous_offset}, "
            "position {previous_target}|is below zero}; this entry and those after it were not compared with "
            "the log"
        ),
        "A lookup is a binary search, so it misses records where the entries are out of order. " + _TRUSTED,
        _REBUILT,
        _INDEX,
    ),
    CatalogueEntry(
        "index/position",
        _E,
        "Offset index points into a batch",
        "entry {entry} (offset {offset}) points to position {target}, where no batch begins",
        "A fetch that begins there reads bytes that are not a batch. " + _TRUSTED,
        _REBUILT,
        _INDEX,
    ),
    CatalogueEntry(
        "index/offset",
        _E,
        "Lookup through an offset index misses records",
        "entry {entry} says that offset {offset} is not before position {target}, but offset {last} is before it",
        "A consumer that asks for an offset in between gets later records. " + _TRUSTED,
        _REBUILT,
        _INDEX,
    ),
    CatalogueEntry(
        "index/stale",
        _W,
        "Offset index has entries after the end of the segment",
        (
            "entries after the end: {count}; the first is entry {entry} (offset {offset}, position {target}), "
            "but the segment ends at position {end}{end_offset:?, before offset #}"
        ),
        "The log was truncated and its index was not. A broker cannot index the next records that it appends. "
        + _TRUSTED,
        _REBUILT,
        "OffsetIndex.truncateTo",
    ),
    CatalogueEntry(
        "index/differs",
        _I,
        "Offset index differs from a rebuilt one",
        (
            "the first difference is entry {entry}: the file has {offset:?offset # at position {target}|no "
            "such entry}, a rebuild with an entry every 4096 bytes has {expected_offset:?offset # at position "
            "{expected_target}|none}"
        ),
        (
            "Brokers write other entries than a rebuild does: up to 1.1, as followers up to 4.0, after a "
            "restart, after cleaning, and with another index.interval.bytes. Lookups find the same records."
        ),
        _REBUILT,
        "LogSegment.append, LogSegment.recover, KAFKA-806",
    ),
    CatalogueEntry(
        "timeindex/missing",
        _W,
        "Segment has no time index",
        "the segment has no time index",
        (
            "A broker creates an empty one. Retention then uses the time at which the log file was last "
            "modified. In an active segment that is too small for an entry this is info."
        ),
        _REBUILT,
        "LogLoader.loadSegmentFiles",
    ),
    CatalogueEntry(
        "timeindex/torn",
        _W,
        "Time index ends inside an entry",
        "the last {length} bytes are not a whole entry",
        "The file was truncated, or another program wrote to it. " + _TRUSTED,
        _REBUILT,
        _TIME,
    ),
    CatalogueEntry(
        "timeindex/padding",
        _W,
        "Zeros after the last entry of a time index",
        "{length} zero bytes follow the last entry",
        (
            "A broker preallocates an index while it writes to it, so zeros are legal in the active segment: "
            "then this is info, unless the log directory was shut down cleanly. Elsewhere the last timestamp "
            "reads as 0, and retention deletes the segment."
        ),
        _REBUILT,
        "AbstractIndex, KAFKA-10207",
    ),
    CatalogueEntry(
        "timeindex/order",
        _E,
        "Entries of a time index are out of order",
        (
            "entry {entry} (timestamp {timestamp}, offset {offset}) {entry:?follows timestamp "
            "{previous_timestamp}, offset {previous_offset}|is below zero}; this entry and those after it "
            "were not compared with the log"
        ),
        "A lookup is a binary search, so it misses records where the entries are out of order. " + _TRUSTED,
        _REBUILT,
        _TIME,
    ),
    CatalogueEntry(
        "timeindex/timestamp",
        _E,
        "Largest timestamp in a time index is wrong",
        (
            "entry {entry} says that {timestamp} is the largest timestamp up to offset {offset}, but it is "
            "{found}{misses:?; a lookup by time misses records}"
        ),
        (
            "Lookups by time begin at the wrong position, and retention uses the last entry. If no lookup misses "
            "records, this is a warning. "
        )
        + _TRUSTED,
        _REBUILT,
        _TIME,
    ),
    CatalogueEntry(
        "timeindex/offset",
        _W,
        "Time index points between batches",
        "entry {entry} (timestamp {timestamp}) has offset {offset}, which is in no batch",
        "Brokers write the offset of the batch or record that has the largest timestamp. " + _TRUSTED,
        _REBUILT,
        _TIME,
    ),
    CatalogueEntry(
        "timeindex/stale",
        _W,
        "Time index has entries after the end of the segment",
        (
            "entries after the end: {count}; the first is entry {entry} (timestamp {timestamp}, offset "
            "{offset}), but the segment ends before offset {end_offset}"
        ),
        "The log was truncated and its index was not. Retention uses the last entry. " + _TRUSTED,
        _REBUILT,
        "TimeIndex.truncateTo",
    ),
    CatalogueEntry(
        "timeindex/last",
        _W,
        "Time index lacks the largest timestamp of its segment",
        (
            "{timestamp:?the last entry has timestamp #|there is no entry}, but the largest timestamp of the "
            "segment is {found}"
        ),
        (
            "A broker adds it when the segment becomes inactive. Retention uses the last entry and deletes "
            "this segment too early."
        ),
        _REBUILT,
        "LogSegment.onBecomeInactiveSegment",
    ),
    CatalogueEntry(
        "txnindex/version",
        _E,
        "Transaction index has an unknown version",
        "entry {entry} has version {version}, expected 0",
        (
            "A broker refuses to start: it reads the index before it recovers anything. Releases before 4.4.0 read "
            "only the first byte of the version, as a signed one, and refuse what is above 0."
        ),
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "txnindex/torn",
        _W,
        "Transaction index ends inside an entry",
        "the last {length} bytes are not a whole entry",
        "Readers ignore them. The next entry is appended after them, where no reader finds it.",
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "txnindex/order",
        _E,
        "Entries of a transaction index are out of order",
        "entry {entry} ends at offset {offset}, the entry before it at offset {previous}",
        "Readers stop at the first entry that is late enough, so consumers can get aborted records.",
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "txnindex/range",
        _E,
        "Transaction index has offsets outside its segment",
        (
            "entry {entry} spans offsets {first} to {offset}, but the segment begins at offset {base}{end:? "
            "and ends before #}"
        ),
        (
            "An entry belongs to the segment that holds its marker. An entry below the base offset makes a "
            "broker recover the segment when it starts. An entry after the end belongs to records that are "
            "gone."
        ),
        _REBUILT,
        "TransactionIndex.sanityCheck",
    ),
    CatalogueEntry(
        "txnindex/missing",
        _E,
        "Aborted transaction is not in the transaction index",
        "the transaction of producer {producer_id} from offset {first}, aborted at offset {last}, has no entry",
        "Consumers with isolation.level=read_committed get the aborted records.",
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "txnindex/surplus",
        _E,
        "Transaction index has a transaction that was not aborted",
        (
            "entry {entry} says that producer {producer_id} aborted offsets {first} to {last}, but the log "
            "has no such marker"
        ),
        "Consumers with isolation.level=read_committed skip valid records.",
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "txnindex/entry",
        _E,
        "Entry of a transaction index differs from the log",
        (
            "entry {entry} of producer {producer_id}, aborted at offset {last}, has first offset "
            "{stored_first} and last stable offset {stored_stable}; the log says {first} and {stable}"
        ),
        (
            "Consumers with isolation.level=read_committed get aborted records or skip valid ones. If only the last "
            "stable offset differs, a search reads more or fewer entries, and this is a warning."
        ),
        _REBUILT,
        _TXN,
    ),
    CatalogueEntry(
        "snapshot/format",
        _E,
        "Producer snapshot cannot be read",
        "{problem}",
        "A broker deletes it, loads an older one or none, and replays the log from there.",
        _REBUILT,
        _STATE,
    ),
    CatalogueEntry(
        "snapshot/crc",
        _E,
        "Producer snapshot checksum is wrong",
        (
            "the snapshot has checksum {computed:#010x}, its header says {stored:#010x}{stale:?; without the "
            "last # bytes it would be right}"
        ),
        "A broker deletes it, loads an older one or none, and replays the log from there.",
        _REBUILT,
        _STATE,
    ),
    CatalogueEntry(
        "snapshot/state",
        _W,
        "Producer snapshot differs from the log",
        (
            "producer {producer_id}: {problem:@snapshot}{name:?; its # is {stored}, the log says "
            "{found}}{more:?, and # more like it}"
        ),
        (
            "After a clean shutdown a broker trusts the snapshot. It then accepts duplicates, refuses valid "
            "batches, or keeps a transaction open. Missing producers without an open transaction are info: a "
            "broker forgets those that are silent (producer.id.expiration.ms)."
        ),
        _REBUILT,
        _STATE,
    ),
    CatalogueEntry(
        "snapshot/name",
        _I,
        "Producer snapshot at an unexpected offset",
        "the snapshot is for offset {offset}, but {beyond:?the log ends at #|no segment begins there}",
        (
            "A broker writes a snapshot where a segment begins, and one at the end of the log. It deletes "
            "others at its next start."
        ),
        "Deleted.",
        "ProducerStateManager.removeStraySnapshots",
    ),
    CatalogueEntry(
        "snapshot/missing",
        _I,
        "Active segment begins without a producer snapshot",
        "there is no producer snapshot at offset {offset}, where the segment begins",
        (
            "When it starts, a broker loads an older one and replays the log from there. If there is none at all, "
            "it forgets the producers after a clean shutdown."
        ),
        _REBUILT,
        _STATE,
    ),
    CatalogueEntry(
        "epoch/format",
        _E,
        "Leader epoch checkpoint cannot be read",
        "{problem}",
        "A broker refuses to start.",
        _REBUILT,
        _EPOCH,
    ),
    CatalogueEntry(
        "epoch/order",
        _W,
        "Leader epochs in the checkpoint are out of order",
        (
            "entry {entry} (epoch {epoch} from offset {start_offset}) follows epoch {previous_epoch} from "
            "offset {previous_offset}"
        ),
        "A broker drops the entries that contradict later ones when it loads the file.",
        _REBUILT,
        _EPOCH,
    ),
    CatalogueEntry(
        "epoch/checkpoint",
        _W,
        "Leader epoch begins at another offset than the checkpoint says",
        "the checkpoint says that epoch {epoch} begins at offset {start_offset}, but the batches say offset {found}",
        "Followers truncate their logs by this file, so replicas can diverge.",
        _REBUILT,
        _EPOCH,
    ),
    CatalogueEntry(
        "epoch/missing",
        _W,
        "Leader epoch is not in the checkpoint",
        "batches have leader epoch {epoch} from offset {found} on, but the checkpoint does not have this epoch",
        "Followers truncate their logs by this file, so replicas can diverge.",
        _REBUILT,
        _EPOCH,
    ),
    CatalogueEntry(
        "epoch/beyond",
        _I,
        "Leader epoch begins after the end of the log",
        "epoch {epoch} begins at offset {start_offset}, but the log ends at {end_offset}",
        "Normal when the end of the log was lost. A broker drops the entry when it starts.",
        "Dropped.",
        _EPOCH,
    ),
    CatalogueEntry(
        "epoch/stale",
        _W,
        "Leader epoch in the checkpoint hides the true ones",
        "epoch {epoch} from offset {start_offset} is higher than the epoch of any batch (the highest is {latest})",
        (
            "A broker's recovery adds only epochs above the highest one in this file. It does not add those "
            "that are missing."
        ),
        "Dropped.",
        "LogSegment.recover, LeaderEpochFileCache.assign",
    ),
)
