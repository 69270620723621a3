"""What kdump.kernel.internal_topic_text runs to write the messages of a topic: a flat program, made from their schema.

A program has structs, each with its fields in the order of the output. A struct refers only to structs before it, so
that no program runs for ever. kdump.render.message_programs makes programs.
"""

from collections.abc import Mapping

from kdump.named_tuple import NamedTuple


class MessageField(NamedTuple):
    """A field, or the elements of an array, which have no label.

    `kind` is one of kdump.kernel.internal_topic_text.KINDS. `label` is what stands before the value; its first byte
    separates it from the field before. `sub` is the number of a struct, of the field of the elements for an array, of
    the structs of all versions for an embedded message, which has `versions`. `tag` is -1 for a field without one.
    `compact`: lengths are those of a flexible version. `constant` has the bytes of the default value of a tagged field,
    which is left out, and the text that a guard wants.
    """

    kind: str
    label: bytes = b""
    sub: int = -1
    tag: int = -1
    nullable: bool = False
    compact: bool = False
    constant: bytes = b""
    versions: int = 0


class MessageStruct(NamedTuple):
    """The fields [first, first + fields) of the program, between `brackets`, which are two bytes or none.

    `flexible`: tagged fields follow them.
    """

    first: int
    fields: int
    brackets: bytes
    flexible: bool


class MessageText(NamedTuple):
    """A message: its struct, and what stands before and after it."""

    head: bytes
    struct: int
    tail: bytes


class MessageProgram(NamedTuple):
    """The messages of a topic. `keys` are by record type, `values` by record type and version.

    Without `keys` a record is a value in a frame (kdump.format.internal_topics.metadata_records). `no_key` stands for
    the key then. `deleted` stands for the value of a tombstone.
    """

    fields: tuple[MessageField, ...]
    structs: tuple[MessageStruct, ...]
    keys: Mapping[int, MessageText]
    values: Mapping[tuple[int, int], MessageText]
    no_key: bytes
    deleted: bytes
