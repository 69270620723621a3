"""Directories in an object store: the same reports as for a local copy, and what is said where a store fails."""

from __future__ import annotations

import errno
import io
import itertools
import os
import pickle
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fsspec", reason="fsspec reads object stores: pip install kdump[cloud]")

from fsspec import AbstractFileSystem, register_implementation
from fsspec.implementations.memory import MemoryFileSystem

from kdump import table_reader
from kdump.convert.parquet.manifest import MANIFEST
from kdump.engine.processes import Processes
from kdump.errors import KdumpError, SourceError
from kdump.kernel.scan import SCAN_STOPPED, Scanner
from kdump.replicas.compare import compare_logs
from kdump.replicas.fingerprint.fingerprint_file import load_copy, read_fingerprint
from kdump.storage import object_store as stores
from kdump.storage.discovery import discover
from kdump.storage.file_store import (
    absolute,
    check_password,
    exists,
    is_directory,
    open_source,
    parent_of,
    require_local,
    status_of,
    store_of,
)
from kdump.storage.object_store import BLOCK_BYTES, ObjectStore, Retries, object_store, status_of_info
from kdump.storage.partition import Partition
from kdump.storage.source import reader_of
from kdump.verify.verify import verify_logs
from support import build, object_stores
from support.damage import NotApplicable, damage
from support.object_stores import Unsteady, run_here

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROOT = "unsteady://bucket"
READS = (
    ("verify", "--deep"),
    ("recover",),
    ("recover", "--salvage", "--dry-run"),
    ("stat", "--by", "segment", "--by", "producer"),
    ("stat", "--upgrade"),
    ("dump",),
    ("dump", "--isolation", "read-committed"),
    ("convert", "--dry-run", "-o", "nowhere", "--include", "internal"),
)


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An object store without anything in it, and one that has listed nothing."""
    Unsteady.reset()
    object_store.cache_clear()
    object_store().retries = Retries(sleep=lambda _: None)
    yield object_store()
    object_store.cache_clear()
    Unsteady.reset()


def copied(folder: Path) -> str:
    object_stores.copy(Unsteady(), folder, f"/bucket/{folder.name}")
    Unsteady.calls.clear()
    return f"{ROOT}/{folder.name}"


def write(name: str, data: bytes) -> str:
    Unsteady().pipe_file(f"/bucket/{name}", data)
    return f"{ROOT}/{name}"


def same(folder: Path, *commands: tuple[str, ...]) -> None:
    url = copied(folder)
    for command in commands:
        arguments = (*command, "--format", "json")
        here, there = run_here(*arguments, str(folder)), run_here(*arguments, url)
        copy_first = f"copy {url} to DIR on a local disk; then: "  # the step is about a copy, the rest is the same
        status, lines, errors = there.comparable(url)
        for line in lines:
            if str(line.get("next")).startswith("copy "):
                assert command[0] == "recover"
                line["next"] = line["next"].removeprefix(copy_first.replace(url, "ROOT")).replace(" DIR", " ROOT")
        assert (status, lines, errors) == here.comparable(str(folder)), command
        assert here.output.splitlines()


# ---- the same reports


def test_reports_are_those_of_a_local_copy() -> None:
    same(FIXTURES / "transactions", *READS)


@pytest.mark.parametrize("name", ["killed", "metadata", "v0-segments-0.8.2.2", "log-directory"])
def test_a_verify_is_that_of_a_local_copy(name: str) -> None:
    same(FIXTURES / name, ("verify",))


def test_damage_is_reported_as_of_a_local_copy(tmp_path: Path) -> None:
    rng, done = random.Random(7), 0
    for number in range(7):
        folder = tmp_path / f"damaged-{number}"
        shutil.copytree(FIXTURES / "transactions" / "transactions-0", folder / "transactions-0")
        log = folder / "transactions-0" / "00000000000000000000.log"
        try:
            log.write_bytes(damage(log.read_bytes(), rng))
        except NotApplicable:
            continue
        same(folder, ("recover",))
        done += 1
    assert done > 3


def test_short_reads_change_nothing() -> None:
    Unsteady.most = 1000
    same(FIXTURES / "transactions", ("verify", "--deep"))


def test_a_segment_named_alone(tmp_path: Path) -> None:
    folder = FIXTURES / "transactions"
    url, name = copied(folder), "transactions-0/00000000000000000000"
    for suffix in (".log", ".index", ".snapshot", "*"):
        here = run_here("verify", "--format", "json", f"{folder}/{name}{suffix}")
        there = run_here("verify", "--format", "json", f"{url}/{name}{suffix}")
        assert there.comparable(url) == here.comparable(str(folder)), suffix


def test_workers_open_their_own_file_systems(store: ObjectStore) -> None:
    url = copied(FIXTURES / "follower")
    here = [(report.path, [finding.code for finding in report.findings]) for report in verify_logs(discover([url]))]
    engine = Processes(2)
    there = [
        (report.path, [finding.code for finding in report.findings])
        for report in verify_logs(discover([url]), engine=engine)
    ]
    assert there == here
    assert len(here) > 5
    read, write_end = os.pipe()
    before = store._system(url)[0]
    if (process := os.fork()) == 0:
        os.write(write_end, b"%d" % (store._system(url)[0] is not before))
        os._exit(0)
    os.waitpid(process, 0)
    assert os.read(read, 1) == b"1"
    assert store._system(url)[0] is before
    os.close(read)
    os.close(write_end)


def test_a_partition_goes_to_other_processes() -> None:
    url = copied(FIXTURES / "killed")
    for item in discover([url]):
        again = pickle.loads(pickle.dumps(item))
        assert again._replace(listing=None) == item._replace(listing=None) if isinstance(item, Partition) else again
    assert pickle.loads(pickle.dumps(store_of(url))) is store_of(url)


# ---- requests


def test_a_directory_is_listed_once(store: ObjectStore) -> None:
    url = copied(FIXTURES / "follower")
    assert run_here("verify", url).status in (0, 1)
    files = sum(path.is_file() for path in (FIXTURES / "follower").rglob("*"))
    assert Unsteady.calls["find"] == 1
    assert Unsteady.calls["open"] <= files
    # What is open is asked for at most three times: when it is opened, at its end, and whether it grew.
    assert Unsteady.calls["info"] <= 2 + 3 * Unsteady.calls["open"]


@pytest.mark.parametrize("pattern", ["", "/broker-*"])
def test_brokers_are_listed_at_once(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """With a request for each, and one or two for what is above them."""
    for broker in range(32):
        for number in range(2):
            write(f"fleet/broker-{broker}/t-{number}/{0:020d}.log", b"")
    requests, at_once, plain = [0], [0, 0], Unsteady.find
    lock, together = threading.Lock(), threading.Event()

    def counted(system: Unsteady, *paths: Any, **how: Any) -> Any:
        with lock:
            requests[0] += 1
            at_once[0] += 1
            at_once[1] = max(at_once)
            if at_once[0] == 4:
                together.set()
        if paths[0].rstrip("/")[-1].isdigit():
            together.wait(60)
            together.set()  # one that comes alone is enough to know
        with lock:
            at_once[0] -= 1
        return plain(system, *paths, **how)

    monkeypatch.setattr(Unsteady, "find", counted)
    assert len([item for item in discover([f"{ROOT}/fleet{pattern}"]) if isinstance(item, Partition)]) == 64
    assert requests[0] <= 33  # fsspec finds what a glob means
    assert at_once[1] >= 4


def test_listings_of_a_fleet_are_not_all_kept(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "_MOST_ENTRIES", 10)
    for broker in range(40):
        write(f"fleet/broker-{broker:02d}/t-0/{0:020d}.log", b"")
    urls = [f"{ROOT}/fleet/broker-{broker:02d}" for broker in range(40)]
    assert len([item for item in discover(urls) if isinstance(item, Partition)]) == 40
    assert Unsteady.calls["find"] == 40
    assert len(store._trees) <= 16


def test_a_file_that_is_named_beside_directories_stays_a_file(store: ObjectStore) -> None:
    name = write(f"a/t-0/{0:020d}.log", b"")
    write(f"b/t-0/{0:020d}.log", b"")
    found = [item for item in discover([f"{ROOT}/b", name]) if isinstance(item, Partition)]
    assert sorted(item.path for item in found) == [name, f"{ROOT}/b/t-0"]
    assert not is_directory(name)


class Walked(Unsteady):
    """A store that lists directory by directory, as HDFS."""

    protocol = "walked"
    find = AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(Unsteady._strip_protocol(path.removeprefix("walked://")))


def test_a_store_that_lists_directory_by_directory_is_walked_by_threads(store: ObjectStore) -> None:
    register_implementation("walked", Walked, clobber=True)
    url = copied(FIXTURES / "follower")
    other = url.replace("unsteady", "walked")
    flat, walked = (run_here("verify", "--format", "json", each) for each in (url, other))
    assert walked.comparable(other) == flat.comparable(url)


def test_a_store_that_lists_directory_by_directory_waits_for_many_at_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5,000 directories with a round trip of 50 ms each take 4 seconds, and 16 with as many threads."""
    register_implementation("walked", Walked, clobber=True)
    many = 40
    for number in range(many):
        write(f"many/t-{number}/{0:020d}.log", b"")
    url = f"{ROOT}/many".replace("unsteady", "walked")
    all_at_once, plain = threading.Barrier(many), Walked.ls

    def ls(system: Walked, path: str, *positional: Any, **how: Any) -> Any:
        if "/t-" in path:
            all_at_once.wait(60)  # fails where fewer are under way
        return plain(system, path, *positional, **how)

    monkeypatch.setattr(Walked, "ls", ls)
    assert len([item for item in discover([url]) if isinstance(item, Partition)]) == many


def test_what_is_named_again_is_listed_again(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    url = copied(FIXTURES / "transactions")
    count = len([item for item in discover([url]) if isinstance(item, Partition)])
    write("transactions/new-0/00000000000000000000.log", b"")
    assert len([item for item in discover([url]) if isinstance(item, Partition)]) == count + 1
    assert not exists(f"{url}/later")
    write("transactions/later/x", b"")
    assert exists(f"{url}/later/x")
    assert not is_directory(f"{url}/later")  # not listed when the whole was
    monkeypatch.setattr(stores.time, "monotonic", lambda: float(1 << 40))
    assert is_directory(f"{url}/later")


def test_requests_are_bounded_ranges() -> None:
    size = 3 * BLOCK_BYTES + 12345
    url = write("t-0/00000000000000000000.log", os.urandom(1 << 20) * (size >> 20) + bytes(size & 0xFFFFF))
    with open_source(url) as source:
        source.read_until(size)
        window = memoryview(bytearray(512 << 10))
        assert sum(source.readinto(at, window) for at in range(0, size, len(window))) == size
    assert Unsteady.calls["read"] == 4
    assert Unsteady.calls["bytes"] == size
    Unsteady.calls.clear()
    with open_source(url) as source:  # a range reads no more than a window after its end
        source.read_until(BLOCK_BYTES + 1000)
        for at in range(BLOCK_BYTES - 5000, BLOCK_BYTES + 1000, 1000):
            source.readinto(at, window[:1000])
        source.readinto(BLOCK_BYTES + 900, window[:500])
    assert Unsteady.calls["bytes"] == 6400
    Unsteady.calls.clear()
    with open_source(url) as source:  # who looks at the start of a file does not pay for a block
        source.readinto(0, window[:61])
    assert Unsteady.calls["bytes"] <= 256 << 10
    Unsteady.calls.clear()
    with open_source(url) as source:  # nor who looks at many places
        for at in (*range(0, size, BLOCK_BYTES // 2), size - 5000):
            source.readinto(at, window[:61])
    assert Unsteady.calls["bytes"] <= 8 * (256 << 10)
    assert Unsteady.calls["read"] <= 8


class Pinned(io.BytesIO):
    """An object of a store that checks its version with each request.

    `meets`: the first two requests wait for each other.
    """

    def __init__(self, data: bytes, *, meets: bool = False) -> None:
        super().__init__(data)
        self.read_kw, self.under_way, self.most = {}, 0, 0  # type: ignore[var-annotated]
        self.asked: list[tuple[int, int]] = []
        self.threads: set[str] = set()
        self._meeting, self._lock = threading.Barrier(2) if meets else None, threading.Lock()

    def _fetch_range(self, start: int, stop: int) -> bytes:
        with self._lock:
            self.asked.append((start, stop))
            self.threads.add(threading.current_thread().name)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            is_early = len(self.asked) <= 2
        if self._meeting is not None and is_early:
            self._meeting.wait(timeout=30)
        with self._lock:
            self.under_way -= 1
        return self.getvalue()[start:stop]


@pytest.mark.parametrize("has_stop", [True, False])
def test_the_next_block_is_read_ahead(monkeypatch: pytest.MonkeyPatch, has_stop: bool) -> None:
    """By requests of whole blocks, two at most under way, each byte once, and none of what nobody asks for."""
    monkeypatch.setattr(stores, "BLOCK_BYTES", 8 << 10)
    monkeypatch.setattr(stores, "_FIRST_BYTES", 256)
    data = os.urandom(20 << 13)
    opened = Pinned(data, meets=has_stop)
    url, stop = write("x", data), 15 << 13
    monkeypatch.setattr(Unsteady, "_open", lambda *_, **__: opened)
    with open_source(url) as source:
        if has_stop:
            source.read_until(stop)
        part = memoryview(bytearray(1 << 10))
        for at in range(0, stop, len(part)):
            assert source.readinto(at, part) == len(part)
            assert bytes(part) == data[at : at + len(part)]
    assert opened.most <= 2
    assert opened.threads == {threading.current_thread().name, "kdump-read-ahead"}
    ranges = sorted(opened.asked)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))
    if has_stop:
        assert ranges == [(at, at + (8 << 10)) for at in range(0, stop, 8 << 10)]
        assert opened.most == 2
    else:
        assert len(ranges) <= 15 + 2 + 2
        assert ranges[-1][1] <= stop + (16 << 10)


def test_two_readers_of_an_object_share_what_is_kept(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    """Also what is on its way: of two that follow each other, neither asks for a byte that the other one has."""
    monkeypatch.setattr(stores, "BLOCK_BYTES", 8 << 10)
    data = os.urandom(20 << 13)
    url, opened = write("x", data), [Pinned(data), Pinned(data)]
    left = iter(opened)
    monkeypatch.setattr(Unsteady, "_open", lambda *_, **__: next(left))
    with store.keep(1 << 12):
        store.keep_more(4 << 13)
        with open_source(url) as first, open_source(url) as second:
            first.read_until(len(data))
            second.read_until(len(data))
            part = memoryview(bytearray(1 << 10))
            for at in range(0, len(data), len(part)):
                for source, position in ((first, at), (second, at), (first, max(at - (1 << 14), 0))):
                    assert source.readinto(position, part) == len(part)
                    assert bytes(part) == data[position : position + len(part)]
    assert sorted(opened[0].asked + opened[1].asked) == [(at, at + (8 << 10)) for at in range(0, len(data), 8 << 10)]


def test_what_is_kept_is_forgotten_in_any_order(store: ObjectStore) -> None:
    """Two dumps of a store can be read in turns."""
    url = write("x", os.urandom(1 << 10))

    def read() -> int:
        Unsteady.calls.clear()
        with open_source(url) as source:
            source.readinto(0, memoryview(bytearray(10)))
        return Unsteady.calls["bytes"]

    with ExitStack() as first, ExitStack() as second:
        first.enter_context(store.keep(1 << 20))
        assert (read(), read()) == (1 << 10, 0)
        second.enter_context(store.keep(1 << 20))
        assert (read(), read()) == (1 << 10, 0)
        first.close()
        assert read() == 0
    assert (read(), read()) == (1 << 10, 1 << 10)


def test_what_was_read_ahead_fails_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BLOCK_BYTES", 8 << 10)
    opened = Pinned(bytes(4 << 13))
    url = write("x", bytes(4 << 13))
    monkeypatch.setattr(Unsteady, "_open", lambda *_, **__: opened)
    fetch = opened._fetch_range

    def failing(start: int, stop: int) -> bytes:
        if start:
            raise PermissionError("Forbidden")
        return fetch(start, stop)

    monkeypatch.setattr(opened, "_fetch_range", failing)
    with open_source(url) as source:
        source.read_until(source.size)
        part = memoryview(bytearray(8 << 10))
        assert source.readinto(0, part) == len(part)
        with pytest.raises(SourceError, match="reading at byte 8192: access denied: forbidden"):
            source.readinto(8 << 10, part)


def test_any_reads_are_those_of_the_bytes() -> None:
    rng, data = random.Random(3), os.urandom(300_000)
    url = write("x", data)
    for _ in range(20):
        with open_source(url) as source:
            source._step = rng.choice((1, 100, 5000, 1 << 20))  # type: ignore[attr-defined]
            if rng.random() < 0.5:
                source._stop = rng.randrange(1, len(data))  # type: ignore[attr-defined]
            for _ in range(50):
                at, size = rng.randrange(len(data) + 10), rng.randrange(20_000)
                buffer = memoryview(bytearray(size))
                assert bytes(buffer[: source.readinto(at, buffer)]) == data[at : at + size]


# ---- what changes while it is read


def test_an_object_that_is_replaced_is_an_error() -> None:
    data = build.segment(*(build.batch([build.record(b"k", b"v")], base_offset=number) for number in range(9)))
    url = write("t-0/00000000000000000000.log", data)
    Unsteady.before_read = lambda: write("t-0/00000000000000000000.log", data[:-1] + b"x")
    ran = run_here("verify", url)
    assert ran.status == 3
    assert ran.problems == f"kdump: {url}: reading at byte 0: the object was replaced since it was opened\n"


def test_an_object_that_is_deleted_is_an_error() -> None:
    data = build.segment(build.batch([build.record(b"k", b"v")]))
    url = write("t-0/00000000000000000000.log", data)
    Unsteady.before_read = Unsteady.store.clear
    ran = run_here("verify", url)
    assert ran.status == 3
    assert ran.problems == f"kdump: {url}: reading at byte 0: the object was deleted since it was opened\n"


def test_an_object_that_vanishes_after_the_listing() -> None:
    url = copied(FIXTURES / "transactions")
    found = list(discover([url]))
    for path in list(Unsteady.store):
        if path.endswith(".log"):
            del Unsteady.store[path]
    reports = list(verify_logs(found))
    assert any("no such file" in str(file.error) for report in reports for file in report.files)


# ---- failures


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (PermissionError("Forbidden"), "access denied: Forbidden"),
        (PermissionError(errno.EACCES, "Access Denied."), "access denied: Access Denied"),
        (FileNotFoundError("The specified bucket does not exist"), "the specified bucket does not exist"),
        (TimeoutError(), "no answer in time"),
        (RuntimeError("Unable to locate credentials\nmore"), "unable to locate credentials"),
        (OSError(errno.EIO, "Please reduce your request rate."), "please reduce your request rate"),
    ],
    ids=["forbidden", "denied", "bucket", "time", "credentials", "rate"],
)
def test_failures_of_a_store_are_sentences(failure: Exception, words: str) -> None:
    url = copied(FIXTURES / "transactions")
    Unsteady.failing, Unsteady.failure = "info", failure
    for command in (("verify",), ("stat",), ("dump",), ("recover",)):
        ran = run_here(*command, url)
        assert ran.status == 3
        assert ran.problems.lower() == f"kdump: {url}: {words}\n".lower()
    Unsteady.failing = "read"
    ran = run_here("verify", url)
    assert ran.status == 3
    words = "the object was deleted since it was opened" if isinstance(failure, FileNotFoundError) else words
    assert f"/transactions-0/00000000000000000000.log: reading at byte 0: {words}\n".lower() in ran.problems.lower()


class Answer(Exception):
    """An answer of a server, as the libraries of HTTP raise it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = SimpleNamespace(status_code=status)


PASSING = (Answer(503), Answer(429), ConnectionResetError("reset"), TimeoutError(), OSError(errno.EIO, "SlowDown"))
LASTING = (
    Answer(403),
    Answer(404),
    PermissionError("Forbidden"),
    OSError(errno.EIO, "disk"),
    ValueError("no such key"),
)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self, each_takes: float = 0) -> None:
        self.now, self.pauses, self.each_takes = 0.0, list[float](), each_takes

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now

    @property
    def retries(self) -> Retries:
        return Retries(self, self.sleep)

    def fail(self, failure: Exception, calls: list[int]) -> Any:
        def call() -> Any:
            calls.append(1)
            self.now += self.each_takes
            raise failure

        return call


def test_a_store_that_fails_now_and_then_is_asked_again(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred requests one, and of those that come again as well."""
    url, clock, rng, failed = copied(FIXTURES / "follower"), Clock(), random.Random(5), list[str]()
    clean = run_here("verify", "--format", "json", url)
    plain = Unsteady.call

    def call(name: str) -> None:
        plain(name)
        if rng.random() < 0.01:
            failed.append(name)
            raise rng.choice(PASSING)

    monkeypatch.setattr(Unsteady, "call", staticmethod(call))
    store.retries = clock.retries
    for _ in range(3):
        assert run_here("verify", "--format", "json", url).comparable(url) == clean.comparable(url)
    assert len(failed) == len(clock.pauses) > 3
    assert all(0.25 <= pause <= 4 for pause in clock.pauses)


@pytest.mark.parametrize("failure", PASSING, ids=str)
def test_retries_end(failure: Exception) -> None:
    system, calls, clock = Unsteady(), list[int](), Clock()
    with pytest.raises(OSError, match=r"."):
        clock.retries.ask(system, clock.fail(failure, calls))
    assert len(calls) == 5
    assert sum(clock.pauses) <= 7.5
    calls, clock = [], Clock(each_takes=14)  # each waits for an answer: the third is the last
    with pytest.raises(OSError, match=r"."):
        clock.retries.ask(system, clock.fail(failure, calls))
    assert len(calls) == 3


@pytest.mark.parametrize("failure", LASTING, ids=str)
def test_what_lasts_is_said_at_once(failure: Exception) -> None:
    calls, clock = list[int](), Clock()
    with pytest.raises(OSError, match=r"."):
        clock.retries.ask(Unsteady(), clock.fail(failure, calls))
    assert (len(calls), clock.pauses) == (1, [])


def test_what_a_library_has_tried_again_is_not_tried_again() -> None:
    for protocol in ("s3", ("s3", "s3a"), ("gs", "gcs"), "abfs"):
        calls, clock = list[int](), Clock()
        with pytest.raises(OSError, match="SlowDown"):
            clock.retries.ask(SimpleNamespace(protocol=protocol), clock.fail(OSError(errno.EIO, "SlowDown"), calls))
        assert (len(calls), clock.pauses) == (1, [])


def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    copied(FIXTURES / "transactions")
    assert run_here("verify", f"{ROOT}/nothing").problems == f"kdump: {ROOT}/nothing: no such file or directory\n"
    assert "protocol not known: nope" in run_here("verify", "nope://bucket/x").problems
    assert "cannot list directories" in run_here("verify", "https://host/x").problems
    monkeypatch.setitem(sys.modules, "s3fs", None)
    assert "pip install 'kdump[cloud]'" in run_here("verify", "s3://bucket/x").problems
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    ran = run_here("verify", "gs://bucket/x")
    assert ran.status == 3
    assert ran.problems == "kdump: gs://bucket/x: gs:// cannot be read (fsspec): pip install 'gcsfs'\n"


def test_a_password_in_a_url_is_never_shown() -> None:
    for arguments in (
        ["verify"],
        ["verify", "x", "--as-of"],
        ["stat"],
        ["dump"],
        ["recover", "--format", "json"],
        ["convert", "-o", "x"],
    ):
        ran = run_here(*arguments, "s3://key:secret@bucket/x")
        assert ran.status == 2
        assert "secret" not in ran.output + ran.problems
        assert "a URL with a password" in ran.problems
    check_password("abfs://container@account.dfs.core.windows.net/x")
    check_password("a:b@c")


# ---- fingerprints


def printed(tmp_path: Path, change: bytes = b"v") -> list[str]:
    """Fingerprints of two brokers in a store, beside each other."""
    for number, value in (1, b"v"), (2, change):
        for topic in "ab":
            place = tmp_path / f"{number}" / f"{topic}-0"
            place.mkdir(parents=True)
            log = build.batch([build.record(b"k", value if topic == "b" else b"v")])
            (place / f"{0:020d}.log").write_bytes(log)
        file = tmp_path / f"{number}.f"
        assert run_here("verify", "--fingerprint", str(file), str(tmp_path / str(number))).status == 0
        write(f"prints/{file.name}", file.read_bytes())
    Unsteady.calls.clear()
    return [f"{ROOT}/prints/{number}.f" for number in (1, 2)]


@pytest.mark.parametrize("change", [b"v", b"other"])
def test_fingerprints_in_a_store_give_the_answers_of_local_ones(change: bytes, tmp_path: Path) -> None:
    urls = printed(tmp_path, change)
    local = [str(tmp_path / "1.f"), str(tmp_path / "2.f")]
    how = ("verify", "--compare", "--format", "json")
    expected = run_here(*how, *local).comparable(str(tmp_path))
    assert expected[0] == (change != b"v")
    Unsteady.most = 1000
    for paths in (urls, [f"{ROOT}/prints/*.f"], [urls[0], local[1]]):
        assert run_here(*how, *paths, "--jobs", "1").comparable(str(tmp_path)) == expected
    rows = [
        table_reader(paths, "comparisons").read_all().to_pylist() for paths in (local, urls, [f"{ROOT}/prints/*.f"])
    ]
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) == 2
    ran = run_here("verify", *urls)
    size = (tmp_path / "1.f").stat().st_size
    assert (ran.status, f"{urls[0]}: 2 topic-partitions, {size} bytes" in ran.output) == (0, True)
    again, given = str(tmp_path / "3.f"), [text for url in urls for text in ("--as-of", url)]
    assert run_here("verify", "--fingerprint", again, *given, str(tmp_path / "1")).status == 0


def test_an_object_is_opened_once_for_all_sections(tmp_path: Path) -> None:
    urls = printed(tmp_path)
    copies = [copy for url in urls for copy in read_fingerprint(url).copies]
    Unsteady.calls.clear()
    for _ in range(3):
        for copy in copies:
            load_copy(copy)
    assert Unsteady.calls["open"] == 2
    assert Unsteady.calls["read"] == 2
    assert pickle.loads(pickle.dumps(copies)) == copies


def test_a_fingerprint_that_is_replaced_in_a_store_is_an_error(tmp_path: Path) -> None:
    first, other = printed(tmp_path, b"other")
    (before, *_) = read_fingerprint(first).copies
    write("prints/1.f", (tmp_path / "2.f").read_bytes())
    with pytest.raises(SourceError, match=r"prints/1\.f: the object was replaced since it was opened"):
        load_copy(before)
    for one, two in zip(read_fingerprint(first).copies, read_fingerprint(other).copies, strict=True):
        assert load_copy(one) == load_copy(two)


@pytest.mark.parametrize("failing", ["open", "read"])
def test_a_store_that_fails_while_fingerprints_are_read_is_a_sentence(failing: str, tmp_path: Path) -> None:
    urls = printed(tmp_path)
    copies = [copy for url in urls for copy in read_fingerprint(url).copies]
    Unsteady.failing, Unsteady.failure = failing, OSError(errno.EIO, "Please reduce your request rate.")
    for how in (), ("--compare",):
        ran = run_here("verify", *how, *urls)
        assert ran.status == 3
        for line in ran.problems.splitlines():
            assert line.startswith(f"kdump: {ROOT}/prints/")
            assert line.lower().endswith("please reduce your request rate")
    with pytest.raises(SourceError, match=r"prints/\*\.f|prints/1\.f: .*reduce"):
        table_reader(f"{ROOT}/prints/*.f", "comparisons").read_all()
    (found, *_) = compare_logs((), fingerprints=[each for each in copies if each.topic_partition.topic == "a"])
    assert isinstance(found, SourceError)
    assert "reduce your request rate" in str(found).lower()


# ---- nothing is written


def test_nothing_is_written_to_an_object_store(tmp_path: Path) -> None:
    url = copied(FIXTURES / "transactions")
    before = {path: file.getvalue() for path, file in Unsteady.store.items()}
    local = str(FIXTURES / "transactions")
    for arguments in (
        ("recover", "--truncate", url),
        ("recover", "--salvage", "--output", str(tmp_path / "copy"), url),
        ("recover", "--truncate", "--output", f"{url}/copy", f"{local}/transactions-0"),
        ("recover", "--undo", url),
        ("recover", "--resume", url),
        ("convert", local, "-o", f"{url}/parquet"),
        ("convert", local, "-o", f"{url}/one.arrow"),
        ("convert", local, "--to", "log", "-o", f"{url}/log"),
        ("verify", "--fingerprint", f"{url}/a.fingerprint", local),
        ("verify", "--fingerprint", f"{url}/a.fingerprint", "--overwrite", url),
    ):
        ran = run_here(*arguments)
        assert ran.status == 3, arguments
        assert "an object store is read-only here: write to a local disk, and copy from there" in ran.problems
    ran = run_here("dump", "--at", "0", f"{url}/transactions-0")
    assert ran.status == 3
    assert "--at reads local files only" in ran.problems
    assert {path: file.getvalue() for path, file in Unsteady.store.items()} == before
    assert not list(tmp_path.iterdir())


def test_tables_are_made_of_an_object_store(tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    url = copied(FIXTURES / "transactions")
    assert run_here("convert", url, "-o", str(tmp_path / "there")).status == 0
    assert run_here("convert", str(FIXTURES / "transactions"), "-o", str(tmp_path / "here")).status == 0
    log = run_here("convert", url, "--to", "log", "-o", str(tmp_path / "log"))
    assert (log.status, log.problems) == (0, "")
    there, here = (parquet.read_table(tmp_path / name) for name in ("there", "here"))
    assert there.num_rows > 0
    assert there.equals(here)
    assert url in (tmp_path / "there" / MANIFEST).read_text()


# ---- paths, and the kernel


def test_paths() -> None:
    assert absolute("s3://bucket/a/") == "s3://bucket/a"
    assert absolute("s3://bucket") == parent_of("s3://bucket") == parent_of("s3://bucket/a") == "s3://bucket"
    assert absolute("file:///") == "file:///"
    assert parent_of("unsteady://x/a/b") == "unsteady://x/a"
    assert store_of("a:/b").is_local
    assert store_of("./s3://b").is_local
    require_local("relative")
    with pytest.raises(KdumpError, match="read-only here"):
        require_local("s3://bucket/a")


def test_a_file_url(tmp_path: Path) -> None:
    folder = FIXTURES / "transactions"
    here = run_here("verify", "--format", "json", str(folder))
    there = run_here("verify", "--format", "json", f"file://{folder}")
    assert there.comparable(f"file://{folder}") == here.comparable(str(folder))


def test_a_status_has_what_a_file_has() -> None:
    url = write("t-0/x", b"abc")
    status = status_of(url)
    assert status.st_size == 3
    assert status.st_mtime_ns > 0
    list(discover([f"{ROOT}/t-0"]))
    assert status_of(url).st_ino == status.st_ino
    write("t-0/x", b"abd")
    with open_source(url) as source:
        assert source.stamp[1] != status.st_ino
        assert source.data_from(1) == 1
        write("t-0/x", b"abcd")
        assert source.size_now() == 4
    with pytest.raises(SourceError, match="no such file"):
        open_source(f"{ROOT}/t-0")


def test_the_kernel_reads_an_object_as_it_reads_a_file(tmp_path: Path) -> None:
    data = build.segment(*(build.batch([build.record(b"k", b"v")], base_offset=number) for number in range(50)))
    url, path = write("x", data), tmp_path / "x"
    path.write_bytes(data)
    states = []
    for name in (url, str(path)):
        with open_source(name) as source:
            scanner = Scanner(0)
            assert scanner.headers(source.reader, 0, bytearray(8192), 0, len(data)) == SCAN_STOPPED
            states.append(scanner.state())
    assert states[0] == states[1]

    class Broken:
        def readinto(self, position: int, buffer: memoryview) -> int:
            raise SourceError("broken")

    with pytest.raises(SourceError, match="broken"):
        Scanner(0).headers(Broken(), 0, bytearray(8192), 0, len(data))


def test_a_walk_over_the_headers_of_small_batches_reads_each_byte_once() -> None:
    """It stops where its rows are full, and goes on with what it has read."""
    data = build.segment(*(build.batch([build.record(value=bytes(900))], base_offset=number) for number in range(999)))
    read = 0

    class Counted:
        def readinto(self, position: int, buffer: memoryview) -> int:
            nonlocal read
            part = data[position : position + len(buffer)]
            buffer[: len(part)] = part
            read += len(part)
            return len(part)

    scanner, buffer, position, calls = Scanner(0, everything=True), bytearray(128 << 10), 0, 0
    while position < len(data):
        scanner.headers(Counted(), 0, buffer, position, len(data))
        position, calls = scanner.reached, calls + 1
    assert (scanner.state().batches, calls) == (999, 4)
    assert read <= 1.01 * len(data)


def test_hdfs_gets_no_arguments_about_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """hdfs-native would hand them to HDFS as settings, and read through a buffer that cannot seek."""
    asked: list[dict[str, Any]] = []

    class Hdfs(MemoryFileSystem):  # type: ignore[misc]
        protocol = "hdfs"

        def open(self, path: str, mode: str = "rb", **how: Any) -> Any:
            asked.append(how)
            return super().open(path, mode, **how)

    def url_to_fs(path: str, **how: Any) -> tuple[Any, str]:
        asked.append(how)
        return Hdfs(), path

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    monkeypatch.setattr(Hdfs, "_strip_protocol", classmethod(lambda cls, path: path.removeprefix("hdfs://host")))
    Hdfs().pipe_file("/hdfs-arguments/x", b"abc")
    asked.clear()
    with ObjectStore().open("hdfs://host/hdfs-arguments/x") as source:
        assert reader_of(source)(0, 3) == b"abc"
    assert asked == [{}, {}]


@pytest.mark.parametrize("name", ["modification_time", "modificationTime"])
def test_a_file_of_hdfs_that_was_replaced_is_another_one(name: str) -> None:
    """Clients of HDFS say when a file was written, in milliseconds, and nothing else of its version."""
    one, two = (
        status_of_info("hdfs://host/x", {"type": "file", "name": "/x", "size": 3, name: at})
        for at in (1_700_000_000_000, 1_700_000_001_999)
    )
    assert (one.st_mtime_ns, two.st_mtime_ns) == (1_700_000_000 * 10**9, 1_700_000_001 * 10**9)
    assert one.st_ino != two.st_ino
