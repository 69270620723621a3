"""The state of share-partitions: snapshots, updates, and batches that overlap."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.broker.share_coordinator_shard import (
    PersisterStateBatch,
    ShareCoordinatorShard,
    SharePartitionKey,
    combine_state_batches,
)
from kdump.format.internal_topics.decoders import decoder_of
from support.coordinator_records import MessageWriter
from support.laws import examples

TOPIC_ID = "b4Cp498gSZKCAYrAuDdmcQ"
KEY = SharePartitionKey("s", TOPIC_ID, 1)
WRITER = MessageWriter("share_group_state")

BATCHES = st.lists(
    st.builds(
        lambda first, more, state, count: PersisterStateBatch(first, first + more, state, count),
        st.integers(0, 30),
        st.integers(-1, 12),
        st.sampled_from((0, 2, 4)),
        st.integers(0, 3),
    ),
    max_size=8,
)


@settings(max_examples=examples(500))
@given(BATCHES, st.integers(-1, 20))
def test_each_offset_has_the_highest_delivery(batches: list[PersisterStateBatch], start: int) -> None:
    expected: dict[int, tuple[int, int]] = {}
    for each in batches:
        for offset in range(max(each.first_offset, start), each.last_offset + 1):
            expected[offset] = max(expected.get(offset, (-1, -1)), (each.delivery_count, each.delivery_state))
    found = combine_state_batches(batches, start)
    shown = {
        offset: (each.delivery_count, each.delivery_state)
        for each in found
        for offset in range(each.first_offset, each.last_offset + 1)
    }
    assert shown == expected
    assert sum(each.last_offset - each.first_offset + 1 for each in found) == len(expected)
    for one, other in itertools.pairwise(found):
        assert one.last_offset + 1 < other.first_offset or one[2:] != other[2:]
        assert one.last_offset < other.first_offset


def test_snapshots_and_updates() -> None:
    shard, decoder = ShareCoordinatorShard(), decoder_of("__share_group_state")
    assert decoder is not None
    of = {"groupId": "s", "topicId": TOPIC_ID, "partition": 1}

    def write(name: str, value: dict[str, object] | None) -> None:
        data = None if value is None else WRITER.value(name, 0, value)
        assert shard.replay(0, -1, decoder.decode(WRITER.key(name, of), data)) == "s"

    def batch(first: int, last: int, state: int, count: int = 1) -> dict[str, int]:
        return {"firstOffset": first, "lastOffset": last, "deliveryState": state, "deliveryCount": count}

    write("ShareSnapshot", {"startOffset": 5, "leaderEpoch": 2, "stateBatches": [batch(5, 14, 0)], "writeTimestamp": 9})
    assert shard.share_state[KEY].delivery_counts() == {"available": 10}
    write("ShareUpdate", {"startOffset": -1, "leaderEpoch": -1, "stateBatches": [batch(7, 8, 2)]})
    state = shard.share_state[KEY]
    assert (state.start_offset, state.leader_epoch, state.write_timestamp_ms) == (5, 2, 9)
    assert state.delivery_counts() == {"available": 8, "acknowledged": 2}
    write(
        "ShareUpdate",
        {"startOffset": 9, "leaderEpoch": 3, "stateBatches": [batch(9, 9, 4)], "deliveryCompleteCount": 1},
    )
    state = shard.share_state[KEY]
    assert (state.start_offset, state.leader_epoch, state.delivery_complete_count) == (9, 3, 1)
    assert state.delivery_counts() == {"archived": 1, "available": 5}
    write("ShareSnapshot", {"startOffset": 20})
    assert shard.share_state[KEY].delivery_counts() == {}
    write("ShareSnapshot", None)
    assert shard.share_state == {}


def test_many_updates_stay_few_batches() -> None:
    shard, decoder = ShareCoordinatorShard(), decoder_of("__share_group_state")
    assert decoder is not None
    of = {"groupId": "s", "topicId": TOPIC_ID, "partition": 1}
    for offset in range(9000):
        value = {"stateBatches": [{"firstOffset": offset, "lastOffset": offset, "deliveryState": 2}]}
        shard.replay(offset, -1, decoder.decode(WRITER.key("ShareUpdate", of), WRITER.value("ShareUpdate", 0, value)))
    assert len(shard.share_state[KEY].state_batches) < 5000
    assert shard.share_state[KEY].delivery_counts() == {"acknowledged": 9000}
