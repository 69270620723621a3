"""Spark over s3://: the data source and the commands on a cluster answer as they do for the same local files.

The workers are other processes, which read the objects themselves; they find the server by their environment.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pandas")
pytest.importorskip("moto", reason="moto is the S3 server: pip install 'moto[server]'")
pytest.importorskip("s3fs", reason="pip install kdump[cloud]")

# what is imported now needs these packages
from interop.test_object_stores import FIXTURES, LOG, URL, copied, put_segment
from kdump.spark import KdumpSource
from kdump.storage.object_store import BLOCK_BYTES
from support.laws import of_the_day
from support.object_stores import kdump
from support.s3_server import Server, s3_server
from support.spark_session import need_spark, start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("default")  # of moto and of the libraries that it uses

MASTER = "local[2]"
SECONDS = 240
BATCH_HEADER_BYTES = 61
READS = [
    {},
    {"kafka.isolation.level": "read_committed", "includeHeaders": "true"},
    {"minPartitions": "5"},
    {"table": "batches"},
    {"table": "transactions"},
    {"table": "producers"},
]


class Store(NamedTuple):
    """A session whose driver and workers use the server."""

    server: Server
    spark: SparkSession

    def read(self, path: str, **options: str) -> DataFrame:
        return self.spark.read.format("kdump").options(**options).load(path)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    need_spark()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        session = start_session(MASTER)
        try:
            session.dataSource.register(KdumpSource)
            yield Store(server, session)
        finally:
            stop_session(session)


def rows(frame: DataFrame, root: str) -> list[str]:
    """The rows, without the path of what was read."""
    return sorted(repr(row).replace(root, "ROOT") for row in frame.collect())


def damaged_copy(place: Path) -> Path:
    """A copy of a fixture with a byte of a record changed."""
    copy = shutil.copytree(FIXTURES / "transactions", place / "damaged")
    log = copy / "transactions-0" / LOG
    data = bytearray(log.read_bytes())
    data[BATCH_HEADER_BYTES] ^= 1
    log.write_bytes(data)
    return copy


@pytest.mark.parametrize("options", READS, ids=lambda options: ",".join(options.values()) or "plain")
def test_the_data_source_reads_what_it_reads_of_local_files(store: Store, options: dict[str, str]) -> None:
    folder = FIXTURES / "transactions"
    url = copied(store.server, folder, "source")
    here, there = store.read(str(folder), **options), store.read(url, **options)
    assert there.schema == here.schema
    found = rows(there, url)
    assert found == rows(here, str(folder))
    assert found or options.get("table") == "transactions"
    assert set(store.server.requests) <= {"GET", "HEAD"}


def test_damage_is_found_by_the_workers(store: Store, tmp_path: Path) -> None:
    folder = damaged_copy(tmp_path)
    url = copied(store.server, folder, "damaged")
    found = rows(store.read(url, table="findings"), url)
    assert found == rows(store.read(str(folder), table="findings"), str(folder))
    assert "batch/crc" in "".join(found)
    with pytest.raises(Exception, match="failOnDataLoss"):
        store.read(url).collect()
    assert rows(store.read(url, failOnDataLoss="false"), url) == rows(
        store.read(str(folder), failOnDataLoss="false"), str(folder)
    )


def test_what_is_not_there_is_a_sentence(store: Store) -> None:
    with pytest.raises(Exception, match="s3://bucket/nothing: no such file or directory"):
        store.read(f"{URL}/nothing").collect()


@pytest.mark.parametrize(
    "command",
    of_the_day([("verify", "--deep"), ("stat", "--by", "segment"), ("convert", "--include", "internal")], 3),
    ids=lambda command: command[0],
)
def test_commands_on_a_cluster_answer_as_without_one(store: Store, tmp_path: Path, command: tuple[str, ...]) -> None:
    url = copied(store.server, damaged_copy(tmp_path), "commands")
    runs = []
    for name, master in (("one", ()), ("many", ("--master", MASTER))):
        output = ("-o", str(tmp_path / name)) if command[0] == "convert" else ()
        done = kdump(
            *command, *master, *output, "--format", "json", url, environment=store.server.environment, seconds=SECONDS
        )
        runs.append(done._replace(output=done.output.replace(str(tmp_path / name), "OUT")).comparable(url))
    assert runs[0] == runs[1]
    assert runs[0][0] == (command[0] != "stat")  # which has no findings


def test_a_command_lists_with_the_settings_that_it_is_given_for_spark(store: Store, tmp_path: Path) -> None:
    """Before the session is there: no environment has the address of the server or the keys."""
    folder = damaged_copy(tmp_path)
    url = copied(store.server, folder, "settings").replace("s3://", "s3a://")
    own = {name: value for name, value in store.server.environment.items() if not name.startswith("AWS_")}
    settings = {
        "access.key": "key",
        "secret.key": "hidden",
        "endpoint": store.server.url,
        "endpoint.region": "us-east-1",
    }
    given = [f"--spark-conf=spark.hadoop.fs.s3a.{name}={value}" for name, value in settings.items()]
    done = kdump(
        *("verify", "--master", MASTER, *given, "--format", "json", url),
        environment=own | {"AWS_EC2_METADATA_DISABLED": "true"},
        seconds=SECONDS,
    )
    here = kdump("verify", "--format", "json", str(folder), environment=own, seconds=SECONDS)
    assert "credentials" not in done.problems
    assert (done.status, done.output.count('"batch/crc"')) == (here.status, here.output.count('"batch/crc"'))
    assert "hidden" not in done.output + done.problems


def test_a_large_log_is_read_in_ranges(store: Store, tmp_path: Path) -> None:
    """Each worker finds its part of an object by the index, and asks for the headers and the records of that part."""
    _, data = put_segment(store.server, "unused-0", 40 << 20)
    directory = tmp_path / "large-0"
    directory.mkdir()
    (directory / LOG).write_bytes(data)
    assert kdump("recover", "--reindex", "--no-keep", str(directory)).status == 0
    url = copied(store.server, directory, "large-0")
    frame = store.read(url, minPartitions="8").selectExpr("count(*)", "count(distinct offset)", "max(offset)")
    store.server.reset()
    records, offsets, last = frame.collect()[0]
    assert records == offsets == last + 1 > 2000
    gets = [line for line in store.server.lines if line == f"GET /bucket/large-0/{LOG}"]
    assert len(gets) >= 8
    assert store.server.sent_bytes < 4 * len(data)


def test_a_healthy_log_is_fetched_once_to_convert_it(store: Store, tmp_path: Path) -> None:
    """By a worker: that its headers say nothing else shows when its records are read."""
    url, data = put_segment(store.server, "once-0", 40 << 20)
    command = ("convert", "--master", MASTER, "-o", str(tmp_path / "out"), url)
    done = kdump(*command, environment=store.server.environment, seconds=SECONDS)
    assert done.status == 0, done.problems
    gets = [line for line in store.server.lines if line == f"GET /bucket/once-0/{LOG}"]
    assert len(gets) <= len(data) / BLOCK_BYTES + 4
    assert len(data) <= store.server.sent_bytes <= 1.02 * len(data) + 100_000
