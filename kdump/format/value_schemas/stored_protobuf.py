"""Protobuf schemas as registries store them, which is not always text that protoc takes.

==========================================  ============================================================================
form                                        what it needs
==========================================  ============================================================================
text of a .proto file                       nothing
text with `option map_entry = true;`        protoc refuses this option, with which Confluent's registry writes the
                                            messages behind `map<>` of a schema that it got as a descriptor
                                            (ProtobufSchema.toMessage): the option is replaced by a mark, and set again
                                            in what protoc gives
base64 of a FileDescriptorProto             what serializers of Confluent's Python client register, where the registry
                                            keeps it: a descriptor set for protoc
==========================================  ============================================================================

Message indexes count the messages of the stored schema: the message behind a map where it is written out, as the last
two forms do, not where `map<>` stands for it.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.format.value_schemas.schemas import SchemaProblem

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto

COMMENT_OR_STRING: Final = r"//[^\n]*|/\*.*?(?:\*/|\Z)|(\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
"""A comment, or as group 1 a string. Also those that do not end: from each one on, a search for its end would read all
of the text."""
_MARK: Final = "kdump_map_entry"
"""A reserved name of messages behind maps that are written out."""
_OPTION: Final = re.compile(rf"{COMMENT_OR_STRING}|(?<![\w.])(option\s+map_entry\s*=\s*true\s*;)", re.DOTALL)
_EDITION: Final = re.compile(r"\s*edition\s*=")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++={0,2}")


def is_serialized(text: str) -> bool:
    """Whether it is base64: text of a .proto file has characters that base64 has not."""
    return _BASE64.fullmatch(text.strip()) is not None


def imports_of(text: str) -> list[str]:
    """The paths that a file in base64 imports; none where it is no descriptor, or protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2  # of the extra `schemas`
        from google.protobuf.message import DecodeError
    except ImportError:
        return []
    try:
        return list(descriptor_pb2.FileDescriptorProto.FromString(b64decode(text)).dependency)
    except (DecodeError, binascii.Error):
        return []


def descriptor_set(files: Mapping[str, str]) -> bytes:
    """The FileDescriptorSet with these files: base64 by the path of the file. Raises SchemaProblem."""
    from google.protobuf import descriptor_pb2  # of the extra `schemas`
    from google.protobuf.message import DecodeError

    found = descriptor_pb2.FileDescriptorSet()
    for name, text in files.items():
        try:
            found.file.add().ParseFromString(b64decode(text))
        except (DecodeError, binascii.Error):
            raise SchemaProblem("the schema is neither text of a .proto file nor a descriptor in base64") from None
        found.file[-1].name = name
    return bytes(found.SerializeToString())


def without_option(text: str) -> str:
    """The text of a .proto file with marks in the place of the option map_entry."""
    if "map_entry" not in text:
        return text
    code = re.sub(COMMENT_OR_STRING, lambda match: match[1] or " ", text, flags=re.DOTALL)
    mark = f"reserved {_MARK};" if _EDITION.match(code) else f'reserved "{_MARK}";'
    return _OPTION.sub(lambda match: mark if match[2] else match[0], text)


def with_option(descriptors: bytes, *, is_own_serialized: bool) -> bytes:
    """The FileDescriptorSet with the option map_entry in the place of marks, which stay.

    `is_own_serialized`: the last file was a descriptor, in which all messages behind maps are written out.
    """
    if not is_own_serialized and _MARK.encode() not in descriptors:
        return descriptors
    from google.protobuf import descriptor_pb2

    found = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    for message in _all(each for file in found.file for each in file.message_type):
        if _MARK in message.reserved_name:
            message.options.map_entry = True
    if is_own_serialized:
        for message in _all(found.file[-1].message_type):
            if message.options.map_entry:
                message.reserved_name.append(_MARK)
    return bytes(found.SerializeToString())


def is_implied(message: "DescriptorProto") -> bool:
    """Whether `map<>` stands for the message in the stored schema."""
    return bool(message.options.map_entry) and _MARK not in message.reserved_name


def _all(messages: "Iterable[DescriptorProto]") -> "Iterator[DescriptorProto]":
    left = list(messages)
    while left:
        message = left.pop()
        yield message
        left.extend(message.nested_type)
