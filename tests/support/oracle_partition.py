"""What the batches of a partition say together: producers and transactions, leader epochs, and what its indexes have to
hold.

Plain, slow and obvious like oracle.py, whose walk it follows: every rule is applied to every batch, in the order of the
log. The rules of producers are those of a replica (ProducerStateManager, ProducerAppendInfo, ProducerStateEntry), with
the sequences of a leader beside them; those of the indexes are LogSegment.recover, and what any writer of an index
keeps to.

Damage takes batches away. What a producer did there no one knows: its state is `known` again with its next batch, and
nothing that hangs on what is missing is said.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from support import oracle
from support.oracle import Batch, Tail

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
SEQUENCES = 2**31
KEPT = 1000
EPOCHS_KEPT = 65_536
MISSING = -1  # an offset or position that is not there

_SNAPSHOT = struct.Struct(">qhiqiqiq")


# ------------------------------------------------------------------------------------------------------------------
# markers


class Marker(NamedTuple):
    """What a control batch of a producer says of its transaction."""

    commits: bool
    coordinator_epoch: int


def marker_of(data: bytes, batch: Batch) -> Marker | None:
    """The marker that is the first record of a control batch; None when that is none. The batch has records."""
    if batch.codec or batch.count is None or batch.count < 0:
        return None
    body = data[batch.position + 61 : batch.position + batch.size]
    reader = oracle._Reader(body)
    try:
        raw = oracle._read_record(reader, len(body))
    except oracle.Malformed:
        return None
    if batch.count == 1 and reader.position < len(body):
        return None
    if raw.key is None or len(raw.key) < 4 or raw.value is None or len(raw.value) < 6:
        return None
    version, control_type = struct.unpack_from(">hh", raw.key)
    value_version, coordinator_epoch = struct.unpack_from(">hi", raw.value)
    if version < 0 or value_version < 0 or control_type not in (0, 1):
        return None
    return Marker(control_type == 1, coordinator_epoch)


# ----------------------------------------------------------------------------------------------------------------
# producers


@dataclass
class Producer:
    """The state of one producer. `known` falls with every hole in the log; `transaction` is the first offset of the
    open one."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    transaction: int = -1
    transaction_certain: bool = False
    known: bool = True
    undamaged: bool = True  # no damage after its last batch
    certain: bool = False  # no batch of it was ever missing
    sequence_known: bool = False
    marker_offset: int = -1  # of the last marker, when no data came after it
    filled: bool = False  # its last batch of data has records

    def packed(self, producer_id: int) -> bytes:
        """As an entry of a producer snapshot."""
        return _SNAPSHOT.pack(
            producer_id,
            self.epoch,
            self.last_sequence,
            self.last_offset,
            self.offset_delta,
            self.timestamp,
            self.coordinator_epoch,
            self.transaction,
        )


class Trouble(NamedTuple):
    """A batch that a broker would have refused, or that its producer cannot have meant. `previous…` is what was known
    before it."""

    problem: str
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    sequence: int
    previous_sequence: int
    previous_epoch: int
    transaction: int
    marker: bool


class Tally(NamedTuple):
    """What is counted only; the rest is of the first one. `value` and `previous` are sequences or coordinator
    epochs."""

    count: int  # type: ignore[assignment]  # the number, not tuple.count
    position: int
    size: int
    offset: int
    producer_id: int
    epoch: int
    value: int
    previous: int


class Aborted(NamedTuple):
    """An entry of the transaction index, and which of its offsets no missing batch can have changed."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    certain_first: bool
    certain_stable: bool


class Open(NamedTuple):
    """A transaction that has begun and not ended."""

    producer_id: int
    epoch: int
    first_offset: int
    timestamp: int
    certain: bool


class Mismatch(NamedTuple):
    """An entry of a snapshot that is not what the log says: it `differs` in a field, or one of the two is not there."""

    problem: str
    producer_id: int
    field: str
    stored: int | None
    found: int | None


SNAPSHOT_FIELDS = (
    "producer_epoch",
    "last_sequence",
    "last_offset",
    "offset_delta",
    "timestamp",
    "coordinator_epoch",
    "current_txn_first_offset",
)


@dataclass
class Producers:
    """All producers of a partition, fed with its segments in order.

    `sequences` is whether sequences have to follow one another, which coordinators do not keep to. `complete` is
    whether nothing before the first batch is missing.
    """

    sequences: bool = True
    complete: bool = False
    table: dict[int, Producer] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)  # the producers of open transactions, by their beginning
    troubles: list[Trouble] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    def load(self, snapshot: bytes) -> None:
        """Begin again with the entries of a snapshot; of two of one producer the later counts."""
        self.table = {}
        for entry in _SNAPSHOT.iter_unpack(snapshot):
            producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first = plain(
                entry
            )
            self.table[producer_id] = Producer(
                epoch,
                last_sequence,
                last_offset,
                offset_delta,
                timestamp,
                coordinator_epoch,
                first,
                transaction_certain=first != -1,
                certain=True,
                sequence_known=last_offset < 0 or last_sequence >= 0,
            )
        begun = [producer_id for producer_id, producer in self.table.items() if producer.transaction != -1]
        self.begun = sorted(begun, key=lambda producer_id: self.table[producer_id].transaction)
        self.complete = True

    def forget(self, *, missing: bool = False) -> None:
        """Batches are missing here, or bytes are damaged."""
        self.complete = False
        for producer in self.table.values():
            producer.known = False
            producer.undamaged = producer.undamaged and missing

    def segment(self, data: bytes, base_offset: int | None) -> None:
        """Every batch of a segment, and its damage."""
        for item in oracle.walk(data, base_offset=base_offset):
            if isinstance(item, Batch):
                self.batch(data, item)
            elif not isinstance(item, Tail):
                self.forget()

    def batch(self, data: bytes, batch: Batch) -> None:
        """One valid batch. What has no producer says nothing; an empty control batch is left of a transaction that is
        gone, and ends none."""
        if batch.magic != 2 or batch.producer_id < 0:
            return
        if not batch.control:
            self.data(batch)
        elif batch.count == 0:
            before = self.table.get(batch.producer_id)
            if before is not None and before.undamaged and before.filled and batch.producer_id in self.begun:
                self.trouble("txn/marker-empty", batch, before, -1, marker=True)
        else:
            marker = marker_of(data, batch)
            if marker is None:
                self.lost(batch.producer_id)
            else:
                self.marker(batch, marker)

    # What may be said of a producer.

    def known(self, producer_id: int) -> bool:
        return producer_id in self.table and self.table[producer_id].known

    def sure(self, producer_id: int) -> bool:
        """Whether its state, also when it is none, is that of a broker."""
        return self.known(producer_id) or (producer_id not in self.table and self.complete)

    def close(self, producer_id: int) -> None:
        """Its open transaction is over."""
        self.table[producer_id].transaction = -1
        self.table[producer_id].transaction_certain = False
        self.begun.remove(producer_id)

    def lost(self, producer_id: int) -> None:
        """What stands there is no marker: whether its transaction has ended no one knows."""
        if producer_id in self.table:
            self.table[producer_id].known = False
            if producer_id in self.begun:
                self.close(producer_id)

    # Batches of records.

    def data(self, batch: Batch) -> None:
        transactional = bool(batch.attributes & 0x10)
        sure = self.sure(batch.producer_id)
        known = self.known(batch.producer_id)
        before = self.table.get(batch.producer_id)
        if before is not None and known:
            self.check_batch(batch, before)
        if before is not None and batch.producer_id in self.begun:
            if not transactional:
                if known:
                    self.trouble("txn/state", batch, before, batch.base_sequence)
                self.close(batch.producer_id)
            elif not known:
                before.transaction_certain = False
            elif batch.producer_epoch > before.epoch and before.filled and batch.count:
                self.trouble("txn/epochs", batch, before, batch.base_sequence)
        producer = self.table.setdefault(batch.producer_id, Producer(batch.producer_epoch))
        producer.certain = sure and (before is None or producer.certain)
        producer.epoch = batch.producer_epoch
        producer.filled = batch.count != 0
        producer.last_sequence = last_sequence(batch)
        producer.sequence_known = batch.base_sequence >= 0
        producer.last_offset = batch.last_offset
        producer.offset_delta = batch.last_offset_delta
        producer.timestamp = batch.max_timestamp
        producer.known = producer.undamaged = True
        producer.marker_offset = -1
        if transactional and batch.producer_id not in self.begun:
            producer.transaction = batch.offset
            producer.transaction_certain = sure
            self.begun.append(batch.producer_id)

    def check_batch(self, batch: Batch, before: Producer) -> None:
        """The epoch and the sequence of a batch against those of the one before."""
        if batch.producer_epoch < before.epoch:
            self.trouble("producer/epoch", batch, before, batch.base_sequence)
            return
        if not self.sequences or batch.base_sequence < 0 or before.epoch < 0 or not before.sequence_known:
            return
        # A broker forgets a producer that was idle for a day: then any sequence may begin.
        if min(batch.max_timestamp, before.timestamp) >= 0 and abs(batch.max_timestamp - before.timestamp) >= DAY_MS:
            return
        fresh = batch.producer_epoch > before.epoch or before.last_sequence == -1
        expected = 0 if fresh else (before.last_sequence + 1) % SEQUENCES
        ahead = (batch.base_sequence - expected) % SEQUENCES
        if ahead >= SEQUENCES // 2:
            self.trouble("producer/sequence", batch, before, batch.base_sequence)
        elif ahead:
            self.count("gap", batch, batch.base_sequence, -1 if fresh else before.last_sequence)

    # Markers.

    def marker(self, batch: Batch, marker: Marker) -> None:
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        sure, known = self.sure(producer_id), self.known(producer_id)
        before = self.table.get(producer_id)
        if before is not None and known:
            if epoch < before.epoch:
                self.trouble("producer/epoch", batch, before, -1, marker=True)
            elif producer_id in self.begun and epoch > before.epoch + 1:
                self.trouble("txn/marker-epoch", batch, before, -1, marker=True)
            if 0 <= marker.coordinator_epoch < before.coordinator_epoch:
                self.count("coordinator", batch, marker.coordinator_epoch, before.coordinator_epoch)
        if before is not None and batch.producer_id in self.begun:
            if not marker.commits:
                self.aborted.append(self.entry(batch, before))
            self.close(producer_id)
        elif sure:
            self.count("empty", batch, -1, -1)
        producer = self.table.setdefault(producer_id, Producer(epoch))
        producer.certain = sure and (before is None or producer.certain)
        if not known or epoch != producer.epoch:
            producer.epoch = epoch
            producer.last_sequence = producer.last_offset = -1
            producer.offset_delta = 0
            producer.sequence_known = sure
        producer.timestamp = batch.max_timestamp
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.known = producer.undamaged = True
        producer.marker_offset = batch.offset

    def entry(self, batch: Batch, producer: Producer) -> Aborted:
        """What a broker writes to the transaction index."""
        others = [other for other in self.begun if other != batch.producer_id]
        stable = self.table[others[0]].transaction if others else batch.offset + 1
        certain = self.complete and all(self.table[other].transaction_certain for other in self.begun)
        return Aborted(
            batch.producer_id,
            producer.transaction,
            batch.offset,
            stable,
            producer.transaction_certain and producer.known,
            certain,
        )

    # What was found.

    def trouble(self, problem: str, batch: Batch, before: Producer, sequence: int, *, marker: bool = False) -> None:
        self.troubles.append(
            Trouble(
                problem,
                batch.position,
                batch.size,
                batch.offset,
                batch.producer_id,
                batch.producer_epoch,
                sequence,
                before.last_sequence,
                before.epoch,
                before.transaction,
                marker,
            )
        )

    def count(self, what: str, batch: Batch, value: int, previous: int) -> None:
        first = self.tallies.get(what)
        if first is None:
            place = (batch.position, batch.size, batch.offset, batch.producer_id, batch.producer_epoch)
            self.tallies[what] = Tally(1, *place, value, previous)
        else:
            self.tallies[what] = first._replace(count=first.count + 1)

    def take(self) -> tuple[list[Trouble], dict[str, Tally], list[Aborted]]:
        """What was found since the last time."""
        found = self.troubles, self.tallies, self.aborted
        self.troubles, self.tallies, self.aborted = [], {}, []
        return found

    def entries(self) -> bytes:
        """All producers as a snapshot has them, by their first batch."""
        return b"".join(producer.packed(producer_id) for producer_id, producer in self.table.items())

    def open(self) -> list[Open]:
        """By their beginning."""
        found = [(producer_id, self.table[producer_id]) for producer_id in self.begun]
        return [
            Open(producer_id, one.epoch, one.transaction, one.timestamp, one.transaction_certain and one.known)
            for producer_id, one in found
        ]

    def compare(self, snapshot: bytes) -> list[Mismatch]:
        """The entries of a snapshot taken here against what the log says for certain."""
        stored = {entry[0]: plain(entry) for entry in _SNAPSHOT.iter_unpack(snapshot)}
        found: list[Mismatch] = []
        for producer_id, entry in stored.items():
            if producer_id in self.table:
                found += self.differences(producer_id, entry)
            elif self.complete and entry[1] >= 0:  # without an epoch it is left of an empty control batch
                found.append(Mismatch("surplus", producer_id, "timestamp", entry[5], None))
        for producer_id, producer in self.table.items():
            if producer_id not in stored and producer.known and producer.certain:
                found.append(Mismatch("missing", producer_id, "timestamp", None, producer.timestamp))
        return found[:KEPT]

    def differences(self, producer_id: int, entry: tuple[int, ...]) -> Iterator[Mismatch]:
        """The first field that is another one."""
        producer = self.table[producer_id]
        if not producer.known or not producer.certain:
            return
        values = plain(_SNAPSHOT.unpack(producer.packed(producer_id)))
        for name, stored, value in zip(SNAPSHOT_FIELDS, entry[1:], values[1:], strict=True):
            # Kafka 0.11 took a marker for the last batch, 1.1 did not take its time.
            if name in ("last_offset", "offset_delta") and entry[3] == producer.marker_offset >= 0:
                continue
            if name == "timestamp" and producer.marker_offset >= 0 and stored < value:
                continue
            if stored != value:
                yield Mismatch("differs", producer_id, name, stored, value)
                return


def plain(entry: tuple[int, ...]) -> tuple[int, ...]:
    """An entry of a snapshot with one way to say that there is no batch, and no transaction."""
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, first = entry
    if last_offset < 0:
        last_sequence, last_offset, offset_delta = -1, -1, 0
    return producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp, coordinator_epoch, max(first, -1)


def last_sequence(batch: Batch) -> int:
    """Of the last record of a batch; sequences wrap."""
    return -1 if batch.base_sequence == -1 else (batch.base_sequence + batch.last_offset_delta) % SEQUENCES


# ------------------------------------------------------------------------------------------------ epochs and time of a
# segment


@dataclass
class Facts:
    """What the batches of a segment show beside their own rules; offsets and positions are -1 where there is nothing.

    `epochs` holds (epoch, first offset, position) of every change of the leader epoch.
    """

    epochs: list[tuple[int, int, int]] = field(default_factory=list)
    backs: int = 0  # batches whose time is more than a week below that of the batch before
    back_position: int = -1
    back_offset: int = -1
    back_largest: int = 0  # ms
    first_timestamp: int = -1
    last_timestamp: int = -1
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    max_timestamp_position: int = -1


def facts(data: bytes, base_offset: int | None) -> Facts:
    """The facts of one segment, `LogSegment.recover`'s largest timestamp among them: it begins with -1 at the base
    offset."""
    found = Facts(max_timestamp_offset=-1 if base_offset is None else base_offset)
    before: int | None = None
    seen = False
    for item in oracle.walk(data, base_offset=base_offset):
        if not isinstance(item, Batch):
            before = None
            continue
        epoch = item.partition_leader_epoch
        changed = epoch is not None and epoch >= 0 and (not found.epochs or found.epochs[-1][0] != epoch)
        if epoch is not None and changed and len(found.epochs) < EPOCHS_KEPT:
            found.epochs.append((epoch, item.offset, item.position))
        if before is not None and item.max_timestamp >= 0 and before - item.max_timestamp > WEEK_MS:
            if not found.backs:
                found.back_position, found.back_offset = item.position, item.offset
            found.backs += 1
            found.back_largest = max(found.back_largest, before - item.max_timestamp)
        if not seen:
            found.first_timestamp = item.max_timestamp
        if item.max_timestamp > found.max_timestamp:
            found.max_timestamp = item.max_timestamp
            found.max_timestamp_offset, found.max_timestamp_position = item.last_offset, item.position
        found.last_timestamp = before = item.max_timestamp
        seen = True
    return found


# ------------------------------------------------------------------------------------------------------------------
# indexes


class BadEntry(NamedTuple):
    """An entry that a lookup would be misled by. Offsets are absolute; the batch is the one that it was held
    against."""

    problem: str
    entry: int
    stored: tuple[int, int]
    position: int
    found: int


class Difference(NamedTuple):
    """The first place where an offset index is not what a rebuild would write: the next entry there, and the one
    expected; -1 for none.

    Offsets are absolute.
    """

    entry: int
    offset: int
    position: int
    expected_offset: int
    expected_position: int


def offset_entries(slots: bytes) -> list[tuple[int, int]]:
    """Pairs of relative offset and position."""
    return list(struct.iter_unpack(">ii", slots))


def time_entries(slots: bytes) -> list[tuple[int, int]]:
    """Pairs of timestamp and relative offset."""
    return list(struct.iter_unpack(">qi", slots))


def ordered_offsets(slots: bytes) -> int:
    """How many leading entries of an offset index rise as they have to."""
    entries = offset_entries(slots[: len(slots) // 8 * 8])
    for number, entry in enumerate(entries):
        before = entries[number - 1] if number else (-1, -1)
        if entry[0] < 0 or entry[1] < 0 or entry[0] <= before[0] or entry[1] <= before[1]:
            return number
    return len(entries)


def ordered_times(slots: bytes) -> int:
    """How many leading entries of a time index rise as they have to."""
    entries = time_entries(slots[: len(slots) // 12 * 12])
    for number, (timestamp, offset) in enumerate(entries):
        if offset < 0 or (number and (timestamp <= entries[number - 1][0] or offset < entries[number - 1][1])):
            return number
    return len(entries)


def bad_offsets(data: bytes, base_offset: int, slots: bytes) -> list[BadEntry]:
    """Entries of an offset index, in order, that point into a batch, or at one after their offset.

    What points into damage or after the last batch is not checked.
    """
    bad = []
    known_last: int | None = None
    entries = offset_entries(slots)
    for item in oracle.walk(data, base_offset=base_offset):
        if not isinstance(item, Batch):
            continue
        for number, (offset, position) in enumerate(entries):
            if item.position < position < item.position + item.size:
                bad.append(
                    BadEntry("index/position", number, (base_offset + offset, position), item.position, item.position)
                )
            elif position == item.position and known_last is not None and base_offset + offset <= known_last:
                bad.append(
                    BadEntry("index/offset", number, (base_offset + offset, position), item.position, known_last)
                )
        known_last = item.furthest
    return bad


def bad_times(data: bytes, base_offset: int, slots: bytes) -> list[BadEntry]:
    """Entries of a time index, in order, whose timestamp is not the largest up to the batch of their offset.

    `timeindex/misses` is the bad one: an earlier batch has a later time, so that a lookup passes over it.
    """
    bad = []
    batches: list[Batch] = []
    linked: list[bool] = []
    before: object = None
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, Batch):
            batches.append(item)
            linked.append(isinstance(before, Batch))
        before = item
    for number, (timestamp, offset) in enumerate(time_entries(slots)):
        own = next((n for n, batch in enumerate(batches) if batch.last_offset >= base_offset + offset), None)
        if own is None:
            continue
        batch = batches[own]
        earlier = max((each.max_timestamp for each in batches[:own]), default=-1)
        running = max(earlier, batch.max_timestamp, -1)
        outside = batch.base_offset is not None and base_offset + offset < batch.base_offset
        if earlier > timestamp:
            bad.append(BadEntry("timeindex/misses", number, (timestamp, base_offset + offset), batch.position, earlier))
        elif batch.magic == 0 or (outside and not linked[own]):
            pass  # without a timestamp, or its own batch may be among the missing ones
        elif timestamp != running:
            bad.append(BadEntry("timeindex/wrong", number, (timestamp, base_offset + offset), batch.position, running))
        if outside and linked[own]:
            bad.append(
                BadEntry("timeindex/offset", number, (timestamp, base_offset + offset), batch.position, batch.offset)
            )
    return bad


def rebuilt_offsets(data: bytes, base_offset: int, interval: int = 4096) -> list[tuple[int, int]]:
    """The offset index that a broker would write for the segment when it recovers it."""
    entries = []
    last = 0
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, Batch) and item.position - last > interval:
            entries.append((item.last_offset - base_offset, item.position))
            last = item.position
    return entries


def rebuilt_times(data: bytes, base_offset: int, interval: int = 4096) -> list[tuple[int, int]]:
    """The time index that a broker would write for the segment when it recovers it."""
    entries: list[tuple[int, int]] = []
    last, largest, offset = 0, -1, base_offset
    for item in oracle.walk(data, base_offset=base_offset):
        if not isinstance(item, Batch):
            continue
        if item.max_timestamp > largest:
            largest, offset = item.max_timestamp, item.last_offset
        if item.position - last > interval:
            last = item.position
            if largest > (entries[-1][0] if entries else -1):
                entries.append((largest, offset - base_offset))
    if largest > (entries[-1][0] if entries else -1):
        entries.append((largest, offset - base_offset))
    return entries


def difference(data: bytes, base_offset: int, slots: bytes, interval: int = 4096) -> Difference | None:
    """Where an offset index first is not what a broker would write that goes on from its entries before the batch."""
    entries = [(base_offset + offset, position) for offset, position in offset_entries(slots)]
    for item in oracle.walk(data, base_offset=base_offset):
        if isinstance(item, Batch):
            number = sum(position < item.position for _, position in entries)
            last = entries[number - 1][1] if number else 0
            following = entries[number] if number < len(entries) else None
            actual = following if following is not None and following[1] == item.position else None
            due = (item.last_offset, item.position) if item.position - last > interval else None
            if due != actual:
                return Difference(number, *(following or (MISSING, MISSING)), *(due or (MISSING, MISSING)))
    return None
