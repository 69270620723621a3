"""A file that appears when it is complete, or not at all."""

from __future__ import annotations

import errno
import io
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from kdump.convert import output_file as module
from kdump.convert.output_file import single_file
from kdump.convert.single_file.writers import ArrowFileWriter
from kdump.errors import KdumpError

NO_STDOUT = io.BytesIO()


class Stopped(Exception):
    """What ends a run in the middle."""


def stop(path: Path, data: bytes, error: type[BaseException] = Stopped, **how: object) -> None:
    """Write, and raise."""
    with single_file(str(path), NO_STDOUT, **how) as file:  # type: ignore[arg-type]
        file.write(data)
        raise error


def write(path: Path | str, data: bytes = b"new", **how: object) -> None:
    with single_file(str(path), NO_STDOUT, **how) as file:  # type: ignore[arg-type]
        file.write(data)


def test_it_has_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with single_file(str(path), NO_STDOUT) as file:
        file.write(b"x" * 100_000)
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"x" * 100_000
    assert os.listdir(tmp_path) == ["out.csv"]
    mask = os.umask(0o22)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    for error in (Stopped, KeyboardInterrupt):
        with pytest.raises(error):
            stop(tmp_path / "out", b"x" * 100_000, error)
        assert os.listdir(tmp_path) == []


def test_what_is_left_in_the_buffer_goes_nowhere(tmp_path: Path) -> None:
    """The descriptor may be that of another file by then."""
    kept = []

    def leave() -> None:
        with single_file(str(tmp_path / "out"), NO_STDOUT) as file:
            kept.append(file)
            number.append(file.fileno())
            file.write(b"left")
            raise Stopped

    number = list[int]()
    with pytest.raises(Stopped):
        leave()
    other = os.open(tmp_path / "other", os.O_RDWR | os.O_CREAT)
    os.dup2(other, number[0])
    try:
        kept.clear()
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)
        os.close(number[0])


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with pytest.raises(KdumpError, match="out: already exists"):
        write(path)
    assert path.read_bytes() == b"old"
    with pytest.raises(Stopped):
        stop(path, b"x", overwrite=True)
    assert path.read_bytes() == b"old"
    write(path, overwrite=True)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["out"]


def test_a_file_that_comes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out"

    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links")

    def write_beside() -> None:
        with single_file(str(path), NO_STDOUT) as file:
            file.write(b"new")
            path.write_bytes(b"other")

    for has_links in (True, False):
        if not has_links:
            monkeypatch.setattr(module.DirectoryHandle, "link", link)
        with pytest.raises(KdumpError, match="already exists"):
            write_beside()
        assert path.read_bytes() == b"other"
        path.unlink()
        write(path)
        assert path.read_bytes() == b"new"
        path.unlink()
        assert os.listdir(tmp_path) == []


def test_two_runs_at_once(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with single_file(str(path), NO_STDOUT) as file:
        file.write(b"first")
        with pytest.raises(KdumpError, match="another kdump process is writing it"):
            write(path)
        write(tmp_path / "other")
    assert path.read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["other", "out"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("linked", [False, True])
def test_what_a_killed_run_left_is_used(tmp_path: Path, overwrite: bool, linked: bool) -> None:
    path = tmp_path / "out"
    code = (
        "import sys, os, io\n"
        "from kdump.convert.output_file import single_file\n"
        "with single_file(sys.argv[1], io.BytesIO()) as file:\n"
        "    file.write(b'x' * 1000_000); file.flush(); os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code, str(path)], check=False).returncode == -9
    (left,) = os.listdir(tmp_path)
    if linked:  # killed between the two calls that give the file its name
        os.link(tmp_path / left, path)
        if not overwrite:
            with pytest.raises(KdumpError, match="exists"):
                write(path)
            assert path.stat().st_size == 1000_000
            assert os.listdir(tmp_path) == ["out"]
            return
        with single_file(str(path), NO_STDOUT, overwrite=True) as file:
            file.write(b"x")
            file.flush()
            assert path.stat().st_size == 1000_000
    write(path, overwrite=overwrite or linked)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["out"]


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for overwrite in (False, True):
        with pytest.raises(KdumpError, match="a directory; the output is a file"):
            write(tmp_path / "directory", overwrite=overwrite)
        with pytest.raises(KdumpError, match="a directory; the output is a file"):
            write(f"{tmp_path}/new/", overwrite=overwrite)
        with pytest.raises(KdumpError, match="not a regular file; the output is a file"):
            write(tmp_path / "fifo", overwrite=overwrite)
        with pytest.raises(KdumpError, match="not a regular file"):
            write("/dev/null", overwrite=overwrite)
    with pytest.raises(KdumpError, match="no such file"):
        write(tmp_path / "nowhere" / "out")
    assert sorted(os.listdir(tmp_path)) == ["directory", "fifo"]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "target"
    link.symlink_to(target)
    write(link)
    assert target.read_bytes() == b"new"
    with pytest.raises(KdumpError, match="already exists"):
        write(link)
    write(link, b"newer", overwrite=True)
    assert link.is_symlink()
    assert target.read_bytes() == b"newer"


def test_an_output_inside_of_an_input(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = directory / "0.log"
    log.write_bytes(b"log")
    (tmp_path / "link").symlink_to(directory)
    os.link(log, tmp_path / "hard")
    inputs = [str(directory), str(tmp_path / "missing"), "nul\0"]
    for path in (directory / "out", directory / "sub" / "out", tmp_path / "link" / "out"):
        with pytest.raises(KdumpError, match="lies inside the input"):
            write(path, inputs=inputs)
    for path in (log, tmp_path / "hard"):
        with pytest.raises(KdumpError, match="is an input itself"):
            write(path, inputs=[str(log)], overwrite=True)
    assert os.listdir(directory) == ["0.log"]
    write(directory / "out", inputs=[str(log)])
    write(tmp_path / "out", inputs=inputs)
    assert log.read_bytes() == b"log"


def write_arrow(path: Path, batch: pa.RecordBatch) -> None:
    with single_file(str(path), NO_STDOUT) as file, ArrowFileWriter(file, batch.schema) as to:
        to.write(batch)


def test_a_full_disk(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk: the system refuses the same calls."""
    path = tmp_path / "out"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    batch = pa.RecordBatch.from_pydict({"key": pa.array([b"k" * 1000] * 500, pa.binary())})
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        for data in (b"x" * 300_000, b"x" * 200_001):
            with pytest.raises(KdumpError, match="out: file too large; it was not written"):
                write(path, data)
        with pytest.raises(KdumpError, match="out: file too large; it was not written"):
            write_arrow(path, batch)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_standard_output_stays_open() -> None:
    out = io.BytesIO()
    with single_file("-", out, inputs=["-"]) as file:
        file.write(b"x")
    assert out.getvalue() == b"x"


def test_a_closed_pipe() -> None:
    read, write_to = os.pipe()
    os.close(read)
    with (
        open(write_to, "wb", buffering=0) as pipe,
        pytest.raises(BrokenPipeError),
        single_file("-", pipe) as file,
        ArrowFileWriter(file, pa.schema([("key", pa.binary())])),
    ):
        pass
