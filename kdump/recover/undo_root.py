"""What an undo does at the root of a log directory: the checkpoints' lines of the undone partitions, the clean-shutdown
file.

Where a broker ran since, its checkpoints stay, and only the lines of the undone partitions go back. A clean-shutdown
file that was written since goes: the next start has to recover what the undo brings back.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from kdump.errors import KdumpError, SourceError
from kdump.format.checkpoint import CheckpointError, OffsetEntry, build_offsets, offset_entries
from kdump.format.naming import (
    CLEAN_SHUTDOWN,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINTS,
    TopicPartition,
    number_of,
    topic_partition_of,
)
from kdump.named_tuple import NamedTuple
from kdump.recover import run_plan
from kdump.recover.apply import in_place, next_time_ms, run_steps
from kdump.recover.journal import Journal, Step
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.run_plan import RunPlan
from kdump.recover.staging import stage
from kdump.recover.steps import RunExecutor, load
from kdump.recover.undo_check import SAVED
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp, read_stamps
from kdump.storage.undo_folders import APPLYING, UndoFolder, run_state, undo_folders_in
from kdump.verify.verify import verify_logs

_ROOT_STATE: Final = (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN)
_Lines = Mapping[str, Mapping[TopicPartition, int]]


class RootState(NamedTuple):
    """The checkpoints and the clean-shutdown file of a log directory; the checkpoints' lines of some partitions."""

    files: Mapping[str, Stamp]
    lines: _Lines


class _FileState(NamedTuple):
    """A file as it was at some time, None without one, and its CRC-32C where that is known."""

    stamp: Stamp | None
    crc32c: int | None

    def is_like(self, other: "_FileState") -> bool:
        """Whether both are the same file, or have the same bytes, as far as is known."""
        if self.stamp is None or other.stamp is None or self.stamp == other.stamp:
            return self.stamp == other.stamp
        if self.stamp.size != other.stamp.size:
            return False
        if self.crc32c is None or other.crc32c is None:
            return self.stamp.mtime_ns == other.stamp.mtime_ns
        return self.crc32c == other.crc32c


def _states(journal: Journal | None, name: str) -> tuple[list[_FileState], list[_FileState]]:
    """A file before the steps of a run, and after them; nothing where no step is about it."""
    steps = [step for step in (journal.steps if journal is not None else ()) if step.name == name]
    before = [_FileState(step.before, step.crc32c) for step in steps]
    return before, [_FileState(step.after, step.after_crc32c) for step in steps]


def _are_alike(some: Iterable[_FileState], others: Collection[_FileState]) -> bool:
    return any(one.is_like(other) for one in some for other in others)


def root_state(handle: DirectoryHandle, names: Iterable[str]) -> RootState:
    """The state of a log directory, with the lines of the partitions in directories of these names."""
    wanted = {tp for name in names if (tp := topic_partition_of(name)) is not None}
    files: dict[str, Stamp] = {}
    lines: dict[str, dict[TopicPartition, int]] = {}
    for name in _ROOT_STATE:
        with suppress(KdumpError, OSError):  # not a regular file, or one that cannot be read
            stamp = handle.stamp(name)
            if stamp is None:
                continue
            files[name] = stamp
            if name != CLEAN_SHUTDOWN:
                lines[name] = _lines_of(handle.read(name), wanted)
    return RootState(files, lines)


def _lines_of(data: bytes, wanted: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
    """The lines of partitions; of those before a defect, as a broker reads none of them."""
    found = {}
    with suppress(CheckpointError):
        for entry in offset_entries(data):
            partition = TopicPartition(entry.topic, entry.partition)
            if wanted is None or partition in wanted:
                found[partition] = entry.offset
    return found


class RootUndo:
    """The undo of a run at the root of a log directory. `names` are the partitions that are undone."""

    def __init__(self, handle: DirectoryHandle, run: str, time_ms: int, names: Collection[str]) -> None:
        self._handle, self._names = handle, sorted(names)
        self._folder = UndoFolder(run, flat=True)
        self._whole: RunPlan | None = run_plan.read(handle, self._folder)
        loaded = load(handle, self._folder)
        self._journal = None if loaded is None else loaded[1]
        self._time_ms = time_ms

    @property
    def has_new_marker(self) -> bool:
        """Whether a broker stopped cleanly since the run."""
        there = self._handle.stamp(CLEAN_SHUTDOWN)
        if there is None:
            return False
        removed = [step for step in (self._journal.steps if self._journal else ()) if step.name == CLEAN_SHUTDOWN]
        if removed:
            return all(there != step.before for step in removed)  # an undo that broke off may have brought it back
        if self._whole is not None:
            return there != self._whole.files.get(CLEAN_SHUTDOWN)
        return there.mtime_ns > self._time_ms * 1_000_000

    @property
    def has_removed_files(self) -> bool:
        """Whether the run took a file away at the root: the lines of the partitions are not all that is to go back."""
        return self._journal is not None and any(step.name and step.after is None for step in self._journal.steps)

    def _lines(self) -> _Lines:
        """What the checkpoints said before the run, as far as it is known."""
        if self._whole is not None:
            return self._whole.lines
        kept = self._folder.file_name("old", RECOVERY_POINTS)
        if self._journal is None or self._handle.stat(kept) is None:
            return {}
        return {RECOVERY_POINTS: _lines_of(self._handle.read(kept))}

    def _changes(self, *, whole: bool = False) -> dict[str, FileContent | None]:
        """The checkpoints with the lines of the undone partitions as they were.

        Where a broker wrote a checkpoint since, none of them is above its log end. `whole`: a checkpoint that the run
        took away comes back.
        """
        after: dict[str, FileContent | None] = {}
        partitions = {tp: name for name in self._names if (tp := topic_partition_of(name)) is not None}
        ends: dict[TopicPartition, int | None] = {}
        for checkpoint, lines in self._lines().items():
            if self._handle.stat(checkpoint) is None:
                continue
            data = self._handle.read(checkpoint)
            try:
                entries = list(offset_entries(data))
            except CheckpointError:
                continue
            wanted = dict(lines)
            for partition, name in () if self._is_as_left(checkpoint) else partitions.items():
                if partition in wanted:
                    if partition not in ends:
                        ends[partition] = log_end_of(os.path.join(self._handle.path, name))
                    end = ends[partition]
                    wanted[partition] = wanted[partition] if end is None else min(wanted[partition], end)
            if (merged := _merged(entries, wanted, partitions)) != entries:
                after[checkpoint] = FileContent(data=build_offsets(merged))
        for step in self._journal.steps if whole and self._journal is not None else ():
            kept = self._folder.file_name("old", step.name)
            if (
                step.name in OFFSET_CHECKPOINTS
                and step.after is None
                and (there := self._handle.stat(kept)) is not None
            ):
                after[step.name] = FileContent((Piece(kept, 0, there.st_size),))
        return after

    def _is_as_left(self, checkpoint: str) -> bool:
        """Whether the run wrote a checkpoint last, or left it alone, and no broker wrote it since.

        Other runs may have written it since, one after the other. As a whole undo does, it goes by the bytes.
        """
        left = _states(self._journal, checkpoint)[1]
        if not left and self._whole is not None:
            lines = self._whole.lines.get(checkpoint, {})
            if _lines_of(self._handle.read(checkpoint), lines) == lines:
                return True  # the run did not write it, and it still says the same of the partitions
            left = [_FileState(self._whole.files.get(checkpoint), None)]
        others = [_states(journal, checkpoint) for journal in self._other_journals()]
        there = self._handle.stamp(checkpoint)
        crc = None if there is None else self._handle.checksum(checkpoint)
        now = [_FileState(there, crc)]
        while not _are_alike(now, left):
            earlier = next((states for states in others if _are_alike(now, states[1])), None)
            if earlier is None:
                return False
            others.remove(earlier)
            now = earlier[0]
        return True

    def _other_journals(self) -> Iterable[Journal]:
        for folder in undo_folders_in(self._handle):
            if folder.flat and folder.run != self._folder.run:
                with suppress(OSError, KdumpError):  # undoing that run reports it
                    if (loaded := load(self._handle, folder)) is not None:
                        yield loaded[1]

    def correct(self) -> None:
        """Let the lines go back without keeping them. Raises KdumpError."""
        after = self._changes()
        if after:
            in_place(self._handle, self._plan(after), f"{self._folder.run}-lines", keep=False)
            self._know(after)

    def _know(self, names: Collection[str]) -> None:
        """Write into the journal what the checkpoints are now: no broker wrote them."""
        if self._journal is None:
            return
        steps = tuple(
            step._replace(after=self._handle.stamp(step.name), after_crc32c=self._handle.checksum(step.name))
            if step.name in names and step.after is not None
            else step
            for step in self._journal.steps
        )
        executor = RunExecutor(self._handle, self._folder, self._journal._replace(steps=steps))
        executor.begin(run_state(self._handle, self._folder) or APPLYING)

    def _plan(self, after: Mapping[str, FileContent | None]) -> Plan:
        files = read_stamps(self._handle.path)
        return Plan(self._handle.path, None, RecoverOptions(SAVED), after=after, files=files)

    # ---- as a part of a run that keeps what the undo overwrites

    def begin(self, name: str) -> None:
        """Remove a clean-shutdown file that was written since. Raises KdumpError and OSError."""
        folder = UndoFolder(name, flat=True)
        if self.has_new_marker and run_state(self._handle, folder) is None:
            plan = self._plan({CLEAN_SHUTDOWN: None})
            self._run(folder, stage(self._handle, folder, plan, plan.after)).begin()
        if (loaded := load(self._handle, folder)) is not None and loaded[0] == APPLYING:
            RunExecutor(self._handle, folder, loaded[1]).forward()

    def finish(self, name: str, *, whole: bool) -> None:
        """Let the lines of the checkpoints go back. Raises KdumpError and OSError.

        `whole`: the run is undone at the root, too.
        """
        folder = UndoFolder(name, flat=True)
        loaded = load(self._handle, folder)
        if loaded is not None and loaded[0] != APPLYING:
            return
        before = () if loaded is None else loaded[1].steps
        executor = None if loaded is None else RunExecutor(self._handle, folder, loaded[1])
        if not {step.name for step in before} - {CLEAN_SHUTDOWN, ""} and (after := self._changes(whole=whole)):
            plan = self._plan(after)
            for checkpoint in after:  # what an attempt left that was killed
                self._handle.remove(folder.file_name("new", checkpoint))
            executor = self._run(folder, (*before, *stage(self._handle, folder, plan, plan.after)))
            executor.begin()
        if executor is not None:
            run_steps(executor)

    def _run(self, folder: UndoFolder, steps: tuple[Step, ...]) -> RunExecutor:
        time_ms = next_time_ms(self._handle)
        journal = Journal(folder.run, SAVED, time_ms, True, steps, undoes=self._folder.run)
        return RunExecutor(self._handle, folder, journal)


def _merged(
    entries: list[OffsetEntry], wanted: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> list[OffsetEntry]:
    """The lines of these partitions as they are wanted, all others as they are."""
    merged = []
    seen = set()
    for entry in entries:
        partition = TopicPartition(entry.topic, entry.partition)
        seen.add(partition)
        if partition not in partitions:
            merged.append(entry)
        elif partition in wanted:
            merged.append(entry._replace(offset=wanted[partition]))
    new = (partition for partition in partitions if partition in wanted and partition not in seen)
    return merged + [OffsetEntry(*partition, wanted[partition]) for partition in new]


def log_end_of(directory: str) -> int | None:
    """The offset after the last batch of the last segment, its base offset where no batch is valid; None without one.

    Raises SourceError where the directory cannot be read.
    """
    logs = [name for name in read_stamps(directory) if name.endswith(".log") and number_of(name) is not None]
    last = max(logs, key=lambda name: number_of(name) or 0, default=None)
    if last is None:
        return None
    for report in verify_logs(
        item for item in discover([os.path.join(directory, last)]) if isinstance(item, Partition | SourceError)
    ):
        if report.log_end_offset is not None:
            return report.log_end_offset
    return number_of(last)
