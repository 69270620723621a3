"""kdump on s3:// beside kdump on the same files; what it asks of the server, and what it says of its faults."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import build

pytest.importorskip("moto", reason="moto is the S3 server: pip install 'moto[server]'")
pytest.importorskip("s3fs", reason="pip install kdump[cloud]")

# what is imported now needs these packages
from kdump.storage.object_store import BLOCK_BYTES
from support import object_stores
from support.laws import of_the_day
from support.object_stores import kdump
from support.s3_server import BUSY, Fault, Server, s3_server

pytestmark = pytest.mark.filterwarnings("default")  # of moto and of the libraries that it uses

FIXTURES = Path(__file__).parents[2] / "fixtures"
URL = "s3://bucket"
LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.reset()
    return running


def ran(server: Server, *arguments: str) -> object_stores.Run:
    return kdump(*arguments, environment=server.environment)


def copied(server: Server, folder: Path, name: str) -> str:
    for below, data in object_stores.files_below(folder):
        server.put(f"{name}/{below}", data)
    server.reset()
    return f"{URL}/{name}"


def put_segment(server: Server, name: str, size: int) -> tuple[str, bytes]:
    """A log of `size` bytes or a little less: its URL, and its bytes."""
    batch = bytearray(build.batch([build.record(b"key", bytes(range(256)) * 64)]))
    data = bytearray()
    for number in range(size // len(batch)):
        batch[:8] = number.to_bytes(8, "big")
        data += batch
    server.put(f"{name}/{LOG}", bytes(data))
    server.reset()
    return f"{URL}/{name}", bytes(data)


# ---- the same answers


@pytest.mark.parametrize("name", of_the_day(["killed", "v0-segments-0.8.2.2"], 2))
def test_every_command_answers_as_for_local_files(server: Server, tmp_path: Path, name: str) -> None:
    folder = FIXTURES / name
    url = copied(server, folder, name)
    for command in (
        ["verify", "--deep"],
        ["stat", "--by", "segment", "--by", "producer"],
        ["dump"],
        ["recover"],
        ["convert", "--include", "internal"],
    ):
        local, remote = list(command), list(command)
        if command[0] == "convert":
            local, remote = [*command, "-o", str(tmp_path / "here")], [*command, "-o", str(tmp_path / "there")]
        here = kdump(*local, "--format", "json", str(folder))
        there = ran(server, *remote, "--format", "json", url)
        if command[0] == "convert":
            here, there = (each._replace(output=each.output.replace("/there", "/here")) for each in (here, there))
        assert there.comparable(url) == here.comparable(str(folder)), command
    if any((tmp_path / "here").rglob("*.parquet")):
        import pyarrow.parquet as parquet

        for here_file in sorted((tmp_path / "here").rglob("*.parquet")):
            there_file = tmp_path / "there" / here_file.relative_to(tmp_path / "here")
            assert parquet.read_table(there_file).equals(parquet.read_table(here_file))
    assert ran(server, "recover", "--truncate", url).status == 3
    assert set(server.requests) <= {"GET", "HEAD"}


def test_globs_and_workers(server: Server) -> None:
    url = copied(server, FIXTURES / "transactions", "globs")
    assert ran(server, "verify", "--quiet", f"{url}/transactions-*").status == 0
    large, _ = put_segment(server, "large-0", 9 << 20)
    one, two = (ran(server, "verify", "--jobs", jobs, "--format", "json", large) for jobs in "12")
    assert one.comparable(large) == two.comparable(large)
    assert one.status == 0


# ---- requests


def test_requests_and_bytes_are_bounded(server: Server) -> None:
    """Listing one directory and reading one segment of 40 MiB: a request a block, and a handful of others."""
    url, data = put_segment(server, "requests-0", 5 * BLOCK_BYTES)
    assert ran(server, "verify", "--jobs", "1", url).status == 0
    size = len(data)
    gets = [line for line in server.lines if line == f"GET /bucket/requests-0/{LOG}"]
    assert len(gets) == -(-size // BLOCK_BYTES)
    assert sum(server.requests.values()) <= len(gets) + 12
    assert size <= server.sent_bytes <= size * 1.001 + 100_000


def test_a_listing_takes_a_request_for_a_thousand_objects(server: Server) -> None:
    for number in range(1100):
        server.put(f"many/t-{number // 10}/{number % 10:020}.snapshot", b"")
    server.reset()
    assert ran(server, "verify", "--quiet", f"{URL}/many").problems == f"kdump: {URL}/many: no log files here\n"
    lists = [line for line in server.lines if "list-type=2" in line]
    # Is it a directory, what lies there and in its first directory, two pages, and the checkpoints above it, in two.
    assert len(lists) <= 7


# ---- faults


@pytest.mark.parametrize("answer", [BUSY, "500 Internal Server Error", "cut"])
def test_faults_of_the_server_are_tried_again(server: Server, answer: str) -> None:
    url = copied(server, FIXTURES / "transactions", "faults")
    clean = ran(server, "verify", "--format", "json", url)
    server.faults += [
        Fault(f"GET /bucket/faults/transactions-0/{LOG}", answer, 2),
        Fault("list-type=2", "" if answer == "cut" else answer, 2),
    ]
    again = ran(server, "verify", "--format", "json", url)
    assert again.comparable(url) == clean.comparable(url)
    assert not any(fault.times for fault in server.faults)


def test_faults_that_stay_end_with_a_sentence(server: Server) -> None:
    url = copied(server, FIXTURES / "transactions", "down")
    server.faults.append(Fault(f"GET /bucket/down/transactions-0/{LOG}", "500 Internal Server Error", 1000))
    done = ran(server, "verify", url)
    assert done.status == 3
    assert f"{url}/transactions-0/{LOG}: reading at byte 0: " in done.problems
    assert "Traceback" not in done.problems
    assert 1000 - server.faults[0].times < 30


def test_an_object_that_is_replaced_while_it_is_read(server: Server) -> None:
    url, data = put_segment(server, "replaced-0", 2 * BLOCK_BYTES)

    def replace() -> None:
        server.put(f"replaced-0/{LOG}", data[:-1] + b"x")

    server.faults.append(Fault(f"GET /bucket/replaced-0/{LOG}", before=replace))
    done = ran(server, "verify", "--jobs", "1", url)
    assert done.status == 3
    assert "the object was replaced since it was opened" in done.problems


def test_what_cannot_be_read_is_a_sentence(server: Server) -> None:
    url = copied(server, FIXTURES / "transactions", "denied")
    assert "no such file or directory" in ran(server, "verify", f"{URL}/nothing").problems
    missing = ran(server, "verify", "s3://no-bucket/x")
    assert missing.status == 3
    assert missing.problems.count("\n") == 1
    for command in ("verify", "stat", "dump", "recover"):
        server.faults[:] = [Fault("/bucket", "403 Forbidden", 1000)]
        done = ran(server, command, url)
        assert done.status == 3
        assert done.problems == f"kdump: {url}: access denied: forbidden\n"
    server.reset()
    environment = {name: value for name, value in server.environment.items() if not name.startswith("AWS_")}
    environment |= {"AWS_ENDPOINT_URL": server.url, "AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}
    done = kdump("verify", url, environment=environment)
    assert (done.status, done.problems) == (3, f"kdump: {url}: unable to locate credentials\n")
    environment = server.environment | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = kdump("verify", url, environment=environment)
    assert done.status == 3
    assert "could not connect" in done.problems


# ---- the data source of Spark


def test_the_data_source_reads_s3a_with_settings_of_spark(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process. Each byte of the log comes about once, though headers are read before records."""
    pytest.importorskip("pyspark")
    pytest.importorskip("pandas")
    from kdump.spark import KdumpSource
    from kdump.spark.store_settings import NO_STORES
    from kdump.storage.object_store import object_store

    for name in list(os.environ):
        if name.startswith(("AWS_", "FSSPEC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    _, data = put_segment(server, "spark-0", 5 * BLOCK_BYTES)
    settings = {
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": server.url,
        "fs.s3a.endpoint.region": "us-east-1",
        "fs.s3a.path.style.access": "true",
    }
    source = KdumpSource({"path": "s3a://bucket/spark-0", **settings})
    try:
        reader = source.reader(source.schema())
        (part,) = reader.partitions()
        object_store.cache_clear()  # as on a worker
        server.reset()
        assert sum(batch.num_rows for batch in reader.read(part)) == data.count(b"key")
        assert server.sent_bytes <= 1.2 * len(data)
        assert server.requests["GET"] <= 2 * 5 + 4
    finally:
        NO_STORES.use()
        object_store.cache_clear()
