"""A fingerprint that reads only segments that have changed is the one that a reading of all gives."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import kdump
from kdump.format.naming import SHARES_MAGIC
from kdump.replicas.fingerprint import share_sketch
from kdump.replicas.fingerprint.copy_sketch import NO_KEY, FingerprintOptions, HashKey, sketch_copy
from kdump.replicas.fingerprint.fingerprint_file import load_copy, read_fingerprint
from kdump.replicas.fingerprint.segment_shares import Share
from kdump.replicas.fingerprint.share_file import (
    CopyName,
    load_shares,
    read_share_index,
    section_of_shares,
)
from kdump.replicas.fingerprint.share_sketch import sketch_with_shares
from kdump.storage.partition import Partition
from replicas.test_compare import data, marker, metadata
from support import build
from support.command_runs import Ran, run_inside
from support.laws import QUICK, SEED, examples

WRITTEN_NS = 1_700_000_000 * 10**9
NAME = CopyName(kdump.TopicPartition("t", 0), bytes(16), "/t-0")


class LogOnDisk:
    """A topic-partition directory that changes as brokers change it."""

    def __init__(self, broker: Path, choose: random.Random) -> None:
        self.broker, self.choose = broker, choose
        self.place = broker / "t-0"
        self.segments: list[tuple[int, list[bytes]]] = [(0, [])]
        self.end = self.epoch = self.now = 0
        self._written = dict[str, bytes]()
        self.place.mkdir(parents=True)
        (self.place / "partition.metadata").write_bytes(metadata())

    def append(self, batches: int) -> None:
        for _ in range(batches):
            self.end += self.choose.choice([0] * 30 + [3, 1 << self.choose.randrange(14)])
            count = self.choose.randrange(1, 5)
            key = self.choose.choice([None, b"k%d" % self.choose.randrange(9)])
            several = [build.record(key, b"v%d" % self.choose.randrange(99), timestamp=9) for _ in range(count)]
            how = {"codec": self.choose.choice(["none", "none", "none", "gzip"]), "epoch": self.epoch}
            self.segments[-1][1].append(build.batch(several, base_offset=self.end, **how))  # type: ignore[arg-type]
            self.end += count

    def write(self) -> None:
        """Write the files that changed, each time later."""
        self.now += 1
        wanted = {f"{base:020}.log": b"".join(batches) for base, batches in self.segments}
        for name in self._written.keys() - wanted.keys():
            (self.place / name).unlink()
        for name, content in wanted.items():
            if self._written.get(name) != content:
                (self.place / name).write_bytes(content)
                at = WRITTEN_NS + self.now * 10**9
                os.utime(self.place / name, ns=(at, at))
        self._written = wanted

    def change(self) -> str:
        """Change it, in one of the ways in which logs change. Returns which."""
        steps = {
            self._append: 6, self._roll: 5, self._retain: 4, self._raise_start: 1, self._truncate: 2,
            self._recreate: 1, self._damage: 1, self._clean: 1, self._transact: 1, self._wait: 1, self._legacy: 1,
        }  # fmt: skip
        step = self.choose.choices(list(steps), list(steps.values()))[0]
        step()
        return step.__name__

    def _append(self) -> None:
        self.epoch += self.choose.random() < 0.2
        self.append(self.choose.choice([1, 2, 5, 40, 300]))

    def _roll(self) -> None:
        if self.segments[-1][1]:
            self.segments.append((self.end, []))
        self.append(self.choose.randrange(1, 30))

    def _retain(self) -> None:
        del self.segments[: self.choose.randrange(len(self.segments))]

    def _raise_start(self) -> None:
        start = self.choose.randrange(self.segments[0][0], self.end + 1)
        (self.broker / "log-start-offset-checkpoint").write_bytes(build.checkpoint(f"t 0 {start}"))

    def _truncate(self) -> None:
        at = self.choose.randrange(len(self.segments))
        base, batches = self.segments[at]
        left = batches[: self.choose.randrange(len(batches) + 1)]
        self.segments[at:] = [(base, left)]
        self.end = base
        if left:
            last = left[-1]
            self.end = int.from_bytes(last[:8]) + 1 + (int.from_bytes(last[23:27]) if last[16] == 2 else 0)
        self.epoch += 1
        self.append(self.choose.randrange(9))

    def _recreate(self) -> None:
        (self.broker / "log-start-offset-checkpoint").unlink(missing_ok=True)
        self.segments, self.end, self.epoch = [(0, [])], 0, 0
        self.append(9)

    def _damage(self) -> None:
        batches = self.choose.choice(self.segments)[1]
        if batches:
            at = self.choose.randrange(len(batches))
            changed = bytearray(batches[at])
            changed[self.choose.randrange(len(changed))] ^= 1 << self.choose.randrange(8)
            batches[at] = bytes(changed)

    def _clean(self) -> None:
        if self.choose.random() < 0.3:
            self.segments[-1][1].append(
                build.batch([build.record(b"k", b"v", timestamp=9)], base_offset=self.end, last_offset_delta=4)
            )
            self.end += 5

    def _transact(self) -> None:
        if self.choose.random() < 0.3:
            self.segments[-1][1].append(data(self.end, b"k", b"v", pid=7))
            self.end += 1
            if self.choose.random() < 0.5:
                self.segments[-1][1].append(marker(self.end, self.choose.choice(["COMMIT", "ABORT"])))
                self.end += 1

    def _legacy(self) -> None:
        if self.choose.random() < 0.3:
            self.segments[-1][1].append(build.message(1, b"k", b"v", offset=self.end, timestamp=9))
            self.end += 1

    def _wait(self) -> None:
        pass


def partition_of(broker: Path) -> Partition:
    (found,) = (each for each in kdump.discover([str(broker)]) if isinstance(each, Partition))
    return found


def through_a_file(shares: tuple[Share, ...], path: Path, key: HashKey = NO_KEY) -> list[Share]:
    path.write_bytes(SHARES_MAGIC + b"\4\0\0\0" + key.key_id + section_of_shares(NAME, shares, key, 1 << 30))
    index = read_share_index(str(path), key)
    assert index.problem is None
    return [share for place in index.places.values() for share in load_shares(place, key, 1 << 30)]


@pytest.mark.laws
def test_whatever_happens_to_a_log_the_fingerprint_is_that_of_a_full_reading(tmp_path: Path) -> None:
    seen, unread, steps = Counter[str](), 0, 0
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        log = LogOnDisk(tmp_path / str(trial), choose)
        log.append(choose.choice([3, 30, 500]))
        options = FingerprintOptions(least_bytes=choose.choice([1, 1, 2000]))
        known = list[Share]()
        for _ in range(choose.randrange(2, 14)):
            log.write()
            partition = partition_of(log.broker)
            found = sketch_with_shares(partition, options, known)
            assert found.sketch._replace(oldest_read_ms=None) == sketch_copy(partition, options), (trial, seen)
            assert (found.sketch.oldest_read_ms is not None) is (found.unread_bytes > 0), trial
            known = through_a_file(found.shares, tmp_path / "shares")
            assert known == list(found.shares), trial
            unread, steps = unread + (found.unread_bytes > 0), steps + 1
            for _ in range(choose.randrange(1, 4)):
                seen[log.change()] += 1
        shutil.rmtree(log.broker)
    assert len(seen) == 11 or QUICK
    assert unread > (0 if QUICK else steps / 4)


def rolled(broker: Path, segments: int = 6, batches: int = 40) -> LogOnDisk:
    """A log of so many segments of some thousand bytes each."""
    log = LogOnDisk(broker, random.Random(7))
    for number in range(segments):
        log.segments += [(log.end, [])] if number else []
        log.append(batches)
    log.write()
    return log


def keep(log: LogOnDisk, first: int, stop: int, batches: int | None = None) -> None:
    """Keep these segments, and so many batches of the last one."""
    log.segments = log.segments[first:stop]
    del log.segments[-1][1][batches or len(log.segments[-1][1]) :]


def start_at(log: LogOnDisk, offset: int) -> None:
    (log.broker / "log-start-offset-checkpoint").write_bytes(build.checkpoint(f"t 0 {offset}"))


def add_marker(log: LogOnDisk) -> None:
    """A marker without its transaction, in a segment that is not written to later."""
    log.segments[-1][1].append(marker(log.end, "COMMIT"))
    log.end += 1
    log.segments.append((log.end, []))
    log.append(3)


def garble(log: LogOnDisk, segment: int, batch: int) -> None:
    batches = log.segments[segment][1]
    batches[batch] = batches[batch][:-1] + bytes([batches[batch][-1] ^ 1])


CHANGES: dict[str, Callable[[LogOnDisk], None]] = {
    "the newest ends of batches are in segments whose ends were dropped": lambda log: keep(log, 0, 8, 2),
    "the oldest segments alone are left": lambda log: keep(log, 0, 1, 2),
    "the newest segment alone is left": lambda log: keep(log, 9, 10),
    "the log starts between two segments of a share": lambda log: start_at(log, log.segments[1][0]),
    "the log starts inside a segment": lambda log: start_at(log, log.segments[2][0] + 7),
    "the last batch of a segment is damaged": lambda log: garble(log, 4, -1),
    "a batch is damaged": lambda log: garble(log, 3, 5),
    "bytes are after the last batch": lambda log: log.segments[2][1].append(b"\1" * 30),
    "there is a marker alone": add_marker,
    "a segment overlaps the next one": lambda log: log.segments[5][1].append(plain_batch(log.segments[6][0] + 1)),
}


def plain_batch(offset: int) -> bytes:
    return build.batch([build.record(None, b"v", timestamp=9)], base_offset=offset)


@pytest.mark.daily(3)
@pytest.mark.parametrize(("together", "batches"), [(1, 40), (3, 40), (1, 400)])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_gives_the_fingerprint_of_a_full_reading(
    name: str, together: int, batches: int, tmp_path: Path
) -> None:
    """And so does nothing after it, and what is appended then. `together`: so many segments have a share."""
    log = rolled(tmp_path / "b", 10, batches)
    size = max(each.stat().st_size for each in log.place.glob("*.log"))
    options = FingerprintOptions(least_bytes=1 if together == 1 else 2 * size)
    is_that_of_a_full_reading(log, options, CHANGES[name])


def is_that_of_a_full_reading(log: LogOnDisk, options: FingerprintOptions, change: Callable[[LogOnDisk], None]) -> None:
    known = list[Share]()
    for step in (None, change, None, lambda log: log.append(3), None):
        if step is not None:
            step(log)
        log.write()
        partition = partition_of(log.broker)
        found = sketch_with_shares(partition, options, known)
        assert found.sketch._replace(oldest_read_ms=None) == sketch_copy(partition, options)
        known = list(found.shares)


@pytest.mark.daily(2)
@pytest.mark.parametrize(
    "change",
    [
        lambda log: keep(log, 0, 8),
        lambda log: keep(log, 0, 7),
        lambda log: garble(log, 2, -1),
        lambda log: garble(log, 2, 0),
        lambda log: garble(log, 3, -1),
        lambda log: garble(log, 7, 3),
    ],
    ids=["two of three left", "one of three left", "last, at its end", "last, at its start", "first", "middle"],
)
def test_all_segments_of_a_share_are_known_or_none(
    change: Callable[[LogOnDisk], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are left of a share, or are not damaged, do not stand for it: it has the records of all."""
    monkeypatch.setattr(share_sketch, "_MOST_SHARES", 4)
    log, options = rolled(tmp_path / "b", 10, 40), FingerprintOptions(least_bytes=1)
    shares = sketch_with_shares(partition_of(log.broker), options).shares
    assert [len(each.segments) for each in shares] == [3, 3, 3, 1]
    is_that_of_a_full_reading(log, options, change)


def test_a_segment_that_has_not_changed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, options, read = rolled(tmp_path / "b"), FingerprintOptions(least_bytes=1), list[str]()
    first = sketch_with_shares(partition_of(log.broker), options)
    assert (first.unread_bytes, first.sketch.oldest_read_ms, len(first.shares)) == (0, None, 6)
    log.segments.append((log.end, []))
    log.append(9)
    del log.segments[0]
    log.write()
    from kdump.replicas import log_survey

    walk = log_survey.walk_of_slice
    monkeypatch.setattr(
        log_survey,
        "walk_of_slice",
        lambda part, source, **how: (read.append(source.name), walk(part, source, **how))[1],
    )
    again = sketch_with_shares(partition_of(log.broker), options, first.shares)
    names = sorted(each.name for each in log.place.glob("*.log"))
    assert [os.path.basename(each) for each in read] == names[-1:]
    assert again.unread_bytes == sum((log.place / each).stat().st_size for each in names[:-1])
    assert again.sketch.oldest_read_ms == first.shares[0].read_ms
    # And each is read where its time or its last batch is another one, or the batch cannot be told.
    os.utime(log.place / names[1], ns=(WRITTEN_NS, WRITTEN_NS))
    content, stamp = bytearray((log.place / names[2]).read_bytes()), (log.place / names[2]).stat()
    last = first.shares[3].segments[0].position
    content[last + 17] ^= 1
    with (log.place / names[2]).open("r+b") as file:
        file.write(content)
    os.utime(log.place / names[2], ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    read.clear()
    found = sketch_with_shares(partition_of(log.broker), options, again.shares)
    assert [os.path.basename(each) for each in read] == [names[1], names[2]]
    assert found.sketch.damage


def command(place: Path, *given: str) -> Ran:
    return run_inside(place, "verify", "--fingerprint", "f", "b", *given)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogOnDisk:
    """One of which each segment has a share."""
    options = "kdump.replicas.fingerprint.copy_sketch.FingerprintOptions"
    monkeypatch.setattr(options, lambda *given, **how: FingerprintOptions(*given, least_bytes=1, **how))
    return rolled(tmp_path / "b")


def copy_in(file: Path) -> tuple[object, int | None]:
    (copy,) = read_fingerprint(str(file)).copies
    sketch = load_copy(copy)
    return sketch._replace(oldest_read_ms=None), sketch.oldest_read_ms


def test_the_command_reads_what_is_new(tmp_path: Path, log: LogOnDisk) -> None:
    assert "not read again" not in command(tmp_path).text
    log.append(3)
    log.write()
    ran = command(tmp_path)
    assert (ran.status, ran.problems) == (0, "")
    assert "bytes of segments that had not changed were not read again, the oldest since 20" in ran.text
    found, oldest = copy_in(tmp_path / "f")
    assert oldest is not None
    checked = run_inside(tmp_path, "verify", "f")
    assert "segments that had not changed were not read again, the oldest since 20" in checked.text
    shutil.copy(tmp_path / "f", tmp_path / "g")
    ran = command(tmp_path, "--full", "--format", "json")
    assert [json.loads(ran.lines[-1])[name] for name in ("unread_bytes", "oldest_read_ms")] == [0, None]
    assert copy_in(tmp_path / "f") == (found, None)
    ran = run_inside(tmp_path, "verify", "--compare", "f", "g")
    assert (ran.status, "--full reads all of them" in ran.text) == (0, True)
    assert "agree" in ran.text
    log.append(3)
    log.write()
    assert command(tmp_path, "--jobs", "2", "b", "--quiet").status == 0
    assert copy_in(tmp_path / "f")[1] is not None


def test_shares_are_no_log_and_no_fingerprint(tmp_path: Path, log: LogOnDisk) -> None:
    command(tmp_path)
    for given in (["verify"], ["dump"], ["stat"]):
        ran = run_inside(tmp_path, *given, "f.shares")
        assert ran.status == 3
        assert "f.shares: what segments add to a fingerprint, and no log" in ran.problems
    shutil.copytree(tmp_path / "b", tmp_path / "c")
    for given in (["verify"], ["verify", "--compare"]):
        ran = run_inside(tmp_path, *given, "c", "f*")
        assert (ran.status, ran.problems) == (0, "")


def test_a_changed_byte_in_an_old_segment_is_seen_with_full_alone(tmp_path: Path, log: LogOnDisk) -> None:
    command(tmp_path)
    before, _ = copy_in(tmp_path / "f")
    path = sorted(log.place.glob("*.log"))[1]
    stamp, content = path.stat(), bytearray(path.read_bytes())
    content[100] ^= 1
    with path.open("r+b") as file:
        file.write(content)
    os.utime(path, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    command(tmp_path)
    assert copy_in(tmp_path / "f")[0] == before
    command(tmp_path, "--full")
    assert copy_in(tmp_path / "f")[0] != before


@pytest.mark.parametrize("what", ["key", "cut", "changed", "version", "other", "batches"])
def test_shares_that_are_of_no_use(what: str, tmp_path: Path, log: LogOnDisk) -> None:
    """They are said to be, and all is read."""
    command(tmp_path)
    expected, shares = copy_in(tmp_path / "f")[0], tmp_path / "f.shares"
    content, given = bytearray(shares.read_bytes()), list[str]()
    if what == "key":
        (tmp_path / "key").write_bytes(b"k" * 16)
        given = ["--key-file", "key"]
    elif what == "cut":
        del content[-5:]
    elif what == "changed":
        content[5000] ^= 1
    elif what == "version":
        content[8] = 9
    elif what == "batches":
        given = ["--max-batch-bytes", "1m"]
    shares.write_bytes(b"precious" if what == "other" else content)
    ran = command(tmp_path, *given)
    if what == "other":
        assert (ran.status, shares.read_bytes()) == (3, b"precious")
        assert "f.shares: already exists; --overwrite replaces it" in ran.problems
        assert command(tmp_path, "--overwrite").status == 0
        return
    says = {"key": "taken with another key", "version": "of another version of kdump"}.get(what, "damaged at byte")
    assert ran.status == 0
    assert (f"f.shares: {says}" in ran.problems, ran.problems.count("\n")) == ((True, 1), (False, 0))[what == "batches"]
    found, oldest = copy_in(tmp_path / "f")
    assert oldest is None
    assert what == "key" or found == expected
    assert command(tmp_path, *given).problems == ""
    assert copy_in(tmp_path / "f")[1] is not None


@pytest.mark.laws
def test_forged_shares_are_no_crash(tmp_path: Path) -> None:
    """Who knows the key can write any bytes: they are refused, or are some sums."""
    log, options, refused = rolled(tmp_path / "b", 3), FingerprintOptions(least_bytes=1), 0
    partition = partition_of(log.broker)
    section = section_of_shares(NAME, sketch_with_shares(partition, options).shares, NO_KEY, 1 << 30)
    for trial in range(examples(200)):
        choose, forged = random.Random(100_000 * SEED + trial), bytearray(section[24:])
        for _ in range(choose.randrange(1, 4)):
            forged[choose.choice([*range(32, 420), choose.randrange(len(forged))])] = choose.choice([0, 1, 0x7F, 0xFF])
        from kdump.replicas.fingerprint import share_file

        code = share_file._code_of(bytes(forged), NO_KEY)
        path = tmp_path / "shares"
        path.write_bytes(SHARES_MAGIC + b"\4\0\0\0" + bytes(16) + len(forged).to_bytes(8, "little") + code + forged)
        for place in read_share_index(str(path), NO_KEY).places.values():
            try:
                known = load_shares(place, NO_KEY, 1 << 30)
            except kdump.SourceError:
                refused += 1
                continue
            sketch_with_shares(partition, options, known)
    assert refused


@pytest.mark.parametrize("what", ["compacted", "transaction"])
def test_the_command_says_what_is_read_whole_every_time(what: str, tmp_path: Path, log: LogOnDisk) -> None:
    command(tmp_path)
    if what == "compacted":
        (tmp_path / "b" / "cleaner-offset-checkpoint").write_bytes(build.checkpoint("t 0 9"))
    else:
        log.segments[-1][1].append(data(log.end, b"k", b"v", pid=7))
        log.write()
    for _ in range(2):
        ran = command(tmp_path)
        assert "; 1 read whole, as a log cleaner goes over them or they have transactions\n" in ran.text
        assert copy_in(tmp_path / "f")[1] is None
    assert json.loads(command(tmp_path, "--format", "json").lines[-1])["read_whole"] == 1


def test_on_a_cluster_all_is_read(tmp_path: Path, log: LogOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext

    from kdump.engine.protocol import Serial

    monkeypatch.setattr("kdump.cli.execution._spark", lambda master, _: nullcontext(Serial()))
    for _ in range(2):
        assert command(tmp_path, "--master", "local[1]").status == 0
        assert copy_in(tmp_path / "f")[1] is None
    assert not (tmp_path / "f.shares").exists()
