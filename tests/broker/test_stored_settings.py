"""The settings of topics that `__cluster_metadata` of their log directory has."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump.broker.cleaner.log_config import DAY_MS, TopicSettings, topic_settings
from kdump.broker.cleaner.stored_settings import StoredSettings
from support import build
from support.metadata_logs import Change, change, uuid_of, write_log

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
META = "version=1\ncluster.id=c\nnode.id=1\n"


def value(kind: int, resource: str, name: str, text: str | None) -> Change:
    return change("ConfigRecord", resourceType=kind, resourceName=resource, name=name, value=text)


def log_directory(path: Path, *changes: Change) -> str:
    path.mkdir(parents=True, exist_ok=True)
    (path / "meta.properties").write_text(META)
    topic = change("TopicRecord", name="t", topicId=uuid_of(1))
    write_log(path / "__cluster_metadata-0", [topic, *changes])
    return str(path)


def completed(directory: str, base: TopicSettings | None = None, topic: str = "t") -> TopicSettings:
    return StoredSettings().complete(base or TopicSettings(), directory, topic)


def test_the_topic_then_the_broker_then_all_brokers(tmp_path: Path) -> None:
    levels = (
        value(4, "", "log.retention.ms", "30"),
        value(4, "1", "log.retention.ms", "20"),
        value(2, "t", "retention.ms", "10"),
    )
    for count, (retention_ms, stored) in enumerate([(30, "all-brokers"), (20, "broker"), (10, "topic")], 1):
        found = completed(log_directory(tmp_path / str(count), *levels[:count]))
        assert (found.retention_ms, found.stored) == (retention_ms, (("retention_ms", stored),))
        assert "retention_ms" not in found.assumed
        assert not found.given
    other = completed(log_directory(tmp_path / "other", value(4, "2", "log.retention.ms", "5")))
    assert other == TopicSettings()


def test_options_win(tmp_path: Path) -> None:
    path = log_directory(
        tmp_path, value(2, "t", "retention.ms", "10"), value(2, "t", "cleanup.policy", "compact,delete")
    )
    found = completed(path, topic_settings(retention_ms=7))
    assert (found.retention_ms, found.given) == (7, {"retention_ms"})
    assert (found.cleanup_policy, found.stored) == ({"compact", "delete"}, (("cleanup_policy", "topic"),))
    assert completed(path, topic="other") == TopicSettings()


def test_every_setting(tmp_path: Path) -> None:
    names = {
        "retention.ms": -1, "retention.bytes": 5, "segment.bytes": 1 << 20, "segment.index.bytes": 4096,
        "min.compaction.lag.ms": 3, "max.compaction.lag.ms": 9, "delete.retention.ms": 4,
    }  # fmt: skip
    changes = [value(2, "t", name, str(number)) for name, number in names.items()]
    changes += [value(2, "t", "min.cleanable.dirty.ratio", "0.25"), value(2, "t", "cleanup.policy", "compact")]
    found = completed(log_directory(tmp_path / "every", *changes))
    assert found.assumed == ()
    assert {name.replace("_", "."): number for name, number in found._asdict().items()} == {
        **names, "min.cleanable.dirty.ratio": 0.25, "cleanup.policy": {"compact"}, "given": frozenset(),
        "stored": tuple((name, "topic") for name in sorted(set(TopicSettings._fields) - {"given", "stored"})),
    }  # fmt: skip
    small = log_directory(tmp_path / "small", *changes, value(2, "t", "internal.segment.bytes", "2048"))
    assert completed(small).segment_bytes == 2048


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-7"),
        ("retention.ms", "soon"),
        ("retention.ms", "9" * 30),
        ("cleanup.policy", "burn"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "x"),
        ("segment.bytes", "0"),
    ],
)
def test_a_value_that_no_broker_takes_is_not_taken(tmp_path: Path, name: str, text: str) -> None:
    assert completed(log_directory(tmp_path, value(2, "t", name, text))) == TopicSettings()


def test_metadata_that_cannot_be_used_are_named_once(tmp_path: Path) -> None:
    path = log_directory(tmp_path, value(2, "t", "retention.ms", "10"), *[value(2, "t", "retention.bytes", "1")] * 6)
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    stored = StoredSettings()
    for topic in ("t", "u"):
        assert stored.complete(TopicSettings(), path, topic) == TopicSettings()
    (problem,) = stored.take_problems()
    assert "so the settings of the topics are assumed" in str(problem)
    assert not stored.take_problems()
    # a write that broke off is the end of a log
    log.write_bytes(bytes(data[:-5]))
    data[100] ^= 1
    log.write_bytes(data[:-5])
    assert completed(path).retention_ms == 10


def test_the_report_says_where_a_value_comes_from(kdump: Any, tmp_path: Path) -> None:
    directory = shutil.copytree(FIXTURES / "image", tmp_path / "image", ignore=shutil.ignore_patterns("expected"))
    arguments = ["stat", "--retention", "--compaction", "--by", "partition"]
    rows = [json.loads(line) for line in kdump.inside(*arguments, "--format", "json", str(directory)).lines]
    settings = {row["topic"]: row["retention"]["settings"] for row in rows if row.get("retention")}
    assert (settings["orders"]["retention_ms"], settings["left"]["retention_ms"]) == (DAY_MS, 2 * DAY_MS)
    assert settings["orders"]["stored"] == {
        "retention_bytes": "topic", "retention_ms": "topic", "segment_bytes": "topic",
    }  # fmt: skip
    assert settings["left"]["stored"] == {"retention_ms": "all-brokers", "segment_bytes": "broker"}
    assert settings["accounts"]["cleanup_policy"] == ["compact"]
    alone = kdump.inside(*arguments, "--format", "json", str(directory / "orders-0")).lines
    assert json.loads(alone[0])["retention"]["settings"]["stored"]["retention_ms"] == "topic"
    given = kdump.inside(*arguments, "--retention-ms", "5", "--format", "json", str(directory)).lines
    assert all(
        row["retention"]["settings"]["retention_ms"] == 5 for row in map(json.loads, given) if row.get("retention")
    )
    shown = kdump.inside("stat", "--retention", "--format", "terminal", str(directory)).out.decode()
    assert "stored in __cluster_metadata: retention.ms of " in shown


def settled(root: Path, *changes: Change) -> Path:
    """A log directory with the topics `t` and `u`, of two old segments each."""
    log_directory(root, *changes)
    for topic in "tu":
        (root / f"{topic}-0").mkdir()
        for base in (0, 1):
            batch = build.batch([build.record(b"k", b"v" * 500, timestamp=1000)], base_offset=base)
            log = root / f"{topic}-0" / f"{base:020d}.log"
            log.write_bytes(batch)
            os.utime(log, (1, 1))  # the age of a segment without a time index
    return root


def test_a_plan_follows_the_stored_policy(kdump: Any, tmp_path: Path) -> None:
    root = settled(tmp_path / "d", value(2, "t", "cleanup.policy", "compact"))
    free = json.loads(kdump.inside("stat", "--free", "1", "--format", "json", str(root)).lines[-2])["free"]
    assert (free["compacted_topics"], {step["topic"] for step in free["steps"]}) == (["t"], {"u"})
    own = settled(tmp_path / "own", value(2, "u", "retention.ms", "5"))
    found = json.loads(kdump.inside("stat", "--free", "1", "--format", "json", str(own)).lines[-2])["free"]
    assert "u" not in {step["topic"] for step in found["steps"]}  # what it would free goes anyway


def test_a_plan_says_how_to_set_it(kdump: Any, tmp_path: Path) -> None:
    root = settled(tmp_path / "d", value(2, "t", "cleanup.policy", "compact"))
    step = json.loads(kdump.inside("stat", "--free", "1", "--format", "json", str(root)).lines[-2])["free"]["steps"][0]
    config = f"--entity-name u --add-config retention.ms={step['value']}"
    assert step["command"] == f"kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics {config}"
    shown = kdump.inside("stat", "--free", "1", "--format", "terminal", str(root)).text
    (line,) = (line for line in shown.splitlines() if line.startswith("kafka-configs.sh"))
    assert line.rpartition("=")[0] == step["command"].rpartition("=")[0]
    assert "While the broker is down" in " ".join(shown.split())


def test_without_a_stored_policy_kafka_deletes(kdump: Any, tmp_path: Path) -> None:
    root = settled(tmp_path / "d", value(2, "t", "cleanup.policy", "compact"))
    lines = kdump.inside("stat", "--compaction", "--by", "partition", "--format", "json", str(root)).lines
    found = {row["topic"]: row["compaction"] for row in map(json.loads, lines) if row.get("compaction")}
    assert found["u"]["settings"]["cleanup_policy"] == ["delete"]
    assert (found["u"]["blocker"], found["t"]["blocker"] == "policy") == ("policy", False)
    shown = kdump.inside("stat", "--compaction", "--format", "terminal", str(root)).text
    assert "no: delete, not compact" in shown
    assert "compact, not delete" not in shown
    shutil.rmtree(root / "__cluster_metadata-0")
    lines = kdump.inside("stat", "--compaction", "--by", "partition", "--format", "json", str(root)).lines
    found = {row["topic"]: row["compaction"] for row in map(json.loads, lines) if row.get("compaction")}
    assert found["u"]["settings"]["cleanup_policy"] == ["compact"]


def test_what_is_assumed_for_which_topics(kdump: Any, tmp_path: Path) -> None:
    root = settled(tmp_path / "d", value(2, "t", "cleanup.policy", "compact"))
    shown = kdump.inside("stat", "--retention", "--format", "terminal", str(root)).text
    assert "assumed for all topics: retention.ms 7 d, retention.bytes -1" in shown
    assert "assumed for u: cleanup.policy delete" in shown


def test_a_directory_without_metadata_reads_nothing(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_text(META)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(build.batch([build.record(b"k", b"v")]))
    row = json.loads(kdump.inside("stat", "--retention", "--by", "partition", "--format", "json", ".").lines[0])
    assert row["retention"]["settings"]["stored"] == {}
    empty = tmp_path / "__cluster_metadata-0"
    empty.mkdir()
    found = kdump.inside("stat", "--retention", ".")
    assert (found.status, b"the settings of the topics are assumed" in found.err) == (3, True)
