"""Fingerprints of copies: comparing them gives the answer that comparing the disks gives, or says why it cannot."""

from __future__ import annotations

import io
import json
import random
import socket
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

import kdump
from kdump.engine.protocol import Serial
from kdump.errors import SourceError
from kdump.format.naming import FINGERPRINT_MAGIC
from kdump.kernel.cell_differences import decode, decode_keys, outcomes_of
from kdump.kernel.record_hashes import HASH_COLUMNS
from kdump.kernel.sketches import CONTROL_ID, KEY_ID, NO_KEY_ID, LastRecords, RecordSketch
from kdump.replicas.compare import CompareOptions, PartitionComparison, compare_logs
from kdump.replicas.comparison import ReplicaComparison, Verdict
from kdump.replicas.fingerprint import copy_sketch
from kdump.replicas.fingerprint.copy_sketch import FingerprintOptions
from kdump.replicas.fingerprint.fingerprint_file import (
    CopyFingerprint,
    fingerprint_logs,
    load_copy,
    load_front,
    read_fingerprint,
)
from kdump.replicas.fingerprint.fingerprint_format import parse_section, section_of
from kdump.replicas.fingerprint.sketch_pair import SketchedCopy, compare_sketches
from kdump.storage.source import FileSource
from replicas.test_compare import (
    AGREE,
    CLEANED,
    DIVERGED,
    DIVERGENT,
    END,
    HEALTHY,
    PUT,
    UNDECIDED,
    Case,
    cleaned_log,
    compared,
    copies,
    data,
    directory,
    marker,
    pair,
    plain,
    written_copies,
)
from support import build
from support.command_runs import run_inside
from support.laws import QUICK, SEED, examples

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
LOADS = (load_copy, load_front)


def taken(broker: Path, file: Path, as_of: Sequence[CopyFingerprint] = (), **how: int) -> Path:
    """The fingerprint of the copies of a broker."""
    out = io.BytesIO()
    found = kdump.discover([str(broker)])
    for each in fingerprint_logs(found, out, FingerprintOptions(**how), fingerprints=as_of):
        assert not isinstance(each, Exception)
    file.write_bytes(out.getvalue())
    return file


def known(*files: Path) -> list[CopyFingerprint]:
    return [copy for file in files for copy in read_fingerprint(str(file)).copies]


def answer(*fingerprints: CopyFingerprint, disks: Sequence[Path] = ()) -> ReplicaComparison:
    found = kdump.discover(list(map(str, disks))) if disks else ()
    (result,) = compare_logs(found, CompareOptions(), fingerprints=fingerprints)
    assert isinstance(result, PartitionComparison)
    (both,) = result.pairs
    return both


def by_fingerprints(one: Path, other: Path, place: Path, **how: int) -> ReplicaComparison:
    """The answer of fingerprints, in two steps where one is not enough."""
    files = taken(one, place / "1.f", **how), taken(other, place / "2.f", **how)
    first = answer(*known(*files))
    if first.verdict is not Verdict.UNDECIDED:
        return first
    ends = known(*files)
    files = taken(one, place / "1.g", ends, **how), taken(other, place / "2.g", ends, **how)
    return answer(*known(*files))


def cases() -> Mapping[str, Case]:
    return {**HEALTHY, **{name: case for name, (case, _) in DIVERGENT.items()}}


@pytest.mark.parametrize("name", cases())
def test_fingerprints_give_the_verdict_of_the_disks(name: str, tmp_path: Path) -> None:
    one, other = copies(tmp_path, cases()[name])
    expected, found = pair(one, other), by_fingerprints(one, other, tmp_path)
    assert (found.verdict, found.because) == (expected.verdict, expected.because)
    assert found.end_offset == expected.end_offset
    assert found.differs.keys[:4] == expected.differs.keys[:4]


@pytest.mark.parametrize("name", cases())
def test_a_fingerprint_and_a_disk_give_the_verdict_of_the_disks(name: str, tmp_path: Path) -> None:
    one, other = copies(tmp_path, cases()[name])
    ends = known(taken(one, tmp_path / "1.f"), taken(other, tmp_path / "2.f"))
    found = answer(*known(taken(other, tmp_path / "f", ends)), disks=[one])
    assert found.verdict is pair(one, other).verdict


@pytest.mark.parametrize("release", ["", "-1.1.1", "-2.8.2"])
def test_copies_that_brokers_wrote(release: str, tmp_path: Path) -> None:
    """A leader and its follower, of all kinds of topics, some cleaned."""
    brokers = [FIXTURES / f"{name}{release}" for name in ("leader", "follower")]
    expected = {each.topic_partition: each.verdict for each in compared(*brokers)}
    files = [taken(broker, tmp_path / f"{number}.f") for number, broker in enumerate(brokers)]
    again = [taken(broker, tmp_path / f"{number}.g", known(*files)) for number, broker in enumerate(brokers)]
    found = {
        each.topic_partition: each.verdict
        for each in kdump.compare_logs((), fingerprints=known(*again))
        if isinstance(each, PartitionComparison)
    }
    assert (found, len(found) > 5) == (expected, True)


def changed_log(choose: random.Random, count: int) -> tuple[list[bytes], list[bytes], int]:
    """A log, and the same with another value in one record under a right checksum."""
    sizes, number = [choose.randrange(1, 4) for _ in range(count)], 0
    changed = choose.randrange(sum(sizes))
    logs: tuple[list[bytes], list[bytes]] = ([], [])
    for size in sizes:
        for side, log in enumerate(logs):
            values = [b"changed" if side and at == changed else b"v%d" % at for at in range(number, number + size)]
            records = [build.record(None, value, timestamp=9) for value in values]
            log.append(build.batch(records, base_offset=number))
        number += size
    return *logs, changed


@pytest.mark.laws
def test_a_record_that_was_changed_under_a_right_checksum_is_located(tmp_path: Path) -> None:
    """Whatever the log starts and ends of the copies, in the offsets that both have."""
    named = of_batches = 0
    for trial in range(examples(150 if QUICK else 500)):
        choose = random.Random(100_000 * SEED + trial)
        left, right, changed = changed_log(choose, choose.randrange(2, 30))
        place = tmp_path / str(trial)
        start, stop = choose.randrange(len(left)), choose.randrange(1, len(left) + 1)
        sides = [left, right[start:] if choose.random() < 0.5 else right[:stop]]
        choose.shuffle(sides)
        one, other = (directory(place / str(n), log, choose.randrange(1, 6)) for n, log in enumerate(sides))
        found, expected = by_fingerprints(one, other, place), pair(one, other)
        is_common = expected.verdict is DIVERGED
        assert (found.verdict, found.because) == (expected.verdict, expected.because), trial
        if found.differs.ranges:  # two entries in the same cells of all tables: the range is that of the batch
            (part,) = found.differs.ranges
            assert is_common, trial
            assert part.start <= changed < part.stop <= part.start + 3, trial
            of_batches += 1
            continue
        assert found.differs.records.count == is_common, trial
        assert not is_common or found.differs.records.first == changed, trial
        named += is_common
    assert named > (1 if QUICK else 10) * of_batches


@pytest.mark.laws
def test_cleaned_copies_agree(tmp_path: Path) -> None:
    for trial in range(examples(50)):
        choose = random.Random(100_000 * SEED + trial)
        one, other = written_copies(tmp_path / str(trial), cleaned_log(choose), choose)
        found = by_fingerprints(one, other, tmp_path / str(trial), most_keys=choose.choice([2, 1000]))
        assert (found.verdict, found.because) == (AGREE, ()), trial


def cut_anywhere(broker: Path, choose: random.Random) -> None:
    """Cut a file at any byte, and remove those after it."""
    logs = sorted((broker / "t-0").glob("*.log"))
    at = choose.randrange(len(logs))
    for each in logs[at + 1 :]:
        each.unlink()
    content = logs[at].read_bytes()
    logs[at].write_bytes(content[: choose.randrange(len(content) + 1)])


@pytest.mark.laws
def test_healthy_copies_that_are_cut_at_any_byte_never_diverge(tmp_path: Path) -> None:
    """Cleaned and not, with other segments and log starts, as a crash or a copy of a running broker leaves them."""
    seen = Counter[Verdict]()
    for trial in range(examples(75)):
        choose = random.Random(100_000 * SEED + trial)
        place = tmp_path / str(trial)
        if choose.random() < 0.5:
            one, other = written_copies(place, cleaned_log(choose), choose)
        else:
            log = changed_log(choose, choose.randrange(2, 30))[0]
            starts = [choose.randrange(len(log)) * choose.randrange(2) for _ in range(2)]
            one, other = (directory(place / str(n), log[at:], choose.randrange(1, 6)) for n, at in enumerate(starts))
        for each in (one, other):
            if choose.random() < 0.6:
                cut_anywhere(each, choose)
        expected = pair(one, other)
        found = by_fingerprints(one, other, place, most_keys=choose.choice([2, 1000]))
        assert (expected.verdict is not DIVERGED, found.verdict) == (True, expected.verdict), trial
        seen[found.verdict] += 1
    assert seen[AGREE] > (0 if QUICK else seen[UNDECIDED])


def random_copies(place: Path, choose: random.Random) -> tuple[Path, Path]:
    """Copies of which each lacks other records, with and without a cleaner, with other log starts and ends."""
    log = list[bytes]()
    for offset in range(choose.randrange(8, 40)):
        pid = choose.choice([-1, -1, 7, 8])
        key = choose.choice([None, *(b"k%d" % choose.randrange(5) for _ in range(12))])
        value = choose.choice([None, b"v", b"other"])
        is_marker = pid >= 0 and choose.random() < 0.4
        how = choose.choice(["COMMIT", "ABORT"])
        log.append(marker(offset, how, pid) if is_marker else data(offset, key, value, pid=pid))
    log.append(data(len(log), b"end", b"v"))
    kept, cleaners = choose.choice([0.85, 0.97, 1.0]), choose.choice([(0, 1), (1,), ()])
    sides = [[each for each in log[:-1] if choose.random() < kept] + log[-1:] for _ in range(2)]
    if choose.random() < 0.3:
        sides[0] = sides[0][: choose.randrange(1, len(sides[0]))]
    if choose.random() < 0.3:
        sides[1] = sides[1][choose.randrange(len(sides[1])) :]
    one, other = (
        directory(
            place / str(side),
            batches,
            choose.randrange(1, 6),
            checkpoints={"cleaner-offset-checkpoint": choose.randrange(1, len(log))} if side in cleaners else {},
        )
        for side, batches in enumerate(sides)
    )
    return one, other


@pytest.mark.laws
def test_any_two_copies_get_the_verdict_of_the_disks_or_are_undecided(tmp_path: Path) -> None:
    # Where offsets are missing, a fingerprint of a copy that was not cleaned itself took transactions for ended.
    of_the_day = range(100_000 * SEED, 100_000 * SEED + examples(100))
    for trial in sorted({2_078_400_008, 2_078_500_014, *of_the_day}):
        choose = random.Random(trial)
        place = tmp_path / str(trial)
        one, other = random_copies(place, choose)
        expected = pair(one, other).verdict
        found = by_fingerprints(one, other, place, most_keys=choose.choice([2, 1000]))
        assert found.verdict in (expected, UNDECIDED), trial
        assert expected is UNDECIDED or found.verdict is expected or {"damage", "reach"} & {*found.because}, trial


def test_messages_of_magic_0_and_1(tmp_path: Path) -> None:
    """They have no leader epoch."""
    log = [
        build.message_v0(b"k", b"v", offset=0),
        build.wrapper([build.record(b"k", b"w"), build.record(b"k", b"u")], base_offset=1),
        build.message_v1(b"k", b"v", offset=3, timestamp=9),
        data(4, b"k", b"x", epoch=2),
    ]
    one = directory(tmp_path / "1", log)
    other = directory(tmp_path / "2", [*log[:2], build.message_v1(b"k", b"w", offset=3, timestamp=9), log[3]], 2)
    found = by_fingerprints(one, one, tmp_path)
    assert found.verdict is AGREE
    found = by_fingerprints(one, other, tmp_path)
    assert (found.verdict, found.differs.records.first) == (DIVERGED, 3)
    epochs = load_copy(known(tmp_path / "1.f")[0]).epochs
    assert [(run.epoch, run.first, run.last) for run in epochs] == [(-1, 0, 3), (2, 4, 4)]


def batches_of(data: bytes) -> list[bytes]:
    found, position = list[bytes](), 0
    while position < len(data):
        size = build.total_size(data, position)
        found.append(data[position : position + size])
        position += size
    return found


def log_of_transactions(choose: random.Random, *, shared: bool = False) -> list[bytes]:
    """Batches of several records, some compressed, whose transactions commit, abort, stay open, or are odd.

    `shared`: two records have one offset each time.
    """
    if not shared and choose.random() < 0.3:
        segments = [each.data for each in build.partition(choose, batches=choose.choice([10, 40, 150]))]
        return [each for data in segments for each in batches_of(data)]
    log, offset = list[bytes](), choose.choice([0, 0, 1000])
    how_many = choose.choice([5, 40, 200])
    while len(log) < how_many:
        pid = choose.choice([-1, 6, 7, 8, 9])
        if pid >= 0 and choose.random() < 0.3:
            ended = choose.choice(["COMMIT", "COMMIT", "ABORT"])
            log.append(marker(offset, ended, pid))
            offset += 1
            continue
        count = choose.choice([1, 1, 3, 20, 20, 3000 if choose.random() < 0.1 else 5])
        records = [
            build.record(choose.choice([None, b"k%d" % choose.randrange(9)]), choose.choice([None, b"v%d" % at]))
            for at in range(count)
        ]
        if shared:
            records = [each._replace(offset=offset + (at & ~1)) for at, each in enumerate(records)]
        producer = {"producer_id": pid, "producer_epoch": 0, "base_sequence": 0}
        how = {"transactional": pid < 9, **producer} if pid >= 0 else {}
        codec = choose.choice(["none", "none", "none", "gzip", "zstd"])
        log.append(build.batch(records, base_offset=offset, codec=codec, last_offset_delta=count - 1, **how))
        offset += count
    return log


def broker_with_transactions(broker: Path, choose: random.Random, *, shared: bool = False) -> Path:
    """One that has such a log, of which a batch may be missing, which may be cut, and begin at a log start offset."""
    log = log_of_transactions(choose, shared=shared)
    if choose.random() < 0.2:
        del log[choose.randrange(len(log))]
    directory(broker, log, choose.randrange(1, 50))
    if choose.random() < 0.2:
        cut_anywhere(broker, choose)
    if choose.random() < 0.2:
        start = choose.randrange(int.from_bytes(log[-1][:8]) + 1)
        (broker / "log-start-offset-checkpoint").write_bytes(build.checkpoint(f"t 0 {start}"))
    return broker


@pytest.mark.laws
@pytest.mark.parametrize("shared", [False, True])
def test_transactions_that_were_taken_for_committed_give_what_a_second_read_gives(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = Counter[str]()
    read_outcomes = copy_sketch.read_outcomes
    for trial in range(examples(20 if shared else 60)):
        choose = random.Random(100_000 * SEED + trial)
        broker = broker_with_transactions(tmp_path / str(trial), choose, shared=shared)
        found = list[bytes]()
        for most in (1 << 20, choose.choice([2, 10]), 0):
            with monkeypatch.context() as patched:
                patched.setattr(copy_sketch, "_MOST_UNCOMMITTED", most or 1)
                patched.setattr(
                    copy_sketch,
                    "read_outcomes",
                    lambda *given, most=most, **how: (reads.update([str(most)]), read_outcomes(*given, **how))[1],
                )
                if not most:
                    patched.setattr(copy_sketch.TransactionFold, "begin", lambda fold, _: fold.lose())
                (copy,) = known(taken(broker, tmp_path / "f"))
                found.append(section_of(load_copy(copy)))
        assert (found[0] == found[2], found[1] == found[2]) == (True, True), trial
    if not shared:  # where offsets are missing, or bytes are damaged
        assert reads["0"] > (1 if QUICK else 3) * reads[str(1 << 20)]


def test_a_log_with_transactions_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what is read before the first of them is found."""
    log, size = list[bytes](), 0
    for number in range(400):
        values = [build.record(b"k", bytes([number % 256]) * 1000) for _ in range(9)]
        producer = {"producer_id": number % 4, "producer_epoch": 0, "base_sequence": 0}
        log.append(build.batch(values, base_offset=10 * number, transactional=True, **producer))
        log.append(marker(10 * number + 9, "COMMIT" if number % 40 else "ABORT", number % 4))
        size += len(log[-2]) + len(log[-1])
    broker, read = directory(tmp_path / "1", log, 100), list[int]()
    read_into = FileSource.readinto

    def counted(source: FileSource, position: int, buffer: memoryview) -> int:
        read.append(read_into(source, position, buffer))
        return read[-1]

    monkeypatch.setattr(FileSource, "readinto", counted)
    taken(broker, tmp_path / "f")
    assert size < sum(read) < 1.15 * size


def test_it_says_where_records_that_are_replaced_were_not_compared(tmp_path: Path) -> None:
    log = [data(offset, b"k%d" % (offset % 50), b"v") for offset in range(4000)]
    one = directory(tmp_path / "1", log, 3)
    other = directory(tmp_path / "2", log[-50:], 1, checkpoints={"cleaner-offset-checkpoint": 3900})
    assert pair(one, other).verdict is AGREE
    found = by_fingerprints(one, other, tmp_path)
    assert (found.verdict, found.because) == (AGREE, ("replaced",))
    ran = run_inside(tmp_path, "verify", "--compare", "1.f", "2.f")
    assert "50 records and 0 keys compared by the sums of their hashes" in ran.text
    assert "records that a later one of their key replaces were not compared" in ran.text


@pytest.mark.laws
def test_logs_of_many_batches_get_the_verdict_of_the_disks(tmp_path: Path) -> None:
    """So many that sums are of several offsets; records are missing or changed, starts and ends are others."""
    for trial in range(examples(10)):
        choose = random.Random(100_000 * SEED + trial)
        count, size = choose.randrange(600, 3000), choose.choice([1, 5, 20])
        changed = {*choose.sample(range(count), choose.choice([0, 1, 3, 200]))}
        is_gone, is_keyed = choose.random() < 0.5, choose.random() < 0.5
        sides = []
        for side in range(2):
            log = list[bytes]()
            for first in range(0, count, size):
                offsets = range(first, min(first + size, count))
                records = [
                    build.record(
                        b"k%d" % (at % 97) if is_keyed else None,
                        b"x" if side and at in changed else b"v%d" % at,
                        timestamp=9,
                    )._replace(offset=at)
                    for at in offsets
                    if not (side and is_gone and at in changed)
                ]
                if records:
                    span = offsets[-1] - first
                    log.append(build.batch(records, base_offset=first, last_offset_delta=span, count=len(records)))
            start, stop = choose.randrange(len(log) // 3), choose.randrange(len(log) // 2, len(log) + 1)
            sides.append(log[start * choose.randrange(2) : stop if choose.random() < 0.5 else None])
        place = tmp_path / str(trial)
        one, other = (directory(place / str(n), log, choose.randrange(1, 200)) for n, log in enumerate(sides))
        expected, found = pair(one, other), by_fingerprints(one, other, place)
        assert found.verdict in (expected.verdict, UNDECIDED), trial
        assert "edges" not in found.because or found.verdict is DIVERGED, trial
        if found.verdict is DIVERGED and not found.differs.ranges:
            assert found.differs.records.ranges == expected.differs.records.ranges, trial


def numbered(count: int, changed: Sequence[int] = (), size: int = 50) -> list[bytes]:
    """Batches of so many records, of which some have another value."""
    log = list[bytes]()
    for first in range(0, count, size):
        values = [b"x" if at in changed else b"v%d" % at for at in range(first, first + size)]
        log.append(build.batch([build.record(None, each, timestamp=9) for each in values], base_offset=first))
    return log


def test_hundreds_of_differences_are_named_and_of_more_the_ranges(tmp_path: Path) -> None:
    one = directory(tmp_path / "1", numbered(20_000), 99)
    spread = directory(tmp_path / "2", numbered(20_000, range(0, 20_000, 40)), 70)
    found = by_fingerprints(one, spread, tmp_path)
    assert (found.differs.records.count, found.differs.records.last) == (500, 19_960)
    many = directory(tmp_path / "3", numbered(20_000, range(2000, 6000)), 70)
    found = by_fingerprints(one, many, tmp_path)
    assert found.verdict is DIVERGED
    (only,) = found.differs.ranges
    assert only.start <= 2000 < 6000 <= only.stop
    assert only.stop - only.start < 4200


def test_the_command_names_ranges(tmp_path: Path) -> None:
    for name, changed in ("1", ()), ("2", range(2000, 6000)):
        directory(tmp_path / name, numbered(20_000, changed), 99)
        assert run_inside(tmp_path, "verify", "--fingerprint", f"{name}.f", name).status == 0
    ran = run_inside(tmp_path, "verify", "--compare", "--format", "json", "1.f", "2.f")
    lines = [json.loads(line) for line in ran.lines]
    assert ran.status == 1
    assert [each["code"] for each in lines if each["type"] == "finding"] == ["replica/range"]
    assert lines[0]["pair"] == [f"{socket.gethostname()}:{tmp_path / name / 't-0'}" for name in "12"]


def test_a_fingerprint_does_not_depend_on_segments_paths_and_jobs(tmp_path: Path) -> None:
    for name in "ab":
        place = directory(tmp_path / name, plain(), 2)
        (place / "t-0").rename(tmp_path / name / f"t-{ord(name)}")
    found = []
    for paths, jobs in (("ab", "1"), ("ba", "2")):
        assert run_inside(tmp_path, "verify", "--fingerprint", "f", *paths, "--jobs", jobs).status == 0
        found.append([(each.entry, load_copy(each)) for each in known(tmp_path / "f")])
    assert found[0] == found[1]
    one, other = (load_copy(known(taken(directory(tmp_path / str(n), plain(), n), tmp_path / "f"))[0]) for n in (1, 5))
    assert one.records.cells == other.records.cells


def test_a_key_file(tmp_path: Path) -> None:
    directory(tmp_path / "1", plain())
    (tmp_path / "key").write_bytes(b"k" * 16)
    (tmp_path / "other").write_bytes(b"o" * 16)
    (tmp_path / "short").write_bytes(b"o" * 15)
    for name, given in ("a", ["--key-file", "key"]), ("b", ["--key-file", "other"]), ("c", []):
        assert run_inside(tmp_path, "verify", "--fingerprint", name, "1", *given).status == 0
    sketches = [load_copy(known(tmp_path / name)[0]) for name in "abc"]
    assert len({each.records.cells for each in sketches}) == 3
    for paths in ("a", "b"), ("a", "c"), ("c", "b"), ("a", "1"):
        ran = run_inside(tmp_path, "verify", "--compare", *paths)
        assert (ran.status, "compare what has one key" in ran.problems) == (3, True)
    assert run_inside(tmp_path, "verify", "--compare", "--key-file", "key", "a", "1").status == 0
    assert "16 to" in run_inside(tmp_path, "verify", "--fingerprint", "x", "1", "--key-file", "short").problems


def test_only_a_fingerprint_is_replaced_unless_it_is_asked_for(tmp_path: Path) -> None:
    directory(tmp_path / "1", plain())
    (tmp_path / "f").write_bytes(b"precious")
    assert run_inside(tmp_path, "verify", "--fingerprint", "f", "1").status == 3
    assert (tmp_path / "f").read_bytes() == b"precious"
    for given in ["--overwrite"], []:
        assert run_inside(tmp_path, "verify", "--fingerprint", "f", "1", *given).status == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["1", "f"]


def test_two_steps_where_the_ends_differ(tmp_path: Path) -> None:
    directory(tmp_path / "1", [*END, data(12, b"e9", b"new")], checkpoints={"cleaner-offset-checkpoint": 12})
    directory(tmp_path / "2", [PUT, *END], checkpoints=CLEANED)
    for name in "12":
        run_inside(tmp_path, "verify", "--fingerprint", f"{name}.f", name)
    ran = run_inside(tmp_path, "verify", "--compare", "1.f", "2.f")
    assert (ran.status, "take them again with --as-of" in ran.text) == (0, True)
    for name in "12":
        given = ("--as-of", "1.f", "--as-of", "2.f")
        assert run_inside(tmp_path, "verify", "--fingerprint", f"{name}.g", *given, name).status == 0
    ran = run_inside(tmp_path, "verify", "--compare", "1.g", "2.g")
    assert (ran.status, "replica/state" in ran.text) == (1, True)


@pytest.mark.parametrize(
    "given",
    [
        ["--as-of", "x"],
        ["--overwrite"],
        ["--key-file", "x"],
        ["--fingerprint", "f", "--compare"],
        ["--fingerprint", "f", "--deep"],
        ["--fingerprint", "f", "--show-keys"],
        ["--fingerprint", "-"],
        ["--fingerprint", "f", "--format", "html"],
        ["--fingerprint", "f", "--level", "info"],
        ["--fingerprint", "f", "--all"],
        ["--fingerprint", "f", "--fail-on", "never"],
    ],
)
def test_options_that_do_not_go_together(given: list[str], tmp_path: Path) -> None:
    directory(tmp_path / "1", plain())
    assert run_inside(tmp_path, "verify", *given, "1").status == 2
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    "given",
    [
        *(["--deep"], ["--live"], ["--no-companions"], ["--summary"], ["-v"], ["--compacted", "yes"]),
        *(["--select", "batch"], ["--ignore", "batch"], ["--level", "info"], ["--all"], ["--fail-on", "never"]),
        *(["--type", "log"], ["--max-batch-bytes", "1m"], ["--io-limit", "1m"], ["--drop-cache"]),
        *(["--master", "local[1]"], ["--spark-conf", "spark.x=1"]),
    ],
    ids=lambda given: given[0],
)
def test_options_that_a_fingerprint_alone_would_not_heed(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kdump.cli.execution._spark", lambda *_: nullcontext(Serial()))  # a cluster takes its time
    taken(directory(tmp_path / "1", plain()), tmp_path / "f")
    ran = run_inside(tmp_path, "verify", *given, "f", "*")
    assert ran.status == 0 or given[0] in ("--master", "--spark-conf")  # the log heeds it
    ran = run_inside(tmp_path, "verify", *given, "f", "[f]")
    name = {"-v": "--verbose", "--drop-cache": "--keep-cache"}.get(given[0], given[0])
    assert ran.status == 2
    assert f"a fingerprint is read whole, and has no findings: leave out {name}\n" in ran.problems


def test_fingerprints_alone_have_no_keys_to_show(tmp_path: Path) -> None:
    for name in "ab":
        taken(directory(tmp_path / name, plain()), tmp_path / f"{name}.f")
    ran = run_inside(tmp_path, "verify", "--compare", "--show-keys", "*.f")
    assert (ran.status, "a fingerprint has no keys: leave out --show-keys" in ran.problems) == (2, True)
    assert run_inside(tmp_path, "verify", "--compare", "--show-keys", "a", "b.f").status == 0


def test_a_fingerprint_is_taken_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory(tmp_path / "1", plain())
    asked = list[str]()

    def engine(master: str, _: object) -> nullcontext[Serial]:
        asked.append(master)
        return nullcontext(Serial())

    monkeypatch.setattr("kdump.cli.execution._spark", engine)
    assert run_inside(tmp_path, "verify", "--fingerprint", "f", "--master", "local[1]", "1").status == 0
    assert asked == ["local[1]"]


# ---- bad input


def judged(path: Path, other: Path) -> ReplicaComparison | SourceError:
    try:
        (result,) = compare_logs((), fingerprints=known(path, other))
    except SourceError as error:
        return error
    assert isinstance(result, PartitionComparison | SourceError)
    return result if isinstance(result, SourceError) else result.pairs[0]


def test_a_file_that_was_cut_or_changed_is_refused(tmp_path: Path) -> None:
    one, other = copies(tmp_path, DIVERGENT["the marker was lost"][0])
    good, diverged, changed = taken(one, tmp_path / "1.f"), taken(other, tmp_path / "2.f"), tmp_path / "x.f"
    whole, choose, of_cells = good.read_bytes(), random.Random(SEED), 0
    for _ in range(examples(300)):
        data = bytearray(whole)
        at = choose.randrange(len(FINGERPRINT_MAGIC), len(data))  # before that it would be no fingerprint
        if choose.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << choose.randrange(8)
        changed.write_bytes(data)
        ran = run_inside(tmp_path, "verify", "x.f")
        assert (ran.status, ran.problems.startswith("kdump: x.f: ")) == (3, True), at
        result = judged(changed, diverged)
        assert isinstance(result, SourceError), at
        assert str(changed) in str(result)
        assert "TopicPartition" not in str(result)
        result = judged(changed, good)
        if not isinstance(result, SourceError):  # the cells of copies with one digest are not read
            entry = known(changed)[0].entry
            assert entry.position + entry.front_size <= at < entry.position + entry.size
            assert result.verdict is AGREE
            of_cells += 1
    assert of_cells
    assert not isinstance(judged(good, diverged), SourceError)


def test_copies_with_one_digest_are_compared_without_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a third copy differs, of which the cells are read; a wrong digest is no answer."""
    one, other = copies(tmp_path, DIVERGENT["the marker was lost"][0])
    files = [taken(broker, tmp_path / f"{n}.f") for n, broker in enumerate((one, one, other, one))]
    read, load = list[str](), load_copy
    monkeypatch.setattr("kdump.replicas.compare.load_copy", lambda copy: (read.append(copy.file), load(copy))[1])
    (result,) = compare_logs((), fingerprints=known(*files[:2]))
    assert isinstance(result, PartitionComparison)
    assert (result.verdict, read) == (AGREE, [])
    (result,) = compare_logs((), fingerprints=known(*files))
    assert isinstance(result, PartitionComparison)
    assert Counter(each.verdict for each in result.pairs) == {AGREE: 3, DIVERGED: 3}
    assert sorted(read) == sorted(map(str, files))  # each once
    sections = [section_of(load(copy)) for copy in known(files[0], files[2])]
    forged = bytearray(sections[1])
    forged[92:108] = sections[0][92:108]
    with pytest.raises(ValueError, match="its digest is not of its tables"):
        parse_section(bytes(forged))


@pytest.mark.laws
def test_the_front_gives_the_answer_of_the_whole_section(tmp_path: Path) -> None:
    """Of copies with the same digest; those of other digests differ in what the comparison looks at."""
    same = 0
    for trial in range(examples(60)):
        choose = random.Random(100_000 * SEED + trial)
        one, other = random_copies(tmp_path / str(trial), choose)
        found = known(taken(one, tmp_path / "1.f"), taken(choose.choice([one, other]), tmp_path / "2.f"))
        wholes, fronts = ([SketchedCopy("ab"[n], load(each)) for n, each in enumerate(found)] for load in LOADS)
        tables = [(each.sketch.records, each.sketch.state) for each in wholes]
        assert (wholes[0].sketch.digest == wholes[1].sketch.digest) is (tables[0] == tables[1]), trial
        if fronts[0].sketch.has_tables_of(fronts[1].sketch):
            same += 1
            assert tables[0] == tables[1], trial
            of_tables = [
                each._replace(sketch=each.sketch._replace(digest=b"")) for each in wholes
            ]  # as if nothing were known of the digests
            assert compare_sketches(*fronts) == compare_sketches(*of_tables), trial
    assert same


def test_the_same_records_in_other_epochs_are_counted_up_to_the_fork(tmp_path: Path) -> None:
    """The leader epoch is not in the hash of a record: the digests are equal, the histories are not."""
    logs = [[data(number, b"k", b"v", epoch=epoch * (number > 5)) for number in range(9)] for epoch in (1, 2)]
    one, other = (directory(tmp_path / name, log) for name, log in zip("12", logs, strict=True))
    files = taken(one, tmp_path / "1.f"), taken(other, tmp_path / "2.f")
    fronts = [load_front(each) for each in known(*files)]
    assert fronts[0].digest == fronts[1].digest
    found, expected = answer(*known(*files)), pair(one, other)
    assert (found.verdict, found.end_offset, found.records) == (expected.verdict, expected.end_offset, 6)


def test_verify_checks_a_fingerprint_and_other_commands_say_what_it_is(tmp_path: Path) -> None:
    taken(directory(tmp_path / "a", plain(), 2), tmp_path / "f")
    data = bytearray((tmp_path / "f").read_bytes())
    ran = run_inside(tmp_path, "verify", "f")
    assert (ran.status, ran.text) == (0, f"f: 1 topic-partition, {len(data)} bytes\n")
    data[2000] ^= 1
    (tmp_path / "g").write_bytes(data)
    ran = run_inside(tmp_path, "verify", "f", "g", "--format", "json")
    assert [json.loads(line)["partitions"] for line in ran.lines] == [1, 0]
    assert (ran.status, ran.problems.count("\n")) == (3, 1)
    assert "g: the section of t-0 at byte" in ran.problems
    for command in ("dump", "stat"):
        ran = run_inside(tmp_path, command, "f")
        assert ran.status == 3
        assert "f: a fingerprint of copies, and no log; kdump verify --compare compares it" in ran.problems


def test_verify_checks_fingerprints_that_are_named_with_logs(tmp_path: Path) -> None:
    file = taken(directory(tmp_path / "a", plain(), 2), tmp_path / "1.f")
    alone = run_inside(tmp_path, "verify", "a")
    for paths in (["1.f", "a"], ["*"], ["a", "*.f"]):
        ran = run_inside(tmp_path, "verify", *paths)
        assert (ran.status, ran.problems) == (0, "")
        assert "1.f: 1 topic-partition, " in ran.text
        assert alone.lines[0] in ran.lines
    data = bytearray(file.read_bytes())
    data[2000] ^= 1
    (tmp_path / "2.f").write_bytes(data)
    for how in ([], ["--format", "json"], ["--summary"], ["--format", "html"]):
        ran = run_inside(tmp_path, "verify", *how, "a", "*.f")
        assert (ran.status, ran.problems.count("\n")) == (3, 1)
        assert "2.f: the section of t-0 at byte" in ran.problems


def test_a_forged_section_is_an_error_and_nothing_else(tmp_path: Path) -> None:
    """Any bytes in the fields of a section, under right checksums: they are refused, or they are a copy."""
    one, _ = copies(tmp_path, DIVERGENT["the marker was lost"][0])
    section = section_of(load_copy(known(taken(one, tmp_path / "1.f"))[0]))
    choose, refused = random.Random(SEED), 0
    for _ in range(examples(500)):
        data = bytearray(section)
        for _ in range(choose.randrange(1, 4)):
            data[choose.randrange(200)] = choose.choice([0, 1, 0x7F, 0x80, 0xFF])
        try:
            copy = parse_section(bytes(data))
        except ValueError:
            refused += 1
            continue
        left, right = (SketchedCopy(name, each) for name, each in (("a", copy), ("b", parse_section(section))))
        compare_sketches(left, right)
    assert refused


def test_a_file_that_was_read_is_another_one_now(tmp_path: Path) -> None:
    """The file stays open for its other sections: another file with its name is not damage."""
    file, loaded = tmp_path / "1.f", []
    for number in (1, 2):
        made = taken(directory(tmp_path / str(number), plain()[:number]), tmp_path / "new.f")
        made.replace(file)
        (copy,) = known(file)
        loaded.append(load_copy(copy))
        assert loaded[-1] == load_copy(copy)
    assert loaded[0].log_end_offset < loaded[1].log_end_offset
    file.write_bytes(file.read_bytes()[:100])  # in place
    with pytest.raises(SourceError, match=r"1\.f: the section of .* is damaged$"):
        load_copy(copy)


def test_another_version_says_which(tmp_path: Path) -> None:
    file = taken(directory(tmp_path / "1", plain()), tmp_path / "1.f")
    data = bytearray(file.read_bytes())
    data[8] = 9
    file.write_bytes(data)
    with pytest.raises(SourceError, match="version 9; this kdump reads version 8 alone"):
        read_fingerprint(str(file))


ROW = struct.Struct(f"<{len(HASH_COLUMNS)}q")


Hashed = tuple[int, int]
"""The hash of a record and its flags, which say what its key is."""
KEY_OF = {0: KEY_ID, 2: NO_KEY_ID, 4: CONTROL_ID}


def hashed(choose: random.Random) -> Hashed:
    return choose.getrandbits(63), choose.choice([*KEY_OF])


def tables_of(records: Mapping[int, Hashed], bits: int, stop: int) -> bytes:
    sketch = RecordSketch(0, b"", blocks=1, bits=bits)
    rows = b"".join(ROW.pack(at, 0, 0, records[at][0], 5, records[at][1], 0) for at in sorted(records))
    sketch.add(rows, len(records), b"", 0)
    return sketch.cells(stop)[1]


def differences_of(one: Mapping[int, Hashed], other: Mapping[int, Hashed]) -> list[tuple[int, int, int, int]]:
    found = list[tuple[int, int, int, int]]()
    for at in sorted(one.keys() | other.keys()):
        (here, flags), (there, others) = one.get(at, (0, None)), other.get(at, (0, None))
        if flags is None or others is None:
            kind = KEY_OF[others or 0 if flags is None else flags]
            found.append((at, int(flags is None), (here + there) % (1 << 64), kind))
        elif (here, flags) != (there, others):
            found.append((at, 2, (here - there) % (1 << 64), (KEY_OF[flags] - KEY_OF[others]) % 16))
    return found


@pytest.mark.laws
def test_tables_never_name_a_wrong_offset() -> None:
    """Also where more differs than they can name."""
    named = 0
    for trial in range(examples(150)):
        choose = random.Random(100_000 * SEED + trial)
        bits, count, most = choose.randrange(2, 7), choose.randrange(1, 200), choose.choice([1000, 1 << 40])
        hashes = {offset: hashed(choose) for offset in choose.sample(range(most), count)}
        sides, gone, other = [], choose.choice([0, 0.01, 0.1, 0.5]), choose.choice([0, 0.02, 0.1])
        for _ in range(2):
            kept = {at: each for at, each in hashes.items() if choose.random() >= gone}
            sides.append({at: hashed(choose) if choose.random() < other else kept[at] for at in kept})
        tables = [tables_of(side, bits, most) for side in sides]
        found, expected = decode(*tables, 0, most), differences_of(*sides)
        if found is None:
            assert len(expected) > 1, trial
            continue
        assert found == expected, trial
        named += bool(found)
    assert named > (0 if QUICK else examples(150) / 4)


@pytest.mark.daily(2)
@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("together", [True, False])
def test_tables_name_a_thousand_offsets(replaced: bool, together: bool) -> None:
    """Of one block, side by side and far from each other; a replaced record is one difference."""
    choose, bits, most = random.Random(SEED), copy_sketch.RECORD_BITS, 30_000
    one = {offset: hashed(choose) for offset in range(most)}
    differing = range(9000, 10_000) if together else choose.sample(range(most), 1000)
    other = {**one, **{offset: hashed(choose) for offset in differing}}
    if not replaced:
        other = {offset: each for offset, each in one.items() if offset not in {*differing}}
    found = decode(tables_of(one, bits, most), tables_of(other, bits, most), 0, most)
    assert found == differences_of(one, other)
    assert len(found) == 1000


@pytest.mark.parametrize(("keys", "is_known"), [(1000, True), (3000, False)])
def test_tables_name_a_thousand_keys_of_which_a_copy_has_an_older_record(keys: int, is_known: bool) -> None:
    choose, tables = random.Random(SEED), []
    hashes = {key: choose.getrandbits(63) for key in range(20_000)}
    for older in (0, keys):
        last, state = LastRecords(1 << 20), RecordSketch(0, b"", blocks=1, bits=copy_sketch._STATE_BITS, of_keys=True)
        rows = [
            ROW.pack(at := key + 50_000 * (key >= older), hashed, 0, (hashed * (at + 7)) % (1 << 62), 1, 0, 0)
            for key, hashed in hashes.items()
        ]
        assert last.fill(b"".join(rows), 0, len(rows)) == len(rows)
        last.sum_into(state)
        tables.append(state.cells(100_000)[1])
    found = decode_keys(*tables, 0, 100_000)
    if not is_known:
        assert found is None
        return
    expected = [(key + 50_000 * (not side), side, hashes[key] | 1) for key in range(keys) for side in (0, 1)]
    assert found is not None
    assert sorted((offset, side, key) for offset, side, _, key in found) == sorted(expected)


def test_what_became_of_a_transaction_is_told_from_another_record() -> None:
    """Also of a thousand records at once, all of which differ in this alone."""
    choose, most = random.Random(SEED), 4000
    hashes = [choose.getrandbits(63) for _ in range(most)]
    sketches = []
    for outcome in (0, 1):
        sketch = RecordSketch(0, b"", blocks=1, bits=copy_sketch.RECORD_BITS)
        rows = [ROW.pack(at, 0, 0, each, 5, outcome * (at < 1000) << 4, 0) for at, each in enumerate(hashes)]
        sketch.add(b"".join(rows), most, b"", 0)
        sketches.append(sketch.cells(most)[1])
    found = decode(*sketches, 0, most)
    assert found is not None
    assert [(offset, side, outcomes_of(offset, each)) for offset, side, each, _ in found] == [
        (offset, 2, (0, 1)) for offset in range(1000)
    ]
    assert outcomes_of(5, 5) is None


def replaced_logs(superseded: int, last: int) -> tuple[list[bytes], list[bytes]]:
    """Two logs with other values in records that a later one of their key replaces, and in the last ones of keys."""
    logs: tuple[list[bytes], list[bytes]] = ([], [])
    for log, value in zip(logs, (b"v", b"other"), strict=True):
        keys = [*[b"s"] * superseded, *(b"k%d" % number for number in range(last))]
        log += [build.batch([build.record(key, value) for key in keys]), data(len(keys), b"s", b"end")]
    return logs


@pytest.mark.parametrize(("superseded", "last"), [(5, 1000), (2000, 100)])
def test_all_records_that_differ_in_cleaned_copies_are_named(superseded: int, last: int, tmp_path: Path) -> None:
    """Also where too many others differ, which a later one of their key replaces."""
    one, other = (
        directory(tmp_path / name, log, checkpoints={"cleaner-offset-checkpoint": superseded + last + 1})
        for name, log in zip("12", replaced_logs(superseded, last), strict=True)
    )
    found = by_fingerprints(one, other, tmp_path)
    is_all = superseded < 1000
    assert (found.verdict, found.because) == (DIVERGED, () if is_all else ("replaced",))
    differs = found.differs.records
    assert (differs.count, differs.first) == ((superseded if is_all else 0) + last, 0 if is_all else superseded)
    assert differs.last == superseded + last - 1
    assert not found.differs.ranges
