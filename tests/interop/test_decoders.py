"""Records of internal topics, real, damaged and random, decoded by kdump and by the decoders of Kafka's dump tool.

KDUMP_DECODER_CASES and KDUMP_DECODER_SEED choose how many damaged ones, and which.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kdump.dump.kafka_tool.jackson import json_node
from kdump.dump.kafka_tool.message_parsers import MessageParser
from kdump.format.internal_topics.decoders import TOPICS, decoder_of
from kdump.format.schema_fields import FieldReader
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource
from kdump.storage.walk import BatchChunk, Walk
from support.messages import MODULES, RandomMessage, schemas, uvarint

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[1] / "fixtures"
CASES = int(os.environ.get("KDUMP_DECODER_CASES", "6000"))
SEED = os.environ.get("KDUMP_DECODER_SEED", "0")
PIECES = (b"", b"\0", b"\1", b"\2", b"\xff", b"\x7f", b"\x80", b"\0\1", b"\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0" * 8)
PARSERS = {
    "__consumer_offsets": "OffsetsMessageParser",
    "__transaction_state": "TransactionLogMessageParser",
    "__cluster_metadata": "ClusterMetadataLogMessageParser",
    "__share_group_state": "ShareGroupStateMessageParser",
    "__remote_log_metadata": "RemoteMetadataLogMessageParser",
}
PACKAGES = {
    "consumer_offsets": "org.apache.kafka.coordinator.group.generated",
    "transaction_state": "org.apache.kafka.coordinator.transaction.generated",
    "cluster_metadata": "org.apache.kafka.common.metadata",
    "share_group_state": "org.apache.kafka.coordinator.share.generated",
    "remote_log_metadata": "org.apache.kafka.server.log.remote.metadata.storage.generated",
    "consumer_protocol": "org.apache.kafka.common.message",
}
THROWS = "!"


class Case(NamedTuple):
    topic: str
    offset: int
    key: bytes | None
    value: bytes | None

    @property
    def line(self) -> str:
        return f"{PARSERS[self.topic]} {self.offset} {encoded(self.key)} {encoded(self.value)}\n"


def encoded(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()


def decoded(text: str) -> str | None:
    return None if text == "-" else b64decode(text[1:]).decode()


def real() -> list[Case]:
    found = set()
    for path in sorted([*FIXTURES.glob("*/__*/*.log"), *FIXTURES.glob("*/__*/*.checkpoint")]):
        topic = path.parent.name.rpartition("-")[0]
        if topic not in PARSERS:
            continue
        with FileSource(str(path)) as source:
            for item in Walk(source, everything=True):
                for batch in item.rows() if isinstance(item, BatchChunk) else ():
                    if not batch.control:
                        for record in records(batch, open_batch(batch, item.body(batch), 1 << 20)):
                            found.add(Case(topic, 0, record.key, record.value))
    return sorted(found, key=repr)


def random_records(rng: random.Random) -> list[Case]:
    """Records around random messages of every type and version."""
    found = []
    for module in ("consumer_offsets", "transaction_state", "share_group_state"):
        tables, topic = schemas(module), f"__{module}"
        for key in (each for each in tables.values() if each.name.endswith("Key")):
            value = tables[key.name.removesuffix("Key") + "Value"]
            for version in range(value.versions.lowest, value.versions.highest + 1):
                for _ in range(4):
                    made, of = RandomMessage(rng, key, 0), RandomMessage(rng, value, version)
                    head = key.api_key.to_bytes(2, "big")
                    found.append(Case(topic, rng.randrange(99), head + made.data, version.to_bytes(2, "big") + of.data))
    for module in ("cluster_metadata", "remote_log_metadata"):
        for schema in schemas(module).values():
            for version in range(schema.versions.lowest, schema.versions.highest + 1):
                for _ in range(8):
                    frame = b"\1" + uvarint(schema.api_key) + uvarint(version)
                    data = frame + RandomMessage(rng, schema, version).data
                    found.append(Case(f"__{module}", rng.randrange(99), None, data))
    return found


def damaged(rng: random.Random, data: bytes | None) -> bytes | None:
    if data is None:
        return rng.choice((None, b""))
    for _ in range(rng.randrange(1, 4)):
        at = rng.choice((0, 1, 2, 3, rng.randrange(len(data) + 1)))
        piece = rng.choice((*PIECES, rng.randbytes(rng.randrange(4))))
        data = data[:at] + piece + data[at + rng.choice((0, 0, 1, 1, 2, 4, 8)) :]
    return data


def damaged_cases(rng: random.Random, cases: Sequence[Case]) -> list[Case]:
    found = []
    for _ in range(CASES):
        of = rng.choice(cases)
        key, value = of.key, of.value
        if rng.random() < 0.75:
            value = damaged(rng, value)
        if rng.random() < 0.4:
            key = rng.choice((damaged(rng, key),) * 40 + (None,))
        found.append(Case(of.topic, rng.randrange(1 << 40), key, rng.choice((value,) * 40 + (None,))))
    return found


def run(kafka: ModuleType, lines: Sequence[str]) -> list[str]:
    flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
    done = kafka.run_source(kafka.NEWEST, HERE / "Decoders.java", stdin="".join(lines).encode(), flags=flags)
    return str(done.stdout.decode()).splitlines()


def test_texts_of_the_tool(kafka: ModuleType) -> None:
    rng = random.Random(SEED)
    whole = [*real(), *random_records(rng)]
    cases = [*whole, *damaged_cases(rng, whole)]
    parsers = {}
    for topic in PARSERS:
        decoder = decoder_of(topic)
        assert decoder is not None
        parsers[topic] = MessageParser(decoder)
    thrown = 0
    for case, line in zip(cases, run(kafka, [case.line for case in cases]), strict=True):
        first, second = line.split(" ")
        ours = parsers[case.topic].parse(case.offset, case.key, case.value)
        if first == THROWS:
            # The tool ends with an exception: a record of a coordinator without a key.
            assert (ours, case.key) == (None, None), case
            thrown += 1
        else:
            assert ours == (decoded(first), decoded(second)), case
    assert set(TOPICS.values()) == {case.topic for case in whole}
    assert 0 < thrown < CASES / 10


def test_messages_of_the_generated_classes(kafka: ModuleType) -> None:
    rng = random.Random(SEED)
    made, lines = [], []
    for module in MODULES:
        for schema in schemas(module).values():
            for version in range(schema.versions.lowest, schema.versions.highest + 1):
                for _ in range(5):
                    message = RandomMessage(rng, schema, version)
                    made.append((schema, version, message))
                    lines.append(f"message {PACKAGES[module]}.{schema.name} {version} {encoded(message.data)}\n")
    for (schema, version, message), line in zip(made, run(kafka, lines), strict=True):
        text, written = line.split(" ")
        where = f"{schema.name} {version} {message.data.hex()}"
        assert json_node(message.fields) == decoded(text), where
        assert schema.read(FieldReader(b64decode(written)), version) == message.fields, where
        assert json.loads(json_node(message.fields)) is not None


def test_tables_are_those_of_the_newest_release(kafka: ModuleType) -> None:
    program = HERE.parent / "support" / "message_tables.py"
    done = subprocess.run(
        [sys.executable, str(program), "--check"], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "")
