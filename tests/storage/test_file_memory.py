"""What was read of a file is kept while its size, time and version are the same."""

from __future__ import annotations

import os
from pathlib import Path

from kdump.storage.file_memory import FileMemory

WRITTEN_NS = 1_700_000_000 * 10**9
SETTLED_NS = WRITTEN_NS + 11 * 10**9


def test_a_file_is_read_again_where_it_may_have_changed(tmp_path: Path) -> None:
    now, path, reads = [SETTLED_NS], tmp_path / "file", list[bytes]()

    def write(data: bytes, at: int = WRITTEN_NS) -> None:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(at, at))

    def read() -> bytes:
        reads.append(path.read_bytes())
        return reads[-1]

    def ask(what: str = "content") -> int:
        """How often the file is read for an answer, which is right."""
        before = len(reads)
        memory.begin()
        assert memory.recall(str(path), what, read) == path.read_bytes()
        return len(reads) - before

    memory = FileMemory(lambda: now[0])
    write(b"one")
    assert [ask(), ask(), ask()] == [1, 0, 0]
    assert ask("else") == 1  # and the first question was not asked in this round
    assert [ask(), ask()] == [1, 0]
    write(b"three")
    assert [ask(), ask()] == [1, 0]
    write(b"three", WRITTEN_NS + 1)
    assert [ask(), ask()] == [1, 0]
    now[0] = WRITTEN_NS + 9 * 10**9  # another write could leave the same time
    assert [ask(), ask()] == [1, 1]


def test_what_is_not_there_is_read_each_time(tmp_path: Path) -> None:
    memory, reads = FileMemory(), list[int]()
    for _ in range(2):
        memory.begin()
        memory.recall(str(tmp_path / "gone"), "content", lambda: reads.append(1))
    assert len(reads) == 2
