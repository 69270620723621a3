"""`df.write.format("kdump")`: what a DataFrame becomes on disk, and what is refused.

The parts of the writer are called here as Spark calls them; one test goes through Spark.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kdump.convert.arrow import arrow
from kdump.errors import KdumpError
from kdump.kernel.key_table import murmur2
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.verify.findings import Severity
from kdump.verify.verify import VerifyOptions, verify_logs
from support.spark_write import Row, schema, write, writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is synced is tested with the calls that fail (tests/crash)."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def damage(path: Path) -> list[str]:
    """What verify --deep finds, except for what is only worth knowing."""
    reports = verify_logs(discover([str(path)]), VerifyOptions(deep=True))
    return [each.message for report in reports for each in report.findings if each.severity is not Severity.INFO]


def table(path: Path) -> list[Row]:
    """The records of a directory: topic, partition, offset, timestamp, key, value, headers."""
    found = arrow(path).read_all().to_pylist()
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    return sorted((tuple(row[name] for name in names) for row in found), key=lambda row: row[:3])


AT = datetime.datetime(2020, 1, 1, 0, 0, 0, 1999, datetime.UTC)
MILLISECOND = datetime.datetime(2020, 1, 1, 0, 0, 0, 1000, datetime.UTC)
NO_TIME = datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, datetime.UTC)
ALL = "key value headers topic partition offset timestamp"


def test_records_keep_what_they_have(tmp_path: Path) -> None:
    headers = [{"key": "h", "value": b"x"}, {"key": "h", "value": None}, {"key": "", "value": b""}]
    rows: list[Row] = [
        (b"k", "v", headers, "t", 0, 7, AT),
        (None, None, None, "t", 0, 9, AT),
        (b"", "", [], "u.x", 3, 0, None),
        (None, "é", None, "t", 0, 2**40, datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)),
    ]
    with pytest.raises(KdumpError, match=r"t-0: .*timestamp"):
        write(ALL, [rows], tmp_path / "new")
    assert not (tmp_path / "new").exists()
    rows[3] = (*rows[3][:6], AT)
    write(ALL, [rows], tmp_path / "new")
    assert table(tmp_path / "new") == [
        ("t", 0, 7, MILLISECOND, b"k", b"v", headers),
        ("t", 0, 9, MILLISECOND, None, None, None),
        ("t", 0, 2**40, MILLISECOND, None, "é".encode(), None),
        ("u.x", 3, 0, NO_TIME, b"", b"", None),
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["t-0", "u.x-3"]
    # The log starts with its first record, and offsets that are too far from it begin a segment of their own.
    segments = [path.name for path in sorted((tmp_path / "new" / "t-0").glob("*.log"))]
    assert segments == [f"{7:020}.log", f"{2**40:020}.log"]
    assert not damage(tmp_path / "new")


def test_tasks_without_offsets_come_one_after_another(tmp_path: Path) -> None:
    rows = [[(f"{task} {number}", "t", 0) for number in range(500)] for task in range(3)]
    rows[1] += [("u", "u", 1), (None, "u", 1)]
    rows.insert(1, [])
    write("value topic partition", rows, tmp_path / "new", batchBytes="1000", segmentBytes="3000", codec="zstd:3")
    found = table(tmp_path / "new")
    assert [row[:3] for row in found] == [("t", 0, offset) for offset in range(1500)] + [("u", 1, 0), ("u", 1, 1)]
    values = [value.encode() for task in rows for value, topic, _ in task if topic == "t" and value is not None]
    assert [row[5] for row in found] == [*values, b"u", None]
    assert len({row[3] for row in found}) == 1  # one time of the job
    assert found[0][3].timestamp() == pytest.approx(datetime.datetime.now(datetime.UTC).timestamp(), abs=600)
    assert len(list((tmp_path / "new" / "t-0").glob("*.log"))) > 2
    assert not damage(tmp_path / "new")


def test_offsets_of_several_tasks_are_put_in_order(tmp_path: Path) -> None:
    write("value topic partition offset", [[("b", "t", 0, 5)], [("a", "t", 0, 1), ("a", "t", 0, 4)]], tmp_path / "new")
    assert [row[2] for row in table(tmp_path / "new")] == [1, 4, 5]
    assert not damage(tmp_path / "new")
    overlap = [[("b", "t", 0, 4)], [("a", "t", 0, 1), ("a", "t", 0, 4)]]
    with pytest.raises(KdumpError, match=r"t-0: task 1 has the offsets 1 to 4, and task 0 has 4 to 4; let one task"):
        write("value topic partition offset", overlap, tmp_path / "two")
    with pytest.raises(KdumpError, match="t-0: offset 4 comes after offset 4; sort the rows of a task: sortWithin"):
        write("value topic partition offset", [[("b", "t", 0, 4), ("a", "t", 0, 4)]], tmp_path / "two")
    with pytest.raises(KdumpError, match="null offset"):
        write("value topic partition offset", [[("b", "t", 0, None)]], tmp_path / "two")
    with pytest.raises(KdumpError, match="t-0: there is no offset -1"):
        write("value topic partition offset", [[("b", "t", 0, -1)]], tmp_path / "two")
    assert not (tmp_path / "two").exists()


def test_partitions_of_records_without_one(tmp_path: Path) -> None:
    rows = [[(key, "v", "t") for key in (b"a", b"b", b"", None, b"c")] for _ in range(2)]
    write("key value topic", rows, tmp_path / "one")
    assert [row[1:3] for row in table(tmp_path / "one")] == [(0, offset) for offset in range(10)]
    write("key value topic", rows, tmp_path / "five", partitions="5")
    for row in table(tmp_path / "five"):
        assert row[4] is None or row[1] == (murmur2(row[4]) & 0x7FFFFFFF) % 5
    # As one producer does, a task keeps to one partition for the records without a key.
    assert {row[1] for row in table(tmp_path / "five") if row[4] is None} == {0, 1}
    some = [[(b"a", "v", "t", 4), (b"a", "v", "t", None)]]
    write("key value topic partition", some, tmp_path / "some", partitions="5")
    assert sorted(row[1] for row in table(tmp_path / "some")) == [(murmur2(b"a") & 0x7FFFFFFF) % 5, 4]
    with pytest.raises(KdumpError, match="t: there is no partition 5, option partitions says 5"):
        write("value topic partition", [[("v", "t", 5)]], tmp_path / "no", partitions="5")
    with pytest.raises(KdumpError, match="t: there is no partition -1"):
        write("value topic partition", [[("v", "t", -1)]], tmp_path / "no")


def test_topics(tmp_path: Path) -> None:
    write("value topic", [[("v", None), ("v", "u")]], tmp_path / "one", topic="t")
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["t-0"]
    words = "contains a null topic. Use the `topic` option for setting a default topic."
    with pytest.raises(KdumpError, match=words):
        write("value topic", [[("v", "t"), ("v", None)]], tmp_path / "no")
    for name in ("", "a/b", "..", "a b", "x" * 250, "é"):
        with pytest.raises(KdumpError, match="not a topic name"):
            write("value topic", [[("v", name)]], tmp_path / "no")
    with pytest.raises(KdumpError, match="not a topic name"):
        write("value", [[("v",)]], tmp_path / "no", topic="../t")
    assert not (tmp_path / "no").exists()


def test_topic_id(tmp_path: Path) -> None:
    ids = '{"t": "MBdAyDAwQ2uFxbiazqdk9g", "other": "AAAAAAAAAAAAAAAAAAAAAQ=="}'
    write("value topic", [[("v", "t"), ("v", "u")]], tmp_path, topicIds=ids)
    said = (tmp_path / "t-0" / "partition.metadata").read_text()
    assert said == "version: 0\ntopic_id: MBdAyDAwQ2uFxbiazqdk9g"
    assert not (tmp_path / "u-0" / "partition.metadata").exists()
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    assert not damage(tmp_path)


def test_columns_that_do_not_fit(tmp_path: Path) -> None:
    def refusal(columns: pa.Schema) -> str:
        with pytest.raises(KdumpError) as caught:
            writer(columns, tmp_path / "no")
        return str(caught.value)

    assert refusal(schema("value")) == (
        "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
    )
    assert refusal(schema("key topic")) == "Required attribute 'value' not found"
    numbers = refusal(schema("value topic", value=pa.int32()))
    assert numbers == "value attribute unsupported type int. value must be a(n) string or binary"
    texts = pa.map_(pa.string(), pa.binary())
    assert "headers must be a(n) array<struct<key:string,value:binary>>" in refusal(
        schema("value topic headers", headers=texts)
    )
    assert "partition must be a(n) int" in refusal(schema("value topic partition", partition=pa.int64()))
    misspelt = refusal(pa.schema([("value", pa.string()), ("topic", pa.string()), ("ofset", pa.int64())]))
    assert misspelt == "a record has no 'ofset': did you mean 'offset'?"
    assert "a name twice" in refusal(schema("value topic topic"))
    assert not (tmp_path / "no").exists()


def test_options_that_do_not_fit(tmp_path: Path) -> None:
    from kdump.spark.writer_options import parse_write_options

    wrong = {
        "partition": "there is no option 'partition'; did you mean 'partitions'?",
        "zzz": "there is no option 'zzz'; the options are batchBytes",
    }
    for name, words in wrong.items():
        with pytest.raises(KdumpError, match=words.replace("?", r"\?")):
            writer(schema("value topic"), tmp_path / "no", **{name: "1"})
    for name, value in {
        "codec": "lzo",
        "partitions": "0",
        "batchBytes": "x",
        "segmentBytes": "1",
        "topicIds": '{"t": "no"}',
        "TOPICIDS": "[1]",
    }.items():
        with pytest.raises(KdumpError, match=r"no codec|expected"):
            writer(schema("value topic"), tmp_path / "no", **{name: value})
    with pytest.raises(KdumpError, match="a log is not overwritten"):
        writer(schema("value topic"), tmp_path / "no", overwrite=True)
    with pytest.raises(KdumpError, match=r"\.save\(path\)"):
        parse_write_options({"topic": "t"})
    assert not (tmp_path / "no").exists()
    kafka = {"kafka.compression.type": "gzip", "kafka.bootstrap.servers": "x:1"}
    write("value topic", [[("v", "t")]], tmp_path / "gzip", **kafka)
    assert arrow(tmp_path / "gzip", columns=["codec"]).read_all().to_pylist() == [{"codec": "gzip"}]


def test_what_is_there_stays(tmp_path: Path) -> None:
    write("value topic", [[("v", "t")]], tmp_path)
    before = contents(tmp_path)
    write("value topic", [[("v", "u")]], tmp_path)
    assert before.items() <= contents(tmp_path).items()
    both = contents(tmp_path)
    with pytest.raises(KdumpError, match="t-0: already exists, and nothing is added to it"):
        write("value topic", [[("v", "a"), ("v", "t")]], tmp_path)
    assert contents(tmp_path) == both
    write("value topic", [], tmp_path)  # a DataFrame without rows
    assert contents(tmp_path) == both


def test_a_commit_that_was_killed_is_taken_back(tmp_path: Path) -> None:
    """The next job removes what the killed one had renamed, and nothing else."""
    write("value topic", [[("other", "u")]], tmp_path)
    before = contents(tmp_path)
    for path in (tmp_path / "t-0", tmp_path / ".kdump-convert-part" / "t-1"):
        path.mkdir(parents=True)
        (path / f"{0:020}.log").write_bytes(b"half of a job")
    (tmp_path / ".kdump-convert").write_text("t-0\nt-1\n")
    write("value topic", [[("v", "t")]], tmp_path)
    assert before.items() <= contents(tmp_path).items()
    assert [row[5] for row in table(tmp_path)] == [b"v", b"other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t-0", "u-0"]


def test_a_directory_of_a_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("")
    driver = writer(schema("value topic"), tmp_path)
    message = driver.write_attempt(pa.table([["v"], ["t"]], schema("value topic")).to_batches(), 0, 0)
    started = subprocess.Popen([sys.executable, "-c", LOCK, str(tmp_path / ".lock")], stdout=subprocess.PIPE)
    try:
        assert started.stdout is not None
        assert started.stdout.read(1)
        with pytest.raises(KdumpError, match="another process holds the lock, probably a running broker"):
            writer(schema("value topic"), tmp_path)
        with pytest.raises(KdumpError, match="another process holds the lock, probably a running broker"):
            driver.commit([message])
    finally:
        started.kill()
        started.communicate()
    driver.abort([message])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "meta.properties"]


LOCK = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print(flush=True)
time.sleep(60)
"""


def test_two_jobs_into_one_directory(tmp_path: Path) -> None:
    types = schema("value topic")
    jobs = [writer(types, tmp_path / "new") for _ in range(2)]
    messages = [[job.write_attempt(pa.table([["v"], ["t"]], types).to_batches(), 0, 0)] for job in jobs]
    with DirectoryHandle(str(tmp_path / "new")), pytest.raises(KdumpError, match="another kdump process is"):
        jobs[0].commit(messages[0])
    jobs[0].commit(messages[0])
    with pytest.raises(KdumpError, match="t-0: already exists"):
        jobs[1].commit(messages[1])
    jobs[1].abort(messages[1])
    assert [row[:3] for row in table(tmp_path / "new")] == [("t", 0, 0)]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["t-0"]


def test_attempts_that_do_not_count(tmp_path: Path) -> None:
    types = schema("value topic")
    driver = writer(types, tmp_path / "new")
    batches = pa.table([["v"], ["t"]], types).to_batches()
    driver.write_attempt(batches, 0, 0)
    second = driver.write_attempt(batches, 0, 1)
    driver.commit([second, None])
    assert [row[:3] for row in table(tmp_path / "new")] == [("t", 0, 0)]
    with pytest.raises(KdumpError, match="the directory has to be on a file system"):
        driver.write_attempt(batches, 1, 2)  # a late one: the directory of the job is gone


def test_files_that_are_not_as_written(tmp_path: Path) -> None:
    types = schema("value topic")
    for damage_file, words in {
        lambda file: file.unlink(): "it is not here",
        lambda file: file.write_bytes(file.read_bytes()[:-1]): "bytes, and it wrote",
        lambda file: file.write_bytes(file.read_bytes()[:-1] + b"!"): "not as its task wrote it: batch/crc",
    }.items():
        driver = writer(types, tmp_path / "new")
        message = driver.write_attempt(pa.table([["v"], ["t"]], types).to_batches(), 0, 0)
        damage_file(Path(message.files[0].path))
        with pytest.raises(KdumpError, match=words):
            driver.commit([message])
        driver.abort([message])
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("part", ["job", "attempt", "file"])
def test_links_in_the_place_of_what_a_task_wrote(tmp_path: Path, part: str) -> None:
    """The commit would number the batches of the second task there anew."""
    types, elsewhere = schema("value topic"), tmp_path / "elsewhere"
    driver = writer(types, tmp_path / "new")
    batches = pa.table([["v"], ["t"]], types).to_batches()
    messages = [driver.write_attempt(batches, task, 0) for task in range(2)]
    file = Path(messages[1].files[0].path)
    place = {"file": file, "attempt": file.parent, "job": file.parent.parent}[part]
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    before = contents(tmp_path / "elsewhere") or elsewhere.read_bytes()
    with pytest.raises(KdumpError, match=r"not as task|symbolic link"):
        driver.commit(list(messages))
    if part == "job":
        with pytest.raises(KdumpError, match="a symbolic link, which is not followed here"):
            driver.write_attempt(batches, 2, 0)
    driver.abort(list(messages))
    assert (contents(elsewhere) or elsewhere.read_bytes()) == before
    assert not [path for path in (tmp_path / "new").glob("*") if not path.is_symlink()]


def test_a_worker_with_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = writer(schema("value topic"), tmp_path / "new")
    monkeypatch.setattr("kdump.spark.builds.build_name", lambda: "0.1.0 build 0")
    with pytest.raises(KdumpError, match=r"has kdump 0\.1\.0 build 0, and the driver has"):
        driver.write_attempt([], 0, 0)


def test_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    from kdump.spark import KdumpSource

    spark.dataSource.register(KdumpSource)
    df = spark.range(0, 1000, 1, 2).selectExpr("cast(id as string) key", "concat('v', id) value", "'t' topic")
    df.write.format("kdump").mode("append").option("partitions", "2").save(str(tmp_path / "new"))
    assert sorted(int(row[4]) for row in table(tmp_path / "new")) == list(range(1000))
    assert not damage(tmp_path / "new")
    broken = df.selectExpr("key", "value", "if(key = '900', null, topic) topic")
    with pytest.raises(Exception, match="contains a null topic"):
        broken.write.format("kdump").mode("append").save(str(tmp_path / "no"))
    assert not (tmp_path / "no").exists()
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["t-0", "t-1"]


def test_the_manual_has_every_option() -> None:
    from kdump.spark import stream_options, writer_options
    from support import manual, manual_text

    page = manual.pages()[manual_text.SPARK]
    assert {*manual_text.table(manual_text.section(page, "WRITING LOGS")), "path"} == set(writer_options._OPTIONS)
    assert set(manual_text.table(manual_text.section(page, "STREAMS"))) == {
        getattr(stream_options, name) for name in ("END_AT", "LOSSES_LOCATION", "_MOST", "_LEAST", "_DELAY")
    }
