"""How large an Avro value is, found before a reader believes its counts.

A block of an array or map begins with the number of its items, and an item can take no byte at all (null, an empty
record). A record can hold itself. So a few bytes can stand for a value that no memory holds, or for more levels than a
stack has. Source: "Binary Encoding" of the Avro specification.

    ============================  ==================================================================
    type                          encoding
    ============================  ==================================================================
    null                          nothing
    boolean                       1 byte
    int, long, enum               zigzag varint, at most 10 bytes
    float, double                 4 bytes, 8 bytes
    bytes, string                 length (long), bytes
    fixed                         as many bytes as the schema says
    record                        its fields, one after the other
    union                         number of the branch (long), then its value
    array, map                    blocks: number of items (long), items; a negative number is followed by the size of
                                  the block in bytes; the block of 0 items ends it. An item of a map is a string, then
                                  a value
    ============================  ==================================================================
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.format.value_schemas.schemas import MAX_DEPTH, SchemaProblem

if TYPE_CHECKING:
    from kdump.format.json_types import JsonValue

AvroType: TypeAlias = "JsonValue"
"""A schema as fastavro has parsed it: names are full names."""

LIGHT_VALUES: Final = 4096
"""A value with no more fields than this, whatever its bytes are, is not counted."""
VALUES_PER_BYTE: Final = 64
MAX_DECIMAL_BYTES: Final = 4096
_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_LONGS: Final = ("int", "long", "enum")
_LONGEST_LONG: Final = 10
_PRIMITIVES: Final = frozenset((*_SIZES, "int", "long", "bytes", "string"))


class AvroBounds:
    """Counts the values and levels of encoded values of one schema; `named` are the named types."""

    def __init__(self, schema: AvroType, named: Mapping[str, AvroType]) -> None:
        self._schema, self._named = schema, named
        self._weights: dict[str, int | None] = {}
        self._has_decimals = self._has_enums = False
        weight = self._weight(schema, MAX_DEPTH)
        self.is_light = weight is not None and weight <= LIGHT_VALUES
        """Whether no value of the schema can hold many values. A decimal can have too many bytes for its digits, and an
        enum a number without a symbol, for which fastavro can give another one.
        """
        self._data = b""
        self._at = self._left = 0

    def check(self, data: bytes) -> None:
        """Raises SchemaProblem for a value that has more fields or levels than one may have, or that is cut off."""
        if self.is_light and not self._has_enums and (len(data) <= MAX_DECIMAL_BYTES or not self._has_decimals):
            return
        self._data, self._at, self._left = data, 0, LIGHT_VALUES + VALUES_PER_BYTE * len(data)
        self._skip(self._schema, MAX_DEPTH)

    # ---- the schema

    def _weight(self, schema: AvroType, depth: int) -> int | None:
        """The most values that a value can hold; None where only its bytes say so."""
        if depth < 0:
            return None
        match schema:
            case str():
                return 1 if schema in _PRIMITIVES else self._weight_of_name(schema, depth)
            case list():
                weights = [self._weight(each, depth - 1) for each in schema]
                return None if None in weights else 1 + max((each or 0 for each in weights), default=0)
            case {"type": "record" | "error", "fields": list(fields)}:
                return _sum([self._weight(each["type"], depth - 1) for each in fields if isinstance(each, dict)])
            case {"type": "array" | "map"}:
                return None
            case {"logicalType": _}:
                self._has_decimals = True
                return 1
            case {"type": "enum"}:
                self._has_enums = True
                return 1
            case {"type": "fixed"}:
                return 1
            case {"type": inner}:
                return self._weight(inner, depth - 1)
        return None

    def _weight_of_name(self, name: str, depth: int) -> int | None:
        if name not in self._weights:
            self._weights[name] = None  # where it holds itself
            self._weights[name] = self._weight(self._named.get(name), depth - 1)
        return self._weights[name]

    # ---- a value

    def _skip(self, schema: AvroType, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise SchemaProblem(f"it holds more than {VALUES_PER_BYTE} values for each of its bytes")
        if depth < 0:
            raise SchemaProblem(f"it has more than {MAX_DEPTH} levels")
        match schema:
            case str():
                self._skip_kind(schema, schema, depth)
            case list():
                branch = self._long()
                if not 0 <= branch < len(schema):
                    raise SchemaProblem(f"byte {self._at}: the union has no branch {branch}")
                self._skip(schema[branch], depth - 1)
            case {"type": str(kind)}:
                self._skip_kind(kind, schema, depth)
            case {"type": inner}:
                self._skip(inner, depth - 1)

    def _skip_kind(self, kind: str, schema: AvroType, depth: int) -> None:
        if kind in _SIZES:
            self._take(_SIZES[kind])
        elif kind in _LONGS:
            number = self._long()
            symbols = schema.get("symbols") if isinstance(schema, dict) and kind == "enum" else None
            if isinstance(symbols, list) and not 0 <= number < len(symbols):
                raise SchemaProblem(
                    f"byte {self._at}: the enum has {len(symbols)} symbols and none with number {number}"
                )
        elif kind in ("bytes", "string"):
            size = self._long()
            if isinstance(schema, dict) and "logicalType" in schema and size > MAX_DECIMAL_BYTES:
                raise SchemaProblem(f"byte {self._at}: a decimal of {size} bytes, at most {MAX_DECIMAL_BYTES} are read")
            self._take(size)
        elif isinstance(schema, dict):
            self._skip_complex(kind, schema, depth)
        else:
            self._skip(self._named[kind], depth - 1)

    def _skip_complex(self, kind: str, schema: "dict[str, JsonValue]", depth: int) -> None:
        match schema:
            case {"type": "fixed", "size": int(size)}:
                self._take(size)
            case {"type": "record" | "error", "fields": list(fields)}:
                for each in fields:
                    assert isinstance(each, dict)
                    self._skip(each["type"], depth - 1)
            case {"type": "array", "items": items}:
                self._skip_blocks(items, depth - 1, is_map=False)
            case {"type": "map", "values": items}:
                self._skip_blocks(items, depth - 1, is_map=True)
            case _:
                self._skip(self._named[kind], depth - 1)

    def _skip_blocks(self, items: AvroType, depth: int, *, is_map: bool) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                if is_map:
                    self._take(self._long())
                self._skip(items, depth)

    def _long(self) -> int:
        value = 0
        for number, byte in enumerate(self._data[self._at : self._at + _LONGEST_LONG]):
            value |= (byte & 0x7F) << 7 * number
            if byte < 0x80:
                self._at += number + 1
                return value >> 1 ^ -(value & 1)
        raise SchemaProblem(f"byte {self._at}: a number does not end")

    def _take(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._at:
            raise SchemaProblem(
                f"byte {self._at}: {size} bytes are needed, {len(self._data) - self._at} bytes are left"
            )
        self._at += size


def _sum(weights: list[int | None]) -> int | None:
    return None if None in weights else 1 + sum(each or 0 for each in weights)
