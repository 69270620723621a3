"""The fields of a metadata record with the types that its schema gives them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kdump.format.json_types import FieldValue

NO_UUID: Final = "A" * 22
"""The UUID of 16 zero bytes."""


class ReplayError(ValueError):
    """A record that does not fit the image: Kafka's class throws, its fault handler counts it, and the record has no
    effect.
    """


class RecordFields:
    """Reads the fields of a record by name. A tagged field that is not there has the default of its schema.

    Raises ReplayError where a value has another type, which no decoded record has.
    """

    def __init__(self, fields: "Mapping[str, FieldValue]") -> None:
        self._fields = fields

    def integer(self, name: str, default: int | None = None) -> int:
        """A number of any size."""
        found = self._fields.get(name, default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise ReplayError(f"{name} is not a number")
        return found

    def number(self, name: str) -> float:
        """A floating point number."""
        found = self._fields.get(name)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ReplayError(f"{name} is not a number")
        return float(found)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value."""
        return self._fields.get(name, default) is True

    def text(self, name: str) -> str:
        """A string."""
        found = self._fields.get(name)
        if not isinstance(found, str):
            raise ReplayError(f"{name} is not a string")
        return found

    def optional_text(self, name: str) -> str | None:
        """A string, None for null."""
        return None if self._fields.get(name) is None else self.text(name)

    def binary(self, name: str) -> bytes:
        """Bytes."""
        found = self._fields.get(name)
        if not isinstance(found, bytes):
            raise ReplayError(f"{name} is not bytes")
        return found

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(name) is not None

    def integers(self, name: str) -> tuple[int, ...]:
        """An array of numbers, empty for null."""
        return tuple(item for item in self._array(name) if isinstance(item, int))

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of strings or UUIDs, empty for null."""
        return tuple(item for item in self._array(name) if isinstance(item, str))

    def structs(self, name: str) -> "tuple[RecordFields, ...]":
        """An array of structs, empty for null."""
        return tuple(RecordFields(item) for item in self._array(name) if isinstance(item, Mapping))

    def _array(self, name: str) -> "tuple[FieldValue, ...]":
        found = self._fields.get(name)
        if found is None:
            return ()
        if not isinstance(found, list | tuple):
            raise ReplayError(f"{name} is not an array")
        return tuple(found)
