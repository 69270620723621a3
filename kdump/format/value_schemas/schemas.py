"""What a schema of keys and values is, where a decoder gets it from, and the limits that hold for every schema."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from uuid import UUID

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"
SCHEMA_TYPES: Final = (AVRO, PROTOBUF, JSON)
"""The names of the schema types in a schema registry."""

MAX_SCHEMA_CHARACTERS: Final = 1 << 20
"""The longest text of a schema, together with those that it refers to."""
MAX_REFERENCES: Final = 256
MAX_VALUE_BYTES: Final = 8 << 20
"""The largest key or value that is decoded."""
MAX_DEPTH: Final = 64
"""The levels of a decoded value, and of the types of a schema."""


LONGEST_NAME: Final = 200
"""The longest path of a file that a schema imports."""


def is_path_below(name: str) -> bool:
    """Whether a name can be that of a file below a folder, and of no file outside."""
    return (
        len(name) <= LONGEST_NAME
        and name.isprintable()
        and "\\" not in name
        and not any(part in ("", ".", "..") or part.startswith(("-", "~")) for part in name.split("/"))
    )


class SchemaProblem(ValueError):
    """Why a key or value cannot be decoded, as a clause."""


class NamedSchema(NamedTuple):
    """A schema that another one refers to. `name` is the path of a Protobuf import; Avro types name themselves."""

    name: str
    text: str


class ValueSchema(NamedTuple):
    """A schema. `references` are all that it needs, directly or not: each one after those that it refers to itself."""

    schema_type: str
    text: str
    references: tuple[NamedSchema, ...] = ()

    def check(self) -> "ValueSchema":
        """The schema itself. Raises SchemaProblem where it is larger than any schema may be."""
        if self.schema_type not in SCHEMA_TYPES:
            raise SchemaProblem(f"schemas of type {self.schema_type} are not known")
        if len(self.references) > MAX_REFERENCES:
            raise SchemaProblem(f"the schema refers to more than {MAX_REFERENCES} others")
        if len(self.text) + sum(len(each.text) for each in self.references) > MAX_SCHEMA_CHARACTERS:
            raise SchemaProblem(f"the schema has more than {MAX_SCHEMA_CHARACTERS} characters")
        return self


class SchemaSet(Protocol):
    """Schemas by the id or GUID that the wire format has. Both methods raise SchemaProblem for one without a schema."""

    def by_id(self, schema_id: int) -> ValueSchema: ...
    def by_guid(self, guid: "UUID") -> ValueSchema: ...


ProtobufCompiler = Callable[[ValueSchema], bytes]
"""Gives the FileDescriptorSet of a Protobuf schema, serialized; its own file is the last one. Raises SchemaProblem."""
