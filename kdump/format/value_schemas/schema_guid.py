"""The GUID of a schema, which a registry does not store: it is the MD5 of what it stores.

Source: Schema.updateHash and MD5.ofSchema of Confluent's registry. These bytes are hashed, one after the other; what is
absent is left out, texts are UTF-8, and maps and sets are in the order of their names:

    ==============  ====================================================================================================
    field           bytes
    ==============  ====================================================================================================
    schema          the text
    references      of each: name, subject, version (i32, big-endian)
    metadata        1, then of each tag its name and its values, of each property its name and its value, and the names
                    of sensitive properties
    ruleSet         1, then migrationRules, domainRules, encodingRules, enableAt; of each rule: name, doc, kind, mode,
                    type, tags, of each parameter its name and its value, expr, onSuccess, onFailure, and 1 if disabled;
                    without kind TRANSFORM, without mode WRITEREAD
    ==============  ====================================================================================================

Where sensitive properties are stored encrypted, the field `md5` has the hash in base64.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator
from hashlib import md5
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from kdump.format.json_types import JsonObject, JsonValue

_SIZE: Final = 16
_RULES: Final = ("migrationRules", "domainRules", "encodingRules")
_BEFORE_TAGS: Final = {"name": None, "doc": None, "kind": "TRANSFORM", "mode": "WRITEREAD", "type": None}
"""Fields of a rule, and what stands for one that is absent."""
_AFTER_PARAMETERS: Final = ("expr", "onSuccess", "onFailure")


def guid_of(fields: "JsonObject") -> str:
    """The GUID of a schema, in lower case; `fields` are those of its value in the topic of the registry."""
    stored = fields.get("md5")
    if isinstance(stored, str) and len(data := _from_base64(stored)) == _SIZE:
        return str(UUID(bytes=data))
    found = md5(usedforsecurity=False)
    for part in _parts(fields):
        found.update(part)
    return str(UUID(bytes=found.digest()))


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def _parts(fields: "JsonObject") -> Iterator[bytes]:
    yield from _text(fields.get("schema"))
    for each in _objects(fields.get("references")):
        yield from _text(each.get("name"))
        yield from _text(each.get("subject"))
        if isinstance(version := each.get("version"), int):
            yield (version & 0xFFFFFFFF).to_bytes(4, "big")
    if isinstance(metadata := fields.get("metadata"), dict):
        yield b"\1"
        for name in ("tags", "properties"):
            yield from _pairs(metadata.get(name))
        yield from _names(metadata.get("sensitive"))
    if isinstance(rules := fields.get("ruleSet"), dict):
        yield b"\1"
        for name in _RULES:
            for rule in _objects(rules.get(name)):
                yield from _rule(rule)
        yield from _text(rules.get("enableAt"))


def _rule(rule: "JsonObject") -> Iterator[bytes]:
    for name, absent in _BEFORE_TAGS.items():
        yield from _text(absent if rule.get(name) is None else rule[name])
    yield from _names(rule.get("tags"))
    yield from _pairs(rule.get("params"))
    for name in _AFTER_PARAMETERS:
        yield from _text(rule.get(name))
    if rule.get("disabled") is True:
        yield b"\1"


def _text(value: "JsonValue") -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "replace")


def _names(value: "JsonValue") -> Iterator[bytes]:
    if isinstance(value, list):
        for name in _sorted(value):
            yield from _text(name)


def _pairs(value: "JsonValue") -> Iterator[bytes]:
    """The names and values of an object: a value is a text, or a list of them."""
    if isinstance(value, dict):
        for name in _sorted(value):
            yield from _text(name)
            yield from _text(value[name])
            yield from _names(value[name])


def _sorted(names: "Iterable[JsonValue]") -> list[str]:
    """Each one once, in the order of Java: by UTF-16 code units."""
    texts = {each for each in names if isinstance(each, str)}
    return sorted(texts, key=lambda text: text.encode("utf-16-be", "replace"))


def _objects(value: "JsonValue") -> "Iterator[JsonObject]":
    yield from (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()
