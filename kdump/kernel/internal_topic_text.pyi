from collections.abc import Sequence

from kdump.kernel.message_program import MessageProgram

KINDS: tuple[str, ...]
"""The kinds of fields of a MessageProgram.

`time` is an int64 written as a time unless it is negative, `word` a string that is never quoted, `struct` one whose
label is left out where its struct has no brackets. `embedded` are bytes with a version and a message; they are taken
for that only after a `guard`, a string, had the text that it wants. `refused` is a tag that does not belong to the
version.
"""
MOST_LEVELS: int
"""The most structs inside of each other."""

class MessageFormatter:
    """Writes the keys and values of records of an internal topic as text or JSON, for kdump.kernel.lines.

    `style` is `text` or `json`, `mode` one of kdump.kernel.lines.MODES. What is not as Kafka writes it (an unknown type
    or version, a length without bytes, text that is not UTF-8, bytes after a framed message, a varint that is not the
    shortest, a tag twice) it leaves to the decoder in kdump.format.internal_topics. Raises ValueError for a program
    that refers to what it does not have.
    """

    def __init__(self, style: str, mode: str, program: MessageProgram) -> None: ...
    def texts(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> list[bytes | None]:
        """What is written for records with these keys and values; None for one that is left to the decoder."""
