"""Copies of directories in object stores, and what commands print of them beside what they print of the originals."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

from fsspec import register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from kdump.cli import run
from kdump.storage.object_store import object_store

# What says when a run was or what a disk has: an object store has the time of the copy, and knows of no blocks.
_OWN = ("seconds", "now_ms", "mtime_ns", "inode", "modified_ms", "newest_modified_ms", "free_bytes")
_OF_A_DISK = ("share", "allocated_bytes")


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files below a folder, by their paths in it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()


def copy(system: Any, folder: Path, place: str) -> None:
    """Copy a folder into a file system of fsspec."""
    for name, data in files_below(folder):
        system.pipe_file(f"{place}/{name}", data)


class Run(NamedTuple):
    """What a run of the command ended with."""

    status: int
    output: str
    problems: str

    def comparable(self, root: str) -> tuple[int, list[Any], str]:
        """The same without the path of what was read, and without times."""
        lines = [_comparable(json.loads(line)) for line in self.output.replace(root, "ROOT").splitlines()]
        # The rows of stat are in the order of their share of the disk.
        lines.sort(key=lambda line: json.dumps(line, sort_keys=True))
        return self.status, lines, self.problems.replace(root, "ROOT")


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _comparable(inner) for name, inner in value.items() if name not in (*_OWN, *_OF_A_DISK)}
    return [_comparable(inner) for inner in value] if isinstance(value, list) else value


def run_here(*arguments: str) -> Run:
    """Run the command in this process."""
    output, problems = BytesIO(), io.StringIO()
    stream = io.TextIOWrapper(output, encoding="utf-8", errors="surrogateescape")
    with redirect_stdout(stream), redirect_stderr(problems):
        status = run(list(arguments))
    stream.flush()
    return Run(status, output.getvalue().decode(errors="surrogateescape"), problems.getvalue())


def kdump(*arguments: str, environment: Mapping[str, str] | None = None, seconds: int = 120) -> Run:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kdump", *arguments],
        capture_output=True,
        env=environment,
        timeout=seconds,
        check=False,
    )
    return Run(done.returncode, done.stdout.decode(errors="surrogateescape"), done.stderr.decode())


# ---- file systems of fsspec that answer as an object store does on a bad day


class Unsteady(MemoryFileSystem):  # type: ignore[misc]
    """A file system in memory: `files` by path, `calls` counted by name, and failures that a test asks for.

    A read returns at most `most` bytes. `failure` is raised for what is named in `failing`.
    """

    protocol = "unsteady"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    calls: ClassVar[Counter[str]] = Counter()
    most: ClassVar[int] = 1 << 30
    failing: ClassVar[str] = ""
    failure: ClassVar[Exception] = OSError()
    before_read: ClassVar[Callable[[], object] | None] = None

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("unsteady://")))

    @classmethod
    def reset(cls) -> None:
        cls.store.clear()
        cls.pseudo_dirs[:] = [""]
        cls.calls.clear()
        cls.most, cls.failing, cls.before_read = 1 << 30, "", None

    @classmethod
    def call(cls, name: str) -> None:
        cls.calls[name] += 1
        if cls.failing == name:
            raise cls.failure

    def find(self, path: str, *rest: Any, **how: Any) -> Any:
        self.call("find")
        found = super().find(path, *rest, **how)
        return {name: self._with_tag(info) for name, info in found.items()} if how.get("detail") else found

    def info(self, path: str, **how: Any) -> Any:
        self.call("info")
        return self._with_tag(super().info(path, **how))

    def ls(self, path: str, detail: bool = True, **how: Any) -> Any:
        found = super().ls(path, detail, **how)
        return [self._with_tag(each) for each in found] if detail else found

    def _with_tag(self, info: dict[str, Any]) -> dict[str, Any]:
        if info["type"] == "file":
            info["ETag"] = f'"{crc32(self.store[info["name"]].getvalue())}"'
        return info

    def _open(self, path: str, mode: str = "rb", **how: Any) -> Any:
        opened = super()._open(path, mode, **how)
        if mode == "rb":
            self.call("open")
            return _UnsteadyFile(opened.getvalue())
        return opened


class _UnsteadyFile(BytesIO):
    """What was opened. Deleting or replacing the object does not change it, as with a server that has versions."""

    def read(self, size: int | None = -1) -> bytes:
        Unsteady.call("read")
        Unsteady.calls["bytes"] += size or 0
        if Unsteady.before_read is not None:
            Unsteady.before_read()
        return super().read(min(size, Unsteady.most) if size is not None and size >= 0 else Unsteady.most)


register_implementation("unsteady", Unsteady, clobber=True)


@contextmanager
def unsteady_store() -> Iterator[str]:
    """An empty bucket of `Unsteady`, which nothing was read of; and nothing is kept of it afterwards."""
    with ExitStack() as stack:
        for forget in (Unsteady.reset, object_store.cache_clear):
            forget()
            stack.callback(forget)
        yield "unsteady://bucket"
