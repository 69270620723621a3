"""Values that the serializers of Confluent's Python client write to a broker, as kdump reads them from its disk.

The schemas are those of the client's own registry, as files with the ids and the GUIDs that it gave. With a registry's
topic see fixtures/registry; the GUIDs of Confluent's registry are computed here with its own class.
"""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from kdump.format.value_schemas.schema_guid import guid_of
from support.command_runs import run_inside
from support.registry_values import PROTO_FILES, TOPIC, Serializers, produced

HERE = Path(__file__).resolve().parent
CONFLUENT = "org.apache.flink:flink-sql-avro-confluent-registry:2.2.0"
"""Has the classes of the client of Confluent's registry, 7.5.3."""
SUFFIXES = {"AVRO": ".avsc", "PROTOBUF": ".proto", "JSON": ".json"}


def schema_files(client: Any, folder: Path) -> None:
    """Write each schema that the registry has as a file with its id, one with its GUID, and those that are imported."""
    folder.mkdir()
    for subject in client.get_subjects():
        for version in client.get_versions(subject):
            found = client.get_version(subject, version)
            suffix = SUFFIXES[found.schema.schema_type]
            for name in (str(found.schema_id), found.guid, subject if subject == "common.Money" else None):
                if name is not None:
                    (folder / f"{name}{suffix}").write_text(found.schema.schema_str)
    (folder / "common").mkdir()
    (folder / "common" / "money.proto").write_text(PROTO_FILES["common/money.proto"])


def test_values_of_serializers_are_what_the_deserializers_give(kafka: ModuleType, tmp_path: Path) -> None:
    """dump and convert show what the library has read back from each value, also where its schema is in a header."""
    registry = pytest.importorskip(
        "confluent_kafka.schema_registry", reason="pip install 'confluent-kafka[avro,json,protobuf,schemaregistry]'"
    )
    client = registry.SchemaRegistryClient.new_client({"url": "mock://"})
    (tmp_path / "protoc").mkdir()
    written = list(Serializers(client, tmp_path / "protoc").written())
    schema_files(client, tmp_path / "schemas")
    with kafka.kraft_broker(tmp_path / "broker") as broker:
        produced(broker.bootstrap, written)
    path = str(broker.partition(f"{TOPIC}-0"))
    dumped = run_inside(tmp_path, "dump", "--format", "json", "--schemas", "schemas", path)
    assert dumped.status == 0, dumped.problems
    found = [json.loads(line) for line in dumped.lines if '"type":"record"' in line]
    for each, record in zip(written, found, strict=True):
        assert record["decode_problem"] is None, each.subject
        assert record["value_decoded"]["data"] == each.shown, each.subject
        assert (record["key_decoded"] and record["key_decoded"]["data"]) == each.key_shown
        assert ("schema_guid" in record["value_decoded"]) == bool(each.headers)
    assert sum(bool(each.headers) for each in written) == 2
    converted = run_inside(tmp_path, "convert", "--schemas", "schemas", path, "-o", "out.ndjson")
    assert converted.status == 0, converted.problems
    rows = [json.loads(line) for line in (tmp_path / "out.ndjson").read_text().splitlines()]
    assert [row["value_json"] for row in rows] == [each.shown for each in written]


def text(random_: random.Random) -> str:
    return "".join(random_.choices(string.ascii_letters + '\u00e9\uff5e\U0001f600"\\', k=random_.randrange(1, 6)))


def rule(random_: random.Random, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name, "kind": random_.choice(("CONDITION", "TRANSFORM")), "mode": random_.choice(("WRITE", "READ")),
        "type": "CEL", "doc": text(random_), "expr": text(random_), "onSuccess": "NONE", "onFailure": "ERROR,NONE",
        "tags": sorted({text(random_) for _ in range(3)}), "params": {text(random_): text(random_) for _ in range(3)},
        "disabled": random_.random() < 0.5,
    }  # fmt: skip
    return {key: value for key, value in found.items() if key in ("name", "type") or random_.random() < 0.7}


def schema_value(random_: random.Random) -> dict[str, Any]:
    """The value of a schema in the topic of a registry."""
    found: dict[str, Any] = {"subject": text(random_), "version": 1, "id": 7, "schema": text(random_) * 20}
    if random_.random() < 0.5:
        found["references"] = [
            {"name": text(random_), "subject": text(random_), "version": random_.randrange(1, 1 << 31)}
            for _ in range(random_.randrange(3))
        ]
    if random_.random() < 0.5:
        found["metadata"] = {
            "tags": {text(random_): [text(random_) for _ in range(3)] for _ in range(3)},
            "properties": {text(random_): text(random_) for _ in range(3)},
            "sensitive": [text(random_)],
        }
    if random_.random() < 0.5:
        found["ruleSet"] = {
            "domainRules": [rule(random_, "a"), rule(random_, "b")],
            "migrationRules": [rule(random_, "c")] * random_.randrange(2),
        }
    return found


def test_guids_are_those_of_confluents_class(kafka: ModuleType) -> None:
    values = [schema_value(random.Random(seed)) for seed in range(300)]
    lines = "\n".join(json.dumps(each) for each in values).encode()
    ran = kafka.run_source(kafka.NEWEST, HERE / "SchemaGuids.java", extra=(CONFLUENT,), stdin=lines)
    assert ran.stdout.decode().split() == [guid_of(each) for each in values]
    assert UUID(guid_of(values[0]))
