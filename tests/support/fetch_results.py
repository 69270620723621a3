"""The results of a fetch and of a multifetch as values, of which the whole is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kdump.format.fetch import (
    HEADER_SIZE,
    ErrorCode,
    FetchError,
    FetchHeader,
    build_header,
    build_message_set_send,
    bytes_after_end,
    parse_header,
)


class MessageSetSend(NamedTuple):
    """The result of a fetch. `messages` can end with an incomplete message."""

    error_code: int
    messages: bytes | memoryview


class MultiMessageSetSend(NamedTuple):
    """The result of a multifetch."""

    error_code: int
    sets: tuple[MessageSetSend, ...]


def parse_message_set_send(data: bytes | memoryview) -> MessageSetSend:
    """The result of a fetch that fills `data`. The messages are a slice of `data`. Raises FetchError."""
    header = _whole(data, 0)
    if header.size < len(data):
        raise FetchError(header.size, bytes_after_end(len(data) - header.size))
    return MessageSetSend(header.error_code, data[HEADER_SIZE:])


def parse_multi_message_set_send(data: bytes | memoryview) -> MultiMessageSetSend:
    """The result of a multifetch that fills `data`, with slices of it. Raises FetchError."""
    header = _whole(data, 0)
    if header.size < len(data):
        raise FetchError(header.size, bytes_after_end(len(data) - header.size))
    sets, position = [], HEADER_SIZE
    while position < len(data):
        inner = _whole(data, position)
        sets.append(MessageSetSend(inner.error_code, data[position + HEADER_SIZE : position + inner.size]))
        position += inner.size
    return MultiMessageSetSend(header.error_code, tuple(sets))


def _whole(data: bytes | memoryview, position: int) -> FetchHeader:
    header = parse_header(data, position)
    problem = header.length_problem(len(data) - position)
    if problem is not None:
        raise FetchError(position, problem)
    return header


def build_multi_message_set_send(sets: Iterable[MessageSetSend], error_code: int = ErrorCode.NONE) -> bytes:
    """The result of a multifetch. Raises ValueError for what does not fit into its fields."""
    inside = b"".join(build_message_set_send(each.messages, each.error_code) for each in sets)
    return build_header(len(inside), error_code) + inside
