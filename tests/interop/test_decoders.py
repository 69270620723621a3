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
from support.internal_records import InternalRecord, damaged, random_records, real
from support.messages import MODULES, RandomMessage, schemas

HERE = Path(__file__).resolve().parent
CASES = int(os.environ.get("KDUMP_DECODER_CASES", "6000"))
SEED = os.environ.get("KDUMP_DECODER_SEED", "0")
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
    offset: int
    record: InternalRecord

    @property
    def line(self) -> str:
        topic, key, value = self.record
        return f"{PARSERS[topic]} {self.offset} {encoded(key)} {encoded(value)}\n"


def encoded(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()


def decoded(text: str) -> str | None:
    return None if text == "-" else b64decode(text[1:]).decode()


def run(kafka: ModuleType, lines: Sequence[str]) -> list[str]:
    flags = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=off",)
    done = kafka.run_source(kafka.NEWEST, HERE / "Decoders.java", stdin="".join(lines).encode(), flags=flags)
    return str(done.stdout.decode()).splitlines()


def test_texts_of_the_tool(kafka: ModuleType) -> None:
    rng = random.Random(SEED)
    whole = [*(Case(0, record) for record in real()), *(Case(rng.randrange(99), each) for each in random_records(rng))]
    cases = [*whole, *(Case(rng.randrange(1 << 40), damaged(rng, rng.choice(whole).record)) for _ in range(CASES))]
    parsers = {}
    for topic in PARSERS:
        decoder = decoder_of(topic)
        assert decoder is not None
        parsers[topic] = MessageParser(decoder)
    thrown = 0
    for case, line in zip(cases, run(kafka, [case.line for case in cases]), strict=True):
        first, second = line.split(" ")
        topic, key, value = case.record
        ours = parsers[topic].parse(case.offset, key, value)
        if first == THROWS:
            # The tool ends with an exception: a record of a coordinator without a key.
            assert (ours, key) == (None, None), case
            thrown += 1
        else:
            assert ours == (decoded(first), decoded(second)), case
    assert set(TOPICS.values()) == {case.record.topic for case in whole}
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
