"""Does the steps of a run and undoes them.

Each step looks at the files first and does what is left of it, so that it can be repeated after any interruption.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Final

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.recover import phases
from kdump.recover.journal import Journal, Step, from_bytes, to_bytes
from kdump.storage.directory_handle import NO_LINKS, DirectoryHandle, append_range, attributes_of, write_all
from kdump.storage.stamps import Stamp
from kdump.storage.undo_folders import APPLIED, APPLYING, JOURNAL_LOST, OVER, UNDOING, UndoFolder, run_state
from kdump.storage.zeros import append_with_holes, is_same

_ENDS = ("cut", "append")
_Known = list[tuple[Stamp, int | None]]


class FileChanged(KdumpError):
    """A file is not what the run knows: another process wrote it."""


class RunExecutor:
    """Does and undoes the steps of a journal in its directory."""

    def __init__(self, handle: DirectoryHandle, folder: UndoFolder, journal: Journal) -> None:
        self.handle = handle
        self.folder = folder
        self.journal = journal

    # ---- the state

    def begin(self, state: str = APPLYING) -> None:
        """Write the journal. From now on the run has to be finished or undone, and all that it needs is on the disk."""
        self.handle.remove(self.folder.of_run("journal.tmp"))
        with self.handle.create(self.folder.of_run("journal.tmp")) as target:
            write_all(target, to_bytes(self.journal))
        for name in (*reversed(self.folder.directories), "."):
            self.handle.sync(name)
        self.handle.rename(self.folder.of_run("journal.tmp"), self.folder.journal(state))
        self._sync()

    def enter(self, state: str) -> None:
        """Rename the journal to a new state."""
        now = run_state(self.handle, self.folder)
        if now != state and now is not None:
            self.handle.rename(self.folder.journal(now), self.folder.journal(state))
        self._sync()

    def _sync(self) -> None:
        self.handle.sync("." if self.folder.flat else self.folder.directories[1])

    # ---- the steps

    def forward(self) -> None:
        """Do the remaining steps. Raises OSError and FileChanged."""
        if self.folder.old is not None:
            self.handle.make_directory(self.folder.old)
            self._sync()
        for step in self.journal.steps:
            if step.do != "sync":
                phases.enter(phases.Phase.APPLY, self.handle.path_of(step.name))
            _STEPS[step.do][0](self, step)

    def backward(self) -> None:
        """Undo the steps. Raises OSError and FileChanged."""
        for name in self.folder.directories:
            self.handle.make_directory(name)
        for step in reversed(self.journal.steps):
            if step.do != "sync":
                phases.enter(phases.Phase.UNDO, self.handle.path_of(step.name))
            _STEPS[step.do][1](self, step)
        self.sync()

    def sync(self, _: Step | None = None) -> None:
        for name in (self.folder.old, "."):
            if name is not None:
                self.handle.sync(name)

    def move_to_old(self, step: Step) -> None:
        old = self.folder.file_name("old", step.name)
        if self._find(step, old, step.name) == step.name:
            self.handle.rename(step.name, old)

    def undo_move_to_old(self, step: Step) -> None:
        old = self.folder.file_name("old", step.name)
        if self._find(step, old, step.name) == old:
            self._check_free(step.name)
            self.handle.rename(old, step.name)

    def add_file(self, step: Step) -> None:
        new = self.folder.file_name("new", step.name)
        if self._find_new(step, step.name, new) == new:
            self._check_free(step.name)
            self.handle.rename(new, step.name)

    def undo_add_file(self, step: Step) -> None:
        # Any other file of the name is the old one, which is back already.
        if self.handle.stat(step.name) is not None and self._is_new(step):
            self.handle.rename(step.name, self.folder.file_name("new", step.name))

    def replace_file(self, step: Step) -> None:
        old, new = self.folder.file_name("old", step.name), self.folder.file_name("new", step.name)
        if self._find_new(step, step.name, new) == step.name:
            return
        if self._find(step, old, step.name) == step.name:
            self._keep_old(step.name, old)
        if self.handle.stat(step.name) is not None:
            self._find(step, step.name)
        self.handle.rename(new, step.name)

    def undo_replace_file(self, step: Step) -> None:
        old = self.folder.file_name("old", step.name)
        if self._find(step, step.name, old) == step.name:
            return
        if self.handle.stat(step.name) is not None:
            self._find_new(step, step.name)
        self.handle.rename(old, step.name)

    def rename_file(self, step: Step) -> None:
        assert step.to is not None
        if self._find(step, step.name, step.to) == step.name:
            self._check_free(step.to)
            self.handle.rename(step.name, step.to)

    def undo_rename_file(self, step: Step) -> None:
        assert step.to is not None
        assert step.before is not None
        # Of two files with the same bytes, the one that is back already counts.
        if self._find(step, step.name, step.to) == step.to:
            self._check_free(step.name)
            self.handle.rename(step.to, step.name)
        with self.handle.open(step.name) as descriptor:
            if (status := os.fstat(descriptor)).st_mtime_ns != step.before.mtime_ns:
                os.utime(descriptor, ns=(status.st_atime_ns, step.before.mtime_ns))

    def truncate_file(self, step: Step) -> None:
        self._shorten(step, step.before, None)

    def undo_truncate_file(self, step: Step) -> None:
        self._lengthen(step, step.before, self.folder.file_name("cut", step.name))

    def append_to_file(self, step: Step) -> None:
        self._lengthen(step, step.after, self.folder.file_name("new", step.name))

    def undo_append_to_file(self, step: Step) -> None:
        self._shorten(step, step.after, self.folder.file_name("new", step.name))

    def _shorten(self, step: Step, whole: Stamp | None, kept: str | None) -> None:
        """Let a file end at the position of the step. With `kept` it may have only some of the bytes after it."""
        assert whole is not None
        assert step.position is not None
        with self._cut_file(step) as descriptor:
            status = os.fstat(descriptor)
            if status.st_size != step.position:
                is_whole = (status.st_size, status.st_mtime_ns) == (whole.size, whole.mtime_ns)
                if not is_whole and not (kept and self._is_part(step, descriptor, kept)):
                    raise self._changed(step.name)
                if status.st_nlink > 1:
                    raise FileChanged(
                        f"{self.handle.path_of(step.name)}: it now has a second name (hard link), whose bytes would "
                        "be removed too"
                    )
                os.ftruncate(descriptor, step.position)
            os.utime(descriptor, ns=(status.st_atime_ns, whole.mtime_ns))
            os.fsync(descriptor)

    def _lengthen(self, step: Step, whole: Stamp | None, kept_name: str) -> None:
        """Put the bytes of a kept file after the position of the step; runs of zeros as holes."""
        assert whole is not None
        assert step.position is not None
        with self._cut_file(step) as descriptor, self.handle.open(kept_name) as kept:
            status = os.fstat(descriptor)
            if (status.st_size, status.st_mtime_ns) == (whole.size, whole.mtime_ns):
                return
            # An earlier attempt, or another process, wrote what is already there.
            if not self._is_part(step, descriptor, kept_name):
                raise self._changed(step.name)
            if status.st_nlink > 1 and step.do == "append":
                raise FileChanged(
                    f"{self.handle.path_of(step.name)}: it now has a second name (hard link), which would grow too"
                )
            if status.st_nlink > 1:
                self._rebuild_linked(step, whole, descriptor, kept)
                return
            done = status.st_size - step.position
            append_with_holes(kept, done, whole.size - step.position, descriptor, status.st_size)
            os.fsync(descriptor)
            os.utime(descriptor, ns=(status.st_atime_ns, whole.mtime_ns))
            os.fsync(descriptor)

    def _is_part(self, step: Step, descriptor: int, kept_name: str) -> bool:
        """Whether what is after the position of the step is a beginning of the kept bytes."""
        assert step.position is not None
        length = os.fstat(descriptor).st_size - step.position
        with self.handle.open(kept_name) as kept:
            return length >= 0 and is_same(descriptor, step.position, kept, 0, length)

    def _rebuild_linked(self, step: Step, whole: Stamp, rest: int, kept: int) -> None:
        """Write a file again whose bytes have a second name, which keeps them as they are."""
        assert step.position is not None
        new = self.folder.file_name("new", step.name)
        self.handle.remove(new)
        with self.handle.create(new, attributes_of(rest)._replace(mtime_ns=whole.mtime_ns)) as target:
            append_range(rest, 0, step.position, target)
            append_with_holes(kept, 0, whole.size - step.position, target, step.position)
        self.handle.rename(new, step.name)

    # ---- which file has which name

    def _cut_file(self, step: Step) -> AbstractContextManager[int]:
        if self.handle.stamp(step.name) is None:
            raise self._changed(step.name)
        return self.handle.open(step.name, os.O_RDWR)

    def _check_free(self, name: str) -> None:
        if self.handle.stat(name) is not None:
            raise self._changed(name)

    def _keep_old(self, name: str, old: str) -> None:
        """Give a file a second name, so that another file can get its first one in one step."""
        try:
            self.handle.link(name, old)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.handle.rename(name, old)

    def _find(self, step: Step, *names: str) -> str:
        assert step.before is not None
        return self._name_of(step.name, names, step.before, step.crc32c)

    def _find_new(self, step: Step, *names: str) -> str:
        assert step.after is not None
        return self._name_of(step.name, names, step.after, step.after_crc32c)

    def _is_new(self, step: Step) -> bool:
        assert step.after is not None
        there = self.handle.stamp(step.name)
        if step.before is not None and there == step.before:
            return False
        return there == step.after or self.is_like(step.name, step.after, step.after_crc32c)

    def _name_of(self, name: str, names: tuple[str, ...], stamp: Stamp, crc: int | None) -> str:
        """Which of the names the file has. Raises FileChanged for none of them.

        In a directory that was copied the file is known by its bytes.
        """
        for one in names:
            if self.handle.stamp(one) == stamp:
                return one
        for one in names:
            if self.is_like(one, stamp, crc):
                return one
        raise self._changed(name)

    def is_like(self, name: str, stamp: Stamp, crc: int | None) -> bool:
        """Whether a file has these bytes, as far as is known."""
        there = self.handle.stamp(name)
        if there is None or there.size != stamp.size:
            return False
        if there == stamp:
            return True
        return there.mtime_ns == stamp.mtime_ns if crc is None else self.handle.checksum(name) == crc

    def _changed(self, name: str) -> FileChanged:
        path = self.handle.path_of(name)
        return FileChanged(f"{path}: not as run {self.journal.run} left it: another process has written to it")

    # ---- whether the run can go on

    def differing(self, state: str) -> tuple[list[str], list[str]]:
        """The files that are neither what the run found nor what it leaves, and the files that it does not know.

        Of an applied run, only what it leaves counts.
        """
        known: dict[str, _Known] = defaultdict(list)
        final: dict[str, _Known] = {}
        may_lack: set[str] = set()
        for step in self.journal.steps:
            if step.do == "sync":
                continue
            if step.before is not None:
                known[step.name].append((step.before, step.crc32c if step.do not in _ENDS else None))
            final[step.name] = []
            if step.after is not None:
                known[step.name].append((step.after, step.after_crc32c))
                final[step.name] = [(step.after, step.after_crc32c)]
            if step.do not in _ENDS:
                may_lack.add(step.name)
            if step.to is not None and step.before is not None:
                known[step.to].append((step.before, step.crc32c))
                final[step.to] = [(step.before, step.crc32c)]
                may_lack.add(step.to)
        odd = []
        for name in known:
            there = self.handle.stamp(name)
            wanted = known[name] if state != APPLIED else final[name]
            if there is None:
                wrong = bool(wanted) and (state == APPLIED or name not in may_lack)
            else:
                wrong = not any(self.is_like(name, *one) for one in wanted)
                wrong = wrong and not self._half_cut(name, there, state)
            if wrong:
                odd.append(name)
        return odd, [] if self.folder.flat else self._others(known)

    def _half_cut(self, name: str, there: Stamp, state: str) -> bool:
        """Whether the file is one that was being cut, or whose bytes were being put after its end."""
        for step in self.journal.steps:
            if step.do not in _ENDS or step.name != name or step.before is None or step.position is None:
                continue
            last = step.before.size if state == UNDOING else step.position
            if step.do == "append" and step.after is not None:
                last = step.after.size
            return state != APPLIED and step.position <= there.size <= last
        return False

    def _others(self, known: Iterable[str]) -> list[str]:
        """Files of a log that came, went or changed, and that the run does not touch."""
        names = set(known)
        odd = []
        # Listed at the moment of writing: a broker may have started since the run.
        for name in self.handle.names():
            if name in names or name in self.journal.files or not is_kafka_file(name):
                continue
            with suppress(KdumpError):  # not a regular file: a broker ignores it
                if self.handle.stamp(name) is not None:
                    odd.append(name)
        for name, stamp in self.journal.files.items():
            there = None
            with suppress(KdumpError):
                there = self.handle.stamp(name)
            if there is None or (there.size, there.mtime_ns) != (stamp.size, stamp.mtime_ns):
                odd.append(name)
        return odd

    def gone(self, state: str) -> dict[str, str]:
        """Files that cannot come back, because what was kept of them is gone or changed; and where it should be."""
        lost = {}
        for step in self.journal.steps:
            if step.do == "cut":
                kept = self.folder.file_name("cut", step.name)
                there, rest = self.handle.stamp(kept), self.handle.stamp(step.name)
                # Of an applied run, `differing` checks the rest.
                short = state != APPLIED and (rest is None or rest.size < (step.position or 0))
                if short or there is None or there.size != step.length or self.handle.checksum(kept) != step.crc32c:
                    lost[step.name] = kept
            elif step.do in ("take", "replace"):
                old = self.folder.file_name("old", step.name)
                try:
                    self._find(step, *((old,) if state == APPLIED else (old, step.name)))
                except FileChanged:
                    lost[step.name] = old
        return lost


def is_kafka_file(name: str) -> bool:
    """Whether the name is one of Kafka's."""
    return naming.kind_of(name) is not None or naming.companion_kind_of(name) is not None


_STEPS: Final[Mapping[str, tuple[Callable[[RunExecutor, Step], None], Callable[[RunExecutor, Step], None]]]] = {
    "take": (RunExecutor.move_to_old, RunExecutor.undo_move_to_old),
    "put": (RunExecutor.add_file, RunExecutor.undo_add_file),
    "replace": (RunExecutor.replace_file, RunExecutor.undo_replace_file),
    "cut": (RunExecutor.truncate_file, RunExecutor.undo_truncate_file),
    "append": (RunExecutor.append_to_file, RunExecutor.undo_append_to_file),
    "rename": (RunExecutor.rename_file, RunExecutor.undo_rename_file),
    "sync": (RunExecutor.sync, RunExecutor.sync),
}


# ---- loading a run


def load(handle: DirectoryHandle, folder: UndoFolder) -> tuple[str, Journal] | None:
    """State and journal of a run. None where it changed nothing yet, or is over. Raises KdumpError."""
    state = run_state(handle, folder)
    if state is None or state in (OVER, JOURNAL_LOST):
        return None
    name = folder.journal(state)
    refuse_other_owner(handle, name)
    journal = from_bytes(handle.read(name), handle.path_of(name))
    _refuse_foreign_files(handle, folder, journal)
    return state, journal


def _refuse_foreign_files(handle: DirectoryHandle, folder: UndoFolder, journal: Journal) -> None:
    """Raises KdumpError where a kept file belongs to a user who has no file of the log.

    A run moves files away with their owner, and gives new files the owner of those that they come from. Files of the
    superuser are taken: who forges them may do all that an undo does.
    """
    names = {step.name for step in journal.steps if step.name}
    users = {0, handle.owner}
    for name in names.union(journal.files, (step.to for step in journal.steps if step.to is not None)):
        if (status := handle.stat(name)) is not None:
            users.add(status.st_uid)
    for name in sorted(names):
        for kind in ("old", "cut", "new"):
            kept = folder.file_name(kind, name)
            if (status := handle.stat(kept)) is not None and status.st_uid not in users:
                raise KdumpError(
                    f"{handle.path_of(kept)}: it belongs to the user {status.st_uid}, who owns no file of the log; "
                    f"if run {journal.run} kept it, give it the owner of the directory, {handle.owner}"
                )


def refuse_other_owner(handle: DirectoryHandle, name: str) -> None:
    """Raises KdumpError for a file of a run that another user than the owner of the directory wrote."""
    status = handle.stat(name)
    if status is not None and status.st_uid != handle.owner:
        raise KdumpError(
            f"{handle.path_of(name)}: it belongs to the user {status.st_uid}, the directory to {handle.owner}: a run "
            "gives its files the owner of the directory, so this is not one of its files"
        )
