"""kdump on a real HDFS beside kdump on the same files: over its own protocol, and over HTTP."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from support.hdfs_cluster import HdfsCluster, hdfs_cluster
from support.laws import of_the_day
from support.object_stores import Run, kdump

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = ("transactions", "segments")
HEADER_BYTES = 61


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two fixtures, and a copy of one with a byte of a record changed."""
    place = tmp_path_factory.mktemp("folders")
    others = shutil.ignore_patterns("expected", "case.toml")
    found = [shutil.copytree(FIXTURES / name, place / name, ignore=others) for name in NAMES]
    damaged = shutil.copytree(FIXTURES / "transactions", place / "damaged", ignore=others)
    log = damaged / "transactions-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[HEADER_BYTES] ^= 1
    log.write_bytes(data)
    return [*found, damaged]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory, folders: list[Path]) -> Iterator[HdfsCluster]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs"), *folders) as found:
        yield found


@pytest.mark.parametrize("protocol", of_the_day(["hdfs", "webhdfs"], 2))
def test_commands_answer_as_for_local_files(
    hdfs: HdfsCluster, folders: list[Path], tmp_path: Path, protocol: str
) -> None:
    if protocol == "hdfs":
        pytest.importorskip("hdfs_native", reason="pip install hdfs-native, a client of HDFS without Java")
    root = hdfs.url if protocol == "hdfs" else hdfs.web_url
    for folder in folders:
        url = f"{root}/{folder.name}"
        for command in (["verify", "--deep"], ["dump"], ["convert", "--include", "internal"]):
            here, there = [*command, "--format", "json"], [*command, "--format", "json"]
            if command[0] == "convert":
                here += ["-o", str(tmp_path / folder.name / "here")]
                there += ["-o", str(tmp_path / folder.name / "there")]
            local, remote = kdump(*here, str(folder)), kdump(*there, url)
            assert comparable(remote, url) == comparable(local, str(folder)), command
        for file in sorted((tmp_path / folder.name / "here").rglob("*.parquet")):
            other = tmp_path / folder.name / "there" / file.relative_to(tmp_path / folder.name / "here")
            assert parquet.read_table(other).equals(parquet.read_table(file))
    missing = kdump("verify", f"{root}/nowhere")
    assert missing.status == 3
    assert "no such file or directory" in missing.problems


def comparable(run: Run, root: str) -> object:
    return run._replace(output=run.output.replace("/there", "/here")).comparable(root)
