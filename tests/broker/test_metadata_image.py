"""Metadata images: each record, transactions, snapshots and the log after them, damage, and what is committed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.broker.metadata_image.image_entries import differences, entries_of, is_sensitive
from kdump.broker.metadata_image.image_reader import ClusterMetadata, read_image
from kdump.broker.metadata_image.metadata_image import MetadataImage
from kdump.broker.metadata_image.metadata_log import find_metadata_log
from kdump.broker.metadata_image.record_fields import ReplayError
from kdump.errors import SourceError
from support import build
from support.laws import examples
from support.metadata_logs import (
    Change,
    History,
    batch_of,
    change,
    image_of,
    message_of,
    records_of,
    snapshot,
    snapshot_name,
    uuid_of,
    value_of,
    write_log,
)

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
T, P, C = uuid_of(0), uuid_of(1), uuid_of(2)
TOPIC = change("TopicRecord", name="orders", topicId=T)
PARTITION = change(
    "PartitionRecord", partitionId=0, topicId=T, replicas=[1, 2], isr=[1, 2], leader=1, leaderEpoch=4, partitionEpoch=7
)
BROKER = change("RegisterBrokerRecord", brokerId=1, brokerEpoch=5, incarnationId=P, fenced=True)


def read(directory: Path, offset: int | None = None) -> ClusterMetadata:
    return read_image(find_metadata_log(str(directory)), offset)


def shown(found: ClusterMetadata | MetadataImage) -> list[Any]:
    image = found.image if isinstance(found, ClusterMetadata) else found
    return [each for each in entries_of(image) if each.kind != "voter" and each.key != ("kraft.version",)]


def setting(name: str, value: str | None, topic: str = "orders") -> Change:
    return change("ConfigRecord", resourceType=2, resourceName=topic, name=name, value=value)


def moved(**fields: Any) -> Change:
    return change("PartitionChangeRecord", partitionId=0, topicId=T, **fields)


def test_a_partition_change_changes_what_it_names() -> None:
    image = image_of([TOPIC, PARTITION, moved(isr=[1]), moved(leader=2, eligibleLeaderReplicas=[1], lastKnownElr=[2])])
    partition = image.topics.by_name["orders"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((1,), 2, 5, 9)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((1,), (2,))
    # the same leader again is a new epoch; a new replica has no directory yet
    image.replay(message_of(moved(leader=2, replicas=[2, 3], directories=[P, C])))
    partition = image.topics.by_name["orders"].partitions[0]
    assert (partition.leader_epoch, partition.directories) == (6, (P, C))
    image.replay(message_of(change("ClearElrRecord", topicName="orders")))
    image.replay(message_of(change("ClearElrRecord", topicName="")))
    cleared = image.topics.by_name["orders"].partitions[0]
    assert cleared == partition._replace(
        eligible_leader_replicas=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
    )


def test_what_does_not_fit_changes_nothing() -> None:
    image = image_of([TOPIC, PARTITION, BROKER])
    before = list(entries_of(image))
    for item, why in (
        (moved(replicas=[1, 2, 3], directories=[P]), "there are 1 directories for 3 replicas"),
        (moved(leaderRecoveryState=7), "leaderRecoveryState is 7, which Kafka does not know"),
        (change("RemoveTopicRecord", topicId=P), f"there is no topic with the id {P}"),
        (change("FenceBrokerRecord", id=1, epoch=6), "broker 1 has epoch 5, and the record is about epoch 6"),
        (change("UnfenceBrokerRecord", id=3, epoch=6), "broker 3 is not registered"),
        (change("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=5, fenced=9), "fenced is 9"),
        (change("RemoveAccessControlEntryRecord", id=P), f"there is no ACL with the id {P}"),
        (change("ClearElrRecord", topicName="none"), "there is no topic none"),
    ):
        with pytest.raises(ReplayError, match=why):
            image.replay(message_of(item))
    assert list(entries_of(image)) == before


def test_a_topic_takes_its_configuration_along() -> None:
    image = image_of([TOPIC, PARTITION, setting("retention.ms", "5"), setting("retention.ms", "7", "other")])
    image.replay(message_of(change("RemoveTopicRecord", topicId=T)))
    assert not image.topics.by_id
    assert not image.topics.by_name
    assert image.configurations.by_resource == {("topic", "other"): {"retention.ms": "7"}}
    image.replay(message_of(setting("retention.ms", None, "other")))
    assert not image.configurations.by_resource


def test_a_broker_comes_and_goes() -> None:
    image = image_of([BROKER, change("UnfenceBrokerRecord", id=1, epoch=5)])
    assert not image.cluster.brokers[1].fenced
    fields: dict[str, Any] = {"fenced": 1, "inControlledShutdown": 1, "logDirs": [P], "cordonedLogDirs": [P]}
    image.replay(message_of(change("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=5, **fields)))
    image.replay(message_of(change("BrokerRegistrationChangeRecord", brokerId=1, brokerEpoch=5)))
    broker = image.cluster.brokers[1]
    assert (broker.fenced, broker.in_controlled_shutdown, broker.directories, broker.cordoned_directories) == (
        *(True, True),
        *((P,), (P,)),
    )
    image.replay(message_of(change("UnregisterBrokerRecord", brokerId=1, brokerEpoch=5)))
    assert not image.cluster.brokers


@given(st.integers(0, 1 << 32), st.integers(0, 60))
@settings(max_examples=examples(40))
def test_a_snapshot_and_the_log_after_it_are_the_log_alone(
    tmp_path_factory: pytest.TempPathFactory, seed: int, end: int
) -> None:
    changes = History(random.Random(seed)).sound(60)
    directory = write_log(tmp_path_factory.mktemp("law") / "__cluster_metadata-0", changes, per_batch=1 + seed % 5)
    alone = read(directory, end - 1) if end else None
    if alone is not None and alone.open_transaction is not None:
        end = alone.open_transaction.offset  # Kafka's snapshots end before a transaction
        alone = read(directory, end - 1)
    written = list(records_of(MetadataImage() if alone is None else alone.image))
    (directory / snapshot_name(end)).write_bytes(snapshot(written))
    for offset in (max(0, end - 1), (end + 59) // 2, None):
        with_it = read(directory, offset)
        shutil.move(directory / snapshot_name(end), directory.parent)
        without = read(directory, offset)
        shutil.move(directory.parent / snapshot_name(end), directory)
        assert shown(with_it) == shown(without)
        assert with_it.offset == without.offset
        assert (with_it.snapshot is not None) == (offset is None or end <= offset + 1)
        assert not with_it.problems


def test_snapshots_of_a_broker_have_what_its_log_has(tmp_path: Path) -> None:
    for case in ("image", "metadata"):
        whole = shutil.copytree(FIXTURES / case / "__cluster_metadata-0", tmp_path / case / "__cluster_metadata-0")
        alone = shutil.copytree(whole, tmp_path / f"{case}-alone" / "__cluster_metadata-0")
        newest = find_metadata_log(str(whole)).snapshots[0]
        (alone / Path(newest.file.path).name).unlink()
        for offset in (newest.end_offset - 1, newest.end_offset + 7, None):
            found, without = read(whole, offset), read(alone, offset)
            assert list(entries_of(found.image)) == list(entries_of(without.image))
            assert found.snapshot is not None
            assert found.snapshot.end_offset == newest.end_offset
            assert without.snapshot is not None
            assert without.snapshot.end_offset == 0


def test_the_image_of_the_fixture() -> None:
    found = read(FIXTURES / "image")
    image = found.image
    assert sorted(image.topics.by_name) == ["accounts", "left", "moved", "orders"]
    left = image.topics.by_name["left"].partitions[0]
    assert (left.replicas, left.adding_replicas) == ((1, 2), (2,))
    assert image.topics.by_name["moved"].partitions[0].replicas == (2,)
    assert [voter.voter_id for voter in image.voters.voters or ()] == [1]
    assert [voter.voter_id for voter in read(FIXTURES / "image", 93).image.voters.voters or ()] == [1, 2]
    assert image.features.finalized["share.version"] == 1
    assert "transaction.version" not in image.features.finalized
    assert read(FIXTURES / "image", 84).image.features.finalized["transaction.version"] == 2
    assert len(image.acls.acls) == 6
    assert len(image.delegation_tokens.tokens) == 2
    assert set(image.scram.credentials) == {
        *(("SCRAM-SHA-256", user) for user in ("admin", "alice", "bob")),
        ("SCRAM-SHA-512", "bob"),
    }
    assert (found.high_watermark, found.source, found.uncommitted_records) == (122, "only-voter", 0)


@pytest.mark.parametrize(
    ("end", "names"), [(None, ["a"]), ("EndTransactionRecord", ["a", "b", "c"]), ("AbortTransactionRecord", ["a", "c"])]
)
def test_records_of_a_transaction_count_when_it_ends(tmp_path: Path, end: str | None, names: list[str]) -> None:
    def topic(name: str, number: int) -> Change:
        return change("TopicRecord", name=name, topicId=uuid_of(number))

    changes = [topic("a", 1), change("BeginTransactionRecord", name="boot"), topic("b", 2)]
    if end is not None:
        changes += [change(end), topic("c", 3)]
    directory = write_log(tmp_path / "__cluster_metadata-0", changes)
    found = read(directory)
    assert sorted(found.image.topics.by_name) == names
    assert sorted(read(directory, 2).image.topics.by_name) == ["a"]
    assert read(directory, 2).open_transaction == (1, "boot", 1)
    assert (found.open_transaction is None) == (end is not None)
    assert (found.committed_transactions, found.aborted_transactions) == (
        int(end == "EndTransactionRecord"),
        int(end == "AbortTransactionRecord"),
    )


def test_bounds_of_transactions_that_do_not_fit(tmp_path: Path) -> None:
    begin = change("BeginTransactionRecord")
    changes = [change("EndTransactionRecord"), change("AbortTransactionRecord"), begin, TOPIC, begin]
    found = read(write_log(tmp_path / "__cluster_metadata-0", changes))
    assert [(each.offset, each.reason) for each in found.problems] == [
        (0, "no transaction has begun"),
        (1, "no transaction has begun"),
        (4, "the transaction that began at offset 2 has not ended"),
    ]


def test_what_cannot_be_decoded_is_said(tmp_path: Path) -> None:
    unknown = b"\x01\x7e\x00\x00"
    newer = bytearray(value_of(TOPIC))
    newer[2] = 9
    found = read(write_log(tmp_path / "__cluster_metadata-0", [unknown, bytes(newer), TOPIC, b""]))
    assert [each.offset for each in found.problems] == [0, 1, 3]
    assert found.problems[0].reason == "record type 126 of __cluster_metadata is not known"
    assert "orders" in found.image.topics.by_name


def test_damage_ends_the_image(tmp_path: Path) -> None:
    changes = [change("TopicRecord", name=f"t{number}", topicId=uuid_of(number)) for number in range(9)]
    directory = write_log(tmp_path / "__cluster_metadata-0", changes)
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    second = len(batch_of(changes[:3], 0))
    data[second + 70] ^= 1
    log.write_bytes(data)
    found = read(directory)
    assert sorted(found.image.topics.by_name) == ["t0", "t1", "t2"]
    assert (found.offset, found.missing_from, found.is_complete) == (2, 3, False)
    assert found.damage is not None
    assert found.damage.batch is not None
    assert found.damage.batch.position == second
    assert read(directory, 2).is_complete
    # a later snapshot has what the damage hides, an earlier one does not
    (directory / snapshot_name(1)).write_bytes(snapshot(changes[:1]))
    assert read(directory).offset == 2
    (directory / snapshot_name(6)).write_bytes(snapshot(changes[:6]))
    assert sorted(read(directory).image.topics.by_name) == [f"t{number}" for number in range(9)]
    assert read(directory).is_complete
    assert read(directory, 4).offset == 2


def test_a_hole_between_segments_ends_the_image(tmp_path: Path) -> None:
    changes = [change("TopicRecord", name=f"t{number}", topicId=uuid_of(number)) for number in range(9)]
    directory = write_log(tmp_path / "__cluster_metadata-0", changes[:3])
    write_log(directory, changes[6:], first=6)
    found = read(directory)
    assert (found.offset, found.missing_from, found.damage) == (2, 3, None)
    (directory / snapshot_name(5)).write_bytes(snapshot(changes[:5]))
    assert (read(directory).offset, read(directory).missing_from) == (4, 5)
    (directory / f"{0:020d}.log").unlink()
    with pytest.raises(SourceError, match="the log begins with offset 6, and the newest whole snapshot ends before 5"):
        read(directory)
    assert read(directory, 4).offset == 4


def test_a_torn_last_batch_is_the_end(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "__cluster_metadata-0", [TOPIC, PARTITION], per_batch=1)
    log = directory / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-3])
    found = read(directory)
    assert (found.offset, found.missing_from, found.is_complete) == (0, None, True)
    assert found.damage is not None
    assert not read(directory, 1).is_complete
    with pytest.raises(SourceError, match="the log ends with offset 1; there is no offset 7"):
        read(write_log(tmp_path / "whole" / "__cluster_metadata-0", [TOPIC, PARTITION]), 7)


def test_a_snapshot_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "__cluster_metadata-0", [TOPIC, PARTITION, moved(isr=[2])])
    (directory / snapshot_name(2)).write_bytes(snapshot([TOPIC, PARTITION], footer=False))
    damaged = bytearray(snapshot([TOPIC, PARTITION]))
    damaged[-40] ^= 1
    (directory / snapshot_name(1)).write_bytes(damaged)
    found = read(directory)
    assert found.snapshot is None
    assert [(each.snapshot.end_offset, each.damage is None) for each in found.unusable] == [(2, True), (1, False)]
    assert found.image.topics.by_name["orders"].partitions[0].isr == (2,)
    (directory / f"{0:020d}.log").unlink()
    with pytest.raises(SourceError, match="no whole snapshot"):
        read(directory)


def cluster_log(directory: Path, voters: list[build.Voter], meta: str = "") -> Path:
    """A log with these voters whose snapshot ends before the third record."""
    path = directory / "__cluster_metadata-0"
    path.mkdir(parents=True)
    controls = [build.kraft_version(), build.kraft_voters(voters)]
    (path / snapshot_name(2)).write_bytes(snapshot([TOPIC, PARTITION], controls))
    (path / f"{0:020d}.log").write_bytes(batch_of([TOPIC, PARTITION], 0) + batch_of([moved(isr=[2]), BROKER], 2))
    if meta:
        (directory / "meta.properties").write_text(meta)
    return path


def test_what_lies_above_the_last_snapshot_may_not_be_committed(tmp_path: Path) -> None:
    one, other = build.Voter(1, bytes(15) + b"\x01"), build.Voter(2, bytes(15) + b"\x02")
    found = read(cluster_log(tmp_path / "two", [one, other]))
    assert (found.high_watermark, found.source, found.uncommitted_records) == (2, "snapshot", 2)
    assert found.committed is not None
    changed = {
        (each.entry.kind, each.before is None) for each in differences(found.committed, list(entries_of(found.image)))
    }
    assert changed == {("partition", False), ("broker", True)}
    below = read(tmp_path / "two", 1)
    assert (below.high_watermark, below.uncommitted_records, below.committed) == (2, 0, None)
    # what the only voter has written is committed, and what another node has is so when a snapshot says it
    found = read(cluster_log(tmp_path / "one", [one]))
    assert (found.high_watermark, found.source, found.uncommitted_records) == (4, "only-voter", 0)
    mine = "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"
    assert read(cluster_log(tmp_path / "mine", [one], mine)).source == "only-voter"
    observer = mine.replace("node.id=1", "node.id=7").replace("AQ\n", "Bw\n")
    assert read(cluster_log(tmp_path / "observer", [one], observer)).source == "snapshot"


def test_without_a_snapshot_and_with_several_voters_nothing_is_known(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "__cluster_metadata-0", [TOPIC], first=1)
    leader = build.control_batch([build.leader_change(1, [1, 2, 3], [1])], base_offset=0)
    (directory / f"{0:020d}.log").write_bytes(leader + batch_of([TOPIC], 1))
    (directory / f"{1:020d}.log").unlink()
    found = read(directory)
    assert (found.leader_id, found.high_watermark, found.source, found.uncommitted_records) == (1, None, None, None)
    (directory / f"{0:020d}.log").write_bytes(
        build.control_batch([build.leader_change(1, [1], [1])], base_offset=0) + batch_of([TOPIC], 1)
    )
    assert read(directory).source == "only-voter"


def test_what_names_no_metadata_log(tmp_path: Path) -> None:
    for path, why in (
        (FIXTURES / "image" / "orders-0", "not of __cluster_metadata"),
        (tmp_path, "no __cluster_metadata-0 here"),
        (tmp_path / "none", "no such file"),
    ):
        with pytest.raises(SourceError, match=why):
            find_metadata_log(str(path))
    assert read(FIXTURES / "metadata" / "bootstrap.checkpoint").image.features.metadata_version is not None


def test_names_that_kafka_takes_for_sensitive() -> None:
    for kind, name, expected in (
        ("broker", "ssl.keystore.password", True),
        ("broker", "listener.name.sasl.plain.sasl.jaas.config", True),
        ("broker", "listener.name.a.ssl.truststore.type", False),
        ("broker", "log.retention.ms", False),
        ("broker", "unknown", True),
        ("topic", "retention.ms", False),
        ("topic", "log.retention.ms", True),
        ("group", "consumer.session.timeout.ms", False),
        ("client-metrics", "anything", False),
        ("unknown", "retention.ms", True),
    ):
        assert is_sensitive(kind, name) is expected, (kind, name)
