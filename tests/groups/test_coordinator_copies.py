"""Several copies of the log of a coordinator: the groups are those of the log that all of them make."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump.groups import coordinators
from kdump.stat.row_collector import RowCollector
from kdump.stat.row_sections import RowOptions, StatResult
from kdump.stat.rows import RowKind
from kdump.stat.stat import stat_logs
from kdump.stat.values import StatOptions
from kdump.storage.discovery import discover
from support import build, oracle
from support.coordinator_records import commit_key, commit_value
from support.damage import NotApplicable, batches, damage
from support.directories import OTHER_TOPIC_ID, TOPIC_ID
from support.group_logs import checkpoint, commits, groups, log, measured
from support.laws import examples
from support.pauses import pause_with
from support.plain_cleaner import Written, cleaned

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
OFFSETS = "__consumer_offsets-0"
LOGS = [
    f"follower/{OFFSETS}", f"leader-2.8.2/{OFFSETS}", f"leader-1.1.1/{OFFSETS}", f"internal/{OFFSETS}",
    f"groups/{OFFSETS}", "groups/__share_group_state-0", "internal/__share_group_state-0",
]  # fmt: skip
# A compacted log can have holes: a batch that is gone without a trace, or that says a higher offset, is as cleaned.
DAMAGES = [
    "flip-bit", "flip-under-crc", "flip-crc", "flip-length", "flip-magic", "zero-body", "zero-range", "zero-page",
    "cut", "garbage-tail", "zero-tail", "short-tail", "insert-garbage", "insert-zeros", "repeat-batch",
]  # fmt: skip
CLEANED = "cleaner-offset-checkpoint"


def state(result: StatResult) -> dict[str, dict[str, Any]]:
    """What is said of each group, but where its logs lie."""
    rows = {row.name: dict(row.fields()) for row in result.sections[0].rows}
    for fields in rows.values():
        del fields["replicas"]
    return rows


def codes(result: StatResult) -> list[str]:
    return [finding.code for finding in result.group_findings.findings if finding.code != "group/ahead"]


def bodies(directory: Path) -> list[bytes]:
    """The valid batches of a copy."""
    (file,) = directory.glob("*.log")
    data = file.read_bytes()
    found = (item for item in oracle.walk(data, base_offset=0) if isinstance(item, oracle.Batch))
    return [data[item.position : item.position + item.size] for item in found]


def ends_with(directory: Path, body: bytes) -> bool:
    """Whether a copy ends with a batch; zeros after it can be preallocation."""
    (file,) = directory.glob("*.log")
    return file.read_bytes().rstrip(b"\0").endswith(body.rstrip(b"\0"))


def damaged_copies(source: Path, target: Path, rng: random.Random) -> list[Path]:
    copies = []
    for broker in "abc":
        copy = Path(shutil.copytree(source, target / broker / source.name))
        for _ in range(rng.randrange(4)):
            file = rng.choice(sorted(copy.glob("*.log")))
            data = file.read_bytes()
            if len(batches(data)) < 3:
                continue  # a damage would add batches of its own
            try:
                file.write_bytes(damage(data, rng, 1, DAMAGES))
            except NotApplicable:
                continue
        copies.append(copy)
    return copies


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(50)))
def test_what_any_copy_proves_counts(number: int, tmp_path: Path) -> None:
    """Where each batch survives in a copy, the groups are those of the undamaged log, and nothing is lost."""
    rng = random.Random(number)
    source = FIXTURES / rng.choice(LOGS)
    copies = damaged_copies(source, tmp_path, rng)
    written = bodies(source)
    found = set().union(*map(bodies, copies))
    survives = found.issuperset(written)
    # Bytes after the end of each copy that comes that far can have been a batch.
    is_whole = survives and any(ends_with(copy, written[-1]) for copy in copies)
    result = measured(*copies)
    if written[-1] in found:  # else the end can be lost without a trace
        assert codes(result) == ([] if is_whole else ["group/unread"])
    if survives:
        assert state(result) == state(measured(source))
    for row in result.sections[0].rows:
        replicas = dict(row.fields())["replicas"]
        assert (sorted(replicas), replicas[0]) == (sorted(map(str, copies)), row.path)


def in_log_directory(
    directory: Path, *batches: bytes, offset: int, name: str = "replication-offset-checkpoint"
) -> Path:
    """A copy in a log directory, with its offset in a checkpoint."""
    folder = log(directory, OFFSETS, *batches)
    (directory / "meta.properties").write_text("version=1\n")
    checkpoint(directory, {OFFSETS: offset}, name)
    return folder


# ---- copies that were cleaned to different depths


def cleaned_copies(rng: random.Random, target: Path, *, harm: int) -> tuple[Path, list[Path]]:
    """The log of a coordinator before it was cleaned, and copies that were cleaned up to different offsets."""
    written, end = list[Written](), 0
    for _ in range(rng.randrange(8, 30)):
        items = []
        for number in range(rng.randrange(1, 4)):
            key = commit_key("ab"[rng.randrange(2)], "orders", rng.randrange(3))
            items.append(build.record(key, rng.choice((None, *[commit_value(end + number)] * 5)), timestamp=end))
        written.append(Written(end, tuple(items)))
        end += len(items)
    whole = log(target / "whole", OFFSETS, *cleaned(written, 0, without_tombstones=False))
    copies = []
    for broker in "abc":
        stop = rng.randrange(end // 2, end)
        data = b"".join(cleaned(written, stop, without_tombstones=rng.random() < 0.5))
        for _ in range(harm if len(batches(data)) > 4 else 0):  # else a damage would add batches of its own
            data = damage(data, rng, 1, ["flip-under-crc", "zero-body", "flip-length", "insert-garbage"])
        copies.append(in_log_directory(target / broker, data, name=CLEANED, offset=stop))
    return whole, copies


def committed(result: StatResult) -> dict[tuple[str, int], int]:
    return {
        (row.name, part["partition"]): part["committed_offset"]
        for row in result.sections[0].rows
        for part in dict(row.fields())["partitions"]
    }


@pytest.mark.laws
@pytest.mark.parametrize("number", range(examples(40)))
def test_copies_that_were_cleaned_to_different_depths(number: int, tmp_path: Path) -> None:
    """The offsets are those of the log before it was cleaned, or it is said that they may not be."""
    rng = random.Random(number)
    harm = rng.randrange(3)
    whole, copies = cleaned_copies(rng, tmp_path, harm=harm)
    result = measured(*copies)
    if codes(result):
        assert (codes(result), harm > 0) == (["group/unread"], True)
        (finding,) = result.group_findings.findings
        assert finding.severity.word == ("error" if finding.data["damaged"] else "warning")
    else:
        assert committed(result) == committed(measured(whole))


def test_a_tombstone_that_the_copy_that_was_cleaned_furthest_has_removed(tmp_path: Path) -> None:
    """Another copy fills damage before it, with the commit that it deleted: it is said that this may be."""
    values = [("g", 1), ("h", 1), ("i", 1), ("g", None), ("k", 1)]
    batches = [commits((group, "orders", 0, value), at=at) for at, (group, value) in enumerate(values)]
    furthest = in_log_directory(tmp_path / "a", batches[1][:-1] + b"!", batches[2], batches[4], name=CLEANED, offset=4)
    other = in_log_directory(tmp_path / "b", *batches, name=CLEANED, offset=1)
    result = measured(furthest, other)
    assert committed(result) == {(group, 0): 1 for group in "ghik"}
    (finding,) = result.group_findings.findings
    assert (finding.code, finding.severity.word, finding.data["superseded"]) == ("group/unread", "warning", 2)
    assert finding.message.endswith(", 2 records of a copy that was cleaned less far")
    # Nothing is removed after what is filled.
    whole = in_log_directory(tmp_path / "c", *batches[:3], batches[3][:-1] + b"!", batches[4], name=CLEANED, offset=4)
    result = measured(whole, other)
    assert (codes(result), committed(result)) == ([], {(group, 0): 1 for group in "hik"})


# ---- histories


def test_what_a_broker_would_truncate_is_not_in_the_state(tmp_path: Path) -> None:
    first = commits(("g", "orders", 0, 1))
    old = log(tmp_path / "a", OFFSETS, first, *(commits(("g", "orders", 0, 2), at=at) for at in (1, 2)))
    new = log(tmp_path / "b", OFFSETS, first, commits(("h", "orders", 0, 3), at=1, epoch=4))
    result = measured(old, new)
    assert committed(result) == {("g", 0): 1, ("h", 0): 3}
    (finding,) = result.group_findings.findings
    assert (finding.code, finding.path, finding.offset, finding.data["last"]) == ("replica/diverged", str(old), 1, 2)
    assert {row.path for row in result.sections[0].rows} == {str(new)}
    assert groups(old, new)["g"]["replicas"] == [str(new), str(old)]


def test_copies_of_other_topics_fill_nothing(tmp_path: Path) -> None:
    batches = [commits(("g", "orders", 0, 5)), commits(("g", "orders", 1, 5), at=1)]
    torn = log(tmp_path / "a", OFFSETS, batches[0], batches[1][:-1] + b"!", topic_id=TOPIC_ID)
    other = log(tmp_path / "b", OFFSETS, *batches, topic_id=OTHER_TOPIC_ID)
    result = measured(torn, other)
    found = {row.path: len(dict(row.fields())["partitions"]) for row in result.sections[0].rows}
    assert found == {str(torn): 1, str(other): 2}
    assert codes(result) == ["group/unread"]
    same = log(tmp_path / "c", OFFSETS, *batches, topic_id=TOPIC_ID)
    assert codes(measured(torn, same)) == []


def test_copies_that_differ(tmp_path: Path) -> None:
    """The reading of most copies counts."""
    paths = [log(tmp_path / name, OFFSETS, commits(("g", "orders", 0, 7 if name == "a" else 5))) for name in "abc"]
    result = measured(*paths)
    assert committed(result) == {("g", 0): 5}
    (finding,) = result.group_findings.findings
    assert (finding.code, finding.path, finding.severity.word) == ("replica/differs", str(paths[0]), "error")


def test_findings_about_copies_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "KEPT", 2)
    paths = [
        log(tmp_path / name, OFFSETS, *(commits(("g", name if at % 2 else "same", 0, 5), at=at) for at in range(10)))
        for name in "ab"
    ]
    found = measured(*paths).group_findings
    assert [(each.code, each.offset) for each in found.findings] == [("replica/differs", 1), ("replica/differs", 3)]
    assert found.not_kept == {(str(paths[1]), "replica/differs"): 3}


def test_a_marker_of_another_copy(tmp_path: Path) -> None:
    """Transactions are decided on the log that the copies make."""
    inside = commits(("g", "orders", 0, 5), producer=3)
    marker = build.marker("COMMIT", base_offset=1, producer_id=3, producer_epoch=0)
    last = commits(("h", "orders", 0, 1), at=2)
    torn = log(tmp_path / "a", OFFSETS, inside, marker[:-1] + b"!", last)
    behind = log(tmp_path / "b", OFFSETS, inside[:-1] + b"!", marker)
    result = measured(torn, behind)
    assert committed(result) == {("g", 0): 5, ("h", 0): 1}
    assert codes(result) == []
    assert not groups(torn, behind)["g"]["pending"]


# ---- what is known beside the copies


def test_offsets_below_the_high_watermark_that_no_copy_has(tmp_path: Path) -> None:
    batches = [commits(("g", "orders", 0, offset), at=offset) for offset in range(4)]
    one = in_log_directory(tmp_path / "a", *batches[:2], offset=4)
    two = in_log_directory(tmp_path / "b", *batches[:3], offset=2)
    (finding,) = measured(one, two).group_findings.findings
    assert (finding.code, finding.data["damaged"]) == ("group/unread", 1)
    assert codes(measured(one, in_log_directory(tmp_path / "c", *batches, offset=2))) == []


def test_records_below_the_log_start_offset_of_any_copy(tmp_path: Path) -> None:
    batches = [commits((group, "orders", 0, 1), at=at) for at, group in enumerate("ghi")]
    one = in_log_directory(tmp_path / "a", *batches, offset=1, name="log-start-offset-checkpoint")
    two = in_log_directory(tmp_path / "b", *batches, offset=2, name="log-start-offset-checkpoint")
    assert list(groups(one, two)) == ["i"]


def test_a_copy_without_a_batch_proves_no_end(tmp_path: Path) -> None:
    whole = commits(("g", "orders", 0, 5))
    torn, empty = log(tmp_path / "a", OFFSETS, whole, b"torn"), log(tmp_path / "b", OFFSETS)
    assert codes(measured(torn, empty)) == ["group/unread"]
    assert codes(measured(torn, log(tmp_path / "c", OFFSETS, whole))) == []


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It is an error, and another copy has its records."""
    paths = [log(tmp_path / name, OFFSETS, commits(("g", "orders", 0, 5))) for name in "ab"]
    found = list(discover(paths))
    (paths[0] / f"{0:020}.log").unlink()
    rows = RowCollector(RowOptions((RowKind.GROUP,)))
    errors = [error for item in stat_logs(found, StatOptions(groups=True)) for error in rows.add(item)]
    assert {str(paths[0]) in str(error) for error in errors} == {True}
    assert committed(rows.result()) == {("g", 0): 5}
    (paths[1] / f"{0:020}.log").unlink()
    (load,) = (each for each in stat_logs(found, StatOptions(groups=True))
               if isinstance(each, coordinators.CoordinatorStatistics))  # fmt: skip
    assert (len(load.errors), sorted(load.replicas)) == (1, sorted(map(str, paths)))


def test_files_of_one_directory_are_one_copy(tmp_path: Path) -> None:
    folder = log(tmp_path, OFFSETS, commits(("g", "orders", 0, 1)))
    (folder / f"{1:020}.log").write_bytes(commits(("h", "orders", 0, 2), at=1))
    files = sorted(folder.iterdir())
    result = measured(*files[::-1])
    assert committed(result) == {("g", 0): 1, ("h", 0): 2}
    assert {tuple(dict(row.fields())["replicas"]) for row in result.sections[0].rows} == {(str(files[1]),)}
    assert len(groups(*files, log(tmp_path / "b", OFFSETS, commits(("g", "orders", 0, 1))))["g"]["replicas"]) == 2


def test_logs_of_kafka_0_7_have_no_coordinator(tmp_path: Path) -> None:
    for name in "ab":
        folder = tmp_path / name / OFFSETS
        folder.mkdir(parents=True)
        (folder / f"{0:020}.kafka").write_bytes(build.message07(b"value"))
    rows = RowCollector(RowOptions((RowKind.GROUP,)))
    for item in stat_logs(discover([tmp_path]), StatOptions(groups=True)):
        rows.add(item)
    assert rows.lacks_coordinators


@pytest.mark.parametrize("copies", [1, 2])
def test_a_segment_that_was_about_to_be_put_in_place(copies: int, tmp_path: Path) -> None:
    """A broker stopped while the log cleaner replaced segments: the records are in a .swap file."""
    paths = []
    for name in "ab"[:copies]:
        folder = log(tmp_path / name, OFFSETS, commits(("g", "orders", 0, 1)))
        (folder / f"{0:020}.log").rename(folder / f"{0:020}.log.swap")
        (folder / f"{9:020}.log").write_bytes(commits(("h", "orders", 0, 2), at=9))
        paths.append(folder)
    result = measured(*paths)
    assert (codes(result), committed(result)) == ([], {("g", 0): 1, ("h", 0): 2})
    (paths[-1] / f"{0:020}.log.swap").unlink()
    assert committed(measured(paths[-1])) == {("h", 0): 2}


# ---- a broker that writes


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what a broker writes; a list that the test fills. Nothing waits."""
    found: list[str] = []
    monkeypatch.setattr(coordinators, "is_written", lambda copy: copy.path in found)
    pause_with(monkeypatch, lambda _: None)
    return found


def test_the_last_bytes_of_a_copy_that_is_written_are_no_damage(tmp_path: Path, written: list[str]) -> None:
    batches = [commits(("g", "orders", 0, offset), at=offset) for offset in range(3)]
    live = log(tmp_path / "a", OFFSETS, *batches[:2], batches[2][:-9])
    behind = log(tmp_path / "b", OFFSETS, batches[0])
    assert codes(measured(live, behind)) == ["group/unread"]
    written.append(str(live))
    result = measured(live, behind)
    assert (codes(result), committed(result)) == ([], {("g", 0): 1})
    torn = log(tmp_path / "b", OFFSETS, *batches[:2], batches[2][:-9])
    assert codes(measured(live, torn)) == []


def test_a_copy_that_is_written_is_found_again(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log cleaner puts another file in the place of the one that was found."""
    batches = [commits(("g", "orders", 0, offset), at=offset) for offset in range(3)]
    live = log(tmp_path / "a", OFFSETS, *batches[:2])
    other = log(tmp_path / "b", OFFSETS, batches[0])
    written.append(str(live))
    (live / f"{0:020}.log").write_bytes(batches[0] + batches[1][:-1] + b"!" + batches[2])

    def clean(_: float) -> None:
        (live / f"{0:020}.log").unlink()
        (live / f"{1:020}.log").write_bytes(batches[1] + batches[2])

    pause_with(monkeypatch, clean)
    result = measured(live, other)
    assert (codes(result), committed(result)) == ([], {("g", 0): 2})


def test_files_that_are_written_and_were_named_one_by_one_are_found_again(
    tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = log(tmp_path, OFFSETS, commits(("g", "orders", 0, 1))[:-1] + b"!", b"half")
    (folder / f"{1:020}.log").write_bytes(commits(("h", "orders", 0, 2), at=1))
    files = sorted(folder.iterdir())
    written.append(str(files[0]))
    pause_with(monkeypatch, lambda _: files[0].write_bytes(commits(("g", "orders", 0, 1))))
    result = measured(*files)
    assert (codes(result), committed(result)) == ([], {("g", 0): 1, ("h", 0): 2})


def test_a_file_that_changes_between_two_reads_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kdump.replicas import merge

    batches = [commits(("g", "orders", 0, offset), at=offset) for offset in range(3)]
    paths = [log(tmp_path / name, OFFSETS, *batches) for name in "ab"]
    merged = merge.merge_replicas

    def change(*arguments: Any, **how: Any) -> Any:
        found = merged(*arguments, **how)
        for path in paths:
            (path / f"{0:020}.log").write_bytes(batches[2])
        return found

    monkeypatch.setattr(merge, "merge_replicas", change)
    assert codes(measured(*paths)) == ["group/unread"]


# ---- the command


def test_the_command(kdump: Any, tmp_path: Path) -> None:
    batches = [commits(("g", "orders", 0, offset), at=offset) for offset in range(3)]
    for number, name in enumerate("ab"):
        log(tmp_path / name, OFFSETS, *(each[:-1] + b"!" if at == number else each for at, each in enumerate(batches)))
    ran = kdump.inside("stat", "--by", "group", "--format", "json", "a", "b")
    group, total, summary = map(json.loads, ran.lines)
    assert (ran.status, group["type"], group["path"]) == (0, "group", "a/__consumer_offsets-0")
    assert (group["records"], group["replicas"]) == (3, ["a/__consumer_offsets-0", "b/__consumer_offsets-0"])
    assert (total["type"], summary["type"]) == ("total", "summary")
    alone = kdump.inside("stat", "--by", "group", "--format", "text", "a")
    assert (alone.status, b"group/unread" in alone.out) == (1, True)
