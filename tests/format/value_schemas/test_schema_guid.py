"""The GUID of a schema is the MD5 of its text, its references, its metadata and its rules."""

from __future__ import annotations

from base64 import b64encode
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.format.value_schemas.schema_guid import guid_of
from support.laws import examples

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("name", "tags", "a")), inner),
    max_leaves=5,
)
FIELDS = ("schema", "references", "metadata", "ruleSet", "md5")


@pytest.mark.parametrize(
    ("fields", "hashed"),
    [
        ({"schema": '"int"', "id": 5, "deleted": True}, b'"int"'),
        ({"schema": "é", "references": [{"name": "n", "subject": "s", "version": 258}]}, b"\xc3\xa9ns\0\0\1\2"),
        (
            {
                "schema": "",
                "metadata": {
                    "tags": {"b": ["y", "x", "y"], "a": []},
                    "properties": {"q": "2", "p": "1"},
                    "sensitive": ["p"],
                },
            },
            b"\1abxyp1q2p",
        ),
        (
            {
                "schema": "S",
                "ruleSet": {
                    "domainRules": [
                        {"name": "n", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "e", "doc": "d"},
                        {"name": "m", "tags": ["t"], "params": {"k": "v"}, "onFailure": "DLQ", "disabled": True},
                    ],
                    "migrationRules": [{"name": "first", "disabled": False}],
                },
            },
            b"S\1firstTRANSFORMWRITEREADndCONDITIONWRITECELemTRANSFORMWRITEREADtkvDLQ\1",
        ),
        ({"metadata": {"sensitive": ["\uff5e", "\U0001f600"]}}, b"\1" + "\U0001f600\uff5e".encode()),
        ({"metadata": None, "ruleSet": None, "references": []}, b""),
    ],
)
def test_what_is_hashed(fields: dict[str, Any], hashed: bytes) -> None:
    assert guid_of(fields) == str(UUID(bytes=md5(hashed).digest()))


def test_a_hash_that_is_stored_counts() -> None:
    """What is encrypted cannot be hashed again."""
    number = UUID(int=7)
    assert guid_of({"schema": "x", "md5": b64encode(number.bytes).decode()}) == str(number)
    for wrong in ("", "AAAA", "é", 7):
        assert guid_of({"schema": "x", "md5": wrong}) == guid_of({"schema": "x"})


@settings(max_examples=examples(40))
@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_any_value_has_a_guid(fields: dict[str, Any]) -> None:
    assert UUID(guid_of(fields))
