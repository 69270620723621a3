"""The words of the manual about values that were written with schemas, and about decoders of the user."""

from __future__ import annotations

from typing import Final

SCHEMAS: Final = (
    (
        "--schemas decodes keys and values that were written with the serializers of a schema registry: a magic byte 0 "
        "and the 4 bytes of the id of the schema stand in front, or the headers __key_schema_id and __value_schema_id "
        "have a magic byte 1 and the 16 bytes of the GUID, which is the MD5 of what the registry stores of the schema. "
        "No registry is asked. The schemas come from DIR, or with auto from the topic _schemas, whose directory "
        "_schemas-0 lies beside that of the topic-partition. DIR is a folder with schema files, a copy of the "
        "directory _schemas-0 (the topic may have another name), or a log directory that holds it. Of each key of the "
        "topic the last value counts; a schema that was deleted, but not for good, can still be read."
    ),
    (
        "Files of a folder are named after the id or the GUID: 12.avsc is Avro, 12.proto Protobuf, 12.json JSON "
        "Schema. A .proto file imports others by their paths below DIR; an Avro schema finds a type that it does not "
        "define in a file with the full name of the type, as in shop.Order.avsc. Types that refer to each other belong "
        "into one file. Two files for one id, as 12.avsc and 12.proto, are an error. Nothing outside DIR is opened, "
        "whatever a file imports and wherever a link leads. A file has at most 4 MiB, a schema with all that it refers "
        "to 1,048,576 characters and 256 other files."
    ),
    (
        "A decoded value is JSON. Bytes are a string where they are valid UTF-8, else an object with their base64; "
        "--bytes chooses another form. NaN and the infinities are the strings NaN, Infinity and -Infinity. Avro: a "
        "union is the value of its branch; decimals and UUIDs are strings, a duration is an object with months, days "
        "and milliseconds; dates, times and timestamps stay numbers in the unit of their type, as in Avro's own JSON "
        "encoding. Protobuf: only fields that are set; 64-bit integers are numbers; Timestamp, Duration, FieldMask, "
        "wrappers and Struct are as in Protobuf's JSON mapping. JSON Schema: the JSON itself. Values are not validated."
    ),
    (
        "A value that cannot be decoded is shown as it is, with the reason, which names the schema: an unknown id, "
        "bytes that are no value of the schema, more than 64 levels, more than 64 values for each byte (counts of "
        "arrays can lie), more than 8 MiB. A key without a known schema is no problem. Protobuf schemas are compiled "
        "in a process of their own, for at most 20 seconds. Records of Kafka's internal topics, of _schemas, of "
        "control batches and of damaged batches are not decoded with schemas. The Python packages are fastavro, "
        "protobuf, grpcio-tools and, for imports of google/type, googleapis-common-protos: pip install "
        "'kdump[schemas]'. Without them the id of the schema is shown."
    ),
    (
        "--decode NAME calls a decoder of your own for each value: an entry point of an installed Python package in "
        "the group kdump.decoders. It is a function of three arguments: the topic (str, None where it is not known), "
        "the value (bytes) and the headers (a sequence of pairs of bytes; the second of a pair may be None). It "
        "returns a value that the module json can write, in which bytes may be, too. An exception is the reason why "
        "the value cannot be decoded. Null values are not passed to it, nor are keys."
    ),
)
EXAMPLES: Final = [
    (
        "Values with schemas, one JSON value a line; the schemas are on the same disk:",
        "kdump dump --schemas auto --format values /data/kafka/orders-0",
    ),
    (
        "Records with decoded values, with schemas from files such as avro/12.avsc:",
        "kdump dump --records --schemas avro/ topic-0/",
    ),
    (
        "What cannot be decoded, and why:",
        "kdump dump --schemas auto --template '%o %{decode_problem}\\n' topic-0/",
    ),
]
