"""The share-partitions of a partition of `__share_group_state`, after a share coordinator has read it (KIP-932).

A snapshot is the whole state of a share-partition. An update has the batches that changed since, and the start offset
where that moved, else -1.

Sources: ShareCoordinatorShard, ShareGroupOffset and PersisterStateBatchCombiner of Kafka 4.3.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

from kdump.format.internal_topics.decoded import DecodedRecord
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.format.json_types import Fields

SHARE_SNAPSHOT: Final = 0
SHARE_UPDATE: Final = 1
UNINITIALIZED: Final = -1
DELIVERY_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}
"""The delivery states of a batch of records (org.apache.kafka.server.share.fetch.RecordState)."""
_MOST_UNCOMBINED: Final = 4096


class SharePartitionKey(NamedTuple):
    """A share-partition: the partition of a topic in a share group."""

    group_id: str
    topic_id: str
    partition: int


class PersisterStateBatch(NamedTuple):
    """Offsets [first, last] that have one delivery state and were delivered equally often."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareGroupOffset(NamedTuple):
    """The state of a share-partition. `start_offset` and `delivery_complete_count` are UNINITIALIZED without a value.

    `write_timestamp_ms` is that of the last snapshot. The batches of updates are behind those of the snapshot, and may
    overlap; `combine_state_batches` joins them.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    write_timestamp_ms: int
    state_batches: tuple[PersisterStateBatch, ...]

    def delivery_counts(self) -> dict[str, int]:
        """How many offsets from the start offset on are in each delivery state, by the names of DELIVERY_STATES."""
        found: dict[str, int] = {}
        for batch in combine_state_batches(self.state_batches, self.start_offset):
            name = DELIVERY_STATES.get(batch.delivery_state, str(batch.delivery_state))
            found[name] = found.get(name, 0) + batch.last_offset - batch.first_offset + 1
        return found


class ShareCoordinatorShard:
    """The share-partitions of one partition of `__share_group_state`."""

    def __init__(self) -> None:
        self.share_state: dict[SharePartitionKey, ShareGroupOffset] = {}

    def replay(self, record_offset: int, producer_id: int, decoded: DecodedRecord) -> str | None:
        """Apply a record. Returns its group, None for a record without one."""
        if decoded.key is None or decoded.key.type not in (SHARE_SNAPSHOT, SHARE_UPDATE):
            return None
        fields = decoded.key.fields
        partition = fields["partition"]
        assert isinstance(partition, int)
        key = SharePartitionKey(str(fields["groupId"]), str(fields["topicId"]), partition)
        if decoded.value is not None:
            before = self.share_state.get(key)
            if decoded.key.type == SHARE_SNAPSHOT or before is None:
                self.share_state[key] = _offset_of(decoded.value.fields)
            else:
                self.share_state[key] = _merged(before, decoded.value.fields)
        elif decoded.key.type == SHARE_SNAPSHOT and decoded.problem is None:
            self.share_state.pop(key, None)
        return key.group_id

    def replay_end_transaction_marker(self, producer_id: int, *, commits: bool) -> None:
        """Nothing in this topic is part of a transaction."""


def _batches(fields: "Fields") -> tuple[PersisterStateBatch, ...]:
    found = cast("Sequence[dict[str, int]]", fields["stateBatches"])
    return tuple(
        PersisterStateBatch(each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"])
        for each in found
    )


def _offset_of(fields: "Fields") -> ShareGroupOffset:
    numbers = cast("dict[str, int]", fields)
    return ShareGroupOffset(
        numbers["snapshotEpoch"],
        numbers.get("stateEpoch", 0),
        numbers["leaderEpoch"],
        numbers["startOffset"],
        numbers.get("deliveryCompleteCount", UNINITIALIZED),
        numbers.get("writeTimestamp", UNINITIALIZED),
        _batches(fields),
    )


def _merged(before: ShareGroupOffset, fields: "Fields") -> ShareGroupOffset:
    """The state after an update (ShareCoordinatorShard.merge)."""
    new = _offset_of(fields)
    start = before.start_offset if new.start_offset == UNINITIALIZED else new.start_offset
    batches = (*before.state_batches, *new.state_batches)
    if len(batches) > _MOST_UNCOMBINED:
        batches = combine_state_batches(batches, start)
    return before._replace(
        leader_epoch=before.leader_epoch if new.leader_epoch == UNINITIALIZED else new.leader_epoch,
        start_offset=start,
        delivery_complete_count=new.delivery_complete_count,
        state_batches=batches,
    )


def combine_state_batches(batches: Iterable[PersisterStateBatch], start_offset: int) -> tuple[PersisterStateBatch, ...]:
    """The batches without overlaps from the start offset on, in order of their offsets.

    Of batches with the same offset the one with the highest delivery count holds, then the one with the highest state.
    """
    low = max(start_offset, 0)
    left = sorted(
        each._replace(first_offset=max(each.first_offset, low)) for each in batches if each.last_offset >= low
    )
    left = [each for each in left if each.first_offset <= each.last_offset]
    edges = sorted({edge for each in left for edge in (each.first_offset, each.last_offset + 1)})
    here: list[tuple[int, int, int]] = []
    found: list[PersisterStateBatch] = []
    number = 0
    for at, stop in pairwise(edges):
        while number < len(left) and left[number].first_offset <= at:
            _, last, state, count = left[number]
            heappush(here, (-count, -state, last))
            number += 1
        while here and here[0][2] < at:
            heappop(here)
        if not here:
            continue
        made = PersisterStateBatch(at, stop - 1, -here[0][1], -here[0][0])
        if found and found[-1].last_offset == at - 1 and found[-1][2:] == made[2:]:
            found[-1] = found[-1]._replace(last_offset=stop - 1)
        else:
            found.append(made)
    return tuple(found)
