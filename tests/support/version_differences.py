"""How two runs of a command, or the directories that they left, differ."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from crc32c import crc32c

from support.version_worker import Command, Ran


class Difference(NamedTuple):
    """What differs, in a line or some."""

    what: str
    text: str


def compare_runs(command: Command, old: Ran, new: Ran, *, inodes: bool = False) -> Iterator[Difference]:
    """How two runs of a command differ; with `inodes` those of files count by the order in which they appear."""
    kind = " ".join([command[0], *(word for word in command[1:] if word.startswith("--") and word != "--format")])
    if old.status != new.status:
        said = "".join(f"\n      {name}: {last_line(ran.err)}" for name, ran in (("old", old), ("new", new)))
        yield Difference(f"{kind}: exit status", f"{old.status} -> {new.status}{said}")
    form = command[command.index("--format") + 1] if "--format" in command else ""
    if old.out != new.out:
        if form == "json":
            yield from compare_lines(kind, old.out, new.out, inodes=inodes)
        else:
            yield Difference(f"{kind}: {form} output", _first_difference(old.out, new.out))
    if form == "kafka" and _of_the_tool(old.err) != _of_the_tool(new.err):
        text = _first_difference(_of_the_tool(old.err), _of_the_tool(new.err))
        yield Difference(f"{kind}: standard error of {form}", text)


def last_line(data: bytes) -> str:
    return (data.decode("utf-8", "replace").strip().splitlines() or ["(nothing said)"])[-1][:300]


def _of_the_tool(data: bytes) -> bytes:
    """Standard error without the sentences of kdump itself, whose wording may change."""
    return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"kdump: "))


def compare_lines(kind: str, old: bytes, new: bytes, *, inodes: bool = False) -> Iterator[Difference]:
    """How JSON Lines differ; the order of keys counts."""
    plain_old, plain_new = Plain(inodes), Plain(inodes)
    pairs = itertools.zip_longest(old.splitlines(), new.splitlines())
    for number, (one, other) in enumerate(pairs, 1):
        if one == other and not inodes:
            continue
        if one is None or other is None:
            left = (one or other or b"").decode("utf-8", "replace")[:300]
            yield Difference(f"{kind}: lines", f"line {number} only in {'old' if other is None else 'new'}: {left}")
            return
        before, after = plain_old(one), plain_new(other)
        if json.dumps(before) != json.dumps(after):
            label = f"{kind}: {before.get('type')}"
            if before.get("code") != after.get("code") or before.get("type") != after.get("type"):
                text = f"line {number}\n      old: {json.dumps(before)[:400]}\n      new: {json.dumps(after)[:400]}"
                yield Difference(label, text)
                return  # what follows is moved, which would tell the same again and again
            yield Difference(f"{label} {_differing(before, after)}", _fields(number, before, after))


def _differing(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name, ...) != after.get(name, ...)]
    return ", ".join(names) or "order of keys"


def _fields(number: int, before: dict[str, Any], after: dict[str, Any]) -> str:
    text = f"line {number}: {before.get('code', '')} {before.get('path', '')}"
    for name in {**before, **after}:
        if before.get(name, ...) != after.get(name, ...):
            one, other = (
                json.dumps(side[name])[:300] if name in side else "(no such field)" for side in (before, after)
            )
            text += f"\n      {name}: {one} -> {other}"
    return text


# The clock of a file system lags a little after that of the process.
_BEGAN_NS = time.time_ns() - 10**9


def _file_time(time_ns: int) -> object:
    """When a file was modified: all that was written during the comparison is of now."""
    return "now" if time_ns >= _BEGAN_NS else time_ns


class Plain:
    """Makes the lines of one output comparable."""

    def __init__(self, inodes: bool) -> None:
        self._inodes: dict[int, int] | None = {} if inodes else None

    def __call__(self, line: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = json.loads(line)
        if "code" in fields:
            fields.pop("message", None)
        if fields.get("type") == "summary":
            fields.pop("seconds", None)
        if self._inodes is not None and fields.get("type") == "partition":
            for file in fields.get("files", ()):
                file["inode"] = self._inodes.setdefault(file["inode"], len(self._inodes))
                file["mtime_ns"] = _file_time(file["mtime_ns"])
                if file["name"].startswith(".kdump-undo"):
                    file["size"] = None  # the journal of the run has inodes, some of them with more digits
        return fields


def _first_difference(old: bytes, new: bytes) -> str:
    at = next((number for number, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    line = old.count(b"\n", 0, at) + 1
    start = old.rfind(b"\n", 0, at) + 1
    one, other = (repr(data[start : max(at + 80, start + 160)])[:300] for data in (old, new))
    return f"byte {at}, line {line} ({len(old)} and {len(new)} bytes)\n      old: {one}\n      new: {other}"


# ---- directories

Tree = dict[str, tuple[str, int, object, bytes]]


class Trees:
    """Takes what lies in a directory down in a form that two runs have in common."""

    def of(self, directory: Path) -> Tree:
        """Kind, mode, time and content of everything below, by relative path."""
        found: Tree = {}
        for folder, folders, names in os.walk(directory):
            for name in folders:
                path = Path(folder, name)
                found[path.relative_to(directory).as_posix()] = "directory", path.lstat().st_mode, None, b""
            for name in names:
                path = Path(folder, name)
                status, data = path.lstat(), path.read_bytes()
                if name.endswith(".jsonl") and ".kdump-undo" in str(path):
                    data = self._journal(data)
                relative = path.relative_to(directory).as_posix()
                found[relative] = "file", status.st_mode, _file_time(status.st_mtime_ns), data
        return found

    def _journal(self, data: bytes) -> bytes:
        """A journal whose stamps have no inodes and no times of now; its checksum has to be right."""
        lines = data.splitlines(keepends=True)
        checked = b"".join(lines[:-1])
        if json.loads(lines[-1]) != {"type": "end", "crc32c": crc32c(checked)}:
            return b"a wrong checksum at the end of " + data
        inodes: dict[int, int] = {}

        def stamp(found: list[int]) -> list[object]:
            size, time_ns, inode = found
            return [size, _file_time(time_ns), inodes.setdefault(inode, len(inodes))]

        def stamped(value: Any) -> Any:
            if isinstance(value, list):
                is_mapping = all(isinstance(each, list) and each and isinstance(each[0], str) for each in value)
                # The files of a directory are in the order of its listing.
                return [stamped(each) for each in (sorted(value, key=lambda each: each[0]) if is_mapping else value)]
            if not isinstance(value, dict):
                return value
            if value.keys() == {"size", "mtime_ns", "inode"}:
                return stamp(list(value.values()))
            return {name: stamped(each) for name, each in value.items()}

        fields = [json.loads(line) for line in lines[:-1]]
        if isinstance(fields[0]["files"], list):  # the plan of a whole run
            return "\n".join(map(json.dumps, map(stamped, fields))).encode()
        fields[0]["files"] = {name: stamp(found) for name, found in fields[0]["files"].items()}
        for step in fields[1:]:
            step.update({name: stamp(step[name]) for name in ("before", "after") if step.get(name) is not None})
        return "\n".join(map(json.dumps, fields)).encode()


def compare_trees(what: str, old: Tree, new: Tree) -> Iterator[Difference]:
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            yield Difference(f"{what}: files", f"{name} is only in {'new' if name not in old else 'old'}")
        elif old[name] != new[name]:
            one, other = old[name], new[name]
            if one[3] != other[3]:
                yield Difference(f"{what}: content", f"{name}: {_first_difference(one[3], other[3])}")
            else:
                yield Difference(f"{what}: mode or time", f"{name}: {one[:3]} -> {other[:3]}")


def exact(directory: Path) -> object:
    """Everything that a command that reads must leave as it is."""
    return sorted(
        (str(path), (status := path.lstat()).st_ino, status.st_mtime_ns, status.st_size)
        for path in directory.rglob("*")
    )
