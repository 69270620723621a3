"""Messages by their tables: random values of every message and version are read as they were written."""

from __future__ import annotations

import random

import pytest

from kdump.format.message_schema import parse_table
from kdump.format.schema_fields import FieldReader, MalformedField
from support.messages import MODULES, RandomMessage, schemas


@pytest.mark.parametrize("module", MODULES)
def test_what_was_written_is_read(module: str) -> None:
    rng = random.Random(module)
    for schema in schemas(module).values():
        for version in range(schema.versions.lowest, schema.versions.highest + 1):
            for _ in range(8):
                made = RandomMessage(rng, schema, version)
                reader = FieldReader(made.data)
                found = schema.read(reader, version)
                assert found == made.fields, f"{schema.name} {version}"
                assert list(found) == [field.name for field in schema.fields if field.name in found]
                assert not reader.remaining


@pytest.mark.parametrize("module", MODULES)
def test_a_message_that_is_cut_is_malformed(module: str) -> None:
    rng = random.Random(module)
    for schema in schemas(module).values():
        made = RandomMessage(rng, schema, schema.versions.highest)
        for size in {0, len(made.data) // 2, len(made.data) - 1}:
            with pytest.raises(MalformedField):
                schema.read(FieldReader(made.data[:size]), schema.versions.highest)


TABLE = """
Thing 3 1-2 2+
 id int32 1+
 name string 1+ nullable=2+
 note string 2+ tagged=2+ tag=0 default=none
 old int8 1
 places []Place 1+
  where string 1+
 other Place 2+ nullable=2+ default=null
"""


def test_versions() -> None:
    thing = parse_table(TABLE)["Thing"]
    assert (thing.api_key, thing.versions, thing.flexible.includes(1), thing.flexible.includes(2)) == (
        3,
        (1, 2),
        False,
        True,
    )
    first = b"\0\0\0\7" + b"\0\1a" + b"\5" + b"\0\0\0\1" + b"\0\1b"
    assert thing.read(FieldReader(first), 1) == {"id": 7, "name": "a", "old": 5, "places": ({"where": "b"},)}
    second = b"\0\0\0\7" + b"\0" + b"\2" + b"\2b" + b"\0" + b"\1" + b"\2c\0" + b"\1\0\3\2d"
    assert thing.read(FieldReader(second), 2) == {
        "id": 7, "name": None, "note": "d", "places": ({"where": "b"},), "other": {"where": "c"},
    }  # fmt: skip


def test_a_default_in_a_tag_is_left_out() -> None:
    thing = parse_table(TABLE)["Thing"]
    data = b"\0\0\0\7" + b"\0" + b"\1" + b"\xff" + b"\1\0\5\5none"
    assert thing.read(FieldReader(data), 2) == {"id": 7, "name": None, "places": (), "other": None}


def test_null_where_none_may_be() -> None:
    thing = parse_table(TABLE)["Thing"]
    with pytest.raises(MalformedField) as caught:
        thing.read(FieldReader(b"\0\0\0\7\xff\xff"), 1)
    assert caught.value.java_message == "non-nullable field name was serialized as null"


def test_counts_are_bounded() -> None:
    thing = parse_table(TABLE)["Thing"]
    with pytest.raises(MalformedField, match="places has 2147483647 elements, only 2 bytes are left"):
        thing.read(FieldReader(b"\0\0\0\7\0\0\5\x7f\xff\xff\xffab"), 1)


def test_a_later_version_is_read_as_the_highest_but_not_its_structs() -> None:
    thing = parse_table(TABLE)["Thing"]
    empty = b"\0\0\0\7" + b"\0" + b"\1" + b"\xff" + b"\0"
    assert thing.read(FieldReader(empty), 9) == {"id": 7, "name": None, "places": (), "other": None}
    with pytest.raises(MalformedField):
        thing.read(FieldReader(b"\0\0\0\7" + b"\0" + b"\2" + b"\2b" + b"\0" + b"\xff" + b"\0"), 9)
