r"""The file meta.properties of a log directory: its node and its cluster (MetaProperties, `java.util.Properties`).

Lines in ISO-8859-1: ``key=value``, or with ``:`` or a blank between them. A line that begins with ``#`` or ``!`` is a
comment. A ``\`` at the end of a line joins the next one. ``\t``, ``\n``, ``\r``, ``\f`` and ``\uxxxx`` are escapes;
before any other character a ``\`` is dropped.

    =============  =========  =========  ===================================================================
    key            version 0  version 1  note
    =============  =========  =========  ===================================================================
    version        0 or none  1          KIP-631
    broker.id      optional              the node
    node.id                   required   the node
    cluster.id     optional   required
    directory.id   optional   optional   a UUID as base64url (KIP-858)
    =============  =========  =========  ===================================================================
"""

import io
import re
from collections.abc import Iterator
from typing import Final

from kdump.format.java import parse_integer
from kdump.format.text_files import MAX_PROPERTIES_BYTES, CheckpointError, Property, parse_uuid, quoted, too_large
from kdump.named_tuple import NamedTuple

HIGHEST_META_PROPERTIES_VERSION: Final = 1

_PADDING = " \t\f"
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# The key goes to the first separator without a backslash before it; then one = or : with blanks around it.
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


class MetaProperties(NamedTuple):
    """The content of meta.properties; `node_id` is broker.id in version 0. A field that the file lacks is None."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def properties(data: bytes) -> Iterator[Property]:
    r"""The properties of a Java properties file in its order. Of two with one key Kafka takes the later one.

    Half a surrogate pair becomes U+FFFD. Raises CheckpointError for a `\u` without four hexadecimal digits.
    """
    if len(data) > MAX_PROPERTIES_BYTES:
        raise too_large(data, MAX_PROPERTIES_BYTES)
    for number, line in _logical_lines(data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty string
        yield Property(_unescaped(key[1], number), _unescaped(line[key.end() :], number))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, without comments, each with the number of its first line."""
    parts: list[str] = []
    first, alone = 0, False
    for number, natural in enumerate(io.StringIO(text, newline=None), 1):
        line = natural.removesuffix("\n").lstrip(_PADDING)
        alone = line == "\\" and not parts
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            # A single backslash begins no property: the next line can still be a comment.
            if not alone:
                parts.append(line[:-1])
            continue
        yield first, "".join((*parts, line))
        parts.clear()
    # At the end of the file it is an empty key with an empty value (a quirk of Java's reader, which CRLF hides).
    if parts or (alone and not text.endswith("\r\n")):
        yield first, "".join(parts)


def _unescaped(text: str, number: int) -> str:
    if "\\" not in text:
        return text

    def plain(escape: re.Match[str]) -> str:
        if escape[1] is not None:
            return chr(int(escape[1], 16))
        if escape[2] == "u":
            raise CheckpointError(f"line {number}: \\u without four hexadecimal digits: {quoted(text)}")
        return _ESCAPED.get(escape[2], escape[2])

    found = _ESCAPE.sub(plain, text)
    # Two escapes can be the halves of one character.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parse_meta_properties(data: bytes) -> MetaProperties:
    """The content. Raises CheckpointError for what MetaProperties refuses."""
    found = dict(properties(data))
    version_text = found.get("version", "0").strip(_JAVA_TRIMS)
    version = _property_number("version", version_text)
    if not 0 <= version <= HIGHEST_META_PROPERTIES_VERSION:
        raise CheckpointError(f"version {version}, expected 0 to {HIGHEST_META_PROPERTIES_VERSION}")
    node_key = "node.id" if version else "broker.id"
    node_id = _property_number(node_key, found[node_key]) if node_key in found else None
    if version and node_id is None:
        raise CheckpointError("node.id is missing")
    directory_id = parse_uuid("directory.id", found["directory.id"]) if "directory.id" in found else None
    if version and "cluster.id" not in found:
        raise CheckpointError("cluster.id is missing")
    return MetaProperties(version, found.get("cluster.id"), node_id, directory_id)


_JAVA_TRIMS = "".join(map(chr, range(0x21)))


def _property_number(key: str, text: str) -> int:
    number = parse_integer(text, 32)
    if number is None:
        raise CheckpointError(f"{key} is not a number: {quoted(text)}")
    return number
