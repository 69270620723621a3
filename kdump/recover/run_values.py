"""Named tuples to and from JSON values, by the types of their fields: for files that only this package reads.

A field that a file lacks has its default. A field that the class does not have is an error.
"""

import types
from base64 import b64decode, b64encode
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from kdump.recover.rebuild_cache import RebuildCache

if TYPE_CHECKING:
    from kdump.format.json_types import JsonValue


def to_json(value: object) -> "JsonValue":
    """A value as JSON holds it. What a plan rebuilt is left out: it can be rebuilt."""
    match value:
        case Enum():
            return value.name
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return b64encode(value).decode("ascii")
        case Mapping():
            # A list of pairs: keys may be numbers or named tuples.
            return [[to_json(key), to_json(item)] for key, item in value.items()]
        case tuple() if hasattr(value, "_fields"):
            return {name: to_json(getattr(value, name)) for name in value._fields}
        case tuple() | list() | frozenset():
            return [to_json(item) for item in value]
        case RebuildCache():
            return None
        case _ if hasattr(value, "__dataclass_fields__"):
            return {name: to_json(getattr(value, name)) for name in value.__dataclass_fields__}
    raise TypeError(f"no JSON for {type(value).__name__}")


def from_json(kind: Any, value: "JsonValue") -> Any:
    """The value of a type. Raises ValueError and TypeError where it is not one."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(inner, value)
    if origin is not None and issubclass(origin, Mapping):
        return {from_json(inner[0], key): from_json(inner[1], item) for key, item in _list(value)}
    if origin is tuple:
        items = _list(value)
        several = [inner[0]] * len(items) if inner[1:] == (...,) else list(inner)
        return tuple(from_json(one, item) for one, item in zip(several, items, strict=True))
    if kind is RebuildCache:
        return RebuildCache()
    if kind is bytes:
        return b64decode(_checked(str, value), validate=True)
    if kind in (str, int, bool, float, type(None)):
        return _checked(kind, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[_checked(str, value)]
    return _of_fields(kind, value)


def _one_of(kinds: tuple[Any, ...], value: "JsonValue") -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        try:
            return from_json(kind, value)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError(f"{value!r} is not one of {kinds}")


def _of_fields(kind: Any, fields: "JsonValue") -> Any:
    """A named tuple or a data class."""
    if not isinstance(fields, dict):
        raise TypeError(f"{fields!r} has no fields of a {kind.__name__}")
    hints = _hints_of(kind)
    return kind(**{name: from_json(hints[name], item) for name, item in fields.items()})


@cache
def _hints_of(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _list(value: "JsonValue") -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _checked(kind: Any, value: "JsonValue") -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of the type {kind.__name__}")
    return value
