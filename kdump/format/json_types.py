"""The types of JSON values, and of the values that a line of output holds. They are for annotations alone.

Import them under `TYPE_CHECKING`: nothing loads this module at run time.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A value as the module json reads and writes it."""
JsonObject: TypeAlias = dict[str, JsonValue]

FieldValue: TypeAlias = (
    "bool | int | float | str | bytes | PathLike[str] | Sequence[FieldValue] | Mapping[str, FieldValue] | None"
)
"""A value of a line that a renderer shows. A NamedTuple becomes an object, bytes become text."""
Fields: TypeAlias = Mapping[str, FieldValue]
"""The named values of a line, in their order."""
