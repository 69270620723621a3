"""Links that another user puts into an output directory lead no conversion out of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kdump.convert.log_output.log_staging import OutputStaging, staged_directory
from kdump.convert.parquet.output_directory import StagingFolder
from kdump.errors import KdumpError
from kdump.kernel.crc import crc32c
from support import build
from support.recovery_plans import tree

FILES = {"ndjson": "out.ndjson", "csv": "out.csv", "arrow": "out.arrow"}
LINK = "a symbolic link, which is not followed here"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return log(tmp_path / "logs" / "t-0", 0)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outside of the directory that no command may change."""
    return tmp_path_factory.mktemp("place")


def log(directory: Path, *base_offsets: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join(build.batch([build.record(b"k", b"x")], base_offset=offset) for offset in base_offsets)
    (directory / f"{0:020}.log").write_bytes(data)
    return directory.parent


@pytest.fixture
def elsewhere(place: Path) -> Path:
    directory = place / "elsewhere"
    (directory / "folder").mkdir(parents=True)
    (directory / "folder" / "file").write_bytes(b"another's")
    (directory / "file").write_bytes(b"another's")
    return directory


def convert(kdump: Any, to: str, out: Path, logs: Path, *more: str) -> Any:
    return kdump.inside("convert", "--to", to, "-o", str(out), *more, str(logs))


def refused(kdump: Any, to: str, out: Path, logs: Path, elsewhere: Path, *more: str, says: str = LINK) -> None:
    before = tree(elsewhere, undo=True)
    ran = convert(kdump, to, out, logs, *more)
    assert (ran.status, says in ran.problems) == (3, True), ran.problems
    assert tree(elsewhere, undo=True) == before


@pytest.mark.parametrize("name", ["_manifest.jsonl", "_manifest.jsonl.tmp", "_manifest.lock"])
@pytest.mark.parametrize("target", ["file", "folder", "none"])
@pytest.mark.parametrize("again", [False, True])
def test_the_manifest(
    kdump: Any, logs: Path, place: Path, elsewhere: Path, name: str, target: str, again: bool
) -> None:
    out = place / "out"
    out.mkdir()
    if again:
        assert convert(kdump, "parquet", out, logs).status == 0
        if (out / name).exists():
            (out / name).rename(elsewhere / "moved")
            target = "moved"
    (out / name).symlink_to(elsewhere / target)
    refused(kdump, "parquet", out, logs, elsewhere)


@pytest.mark.parametrize("name", ["topic=t", "topic=t/partition=0"])
def test_partition_folders(kdump: Any, logs: Path, place: Path, elsewhere: Path, name: str) -> None:
    out = place / "out"
    assert convert(kdump, "parquet", out, logs, "--partition-folders").status == 0
    (out / name).rename(elsewhere / "moved")
    (out / name).symlink_to(elsewhere / "moved")
    log(logs / "t-0", 0, 1)
    refused(kdump, "parquet", out, logs, elsewhere, "--partition-folders", says="not a directory")


@pytest.mark.parametrize("name", [".kdump-convert", ".kdump-convert.tmp", ".kdump-convert-part"])
@pytest.mark.parametrize("target", ["file", "folder", "none"])
def test_a_new_log(kdump: Any, logs: Path, place: Path, elsewhere: Path, name: str, target: str) -> None:
    out = place / "out"
    out.mkdir()
    (out / name).symlink_to(elsewhere / target)
    refused(kdump, "log", out, logs, elsewhere)


def test_a_link_in_the_place_of_a_new_log(kdump: Any, logs: Path, place: Path, elsewhere: Path) -> None:
    out = place / "out"
    out.mkdir()
    (out / "t-0").symlink_to(elsewhere / "folder")
    refused(kdump, "log", out, logs, elsewhere, says="not empty, it has t-0")
    # As if a run had been killed after its renames.
    (out / ".kdump-convert").write_bytes(b"t-0\n")
    refused(kdump, "log", out, logs, elsewhere)


@pytest.mark.parametrize("to", FILES)
@pytest.mark.parametrize("target", ["file", "folder", "none"])
def test_single_files(kdump: Any, logs: Path, place: Path, elsewhere: Path, to: str, target: str) -> None:
    out = place / "out"
    out.mkdir()
    name = FILES[to]
    part = out / f".kdump-part-{crc32c(name.encode()):08x}"
    part.symlink_to(elsewhere / target)
    refused(kdump, to, out / name, logs, elsewhere)
    assert sorted(os.listdir(out)) == [part.name]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_no_single_file_is_written_into_that_of_another_user(kdump: Any, logs: Path, place: Path) -> None:
    part = place / f".kdump-part-{crc32c(b'out.csv'):08x}"
    part.write_bytes(b"")
    os.chown(part, 12345, 12345)
    ran = convert(kdump, "csv", place / "out.csv", logs)
    assert (ran.status, "belongs to the user 12345" in ran.problems) == (3, True)
    assert part.read_bytes() == b""


@pytest.mark.parametrize("to", ["parquet", "log"])
def test_the_path_of_the_output_may_lead_through_links(kdump: Any, logs: Path, place: Path, to: str) -> None:
    (place / "real" / "out").mkdir(parents=True)
    (place / "link").symlink_to(place / "real")
    (place / "real" / "again").symlink_to("out")
    assert convert(kdump, to, place / "link" / "again", logs).status == 0
    assert list((place / "real" / "out").iterdir())


def test_a_staging_folder_that_a_link_replaced(place: Path, elsewhere: Path) -> None:
    """While a run writes, in the processes that write for it."""
    out = place / "out"
    with OutputStaging(str(out), ["t-0"]) as staging:
        part = Path(staging.part_path)
        part.rename(place / "part")
        part.symlink_to(elsewhere / "folder")
        before = tree(elsewhere, undo=True)
        with pytest.raises(KdumpError, match=LINK):
            staged_directory(staging.part_path, "t-0")
        assert tree(elsewhere, undo=True) == before
        part.unlink()
        (place / "part").rename(part)
    folder = place / "parquet"
    folder.mkdir()
    (folder / "staging").symlink_to(elsewhere / "folder")
    with (
        pytest.raises(KdumpError, match=LINK),
        StagingFolder(str(folder), "staging", "1", str(folder / "staging")).open(),
    ):
        pytest.fail("it was opened")
