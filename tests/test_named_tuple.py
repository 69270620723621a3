"""kdump.named_tuple makes what typing.NamedTuple makes."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump import named_tuple


class Ours(named_tuple.NamedTuple):
    """A batch."""

    offset: int
    length: int | None
    codec: str = "zstd"
    names: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.offset + (self.length or 0)

    @classmethod
    def empty(cls) -> Ours:
        """A batch of no bytes."""
        return cls(0, None)


class Theirs(typing.NamedTuple):
    """A batch."""

    offset: int
    length: int | None
    codec: str = "zstd"
    names: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.offset + (self.length or 0)

    @classmethod
    def empty(cls) -> Theirs:
        """A batch of no bytes."""
        return cls(0, None)


class Nothing(named_tuple.NamedTuple):
    """No field."""


class Derived(Ours):
    """A class of its own."""

    __slots__ = ()


def outcome(call: Any) -> object:
    """What a call returns, or the class of its error."""
    try:
        return call()
    except (AttributeError, TypeError, ValueError) as error:
        return type(error)


CALLS: dict[str, Callable[[Any], object]] = {
    "positions": lambda kind: kind(1, 2, "gzip", ("a",)),
    "names": lambda kind: kind(length=2, offset=1),
    "defaults": lambda kind: kind(1, None),
    "too few": lambda kind: kind(1),
    "too many": lambda kind: kind(1, 2, "", (), 5),
    "an unknown name": lambda kind: kind(1, 2, other=3),
    "twice": lambda kind: kind(1, offset=1, length=2),
    "a classmethod": lambda kind: kind.empty(),
    "a property": lambda kind: kind(4, 5).end,
    "_make": lambda kind: kind._make([1, 2, "", ()]),
    "_make of fewer": lambda kind: kind._make([1, 2]),
    "_replace": lambda kind: kind(1, 2)._replace(codec="lz4", offset=3),
    "_replace of another": lambda kind: kind(1, 2)._replace(other=3),
    "_asdict": lambda kind: kind(1, 2)._asdict(),
    "repr": lambda kind: repr(kind(1, 2)).replace("Ours", "Theirs"),
    "hash": lambda kind: hash(kind(1, 2)),
    "a copy": lambda kind: copy.deepcopy(kind(1, 2)),
    "order": lambda kind: sorted([kind(2, 1), kind(1, 2)]),
    "unpacked": lambda kind: (*kind(1, 2),),
    "an assignment": lambda kind: setattr(kind(1, 2), "offset", 3),
    "another attribute": lambda kind: setattr(kind(1, 2), "other", 3),
    "pickled": lambda kind: pickle.loads(pickle.dumps(kind(1, 2))),
    "fields": lambda kind: (kind._fields, kind.__match_args__, kind._field_defaults, kind.__bases__, kind.__doc__),
    "signature": lambda kind: [(each.name, each.default) for each in inspect.signature(kind).parameters.values()],
    "hints": typing.get_type_hints,
    "annotations": lambda kind: list(kind.__annotations__),
    "module": lambda kind: kind.__module__,
    "the module of what makes it": lambda kind: type(kind.__new__.__module__),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_named_tuple_is_what_typing_makes(name: str) -> None:
    """Values, errors and what can be asked of the class."""
    call = CALLS[name]
    assert outcome(lambda: call(Ours)) == outcome(lambda: call(Theirs))


def test_a_named_tuple_matches_patterns() -> None:
    """By position and by name."""
    match Ours(1, 2):
        case Ours(offset, codec=codec):
            assert (offset, codec) == (1, "zstd")


def test_a_named_tuple_keeps_its_class() -> None:
    """A copy, a pickle and a replacement are of the class, that of a derived one too."""
    for kind in (Ours, Derived):
        value = kind(1, 2)
        for other in (copy.copy(value), pickle.loads(pickle.dumps(value)), value._replace(offset=3), kind._make(value)):
            assert type(other) is kind
    assert Nothing() == ()
    assert repr(Nothing()) == "Nothing()"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="typing makes the class")
def test_a_class_without_a_meaning_is_refused() -> None:
    """A default before a field that has none, and a second base."""
    with pytest.raises(TypeError, match="without a default"):

        class First(named_tuple.NamedTuple):
            first: int = 1
            second: int  # type: ignore[misc]

    with pytest.raises(TypeError, match="no other base"):

        class Second(named_tuple.NamedTuple, dict[str, int]):  # type: ignore[misc]
            first: int


def test_only_a_generic_class_is_made_by_typing() -> None:
    """Each other one would cost a start again what this module saves."""
    home = Path(kdump.__file__).parent
    found = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*.py")
        for names in re.findall(r"^ *from typing import (\([^)]*\)|.*)$", path.read_text(), re.MULTILINE)
        if "NamedTuple" in re.findall(r"\w+", names)
    }
    assert found == {"log/slice_tasks.py", "named_tuple.py"}
