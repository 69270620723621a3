"""Records of Kafka's internal topics: real ones, random ones of every type and version, damaged ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, NamedTuple

from kdump.format.internal_topics.decoders import decoder_of
from kdump.kernel.internal_topic_text import MessageFormatter
from kdump.render.json import ENCODERS, decoded_line
from kdump.render.message_programs import message_formatter
from kdump.render.messages import record_words
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource
from kdump.storage.walk import BatchChunk, Walk
from support.coordinator_records import MessageWriter
from support.messages import RandomMessage, schemas, uvarint

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
COORDINATORS = ("consumer_offsets", "transaction_state", "share_group_state")
FRAMED = ("cluster_metadata", "remote_log_metadata")
TOPICS: Final = tuple(f"__{module}" for module in COORDINATORS + FRAMED)
PIECES = (b"", b"\0", b"\1", b"\2", b"\xff", b"\x7f", b"\x80", b"\0\1", b"\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0" * 8)


class InternalRecord(NamedTuple):
    """Key and value of a record of an internal topic."""

    topic: str
    key: bytes | None
    value: bytes | None


def logs() -> list[Path]:
    """The logs and snapshots of internal topics among the fixtures."""
    found = sorted([*FIXTURES.glob("*/__*/*.log"), *FIXTURES.glob("*/__*/*.checkpoint")])
    return [path for path in found if path.parent.name.rpartition("-")[0] in TOPICS]


def real(paths: list[Path] | None = None) -> list[InternalRecord]:
    """The records of these logs, each once."""
    found = set()
    for path in logs() if paths is None else paths:
        topic = path.parent.name.rpartition("-")[0]
        with FileSource(str(path)) as source:
            for item in Walk(source, everything=True):
                for batch in item.rows() if isinstance(item, BatchChunk) else ():
                    if not batch.control:
                        for record in records(batch, open_batch(batch, item.body(batch), 1 << 20)):
                            found.add(InternalRecord(topic, record.key, record.value))
    return sorted(found, key=repr)


def random_records(rng: random.Random, each: int = 4) -> list[InternalRecord]:
    """Records around random messages, so many of every type and version, and twice as many of those in frames."""
    found = []
    for module in COORDINATORS:
        tables, topic = schemas(module), f"__{module}"
        for key in (one for one in tables.values() if one.name.endswith("Key")):
            value = tables[key.name.removesuffix("Key") + "Value"]
            for version in range(value.versions.lowest, value.versions.highest + 1):
                for _ in range(each):
                    made, of = RandomMessage(rng, key, 0), RandomMessage(rng, value, version)
                    head = key.api_key.to_bytes(2, "big")
                    found.append(InternalRecord(topic, head + made.data, version.to_bytes(2, "big") + of.data))
    for module in FRAMED:
        for schema in schemas(module).values():
            for version in range(schema.versions.lowest, schema.versions.highest + 1):
                for _ in range(2 * each):
                    frame = b"\1" + uvarint(schema.api_key) + uvarint(version)
                    data = frame + RandomMessage(rng, schema, version).data
                    found.append(InternalRecord(f"__{module}", None, data))
    return found


def groups_of_consumers(rng: random.Random, each: int = 4) -> list[InternalRecord]:
    """Classic groups, whose members have messages of every version inside, or what is none."""
    writer, inner, found = MessageWriter("consumer_offsets"), schemas("consumer_protocol"), []

    def embedded(name: str) -> bytes:
        schema = inner[f"ConsumerProtocol{name}"]
        version = rng.randrange(schema.versions.highest + 1)
        data = version.to_bytes(2, "big") + RandomMessage(rng, schema, version).data
        return rng.choice((data, data, data, data + b"x", data[:-1], b"", b"\0", b"\x7f" + data, b"\xff\xff" + data))

    for version in range(5):
        for _ in range(each):
            kind = rng.choice(("consumer", "consumer", "consumer", "connect", ""))
            members = [
                {"memberId": "m", "subscription": embedded("Subscription"), "assignment": embedded("Assignment")}
                for _ in range(rng.randrange(3))
            ]
            value = writer.value("GroupMetadata", version, {"protocolType": kind, "members": members})
            found.append(InternalRecord("__consumer_offsets", writer.key("GroupMetadata", {"group": "g"}), value))
    return found


def damaged(rng: random.Random, of: InternalRecord) -> InternalRecord:
    """The record with pieces of its value, and sometimes of its key, taken out or put in."""
    key, value = of.key, of.value
    if rng.random() < 0.75:
        value = _damaged(rng, value)
    if rng.random() < 0.4:
        key = rng.choice((_damaged(rng, key),) * 40 + (None,))
    return InternalRecord(of.topic, key, rng.choice((value,) * 40 + (None,)))


def _damaged(rng: random.Random, data: bytes | None) -> bytes | None:
    if data is None:
        return rng.choice((None, b""))
    for _ in range(rng.randrange(1, 4)):
        at = rng.choice((0, 1, 2, 3, rng.randrange(len(data) + 1)))
        piece = rng.choice((*PIECES, rng.randbytes(rng.randrange(4))))
        data = data[:at] + piece + data[at + rng.choice((0, 0, 1, 1, 2, 4, 8)) :]
    return data


class DecodedForms:
    """What the kernel writes for records in one style and mode, and what is written by their decoders."""

    def __init__(self, style: str, mode: str) -> None:
        self.style, self.mode = style, mode
        self._formatters: dict[str, MessageFormatter] = {}

    def compiled(self, record: InternalRecord) -> bytes | None:
        """What the kernel writes; None for a record that it leaves."""
        formatter = self._formatters.get(record.topic)
        if formatter is None:
            decoder = decoder_of(record.topic)
            assert decoder is not None
            formatter = self._formatters[record.topic] = message_formatter(decoder.tables, self.style, self.mode)
        (found,) = formatter.texts([(record.key, record.value)])
        return found

    def plain(self, record: InternalRecord) -> bytes:
        """What is written by the decoder."""
        decoder = decoder_of(record.topic)
        assert decoder is not None
        found = decoder.decode(record.key, record.value)
        if self.style == "json":
            return decoded_line(found, ENCODERS[self.mode])
        return record_words(found, record.key, record.value, self.mode).encode()
