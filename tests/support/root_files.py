"""Files at the root of a log directory as a broker writes them: meta.properties, quorum-state, .kafka_cleanshutdown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kdump.format.clean_shutdown import CleanShutdown
from kdump.format.meta_properties import MetaProperties
from kdump.format.quorum_state import QuorumState
from kdump.format.text_files import Property, compact_json

_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {char: f"\\{char}" for char in "\\=:#!"}


def build_properties(entries: Iterable[Property], comments: Iterable[str] = ()) -> bytes:
    """A Java properties file in ASCII, as `java.util.Properties` writes it.

    Raises ValueError for a comment with a line end.
    """
    lines = []
    for comment in comments:
        if not comment.isprintable():
            raise ValueError(f"not a comment of one line: {comment!r}")
        lines.append(f"#{_ascii(comment)}\n")
    lines += [f"{_escaped(key, key=True)}={_escaped(value, key=False)}\n" for key, value in entries]
    return "".join(lines).encode("ascii")


def _escaped(text: str, *, key: bool) -> str:
    escaped = "".join([_ESCAPES.get(char, char) for char in text])
    blanks = len(escaped) if key else len(escaped) - len(escaped.lstrip(" "))
    return _ascii(escaped[:blanks].replace(" ", "\\ ") + escaped[blanks:])


def _ascii(text: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = [units[at] << 8 | units[at + 1] for at in range(0, len(units), 2)]
    return "".join([chr(code) if 0x20 <= code <= 0x7E else f"\\u{code:04X}" for code in codes])


def build_meta_properties(meta: MetaProperties, comments: Iterable[str] = ()) -> bytes:
    """A meta.properties; a broker writes an empty comment and one with the time."""
    entries = (
        ("node.id" if meta.version else "broker.id", meta.node_id),
        ("directory.id", meta.directory_id),
        ("version", meta.version),
        ("cluster.id", meta.cluster_id),
    )
    return build_properties([Property(key, str(value)) for key, value in entries if value is not None], comments)


def build_quorum_state(state: QuorumState) -> bytes:
    """A quorum-state as a broker writes it, without a line end."""
    fields: dict[str, Any] = {"clusterId": state.cluster_id} if state.data_version == 0 else {}
    fields |= {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if state.data_version == 0:
        fields["appliedOffset"] = state.applied_offset
        fields["currentVoters"] = [{"voterId": voter} for voter in state.current_voters or ()]
    else:
        fields["votedDirectoryId"] = state.voted_directory_id
    fields["data_version"] = state.data_version
    return compact_json(fields).encode()


def build_clean_shutdown(content: CleanShutdown) -> bytes:
    """A .kafka_cleanshutdown as a broker writes it; empty without a broker epoch."""
    if content.broker_epoch is None:
        return b""
    return compact_json({"version": content.version or 0, "brokerEpoch": content.broker_epoch}).encode()
