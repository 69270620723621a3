"""Values as the serializers of Confluent's Python client write them, and what its deserializers give.

The serializers register their schemas with a registry: one that runs, or that of the client itself, which has no topic.
fixtures/registry was written with Karapace.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

UTC = datetime.UTC
DAY = datetime.date(2023, 11, 14)
MOMENT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
MOMENT_MS, MOMENT_US = 1_700_000_000_123, 1_700_000_000_123_456
NUMBER = uuid.UUID("3f2504e0-4f89-11d3-9a0c-0305e82c3301")


class Written(NamedTuple):
    """A record of the serializers; `shown` and `key_shown` are the JSON values that its reader has to see."""

    subject: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    shown: object
    key_shown: object = None


MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "common",
    "fields": [
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}},
    ],
}
ORDER_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "price", "type": "common.Money"},
    {"name": "note", "type": ["null", "string", {"type": "map", "values": "double"}], "default": None},
]
ORDERS = [
    {"type": "record", "name": "Order", "namespace": "shop", "fields": fields}
    for fields in (
        ORDER_FIELDS[:2],
        ORDER_FIELDS,
        [*ORDER_FIELDS, {"name": "before", "type": ["null", "Order"], "default": None}],
    )
]
PRICE = {"amount": Decimal("-12.30"), "currency": "EUR"}
PRICE_SHOWN = {"amount": "-12.30", "currency": "EUR"}


def _logical(kind: str, logical: str, **more: object) -> dict[str, object]:
    return {"name": logical.replace("-", "_"), "type": {"type": kind, "logicalType": logical, **more}}


LOGICAL = {
    "type": "record",
    "name": "Logical",
    "fields": [
        _logical("int", "date"),
        _logical("int", "time-millis"),
        _logical("long", "time-micros"),
        _logical("long", "timestamp-millis"),
        _logical("long", "timestamp-micros"),
        _logical("long", "local-timestamp-millis"),
        _logical("long", "local-timestamp-micros"),
        _logical("string", "uuid"),
        _logical("fixed", "decimal", name="Amount", size=8, precision=18, scale=4),
    ],
}
LOGICAL_GIVEN = {
    "date": DAY,
    "time_millis": datetime.time(1, 2, 3, 4000),
    "time_micros": datetime.time(1, 2, 3, 4005),
    "timestamp_millis": MOMENT.replace(microsecond=123000),
    "timestamp_micros": MOMENT,
    "local_timestamp_millis": MOMENT.replace(microsecond=123000, tzinfo=None),
    "local_timestamp_micros": MOMENT.replace(tzinfo=None),
    "uuid": NUMBER,
    "decimal": Decimal("12345.6789"),
}
LOGICAL_SHOWN = {
    "date": 19_675,
    "time_millis": 3_723_004,
    "time_micros": 3_723_004_005,
    "timestamp_millis": MOMENT_MS,
    "timestamp_micros": MOMENT_US,
    "local_timestamp_millis": MOMENT_MS,
    "local_timestamp_micros": MOMENT_US,
    "uuid": str(NUMBER),
    "decimal": "12345.6789",
}
PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}, "ages": {"type": "array"}},
}
ADDRESS = {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}}
PERSON_GIVEN = {"name": "Zo\u00eb \U0001f600", "home": {"city": "K\u00f6ln"}, "ages": [1, 2.5, None, True]}

PROTO_FILES = {
    "common/money.proto": """syntax = "proto3";
package common;
message Money {
  int64 units = 1;
  string currency = 2;
}
""",
    "shop/lines.proto": """syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
message Basket {
  repeated Line lines = 1;
}
message Line {
  string sku = 1;
  common.Money price = 2;
  google.protobuf.Timestamp at = 3;
  Kind kind = 4;
  optional uint64 number = 5;
  oneof what {
    bytes raw = 6;
    Part part = 7;
  }
  message Part {
    double weight = 1;
    message Screw {
      repeated sint32 sizes = 1;
    }
  }
  enum Kind {
    KIND_UNKNOWN = 0;
    KIND_GIFT = 1;
  }
}
""",
    "shop/counts.proto": """syntax = "proto3";
package shop;
import "google/type/money.proto";
message Counts {
  map<string, int64> by_name = 1;
  google.type.Money total = 2;
  message Last {
    int32 number = 1;
  }
}
""",
}


PRICE_MESSAGE = {"units": "1230", "currency": "EUR"}
PRICE_MESSAGE_SHOWN = {"units": 1230, "currency": "EUR"}


class Serializers:
    """Writes values with schemas that a registry has, and reads each one back. Each subject has values of its own."""

    def __init__(self, client: Any, folder: Path, *, is_karapace: bool = False) -> None:
        """`folder` is for protoc. Karapace has no GUIDs, and no references of JSON Schema."""
        from confluent_kafka import schema_registry

        self._client, self._is_karapace, self._registry = client, is_karapace, schema_registry
        self._classes = message_classes(folder)

    def written(self) -> Iterator[Written]:
        """All values; their schemas are registered by then."""
        yield from self._avro()
        yield from self._json()
        yield from self._protobuf()

    def deleted(self) -> Iterator[Written]:
        """Values of schemas that are deleted meanwhile, the second one for good."""
        for subject, kind, given in (("soft", "int", 5), ("hard", "float", 0.5)):
            is_gone = subject == "hard"
            yield self._avro_value(
                subject, self._schema(json.dumps({"type": kind}), "AVRO"), given, None if is_gone else given
            )
            self._client.delete_subject(subject)
            if is_gone:
                self._client.delete_subject(subject, permanent=True)

    def _register(self, subject: str, text: str, kind: str, *references: Sequence[Any]) -> None:
        """Register a schema; `references` are (name, subject, version) each."""
        self._client.register_schema(subject, self._schema(text, kind, *references))

    def _schema(self, text: str, kind: str, *references: Sequence[Any]) -> Any:
        return self._registry.Schema(text, kind, [self._registry.SchemaReference(*each) for each in references])

    def _avro(self) -> Iterator[Written]:
        self._register("common.Money", json.dumps(MONEY), "AVRO")
        money = ("common.Money", "common.Money", 1)
        first = {"id": 7, "price": PRICE}
        second = {**first, "note": "caf\u00e9"}
        third = {"id": 8, "price": PRICE, "note": {"a": 1.5}, "before": {**second, "before": None}}
        shown = {"id": 7, "price": PRICE_SHOWN}
        for schema, given, seen in zip(
            ORDERS,
            (first, second, third),
            (
                shown,
                {**shown, "note": "caf\u00e9"},
                {**shown, "id": 8, "note": {"a": 1.5}, "before": {**shown, "note": "caf\u00e9", "before": None}},
            ),
            strict=True,
        ):
            key = self._avro_value("orders-key", self._schema('{"type": "string"}', "AVRO"), "k1", "k1", is_key=True)
            order = self._avro_value("orders", self._schema(json.dumps(schema), "AVRO", money), given, seen)
            yield order._replace(key=key.value, key_shown="k1")
        yield self._avro_value("logical", self._schema(json.dumps(LOGICAL), "AVRO"), LOGICAL_GIVEN, LOGICAL_SHOWN)
        for kind, given, seen in (
            ("string", "text", "text"),
            ("long", -(1 << 40), -(1 << 40)),
            ("bytes", b"\xff\0", {"base64": "/wA="}),
        ):
            yield self._avro_value(f"alone-{kind}", self._schema(json.dumps({"type": kind}), "AVRO"), given, seen)

    def _avro_value(self, subject: str, schema: Any, given: Any, shown: object, *, is_key: bool = False) -> Written:
        from confluent_kafka.schema_registry import avro

        return self._one(
            subject,
            lambda settings: avro.AvroSerializer(self._client, schema, conf=settings),
            lambda settings: avro.AvroDeserializer(self._client, conf=settings),
            given,
            shown,
            is_key=is_key,
        )

    def _json(self) -> Iterator[Written]:
        from confluent_kafka.schema_registry import json_schema

        self._register("address", json.dumps(ADDRESS), "JSON")
        person = {**PERSON, "properties": {}} if self._is_karapace else PERSON
        references = [] if self._is_karapace else [("address.json", "address", 1)]
        schema = self._schema(json.dumps(person), "JSON", *references)
        yield self._one(
            "person",
            lambda settings: json_schema.JSONSerializer(schema, self._client, conf=settings),
            lambda settings: json_schema.JSONDeserializer(
                schema, schema_registry_client=self._client, conf={**settings, "validate": True}
            ),
            PERSON_GIVEN,
            PERSON_GIVEN,
        )

    def _protobuf(self) -> Iterator[Written]:
        from confluent_kafka.schema_registry import protobuf

        for subject, name, given, shown in MESSAGES:
            of = self._classes[name]
            if self._is_karapace and subject == "counts":
                shown = COUNTS_WITHOUT_MAP
            yield self._one(
                subject,
                lambda settings, of=of: protobuf.ProtobufSerializer(of, self._client, conf=settings),  # type: ignore[misc]
                lambda settings, of=of: protobuf.ProtobufDeserializer(of, settings, self._client),  # type: ignore[misc]
                json_format.ParseDict(given, of()),
                shown,
            )

    def _one(
        self,
        subject: str,
        serializer: Callable[[dict[str, Any]], Any],
        deserializer: Callable[[dict[str, Any]], Any],
        given: Any,
        shown: object,
        *,
        is_key: bool = False,
    ) -> Written:
        """The value as it is written, after the library has read back what it was given. See IN_HEADER."""
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(TOPIC, MessageField.KEY if is_key else MessageField.VALUE, [])
        settings: dict[str, Any] = {"subject.name.strategy": lambda *_: subject}
        has_header = subject in IN_HEADER and not self._is_karapace
        form = {"schema.id.serializer": self._registry.header_schema_id_serializer} if has_header else {}
        data = serializer({**settings, **form})(given, context)
        read = deserializer(settings)(data, context)
        if read != given:
            raise AssertionError(f"{subject}: {read!r} was {given!r}")
        return Written(subject, None, data, list(context.headers), shown)


TOPIC = "values"
LIMIT_S = 60
COUNTS_WITHOUT_MAP = {
    "by_name": [{"key": "a", "value": 1}],
    "total": {"currency_code": "EUR", "units": 12, "nanos": 5},
}
"""Karapace does not keep that a field is a map, when a serializer registers a descriptor."""
IN_HEADER = ("logical", "screw")
"""The subjects of values whose schemas stand in headers, by their GUIDs."""
MESSAGES: tuple[tuple[str, str, dict[str, Any], object], ...] = (
    (
        "basket",
        "shop.Basket",
        {"lines": [{"sku": "a", "price": PRICE_MESSAGE}, {}]},
        {"lines": [{"sku": "a", "price": PRICE_MESSAGE_SHOWN}, {}]},
    ),
    (
        "line",
        "shop.Line",
        {
            "price": PRICE_MESSAGE,
            "at": "2023-11-14T22:13:20.123456Z",
            "kind": "KIND_GIFT",
            "number": "0",
            "part": {"weight": 0.5},
        },
        {
            "price": PRICE_MESSAGE_SHOWN,
            "at": "2023-11-14T22:13:20.123456Z",
            "kind": "KIND_GIFT",
            "number": 0,
            "part": {"weight": 0.5},
        },
    ),
    ("screw", "shop.Line.Part.Screw", {"sizes": [1, -2, 3]}, {"sizes": [1, -2, 3]}),
    (
        "counts",
        "shop.Counts",
        {"by_name": {"a": "1"}, "total": {"currency_code": "EUR", "units": "12", "nanos": 5}},
        {"by_name": {"a": 1}, "total": {"currency_code": "EUR", "units": 12, "nanos": 5}},
    ),
    ("last", "shop.Counts.Last", {"number": 5}, {"number": 5}),
    ("last", "shop.Counts.Last", {}, {}),
)


def message_classes(folder: Path) -> dict[str, Any]:
    """The classes of all messages in PROTO_FILES, by their full names, made by protoc."""
    import google.type

    for name, text in PROTO_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    known = [str(Path(protoc.__file__).parent / "_proto"), str(Path(next(iter(google.type.__path__))).parents[1])]
    target = folder / "descriptors"
    arguments = ["--include_imports", f"--descriptor_set_out={target}", *(f"-I{each}" for each in (folder, *known))]
    if protoc.main(["protoc", *arguments, *PROTO_FILES]) != 0:
        raise RuntimeError("protoc failed")
    files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.AddSerializedFile(file.SerializeToString())
    names = {name for _, name, _, _ in MESSAGES}
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


def produced(bootstrap: str, records: Sequence[Written]) -> None:
    """Send the records to a new topic TOPIC. Raises an error of the library where that does not end in time."""
    from confluent_kafka import Producer, admin

    cluster = admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in cluster.create_topics([admin.NewTopic(TOPIC, 1, 1)]).values():
        made.result(LIMIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for each in records:
        producer.produce(TOPIC, key=each.key, value=each.value, headers=each.headers, partition=0)
    if left := producer.flush(LIMIT_S):
        raise RuntimeError(f"{left} records were not sent within {LIMIT_S} s")
