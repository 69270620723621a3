"""Following logs: what was shown, with what was said to be truncated taken back, is what the log holds."""

from __future__ import annotations

import random
import select
import shutil
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kdump import DumpOptions, FollowOptions, follow_logs
from kdump.dump.events import DumpFailure, FollowNote, Tail
from kdump.dump.follow.follow import LOOK_SECONDS
from kdump.dump.follow.log_cursor import LogCursor
from kdump.storage import change_events
from kdump.storage.live import LookPace
from kdump.verify.findings import Severity
from support.followed_logs import QUIET, Seen, nothing, seen
from support.growing_partition import GrowingPartition
from support.laws import examples


def test_each_batch_is_shown_once_as_soon_as_it_is_whole(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a", b"b")
    at: list[int] = []
    bytewise = log.append_in_pieces(b"c", b"d", piece_bytes=1)
    result = Seen([], tmp_path)

    def one_byte() -> None:
        at.append(len(result.values["t", 0]))
        next(bytewise, None)

    result._steps = iter([one_byte] * 90)
    result.run()
    assert result.values["t", 0] == log.values == {0: b"a", 1: b"b", 2: b"c", 3: b"d"}
    whole = at.index(4)
    assert at[:whole] == [2] * whole
    assert whole == (log.path / f"{0:020}.log").stat().st_size // 2 + 1 or whole > 70
    assert not result.severities


def test_truncation_is_said_with_the_offset_of_the_batch(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    for value in (b"a", b"b", b"c", b"d"):
        log.append(value)

    def replace() -> None:
        log.truncate(1)
        for value in (b"B", b"C", b"D", b"E"):  # more than there was, between two looks
            log.append(value)

    result = seen(lambda: log.truncate(3), replace, of=tmp_path)
    assert result.changes == [
        ("truncated", ("t", 0), {"offset": 3}),
        ("truncated", ("t", 0), {"offset": 1}),
    ]
    assert result.values["t", 0] == log.values


def test_truncation_over_segments_and_beyond_what_is_remembered(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    for number in range(300):
        log.append(b"%d" % number)
        if number in (100, 101, 250):
            log.roll()

    def replace(offset: int) -> None:
        log.truncate(offset)
        for number in range(400):
            log.append(b"%d at %d" % (number, offset))

    result = seen(lambda: replace(270), *[nothing] * 8, lambda: replace(30), of=tmp_path)
    assert [offsets for _, _, offsets in result.changes] == [{"offset": 270}, {"offset": 30}]
    assert result.values["t", 0] == log.values


def test_truncation_of_a_segment_that_was_shown_a_moment_ago(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")

    def grow() -> None:
        log.append(b"b")
        log.roll()
        log.append(b"c")

    def replace() -> None:
        log.truncate(1)
        for value in (b"B", b"C", b"D"):
            log.append(value)

    result = seen(grow, replace, of=tmp_path)
    assert result.changes == [("truncated", ("t", 0), {"offset": 1})]
    assert result.values["t", 0] == log.values


def test_a_log_that_shrinks_without_leader_epochs(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    for number in range(200):
        log.append(b"%d" % number)
    (log.path / "leader-epoch-checkpoint").unlink()
    result = seen(lambda: log.truncate(20, epoch=False), lambda: log.append(b"new"), of=tmp_path)
    assert [offsets for _, _, offsets in result.changes] == [{"offset": 20}] or log.values == result.values["t", 0]
    assert result.values["t", 0] == log.values


def test_retention_of_what_was_not_read(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")

    def away() -> None:
        for value in (b"b", b"c", b"d"):
            log.roll()
            log.append(value)
        for _ in range(3):
            log.delete_oldest()

    result = seen(away, of=tmp_path)
    assert result.changes == [("deleted", ("t", 0), {"offset": 1, "log_start_offset": 3})]
    assert result.values["t", 0] == {0: b"a", 3: b"d"}
    # what was read may go without a word
    result = seen(lambda: (log.roll(), log.delete_oldest()), lambda: log.append(b"e"), of=tmp_path)
    assert (result.changes, result.values["t", 0]) == ([], {3: b"d", 4: b"e"})


def test_partitions_come_and_go(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    found = seen(
        lambda: GrowingPartition(tmp_path, "u", 3).append(b"x"),
        nothing,
        log.delete,
        *[nothing] * 5,
        lambda: GrowingPartition(tmp_path, "t", 0).append(b"A", b"B"),
        of=tmp_path,
    )
    assert found.changes == [("partition_end", ("t", 0), {"offset": 1})]
    assert found.twice == {("t", 0): 1}  # a topic of the same name is another one
    assert found.values == {("t", 0): {0: b"A", 1: b"B"}, ("u", 3): {0: b"x"}}
    gone = tmp_path / f"t-0.{'0' * 32}-delete"
    # A directory that was named is followed to its end; so is a file, which goes on in no other one.
    first, second = (Seen([nothing] * QUIET, path) for path in (gone, tmp_path / "t-0" / f"{0:020}.log"))
    first._steps = iter([lambda: shutil.rmtree(gone), nothing])
    assert first.run().ended
    assert [kind for kind, *_ in first.changes] == ["partition_end"]
    again = GrowingPartition(tmp_path / "other", "t", 0)
    again.append(b"1")
    second = Seen([again.roll, lambda: again.append(b"2"), *[nothing] * QUIET], again.path / f"{0:020}.log").run()
    assert second.values["t", 0] == {0: b"1"}
    assert not second.ended


def test_a_broken_frame_is_waited_for_until_a_valid_one_follows(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    for value in (b"a", b"b", b"c"):
        log.append(value * 20)
    path = log.path / f"{0:020}.log"
    data = path.read_bytes()
    size = len(data) // 3
    broken = bytearray(data)
    broken[2 * size + 70] ^= 1
    path.write_bytes(broken[: 3 * size])
    waited = seen(of=tmp_path)
    assert (len(waited.values["t", 0]), waited.severities, waited.others) == (2, [], [])
    log.append(b"d")
    found = seen(of=tmp_path)
    assert (sorted(found.values["t", 0]), found.damaged) == ([0, 1, 3], ["batch/crc"])
    assert set(found.severities) == {Severity.ERROR}
    # where it is mended in time, as a write that came in two parts, nothing is said
    path.write_bytes(broken[: 3 * size] + path.read_bytes()[3 * size :])
    mended = bytearray(path.read_bytes())
    mended[2 * size + 70] ^= 1
    assert seen(lambda: path.write_bytes(mended), of=tmp_path).severities == []
    # after a roll nothing more comes to the file
    log.append_bytes(b"torn")
    log._segments[-1][1].append((4, 4, b"torn"))
    log.roll()
    log.append(b"e")
    rolled = seen(of=tmp_path)
    assert sorted(rolled.values["t", 0]) == [0, 1, 2, 3, 4]
    assert [type(each) for each in rolled.others] == [Tail]
    assert set(rolled.severities) == {Severity.ERROR}


def test_preallocated_zeros_are_no_damage(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    path = log.path / f"{0:020}.log"
    first = path.read_bytes()
    log.append(b"b")
    both = path.read_bytes()

    def write(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)

    path.write_bytes(first + bytes(5 << 20))
    found = seen(nothing, lambda: write(both), of=tmp_path)
    assert (found.values["t", 0], found.severities) == ({0: b"a", 1: b"b"}, [])


def test_a_batch_whose_offset_lies_in_the_next_segment(tmp_path: Path) -> None:
    """No checksum covers the base offset. The batches of the next segment are shown all the same."""
    log = GrowingPartition(tmp_path, "t", 0)
    log.append(b"a")
    log.append(b"b")
    log.roll()
    for value in (b"c", b"d", b"e"):
        log.append(value)
    path = log.path / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 7] = 4
    path.write_bytes(data)
    found = seen(of=tmp_path, once=False)
    assert found.records == [(0, b"a"), (4, b"b"), (2, b"c"), (3, b"d"), (4, b"e")]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_larger_than_what_is_read_at_once(codec: str, tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    large = random.Random(1).randbytes(3 << 19)
    log.append(b"a")
    log.append(large, codec=codec)
    log.append(b"b")
    pieces = log.append_in_pieces(large[::-1], piece_bytes=1 << 20)
    assert seen(lambda: next(pieces), lambda: list(pieces), of=tmp_path, looks=3).values["t", 0] == log.values
    limited = seen(of=tmp_path, max_batch_bytes=1 << 20, looks=9)
    assert limited.damaged == ["batch/limit"] if codec == "none" else True
    assert limited.values["t", 0].keys() >= {0, 2}


def test_where_it_begins_and_ends(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0)
    for number in range(0, 12, 3):
        log.append(*(b"%d" % each for each in range(number, number + 3)))
        log.roll()

    def values(**options: Any) -> list[int]:
        return sorted(seen(lambda: log.append(b"new"), of=tmp_path, **options).values["t", 0])

    assert values(offsets=(4, None)) == [*range(4, 13)]
    assert values(offsets=(12, None)) == [12, 13]
    assert values(offsets=(15, None)) == []
    assert values(offsets=(15, None)) == [15]
    assert values(limit=2) == [0, 1]
    assert Seen([], tmp_path, limit=2).run().ended
    assert Seen([], tmp_path, limit=0).run().ended
    assert values(topic="u") == []
    # what was above the high watermark waits for it
    log.commit(7)
    steps = [nothing] * 5 + [lambda: log.commit(13), *[nothing] * 5]
    found = Seen(steps, tmp_path, committed=True).run()
    assert sorted(found.values["t", 0]) == [*range(13)]


def test_a_partition_without_a_high_watermark_is_waited_for(tmp_path: Path) -> None:
    log = GrowingPartition(tmp_path, "t", 0, marked=False)
    log.append(b"a")
    found = Seen([*[nothing] * 5, log.commit, *[nothing] * 5], tmp_path, committed=True).run()
    notes = [event for event in found.others if isinstance(event, FollowNote)]
    assert [note.path for note in notes] == [str(log.path)]
    assert "replication-offset-checkpoint has no line for this partition" in notes[0].message
    assert found.values["t", 0] == {0: b"a"}


def test_what_cannot_be_read_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    found = Seen([nothing] * QUIET, tmp_path / "logs", tmp_path / "missing").run()
    assert [str(event.error if isinstance(event, DumpFailure) else event.message) for event in found.others] == [
        f"{tmp_path}/missing: no such file or directory",
        f"{tmp_path}/logs: no log files here yet",
    ]
    assert not found.ended
    assert Seen([], tmp_path / "missing").run().ended
    index = tmp_path / f"{0:020}.index"
    index.write_bytes(b"")
    (tmp_path / "old-0").mkdir()
    (tmp_path / "old-0" / f"{0:020}.kafka").write_bytes(b"")
    refused = Seen([], index, tmp_path / "old-0").run().others
    assert [str(event.error) for event in refused if isinstance(event, DumpFailure)] == [
        f"{index}: an offset index, and --follow shows segments",
        f"{tmp_path}/old-0: segments of Kafka 0.7, which --follow does not show",
    ]


@pytest.fixture(params=[True, False], ids=["told", "untold"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the system tells what changes."""
    if not request.param:
        monkeypatch.setattr(change_events, "_libc", lambda: None)
    return bool(request.param)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("seed", range(examples(10)))
def test_what_was_shown_whether_changes_are_told_or_not(seed: int, tmp_path: Path) -> None:
    test_what_was_shown_is_what_the_log_holds(seed, bool(seed % 2), tmp_path)


@pytest.mark.daily(4)
@pytest.mark.parametrize("committed", [False, True], ids=["everything", "committed"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_what_was_shown_is_what_the_log_holds(seed: int, committed: bool, tmp_path: Path) -> None:
    rng = random.Random(seed * 2 + committed)
    history = _History(tmp_path, rng, committed=committed)
    result = Seen([], tmp_path, committed=committed)
    history.seen = result
    steps = [history.step] * 60 + [history.finish] + [nothing] * QUIET
    result._steps = iter(steps)
    result.run()
    history.check()


def test_of_many_logs_the_one_that_changes_is_looked_at_at_once(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if told and sys.platform != "linux":
        pytest.skip("only Linux tells what changes")
    logs = [GrowingPartition(tmp_path, "t", number) for number in range(60)]
    for log in logs:
        log.append(b"a")
    looked = list[str]()
    look = LogCursor.has_changed

    def has_changed(self: LogCursor, mark: int | None) -> bool:
        looked.append(self.where.path)
        return look(self, mark)

    monkeypatch.setattr(LogCursor, "has_changed", has_changed)
    # a look at everything costs so much that the next one comes a long time after it
    monkeypatch.setattr(LookPace, "is_due", property(lambda pace: pace.looks < 1))
    result = Seen([], tmp_path)
    waited = list[float]()
    let_pass = result._wait

    def wait(seconds: float, descriptor: int | None) -> None:
        waited.append(seconds if descriptor is None or not select.select([descriptor], [], [], 0)[0] else 0)
        let_pass(seconds, descriptor)

    def change() -> None:
        looked.clear()
        waited.clear()
        logs[42].append(b"b")

    def is_shown() -> None:
        assert (result.values["t", 42] == {0: b"a", 1: b"b"}) is told
        assert not told or set(looked) == {str(logs[42].path)}
        assert not told or sum(waited) <= LOOK_SECONDS

    made = list[GrowingPartition]()

    def make() -> None:
        made.append(GrowingPartition(tmp_path, "u", 0))
        made[0].append(b"c")

    steps = [*[nothing] * 300, change, is_shown, make, nothing, nothing]
    monkeypatch.setattr(result, "_steps", iter(steps))
    result._events = follow_logs(
        [str(tmp_path)],
        DumpOptions(),
        follow_options=FollowOptions(wait, lambda: result._seconds),
    )
    result.run()
    assert result.values["u", 0] == ({0: b"c"} if told else {})


_CHANGES = [*["append"] * 5, *["piece", "commit"] * 2, "roll", "truncate", "clean", "delete", "new"]


class _History:
    """Partitions of a log directory, and what a broker does with them at random."""

    def __init__(self, directory: Path, rng: random.Random, *, committed: bool) -> None:
        self.directory, self._rng, self._committed = directory, rng, committed
        self.logs = [GrowingPartition(directory, "t", 0)]
        self.seen: Seen | None = None
        self._written: dict[int, set[bytes]] = defaultdict(set)
        self._ever: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self._unfinished: dict[int, Any] = {}
        self._cleaning: list[Any] = []
        self._number = 0

    def _values(self) -> list[bytes]:
        self._number += 1
        return [b"%d %d" % (self._number, each) for each in range(self._rng.randint(1, 4))]

    def step(self) -> None:
        for _ in range(self._rng.choice((0, 1, 1, 1, 2, 3))):
            self._change(self._rng.choice(self.logs))
        self._note()

    def _note(self) -> None:
        for log in self.logs:
            for offset, value in log.values.items():
                self._ever[log.number, offset].add(value)
            shown = self.seen.values["t", log.number] if self.seen is not None else {}
            if self._committed and shown:
                assert max(shown) < log.mark

    def _change(self, log: GrowingPartition) -> None:
        unfinished = self._unfinished.get(log.number)
        if unfinished is not None:
            if next(unfinished, self) is self:
                del self._unfinished[log.number]
            return
        if self._cleaning:
            if next(self._cleaning[0], self) is self:
                self._cleaning.pop()
            return
        match self._rng.choice(
            ["append"] * 5 + ["piece", "piece", "roll", "truncate", "commit", "commit", "clean", "delete", "new"]
        ):
            case "append":
                log.append(*self._values())
            case "piece":
                self._unfinished[log.number] = log.append_in_pieces(
                    *self._values(), piece_bytes=self._rng.choice((7, 30))
                )
            case "roll":
                log.roll()
            case "truncate":
                offset = self._rng.choice(log.borders)
                if offset >= log.start:
                    log.truncate(offset)
            case "commit":
                log.commit(self._rng.choice(log.borders))
            case "clean" if log.mark == log.end:
                self._cleaning.append(log.clean())
            case "delete":
                log.delete_oldest()
            case "new" if len(self.logs) < 3:
                self.logs.append(GrowingPartition(self.directory, "t", len(self.logs)))

    def finish(self) -> None:
        for each in [*self._unfinished.values(), *self._cleaning]:
            list(each)
        for log in self.logs:
            log.append(b"last")
            log.commit()
        self._note()

    def check(self) -> None:
        assert self.seen is not None
        for log in self.logs:
            shown = self.seen.values["t", log.number]
            assert {offset: shown.get(offset) for offset in log.values if offset >= log.start} == {
                offset: value for offset, value in log.values.items() if offset >= log.start
            }
            assert all(value in self._ever[log.number, offset] for offset, value in shown.items())
        assert not self.seen.severities
        if self._committed:
            assert "truncated" not in {kind for kind, *_ in self.seen.changes}
