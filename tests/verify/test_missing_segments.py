"""What verify, and a conversion, say of offsets that are missing between segments, by what is known of the topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kdump
from kdump.broker.metadata_image import image_reader
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.verify.findings import Finding, Severity
from support import build
from support.command_runs import run_inside
from support.directories import TOPIC_ID, metadata
from support.metadata_logs import Change, change, value_of

INFO, WARNING, ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR
HOLE = 3, 6


def batch(offset: int, key: bytes | None = b"k", **how: int) -> bytes:
    return build.batch([build.record(key, b"v%d" % offset, timestamp=1000 + offset)], base_offset=offset, **how)


def copy(broker: Path, key: bytes | None = b"k") -> Path:
    """A copy of t-0 that lacks offsets between its two segments, in a log directory."""
    place = broker / "t-0"
    place.mkdir(parents=True)
    for part in (range(3), range(6, 9)):
        (place / f"{part[0]:020}.log").write_bytes(b"".join(batch(offset, key) for offset in part))
    (place / "partition.metadata").write_bytes(metadata())
    (broker / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=c\n")
    (broker / "recovery-point-offset-checkpoint").write_bytes(build.checkpoint("t 0 0"))
    return place


def cluster(place: Path, policy: str | None, name: str = "t") -> Path:
    """The metadata log of a cluster that has the topic, with this cleanup.policy."""
    made: list[Change] = [
        change("TopicRecord", name=name, topicId=TOPIC_ID),
        change("PartitionRecord", topicId=TOPIC_ID, partitionId=0, replicas=[1], isr=[1], leader=1),
    ]
    if policy is not None:
        how = {"name": "cleanup.policy", "value": policy}
        made.append(change("ConfigRecord", resourceType=2, resourceName=name, **how))
    place.mkdir(parents=True)
    batches = [
        build.batch([build.record(None, value_of(each), timestamp=1)], base_offset=number, epoch=1)
        for number, each in enumerate(made)
    ]
    (place / f"{0:020}.log").write_bytes(b"".join(batches))
    return place


def said(path: Path, **how: object) -> Finding:
    options = kdump.VerifyOptions(**how)  # type: ignore[arg-type]
    found = [each for report in kdump.verify_logs(kdump.discover(str(path)), options) for each in report.findings]
    (missing,) = (each for each in found if each.code == "segment/missing")
    assert (missing.data["previous"], missing.data["base"]) == (HOLE[0] - 1, HOLE[1])
    return missing


def nothing(broker: Path) -> None:
    pass


def checkpoint(*lines: str) -> Callable[[Path], object]:
    return lambda broker: (broker / "cleaner-offset-checkpoint").write_bytes(build.checkpoint(*lines))


def with_policy(policy: str | None, name: str = "t") -> Callable[[Path], object]:
    return lambda broker: cluster(broker / "__cluster_metadata-0", policy, name)


def file(name: str, content: bytes = b"") -> Callable[[Path], object]:
    return lambda broker: (broker / "t-0" / name).write_bytes(content)


def producer(last_offset: int) -> Callable[[Path], object]:
    return file(f"{HOLE[1]:020}.snapshot", build.producer_snapshot(build.producer(9, last_offset=last_offset)))


def epochs(*lines: str) -> Callable[[Path], object]:
    return file("leader-epoch-checkpoint", build.checkpoint(*lines))


EVIDENCE: dict[str, tuple[Callable[[Path], object], Severity | None]] = {
    "nothing": (nothing, None),
    "its checkpoint": (checkpoint("t 0 5"), INFO),
    "the checkpoint of another partition of the topic": (checkpoint("t 4 5"), INFO),
    "the checkpoint of another topic": (checkpoint("u 0 5"), None),
    "compact": (with_policy("compact"), INFO),
    "compact,delete": (with_policy("compact,delete"), INFO),
    "delete": (with_policy("delete"), ERROR),
    "no policy, which is delete": (with_policy(None), ERROR),
    "another topic in the metadata": (with_policy("delete", "u"), None),
    "an index in the hole": (file(f"{3:020}.index"), ERROR),
    "a snapshot in the hole": (file(f"{4:020}.snapshot", build.producer_snapshot()), ERROR),
    "a snapshot where a follower stopped": (file(f"{3:020}.snapshot", build.producer_snapshot()), None),
    "a producer in the hole": (
        file(f"{6:020}.snapshot", build.producer_snapshot(build.producer(9, last_offset=5))),
        ERROR,
    ),
    "a producer before the hole": (
        file(f"{6:020}.snapshot", build.producer_snapshot(build.producer(9, last_offset=2))),
        None,
    ),
    "an epoch in the hole": (epochs("0 0", "1 4"), ERROR),
    "an epoch where a leader began": (epochs("0 0", "1 3"), None),
}
"""None: it is not known, and an error, as records may be lost."""


@pytest.mark.parametrize("name", EVIDENCE)
def test_what_is_said_follows_from_the_evidence(name: str, tmp_path: Path) -> None:
    add, expected = EVIDENCE[name]
    place = copy(tmp_path / "broker")
    add(tmp_path / "broker")
    found = said(place)
    assert found.severity is (ERROR if expected is None else expected)
    assert ("not known whether a log cleaner removed them" in found.message) == (expected is None)
    assert found.data.get("unproven", False) == (expected is None)


def test_a_record_without_a_key_shows_that_no_cleaner_went_over_the_log(tmp_path: Path) -> None:
    assert said(copy(tmp_path, None)).severity is ERROR


def test_the_option_decides(tmp_path: Path) -> None:
    place = copy(tmp_path / "broker", None)
    with_policy("delete")(tmp_path / "broker")
    assert said(place, compacted=True).severity is INFO
    other = copy(tmp_path / "other")
    assert said(other, compacted=False).severity is ERROR


def test_a_metadata_log_is_named(tmp_path: Path) -> None:
    place = copy(tmp_path / "broker")
    for policy, expected, status in (("compact", INFO, 0), ("delete", ERROR, 1)):
        log = cluster(tmp_path / policy / "__cluster_metadata-0", policy)
        for path in (log, log.parent):
            assert said(place, metadata=str(path)).severity is expected
            assert run_inside(tmp_path, "verify", "--metadata", str(path), str(place)).status == status
    assert run_inside(tmp_path, "verify", str(place)).status == 1
    ran = run_inside(tmp_path, "verify", "--metadata", "nowhere", str(place))
    assert (ran.status, "nowhere" in ran.problems) == (3, True)
    ran = run_inside(tmp_path, "verify", "--fingerprint", "f", "--metadata", str(log), str(place))
    assert (ran.status, "leave out --metadata" in ran.problems) == (2, True)


@pytest.mark.parametrize("named", ["", "__cluster_metadata-0"])
def test_a_metadata_log_that_is_named_is_read_once(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, read = copy(tmp_path / "b"), list[str]()
    log = cluster(tmp_path / "c" / "__cluster_metadata-0", "compact")
    original = image_reader.read_image
    monkeypatch.setattr(image_reader, "read_image", lambda log: (read.append(log.path), original(log))[1])
    assert run_inside(tmp_path, "verify", "--metadata", str(log.parent / named), str(place)).status == 0
    assert read == [str(log)]


def test_what_is_missing_in_a_segment_of_a_compacted_topic_is_no_warning(tmp_path: Path) -> None:
    """Nor is it where the name of a topic says that it is compacted."""
    for name, policy, expected in (
        ("t", "compact", INFO),
        ("t", "delete", WARNING),
        ("__consumer_offsets", None, INFO),
    ):
        broker = tmp_path / f"{name} {policy}"
        place = copy(broker)
        (place / f"{6:020}.log").write_bytes(batch(6) + batch(8))
        place = place.rename(broker / f"{name}-0")
        cluster(broker / "__cluster_metadata-0", policy)
        (report,) = kdump.verify_logs(kdump.discover(str(place)))
        assert [each.severity for each in report.findings if each.code == "offset/gap"] == [expected]


@pytest.mark.daily(4)
@pytest.mark.parametrize("name", EVIDENCE)
def test_a_conversion_and_a_recovery_say_the_same(name: str, tmp_path: Path) -> None:
    add, expected = EVIDENCE[name]
    place = copy(tmp_path / "broker")
    add(tmp_path / "broker")
    results = list(kdump.convert_logs(kdump.discover(str(place)), str(tmp_path / "out")))
    findings = [each for result in results if isinstance(result, ConvertFindings) for each in result.findings]
    found = [each.severity for each in findings if each.code == "segment/missing"]
    of_logs = [result.missing for result in results if isinstance(result, PartitionConversion)]
    missing = [(each.first_offset, each.last_offset, each.exact) for of_log in of_logs for each in of_log]
    assert found == ([] if expected is INFO else [ERROR])
    assert missing == ([] if expected is INFO else [(HOLE[0], HOLE[1] - 1, expected is ERROR)])
    (plan,) = (each for each in kdump.plan_recovery(kdump.discover(str(place))) if hasattr(each, "lost"))
    assert plan.lost.damaged.exact == (expected is ERROR)


def begins_late(broker: Path, key: bytes | None = b"k") -> Path:
    """A copy of t-0 whose first batch is gone."""
    place = copy(broker, key)
    (place / f"{6:020}.log").unlink()
    (place / f"{0:020}.log").write_bytes(batch(1, key) + batch(2, key))
    return place


BEGINS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "nothing": (nothing, False),
    "its checkpoint": (checkpoint("t 0 5"), False),
    "compact": (with_policy("compact"), False),
    "delete": (with_policy("delete"), True),
    "no policy, which is delete": (with_policy(None), True),
    "an epoch that begins there": (lambda broker: (with_policy("delete")(broker), epochs("3 1")(broker)), False),
    "an epoch that begins before": (lambda broker: (with_policy("delete")(broker), epochs("3 0")(broker)), True),
    "a log start offset": (
        lambda broker: (
            with_policy("delete")(broker),
            (broker / "log-start-offset-checkpoint").write_bytes(build.checkpoint("t 0 1")),
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", BEGINS)
def test_a_first_batch_above_the_name_of_its_file(name: str, tmp_path: Path) -> None:
    """As a log cleaner leaves one, where it goes over the topic: then nothing is said."""
    add, is_lost = BEGINS[name]
    place = begins_late(tmp_path / "broker")
    add(tmp_path / "broker")
    (report,) = kdump.verify_logs(kdump.discover(str(place)))
    results = list(kdump.convert_logs(kdump.discover(str(place)), str(tmp_path / "out")))
    of_convert = [each for result in results if isinstance(result, ConvertFindings) for each in result.findings]
    for findings in (report.findings, of_convert):
        found = [each for each in findings if each.code == "offset/gap"]
        assert [(each.severity, each.offset, each.data["missing"]) for each in found] == [(WARNING, 1, 1)] * is_lost
        assert all("the first batch of the log has offset 1, 1 above where" in each.message for each in found)
    missing = [each for result in results if isinstance(result, PartitionConversion) for each in result.missing]
    assert [(each.first_offset, each.last_offset, each.exact) for each in missing] == [(0, 0, False)] * is_lost
    shown: list[kdump.log.DamagedRange] = []
    kdump.arrow(place, on_damage=shown.append).read_all()
    assert [(each.code, each.first_offset, each.last_offset) for each in shown] == [("offset/gap", 0, 0)] * is_lost
    strict = kdump.ConvertOptions(strict=True)
    again = kdump.convert_logs(kdump.discover(str(place)), str(tmp_path / "strict"), strict)
    assert any(isinstance(each, PartitionConversion) for each in again)


def test_a_first_batch_without_a_key_says_it_too(tmp_path: Path) -> None:
    place = begins_late(tmp_path / "broker", None)
    (report,) = kdump.verify_logs(kdump.discover(str(place)))
    assert [each.code for each in report.findings if each.severity is WARNING] == ["offset/gap"]
    options = kdump.VerifyOptions(compacted=True)
    (report,) = kdump.verify_logs(kdump.discover(str(place)), options)
    assert not [each for each in report.findings if each.severity is WARNING]
