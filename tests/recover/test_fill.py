"""What a fill gives a copy of a topic-partition: the batches that it lacks and another copy has, and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kdump
from kdump.errors import KdumpError
from kdump.kernel.crc import crc32c
from kdump.recover import recover, run_plan
from kdump.recover.plan import FILL, Plan, RecoverOptions
from kdump.recover.planner import plan_recovery
from kdump.recover.run_plan import RunPlan
from kdump.verify.findings import Severity
from kdump.verify.report import Report
from support import build
from support.command_runs import lines, run_inside
from support.directories import OTHER_TOPIC_ID, metadata
from support.laws import SEED, examples

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
RECORDS = 3
PARTITIONS = [
    FIXTURES / name
    for name in (
        "leader/transfers-0", "leader-2.8.2/transfers-1", "leader-1.1.1/transfers-0", "segments/segments-0",
        "idempotent/idempotent-0", "times/times-0", "v1-segments-0.10.2.2/segments-0", "restarted/restarted-0",
    )
    if (FIXTURES / name).is_dir()
]  # fmt: skip


def batches(count: int, *, epoch: int = 0, value: bytes = b"v", first: int = 0) -> list[bytes]:
    return [
        build.batch(
            [build.record(b"k%02d" % number, value, timestamp=1000 + number) for _ in range(RECORDS)],
            base_offset=number * RECORDS,
            epoch=epoch,
        )
        for number in range(first, count)
    ]


def written(broker: Path, parts: list[bytes], *, roll: int = 4, topic_id: str | None = None) -> Path:
    """A copy of t-0 in a log directory, with all of its companions; a segment has `roll` batches."""
    place = broker / "t-0"
    place.mkdir(parents=True)
    for number in range(0, len(parts), roll):
        here = parts[number : number + roll]
        (place / f"{int.from_bytes(here[0][:8]):020}.log").write_bytes(b"".join(here))
    (place / "partition.metadata").write_bytes(metadata() if topic_id is None else metadata(topic_id))
    (broker / "meta.properties").write_bytes(b"version=1\nnode.id=1\ncluster.id=c\n")
    assert run_inside(broker, "recover", "--reindex", "t-0").status == 0
    shutil.rmtree(place / ".kdump-undo")
    return place


def planned(target: Path, *others: Path) -> Plan:
    options = RecoverOptions(FILL, fill_from=tuple(map(str, others)))
    (found,) = [each for each in plan_recovery(kdump.discover(str(target)), options) if each.path == str(target)]
    if isinstance(found, Report):
        raise found.errors[0]
    return found


def filled(target: Path, *others: Path) -> Plan:
    """Fill a copy in place."""
    plan = planned(target, *others)
    if not plan.is_empty:
        (result,) = recover.apply_all([plan], plan.options, recover.ApplyOptions(recover.new_run(), None, True, False))
        assert not isinstance(result, Report)
        assert result.error is None
    return plan


def logs(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.glob("*.log"))}


def errors(place: Path) -> list[str]:
    (report,) = [each for each in kdump.verify_logs(kdump.discover(str(place))) if each.path == str(place)]
    return [each.code for each in report.findings if each.severity >= Severity.WARNING]


def flipped(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)


def checked_bytes(data: bytes) -> Iterator[int]:
    """The positions of bytes that the checksum of a batch covers, or of the checksum itself."""
    position = 0
    while position < len(data):
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12])
        yield from range(position + 17, end)
        position = end


# ---- what comes back


def last_segment(place: Path) -> Path:
    return max(place.glob("*.log"))


def gone(path: Path) -> None:
    for each in path.parent.glob(f"{path.stem}.*"):
        if not each.name.endswith(".snapshot"):
            each.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a batch": lambda place: flipped(place / f"{0:020}.log", 230),
    "the first segment": lambda place: gone(place / f"{0:020}.log"),
    "a segment in the middle": lambda place: gone(place / f"{12:020}.log"),
    "the last segment": lambda place: gone(last_segment(place)),
    "the bytes of a segment": lambda place: (place / f"{12:020}.log").write_bytes(b""),
    "all of a segment is zeros": lambda place: (place / f"{12:020}.log").write_bytes(b"\0" * 400),
    "the end of the log": lambda place: os.truncate(last_segment(place), 10),
    "half of the log": lambda place: [gone(each) for each in sorted(place.glob("*.log"))[1:]],
}


@pytest.mark.daily(2)
@pytest.mark.parametrize("what", DAMAGES)
def test_a_copy_gets_back_what_it_lost(what: str, tmp_path: Path) -> None:
    target, other = (written(tmp_path / name, batches(14)) for name in ("a", "b"))
    whole = logs(target)
    DAMAGES[what](target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    plan = filled(target, tmp_path / "b")
    assert logs(target) == whole
    assert errors(target) == []
    assert plan.lost.given_up.batches == 0
    assert plan.lost.missing == ()
    assert not [each.code for each in plan.not_covered]
    assert any(f"from {other}" in sentence for sentence in plan.filled)
    recover.undo_recovery(target)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


@pytest.mark.parametrize("place", PARTITIONS, ids=lambda path: "/".join(path.parts[-2:]))
def test_any_batch_that_a_broker_wrote_comes_back(place: Path, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {place}")
    for number in range(examples(3)):
        target, other = tmp_path / f"a{number}" / place.name, tmp_path / f"b{number}" / place.name
        shutil.copytree(place, target)
        shutil.copytree(place, other)
        path = rng.choice([path for path in sorted(target.glob("*.log")) if path.stat().st_size])
        flipped(path, rng.choice([*checked_bytes(path.read_bytes())]))
        plan = filled(target, other.parent)
        assert plan.lost.given_up.batches == 0
        assert logs(target) == logs(place)
        assert not {code for code in errors(target) if code.startswith(("batch/", "gap/", "tail/"))}


def test_two_copies_fill_a_third_one(tmp_path: Path) -> None:
    target, one, two = (written(tmp_path / name, batches(12)) for name in "abc")
    whole = logs(target)
    size = len(whole[f"{0:020}.log"]) // 4
    for place, damaged in ((target, (1, 2)), (one, (1,)), (two, (2, 3))):
        for number in damaged:
            flipped(place / f"{0:020}.log", number * size + 80)
    plan = filled(target, tmp_path / "b", tmp_path / "c")
    assert logs(target) == whole
    assert plan.filled == (f"offsets 3..5 from {two}", f"offsets 6..8 from {one}")


def test_what_no_copy_has_stays_missing_and_is_said(tmp_path: Path) -> None:
    target, other = (written(tmp_path / name, batches(12)) for name in "ab")
    size = (target / f"{0:020}.log").stat().st_size // 4
    for place in (target, other):
        flipped(place / f"{0:020}.log", size + 80)
    flipped(target / f"{0:020}.log", 2 * size + 80)
    (tmp_path / "a" / "replication-offset-checkpoint").write_bytes(build.checkpoint("t 0 36"))
    plan = filled(target, tmp_path / "b")
    assert plan.filled == (f"offsets 6..8 from {other}", "offsets 3..5 in no copy: they stay missing")
    assert plan.lost.missing == ((3, 5),)
    assert plan.lost.damaged.offsets == ((3, 5),)
    assert plan.lost.committed


def copies_of(rng: random.Random, place: Path, count: int) -> Iterator[tuple[Path, set[int]]]:
    """Damaged copies of a log of equal batches, and the numbers of the batches that each still has."""
    parts = batches(16)
    size = len(parts[0])
    for number in range(count):
        copy = written(place / str(number), parts)
        lost: set[int] = set()
        for _ in range(rng.randrange(4)):
            path = rng.choice(sorted(copy.glob("*.log")))
            first = int(path.stem) // RECORDS
            match rng.randrange(4):
                case 0:
                    at = rng.randrange(4)
                    flipped(path, at * size + rng.randrange(17, size))
                    lost.add(first + at)
                case 1:
                    gone(path)
                    lost |= set(range(first, first + 4))
                    if not list(copy.glob("*.log")):
                        path.write_bytes(b"")
                case 2:
                    at = rng.randrange(4)
                    os.truncate(path, min(path.stat().st_size, at * size + rng.randrange(size)))
                    lost |= set(range(first + at, first + 4))
                case 3:
                    data = path.read_bytes()
                    at = rng.randrange(4)
                    path.write_bytes(
                        data[: at * size] + b"\0" * len(data[at * size : (at + 1) * size]) + data[(at + 1) * size :]
                    )
                    lost.add(first + at)
        yield copy, set(range(16)) - lost


@pytest.mark.laws
def test_a_copy_has_afterwards_what_any_copy_had(tmp_path: Path) -> None:
    parts = batches(16)
    for number in range(examples(6)):
        rng = random.Random(f"{SEED} {number}")
        found = list(copies_of(rng, tmp_path / str(number), rng.choice((2, 3))))
        target, _ = found[0]
        filled(target, *(place for place, _ in found[1:]))
        there = set().union(*(has for _, has in found))
        assert b"".join(logs(target).values()) == b"".join(parts[each] for each in sorted(there)), number
        assert not {code for code in errors(target) if code.startswith(("batch/", "gap/", "tail/", "index/", "epoch/"))}


# ---- what is refused


def refusal(target: Path, *others: Path) -> str:
    before = {path: path.read_bytes() for path in target.iterdir()}
    with pytest.raises(KdumpError) as error:
        filled(target, *others)
    assert {path: path.read_bytes() for path in target.iterdir()} == before
    return str(error.value)


def test_nothing_is_filled_across_a_fork(tmp_path: Path) -> None:
    target = written(tmp_path / "a", [*batches(6), *batches(9, epoch=1, value=b"one", first=6)])
    written(tmp_path / "b", [*batches(6), *batches(9, epoch=2, value=b"two", first=6)])
    flipped(target / f"{0:020}.log", 230)
    assert "part at offset 18" in refusal(target, tmp_path / "b")


def test_what_the_other_copy_has_above_its_own_cut_is_not_used(tmp_path: Path) -> None:
    target = written(tmp_path / "a", [*batches(6), *batches(9, epoch=2, first=6)])
    written(tmp_path / "b", [*batches(6), *batches(12, epoch=1, value=b"old", first=6)])
    whole = logs(target)
    flipped(target / f"{0:020}.log", 230)
    assert filled(target, tmp_path / "b").lost.missing == ()
    assert logs(target) == whole


def test_copies_whose_records_differ_fill_nothing(tmp_path: Path) -> None:
    target = written(tmp_path / "a", batches(8))
    written(tmp_path / "b", [*batches(6), *batches(8, value=b"other", first=6)])
    flipped(target / f"{0:020}.log", 230)
    assert "the records at offsets 18 to 23 differ" in refusal(target, tmp_path / "b")


def test_a_directory_of_another_topic_is_no_copy(tmp_path: Path) -> None:
    target = written(tmp_path / "a", batches(8))
    written(tmp_path / "b", batches(8), topic_id=OTHER_TOPIC_ID)
    flipped(target / f"{0:020}.log", 230)
    plan = planned(target, tmp_path / "b")
    assert plan.is_empty
    assert any("another topic" in sentence for sentence in plan.filled)


def test_where_no_copy_gives_a_batch_nothing_is_done(tmp_path: Path) -> None:
    """What is damaged stays, and is said: to remove it is a salvage."""
    target, other = (written(tmp_path / name, batches(8)) for name in "ab")
    for place in (target, other):
        flipped(place / f"{0:020}.log", 230)
    plan = planned(target, tmp_path / "b")
    assert plan.is_empty
    assert plan.filled == ("offsets 6..8 in no copy: they stay missing",)
    assert [finding.code for finding in plan.not_covered] == ["batch/crc"]
    ran = run_inside(tmp_path, "recover", "--fill-from", "b", "a/t-0")
    assert ran.status == 1
    assert b"filled: offsets 6..8 in no copy" in ran.out


def test_a_path_without_a_copy_is_an_error_where_something_is_damaged(tmp_path: Path) -> None:
    target = written(tmp_path / "a", batches(8))
    (tmp_path / "b").mkdir()
    shutil.copytree(FIXTURES / "codecs" / "none-0", tmp_path / "b" / "none-0")
    assert planned(target, tmp_path / "b").is_empty
    flipped(target / f"{0:020}.log", 230)
    assert "no other copy of the partition is in" in refusal(target, tmp_path / "b")
    assert "no other copy of the partition is in" in refusal(target, tmp_path / "a")


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_log_that_may_be_compacted_is_not_filled(checkpoint: bool, tmp_path: Path) -> None:
    """The other copy still has a record whose tombstone, here, was deleted with it: it would come back."""
    whole = batches(8)
    cleaned = whole if checkpoint else [*whole[:2], *whole[4:]]
    target, _ = written(tmp_path / "a", cleaned), written(tmp_path / "b", whole)
    if checkpoint:
        (tmp_path / "a" / "cleaner-offset-checkpoint").write_bytes(build.checkpoint("t 0 12"))
    before = logs(target)
    plan = planned(target, tmp_path / "b")
    assert plan.is_empty
    assert any("the log cleaner went over a copy, or may have" in sentence for sentence in plan.filled)
    flipped(target / f"{0:020}.log", 80)
    assert planned(target, tmp_path / "b").is_empty
    assert logs(target).keys() == before.keys()


def test_a_copy_that_changed_since_the_plan_gives_nothing(tmp_path: Path) -> None:
    target, other = (written(tmp_path / name, batches(8)) for name in "ab")
    flipped(target / f"{0:020}.log", 230)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    plan = planned(target, tmp_path / "b")
    os.truncate(other / f"{0:020}.log", 100)
    (result,) = recover.apply_all([plan], plan.options, recover.ApplyOptions(recover.new_run(), None, True, False))
    assert not isinstance(result, Report)
    assert "has changed since the plan was made" in str(result.error)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before


def test_the_plan_of_a_run_names_log_files_of_other_copies_alone(tmp_path: Path) -> None:
    """It is read again where a run is finished: with another path there, any file would come into the log."""
    target, _ = (written(tmp_path / name, batches(8)) for name in "ab")
    flipped(target / f"{0:020}.log", 230)
    plan = planned(target, tmp_path / "b")._replace(path="t-0")
    saved = run_plan.to_bytes(RunPlan("1", 0, plan.options, plans=(plan,)))
    (found,) = run_plan.from_bytes(saved, "plan").plans
    assert (found.sources, found.after, found.filled) == (plan.sources, plan.after, plan.filled)
    (source,) = plan.sources
    for other in ("/etc/passwd", "0.log", os.path.relpath(source)):
        forged = saved.replace(json.dumps(source).encode(), json.dumps(other).encode())
        body = b"".join(forged.splitlines(keepends=True)[:-1])
        forged = body + json.dumps({"type": "end", "crc32c": crc32c(body)}).encode() + b"\n"
        with pytest.raises(KdumpError, match="no log file of another copy"):
            run_plan.from_bytes(forged, "plan")


# ---- the command


def test_the_command_previews_copies_saves_and_applies(tmp_path: Path) -> None:
    target, _ = (written(tmp_path / name, batches(8)) for name in "ab")
    whole = logs(target)
    flipped(target / f"{0:020}.log", 230)
    damaged = logs(target)
    what = ["recover", "--fill-from", "b", "a/t-0"]
    dry = run_inside(tmp_path, *what, "--dry-run", "--format", "json")
    assert dry.status == 1
    assert logs(target) == damaged
    first = lines(dry)
    assert first[0]["fill_from"] == ["b"]
    (action,) = [line for line in first if line.get("action") == "fill"]
    assert (action["first_offset"], action["last_offset"], action["records"]) == (6, 8, 3)
    assert action["path"] == str(tmp_path / "b" / "t-0" / f"{0:020}.log")
    copied = run_inside(tmp_path, *what, "--output", "out")
    assert copied.status == 0, copied.err
    assert logs(tmp_path / "out" / "t-0") == whole
    assert logs(target) == damaged
    (tmp_path / "plan").write_bytes(dry.out)
    applied = run_inside(tmp_path, "recover", "--plan", "plan", "--format", "json")
    assert applied.status == 0, applied.err
    assert logs(target) == whole
    undone = run_inside(tmp_path, "recover", "--undo", "a/t-0")
    assert undone.status == 0, undone.err
    assert logs(target) == damaged
    text = run_inside(tmp_path, *what)
    assert text.status == 0
    assert b"filled: offsets 6..8 from" in text.out
    assert logs(target) == whole
    again = run_inside(tmp_path, *what)
    assert again.status == 0
    assert json.loads(run_inside(tmp_path, *what, "--format", "json").out.splitlines()[-1])["actions"] == {}
