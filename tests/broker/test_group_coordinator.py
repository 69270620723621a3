"""The state of a group coordinator after it has read its log: offsets, transactions, tombstones, groups, expiry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.broker.coordinator_loader import CoordinatorLoader, CoordinatorLoadSummary
from kdump.broker.group_coordinator_shard import GroupCoordinatorShard
from kdump.broker.group_metadata_manager import (
    ClassicGroup,
    ConsumerGroup,
    CoordinatorGroup,
    ShareGroup,
    StreamsGroup,
)
from kdump.broker.offset_metadata_manager import OffsetAndMetadata
from kdump.format.internal_topics.decoders import decoder_of
from kdump.format.naming import TopicPartition
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES
from support import build, plain_groups
from support.coordinator_records import MessageWriter, commit_key, commit_value
from support.laws import examples
from support.plain_groups import Commit, Marker

OF = TopicPartition("orders", 0)
WRITER = MessageWriter("consumer_offsets")
PROTOCOL = MessageWriter("consumer_protocol")


def commit(group: str, partition: int, offset: int | None, **how: Any) -> build.Record:
    key = commit_key(group, "orders", partition)
    return build.record(key, None if offset is None else commit_value(offset, **how))


def loaded(
    directory: Path, batches: Sequence[bytes], *, log_start_offset: int = 0
) -> tuple[GroupCoordinatorShard, CoordinatorLoadSummary]:
    folder = directory / "__consumer_offsets-0"
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    (partition,) = (each for each in discover([folder]) if isinstance(each, Partition))
    shard, decoder = GroupCoordinatorShard(), decoder_of("__consumer_offsets")
    assert decoder is not None
    loader = CoordinatorLoader(shard, decoder, MAX_BATCH_BYTES, log_start_offset=log_start_offset)
    return shard, loader.load(partition)


def log_of(written: plain_groups.Written) -> list[bytes]:
    found = []
    for number, entry in enumerate(written):
        if isinstance(entry, Marker):
            word = "COMMIT" if entry.commits else "ABORT"
            found.append(build.marker(word, base_offset=number, producer_id=entry.producer))
        else:
            inside = entry.producer is not None and entry.offset is not None
            found.append(
                build.batch(
                    [commit(entry.group, entry.partition, entry.offset)],
                    base_offset=number,
                    transactional=inside,
                    producer_id=entry.producer if inside and entry.producer is not None else -1,
                    producer_epoch=0 if inside else -1,
                )
            )
    return found


ENTRIES = st.one_of(
    st.builds(
        Commit,
        st.sampled_from(("a", "b")),
        st.integers(0, 1),
        st.one_of(st.none(), st.integers(0, 1000)),
        st.one_of(st.none(), st.integers(1, 3)),
    ),
    st.builds(Marker, st.integers(1, 3), st.booleans()),
)


@settings(max_examples=examples(400))
@given(st.lists(ENTRIES, max_size=14))
def test_offsets_as_the_rules_say(tmp_path_factory: pytest.TempPathFactory, written: list[Commit | Marker]) -> None:
    shard, summary = loaded(tmp_path_factory.mktemp("log"), log_of(written))
    manager = shard.offset_metadata_manager
    found = {
        (group, of.partition): value.committed_offset
        for group, offsets in manager.offsets.items()
        for of, value in offsets.items()
    }
    assert found == plain_groups.committed(written)
    waiting = {
        (group, of.partition): {(each.producer_id, each.offset.committed_offset) for each in several}
        for group in ("a", "b")
        for of, several in manager.pending_of(group).items()
    }
    assert waiting == plain_groups.pending(written)
    commits = [entry for entry in written if isinstance(entry, Commit)]
    assert summary.records == sum(use.records for use in summary.log_use.values()) == len(commits)
    assert sum(use.tombstones for use in summary.log_use.values()) == sum(entry.offset is None for entry in commits)
    assert (summary.damaged, summary.undecoded) == (0, 0)


def test_a_committed_transaction_does_not_replace_a_later_commit(tmp_path: Path) -> None:
    written = [Commit("g", 0, 5, 1), Commit("g", 0, 9), Marker(1, True)]
    assert plain_groups.committed(written) == {("g", 0): 9}
    shard, _ = loaded(tmp_path, log_of(written))
    assert shard.offset_metadata_manager.offsets["g"][OF].committed_offset == 9


def test_a_log_that_is_damaged_is_read_on(tmp_path: Path) -> None:
    batches = log_of([Commit("g", 0, 5), Commit("g", 0, 6), Commit("g", 0, 7)])
    batches[1] = batches[1][:-1] + b"\xff"
    shard, summary = loaded(tmp_path, batches)
    assert shard.offset_metadata_manager.offsets["g"][OF].committed_offset == 7
    assert (summary.damaged, summary.records) == (1, 2)


def test_what_cannot_be_decoded_is_counted(tmp_path: Path) -> None:
    later = build.record(commit_key("g", "orders", 0), b"\0\x63" + bytes(20))
    torn = build.record(commit_key("g", "orders", 0), commit_value(5)[:-3])
    no_type = build.record(b"\x7f\xff", b"\0\0")
    good = commit("g", 0, 4)
    batches = [build.batch([each], base_offset=number) for number, each in enumerate((good, later, torn, no_type))]
    shard, summary = loaded(tmp_path, batches)
    assert shard.offset_metadata_manager.offsets["g"][OF].committed_offset == 4
    assert (summary.undecoded, summary.unknown, summary.records) == (1, 2, 4)
    assert summary.log_use["g"].records == 3


def test_records_below_the_log_start_offset_are_gone(tmp_path: Path) -> None:
    shard, summary = loaded(tmp_path, log_of([Commit("g", 0, 5), Commit("h", 0, 6)]), log_start_offset=1)
    assert list(shard.offset_metadata_manager.offsets) == ["h"]
    assert summary.records == 1


# ---- groups


def replayed(*messages: tuple[str, dict[str, Any], int, dict[str, Any] | None]) -> GroupCoordinatorShard:
    """A shard after records, each given as (name, key fields, version, value fields)."""
    shard, decoder = GroupCoordinatorShard(), decoder_of("__consumer_offsets")
    assert decoder is not None
    for number, (name, key, version, value) in enumerate(messages):
        data = None if value is None else WRITER.value(name, version, value)
        shard.replay(number, -1, decoder.decode(WRITER.key(name, key), data))
    return shard


def subscription(*topics: str) -> bytes:
    return b"\0\0" + PROTOCOL.message("ConsumerProtocolSubscription", 0, {"topics": topics})


def classic(*members: dict[str, Any], protocol_type: str = "consumer", since_ms: int = 77) -> ClassicGroup:
    value = {
        "protocolType": protocol_type,
        "generation": 3,
        "protocol": "range" if members else None,
        "currentStateTimestamp": since_ms,
        "members": members,
    }
    shard = replayed(("GroupMetadata", {"group": "g"}, 3, value))
    found = shard.group_metadata_manager.groups["g"]
    assert isinstance(found, ClassicGroup)
    return found


def expires_ms(group: CoordinatorGroup, offset: OffsetAndMetadata, topic: str = "orders") -> int | None:
    """When an offset with a retention of 100 ms expires."""
    base = None if group.is_subscribed_to(topic) else group.base_timestamp_ms(offset)
    return None if base is None else offset.expires_ms(base, 100)


OFFSET = OffsetAndMetadata(0, 5, 0, "", 1000)


def test_expiry_of_classic_groups() -> None:
    """ClassicGroup.offsetExpirationCondition and isSubscribedToTopic."""
    simple = ClassicGroup()
    assert (simple.state, simple.is_simple, expires_ms(simple, OFFSET)) == ("Empty", True, 1100)
    assert expires_ms(classic(), OFFSET) == 177
    assert expires_ms(classic(since_ms=-1), OFFSET) == 1100
    assert expires_ms(classic(), OFFSET._replace(expire_timestamp_ms=5)) == 5
    member = {"memberId": "m", "clientId": "c", "clientHost": "/h", "subscription": subscription("orders")}
    stable = classic(member)
    assert (stable.state, stable.epoch, stable.members["m"].client_host) == ("Stable", 3, "/h")
    assert expires_ms(stable, OFFSET) is None
    assert expires_ms(stable, OFFSET, "other") == 1100
    # a subscription that cannot be read: the members may read every topic
    assert expires_ms(classic({**member, "subscription": b"\0"}), OFFSET, "other") is None
    # members of another protocol type, as those of Connect
    assert expires_ms(classic(member, protocol_type="connect"), OFFSET) is None
    assert expires_ms(classic(protocol_type="connect"), OFFSET) == 177


def test_a_group_is_deleted() -> None:
    empty = {"protocolType": "consumer", "generation": 0}
    shard = replayed(("GroupMetadata", {"group": "g"}, 3, empty), ("GroupMetadata", {"group": "g"}, 3, None))
    assert shard.group_metadata_manager.groups == {}


MEMBER = {"clientId": "c", "clientHost": "/h", "subscribedTopicNames": ["orders"], "subscribedTopicRegex": "pay.*"}
TOPIC_ID = "b4Cp498gSZKCAYrAuDdmcQ"


@pytest.mark.parametrize(
    ("prefix", "kind"), [("ConsumerGroup", ConsumerGroup), ("ShareGroup", ShareGroup), ("StreamsGroup", StreamsGroup)]
)
def test_a_group_of_members_through_its_life(prefix: str, kind: type[CoordinatorGroup]) -> None:
    group, of = {"groupId": "g"}, {"groupId": "g", "memberId": "m"}
    member = dict(MEMBER)
    current: dict[str, Any] = {"memberEpoch": 4, "previousMemberEpoch": 3, "state": 0}
    partitions = {"topicId": TOPIC_ID, "partitions": [0, 2]}
    if kind is StreamsGroup:
        member = {"clientId": "c", "clientHost": "/h"}
        current["state"] = 1
        current["activeTasks"] = [{"subtopologyId": TOPIC_ID, "partitions": [0, 2]}]
    else:
        if kind is ShareGroup:
            del member["subscribedTopicRegex"]
        current["assignedPartitions"] = [partitions]
    steps: list[tuple[str, dict[str, Any], int, dict[str, Any] | None]] = [
        (f"{prefix}MemberMetadata", of, 0, member),
        (f"{prefix}Metadata", group, 0, {"epoch": 4}),
        (f"{prefix}TargetAssignmentMetadata", group, 0, {"assignmentEpoch": 4}),
        (f"{prefix}CurrentMemberAssignment", of, 0, current),
    ]
    states = [replayed(*steps[:number]).group_metadata_manager.groups["g"].state for number in range(1, 5)]
    if kind is ShareGroup:
        assert states == ["Stable"] * 4
    else:
        assert states == ["Assigning", "Assigning", "Reconciling", "Stable"]
    found = replayed(*steps).group_metadata_manager.groups["g"]
    assert isinstance(found, kind)
    assert (found.epoch, found.members["m"].epoch) == (4, 4)
    assert found.members["m"].assigned == {TOPIC_ID: (0, 2)}
    left = [
        (f"{prefix}CurrentMemberAssignment", of, 0, None),
        (f"{prefix}MemberMetadata", of, 0, None),
        (f"{prefix}TargetAssignmentMetadata", group, 0, None),
    ]
    empty = replayed(*steps, *left).group_metadata_manager.groups["g"]
    assert (empty.state, empty.members) == ("Empty", {})
    assert replayed(*steps, *left, (f"{prefix}Metadata", group, 0, None)).group_metadata_manager.groups == {}


def test_expiry_of_the_other_groups() -> None:
    of = {"groupId": "g", "memberId": "m"}
    pattern = {"groupId": "g", "regularExpression": "pay.*"}
    consumer = replayed(
        ("ConsumerGroupMemberMetadata", of, 0, MEMBER),
        ("ConsumerGroupRegularExpression", pattern, 0, {"topics": ["payments"]}),
    ).group_metadata_manager.groups["g"]
    expected = {"orders": None, "payments": None, "other": 1100}
    assert {topic: expires_ms(consumer, OFFSET, topic) for topic in expected} == expected
    topology = {"subtopologies": [{"sourceTopics": ["orders"], "repartitionSourceTopics": [{"name": "payments"}]}]}
    streams = replayed(
        ("StreamsGroupMemberMetadata", of, 0, {"clientId": "c"}),
        ("StreamsGroupTopology", {"groupId": "g"}, 0, topology),
    ).group_metadata_manager.groups["g"]
    assert {topic: expires_ms(streams, OFFSET, topic) for topic in expected} == expected
    streams.members.clear()
    assert expires_ms(streams, OFFSET) == 1100
    assert expires_ms(ShareGroup(), OFFSET) is None


def test_names_of_topics_by_id() -> None:
    topic = {"topicId": TOPIC_ID, "topicName": "orders"}
    for name, value in (
        ("ConsumerGroupPartitionMetadata", {"topics": [topic]}),
        ("ShareGroupStatePartitionMetadata", {"initializedTopics": [topic]}),
    ):
        shard = replayed((name, {"groupId": "g"}, 0, value))
        assert shard.group_metadata_manager.topic_names == {TOPIC_ID: "orders"}


def test_a_simple_group_gets_members() -> None:
    """GroupMetadataManager.getOrMaybeCreatePersistedConsumerGroup."""
    shard = replayed(("OffsetCommit", {"group": "g", "topic": "orders"}, 3, {"offset": 5}))
    assert isinstance(shard.group_metadata_manager.groups["g"], ClassicGroup)
    shard = replayed(
        ("OffsetCommit", {"group": "g", "topic": "orders"}, 3, {"offset": 5}),
        ("ConsumerGroupMetadata", {"groupId": "g"}, 0, {"epoch": 1}),
    )
    assert isinstance(shard.group_metadata_manager.groups["g"], ConsumerGroup)
    assert shard.offset_metadata_manager.offsets["g"][OF].committed_offset == 5
