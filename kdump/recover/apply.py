"""Applies a plan, in place or as a copy.

In place it may be killed between any two system calls, and then be finished or undone. First everything new is written
beside the partition's own files, and the bytes that are cut out of a file are copied. Then the journal is written
(kdump.recover.journal). Before it, nothing of the partition has changed. After it, every step can be repeated and
undone (kdump.recover.steps).

After each step the log is valid, as far as it already is what it will be. Segments go from the last to the first. The
offset index of a segment that changes goes before its log and comes back last, because a broker trusts a log that has
an index and recovers a log without one.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kdump.errors import KdumpError, reason
from kdump.format import naming
from kdump.kernel.crc import crc32c
from kdump.recover import phases
from kdump.recover.journal import Journal, Step
from kdump.recover.plan import FileContent, Plan
from kdump.recover.second_opinion import check_snapshots
from kdump.recover.steps import RunExecutor, is_kafka_file, load
from kdump.storage.directory_handle import (
    DirectoryHandle,
    FileAttributes,
    OnBytes,
    append_range,
    attributes_of,
    clone_file,
    write_all,
)
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from kdump.storage.undo_folders import (
    APPLIED,
    OVER,
    UNDOING,
    UndoFolder,
    check_run,
    discard,
    is_directory,
    refuse_unfinished,
    resume_hint,
    run_state,
    undo_folders_in,
)

Make = Callable[[Plan], Iterable[tuple[str, bytes | None]]]
"""Builds the files that a plan leaves to kdump.broker.rebuild."""

NOTHING: Final = "nothing was changed"
_PARTS: Final = ("index", "log", "timeindex", "txnindex")
_CUT: Final = (".log", ".kafka")
_NEWS: Final = ("put", "replace")


class ApplyResult(NamedTuple):
    """The result of a plan: the id of the `run`, None where nothing had to be done.

    `undo` is the path of what was removed, None where it was not kept. `recovery_point` is that of the plan. `written`
    has the CRC-32C of every new file.
    """

    path: str
    run: str | None
    undo: str | None
    recovery_point: int | None = None
    written: Mapping[str, int] = {}


def apply(
    plan: Plan, run: str, *, keep: bool = True, on_bytes: OnBytes | None = None, make: Make | None = None
) -> ApplyResult:
    """Apply a plan in place, to a topic-partition or to the files at the root of a log directory.

    `on_bytes` is called with the number of bytes that were written since its last call. Raises KdumpError: before
    anything changed, or after everything was undone. Where that failed too, the message says how to go on.
    """
    check_run(run)
    with DirectoryHandle(plan.path) as handle:
        refuse_unfinished(handle)
        remove_finished_runs(handle)
        return in_place(handle, plan, run, keep=keep, on_bytes=on_bytes, make=make)


def in_place(
    handle: DirectoryHandle,
    plan: Plan,
    run: str,
    *,
    keep: bool = True,
    on_bytes: OnBytes | None = None,
    make: Make | None = None,
) -> ApplyResult:
    """Apply a plan, whatever other runs left in the directory. Raises KdumpError as `apply` does."""
    try:
        _check(plan, handle)
    except (OSError, KdumpError) as error:
        raise sentence(plan.path, error, NOTHING) from None
    after = _with_indexes(plan)
    if not after:
        return ApplyResult(plan.path, None, None)
    # A broker does not start on a log directory that has a directory of another name.
    folder = UndoFolder(run, flat=any(name in naming.ROOT_FILES for name in handle.names()))
    if run_state(handle, folder) is not None:
        raise KdumpError(f"{plan.path}: there is a run {run} already; {NOTHING}")
    try:
        for name in folder.directories:
            handle.make_directory(name)
        todo = _stage(handle, folder, plan, after, on_bytes, make)
        _check(plan._replace(bytes_needed=0), handle)
        touched = {step.name for step in todo} | {step.to for step in todo}
        # A broker may write the other files at the root of a log directory at any time.
        rest = {} if folder.flat else {name: stamp for name, stamp in plan.files.items() if name not in touched}
        now = time.time_ns() // 1_000_000
        executor = RunExecutor(
            handle, folder, Journal(run, plan.options.strategy, now, folder.flat, todo, rest, plan.recovery_point, keep)
        )
        executor.begin()
    except (OSError, EOFError, KdumpError, KeyboardInterrupt) as error:
        # No step was done, even if the journal exists and only the sync after it failed.
        _clear(handle, folder)
        left = run_state(handle, folder) not in (None, OVER)
        raise sentence(plan.path, error, f"{NOTHING}; {resume_hint(plan.path, run)}" if left else NOTHING) from None
    run_steps(executor)
    undo = handle.path_of(folder.directories[1] if folder.directories else folder.journal(APPLIED)) if keep else None
    written = {step.name: step.after_crc32c for step in todo if step.after_crc32c is not None}
    return ApplyResult(plan.path, run, undo, plan.recovery_point, written)


def run_steps(executor: RunExecutor) -> None:
    """Do the remaining steps of a journal, or undo all where that fails. Raises KdumpError."""
    handle = executor.handle
    try:
        executor.forward()
        executor.enter(APPLIED)
    except (OSError, EOFError, KdumpError, KeyboardInterrupt) as error:
        try:
            executor.enter(UNDOING)
            executor.backward()
            executor.enter(OVER)
        except (OSError, EOFError, KdumpError, KeyboardInterrupt) as second:
            first = sentence(handle.path, error, "it could not be taken back")
            raise KdumpError(f"{first} ({_why(second)}); {resume_hint(handle.path, executor.journal.run)}") from None
        _clear(handle, executor.folder)
        raise sentence(handle.path, error, "what was done was taken back") from None
    if not executor.journal.keep:
        _clear(handle, executor.folder)


def _clear(handle: DirectoryHandle, folder: UndoFolder) -> None:
    """Remove the files of a finished run, as far as possible: the next run removes the rest."""
    with suppress(OSError, KdumpError):
        discard(handle, folder)


def sentence(path: str, error: BaseException, then: str = "") -> KdumpError:
    """An error of the system as a KdumpError, with the path and the consequence. Raises a KeyboardInterrupt again."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    why = _why(error)
    return KdumpError((why if path in why else f"{path}: {why}") + (f"; {then}" if then else ""))


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        name = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        return f"{name}{reason(error)}"
    return "a file became shorter while it was read" if isinstance(error, EOFError) else str(error)


def remove_finished_runs(handle: DirectoryHandle) -> None:
    """Remove what is left of runs that changed nothing, or that are finished. Raises KdumpError."""
    try:
        for folder in undo_folders_in(handle):
            state = run_state(handle, folder)
            applied = load(handle, folder) if state == APPLIED else None
            if state in (None, OVER) or (applied is not None and not applied[1].keep):
                discard(handle, folder)
        if handle.is_directory(naming.UNDO_FOLDER) and not handle.names(naming.UNDO_FOLDER):
            handle.remove_directory(naming.UNDO_FOLDER)
    except OSError as error:
        raise sentence(handle.path, error, NOTHING) from None


# ---- whether the plan still fits


def _check(plan: Plan, handle: DirectoryHandle) -> None:
    """Check the room, and list the directory again: it may have changed since the plan was made. Raises KdumpError."""
    if odd := [name for name in plan.after if "/" in name or name in ("", ".", "..") or naming.is_undo(name)]:
        raise KdumpError(f"{plan.path}: the plan has {odd[0]!r}, which is no name of a file of a log")
    names = {*plan.after, *(name for name in plan.files if not naming.is_undo(name))}
    names.update(name for name in handle.names() if is_kafka_file(name) and not is_directory(handle, name))
    for name in sorted(names):
        there, seen = handle.stamp(name), plan.files.get(name)
        if there != seen:
            what = "is gone" if there is None else "was not there" if seen is None else "has changed"
            raise KdumpError(f"{handle.path_of(name)}: the file {what} since the plan was made")
    if (free := handle.free_bytes()) < plan.bytes_needed:
        raise KdumpError(f"{plan.path}: {plan.bytes_needed} bytes are needed, {free} are free on the disk")


# ---- the steps

_After = Mapping[str, FileContent | None]
_Files = Mapping[str, Stamp]


class _Rank(NamedTuple):
    """The position of a file in the order of the steps; `suffix` is that of a file of a segment."""

    group: int
    order: int = 0
    suffix: str = ""


_REPLACEMENT, _SEGMENT, _OTHER, _LEFTOVER = range(4)


def _rank(name: str) -> _Rank:
    """The rank of a file. Segments go from the last to the first, in each of them the offset index first.

    Of a replacement (.swap) the log goes last: a broker would take the log alone for the replacement, and its index
    alone for the index of another log. While there is a .cleaned file, a broker replaces nothing.
    """
    stem, _, suffix = name.rpartition(".")
    if suffix == "swap":
        return _Rank(_REPLACEMENT, stem.endswith(".log"))
    if suffix in ("cleaned", "deleted"):
        return _Rank(_LEFTOVER)
    number = naming.number_of(name)
    if number is None or suffix not in _PARTS:
        return _Rank(_OTHER)
    return _Rank(_SEGMENT, _PARTS.index(suffix) - len(_PARTS) * number, suffix)


def steps(after: _After, files: _Files, links: Mapping[str, int], because: Mapping[str, str]) -> list[Step]:
    """The steps from `files` to `after`, in order, without what only the staging knows.

    `links` has the number of hard links of each file, `because` the codes of the findings.
    """
    targets = _renames(after, files)
    moved = set(targets.values())
    swaps, dropped, away, free, logs, others, indexes = [list[Step]() for _ in range(7)]

    def step(do: str, name: str, to: str | None = None, position: int | None = None) -> Step:
        before = files.get(name)
        length = None if before is None or do == "put" else before.size - (position or 0)
        return Step(do, name, to, position, length, because.get(name) or because.get(to or ""), before=before)

    for name in sorted(after, key=lambda name: (_rank(name), name)):
        content, (group, _, suffix) = after[name], _rank(name)
        into = indexes if suffix == "index" else logs if suffix == "log" else others
        if name in targets:
            if name in files and name not in moved:
                (away if suffix != "log" else free).append(step("take", name))
            (indexes if suffix == "index" else free).append(step("rename", targets[name], name))
        elif content is None:
            if name not in moved:
                out = _is_dropped(name, after, files)
                (swaps if group == _REPLACEMENT else dropped if out else away if suffix else others).append(
                    step("take", name)
                )
        elif name in moved or name not in files:
            into.append(step("put", name))
        elif (at := _cut_at(name, content, files, links)) is not None:
            into.append(step("cut", name, position=at))
        elif suffix in ("", "log"):
            into.append(step("replace", name))
        else:
            away.append(step("take", name))
            into.append(step("put", name))
    sync = Step("sync")
    groups = swaps + dropped + away, free + logs + others, indexes
    return [one for group in groups if group for one in (*group, sync)]


def _renames(after: _After, files: _Files) -> dict[str, str]:
    """Files that are only renamed: the old name by the new one."""
    renames: dict[str, str] = {}
    for target, content in after.items():
        if content is not None and len(content.pieces) == 1 and content.data is None:
            (piece,) = content.pieces
            whole = piece.name in files and piece == Piece(piece.name, 0, files[piece.name].size)
            goes = piece.name in after and piece.name not in renames.values()
            if whole and goes and target != piece.name:
                renames[target] = piece.name
    # A name that is given and removed in one run would need an order of its own.
    return {target: source for target, source in renames.items() if target not in renames.values()}


def _is_dropped(name: str, after: _After, files: _Files) -> bool:
    """Whether it belongs to a segment without a log afterwards."""
    stem, _, suffix = name.rpartition(".")
    log = f"{stem}.log"
    return suffix in _PARTS and (after[log] is None if log in after else log not in files)


def _cut_at(name: str, content: FileContent, files: _Files, links: Mapping[str, int]) -> int | None:
    """Where a log ends that loses its end and nothing else, None for others; a second name would lose its end too."""
    if not name.endswith(_CUT) or links.get(name) != 1 or len(content.pieces) != 1:
        return None
    (piece,) = content.pieces
    return piece.stop if piece.name == name and piece.start == 0 and piece.stop < files[name].size else None


def _with_indexes(plan: Plan) -> dict[str, FileContent | None]:
    """What changes, with the offset indexes that stay beside a log that changes: they go and come back."""
    after = {
        name: content
        for name, content in plan.after.items()
        if (name in plan.files if content is None else content.pieces != _all_of(plan, name))
    }
    for name in list(after):
        index = f"{name.removesuffix('.log')}.index"
        if name.endswith(".log") and index in plan.files and index not in after and after[name] is not None:
            after[index] = FileContent(_all_of(plan, index) or ())
    return after


def _all_of(plan: Plan, name: str) -> tuple[Piece, ...] | None:
    return (Piece(name, 0, plan.files[name].size),) if name in plan.files else None


# ---- what is written before anything changes


class _FileWriter:
    """Writes the contents of a plan into `target`, which is the directory itself or its copy."""

    def __init__(
        self,
        handle: DirectoryHandle,
        target: DirectoryHandle,
        plan: Plan,
        on_bytes: OnBytes | None,
        make: Make | None,
    ) -> None:
        self.handle, self.target, self.plan = handle, target, plan
        self._on_bytes, self._make = on_bytes, make
        logs = sorted(name for name in plan.files if name.endswith(".log"))
        self._last_log = logs[-1:]
        filled = (log for log in plan.segments if log.pieces)
        self._sources = {naming.segment_file_name(log.base_offset, ""): log.pieces[0].name for log in filled}
        self._attributes: dict[str, FileAttributes] = {}

    def _attributes_of(self, name: str, content: FileContent | None) -> FileAttributes | None:
        """What the new file takes over: the attributes of the log that it comes from, or that it lies beside."""
        pieces = [piece.name for piece in content.pieces[:1]] if content is not None else []
        stem = name.rpartition(".")[0]
        beside = [self._sources.get(stem, ""), f"{stem}.log"]
        for model in (*pieces, *beside, *self._last_log, name):
            if model in self.plan.files:
                if model not in self._attributes:
                    with self.handle.open(model) as descriptor:
                        self._attributes[model] = attributes_of(descriptor)
                return self._attributes[model]
        return None

    def write_content(self, name: str, content: FileContent, to: str) -> int:
        """Write a file; the CRC-32C of its bytes."""
        phases.enter(phases.Phase.COPY, self.handle.path_of(name))
        if content.data is not None:
            return self._write_data(name, content.data, to)
        with self.target.create(to, self._attributes_of(name, content)) as target:
            crc = 0
            for piece in content.pieces:
                with self.handle.open(piece.name) as source:
                    crc = append_range(source, piece.start, piece.stop, target, crc, self._on_bytes)
            return crc

    def _write_data(self, name: str, data: bytes, to: str) -> int:
        with self.target.create(to, self._attributes_of(name, None)) as target:
            write_all(target, data)
        if self._on_bytes is not None:
            self._on_bytes(len(data))
        return crc32c(data)

    def clone(self, name: str, to: str) -> None:
        """Copy a file; it shares its blocks with the copy where the file system can do that."""
        phases.enter(phases.Phase.COPY, self.handle.path_of(name))
        with self.handle.open(name) as source, self.target.create(to, attributes_of(source)) as copied:
            clone_file(source, copied, self._on_bytes)

    def write_rebuilt(self, names: Collection[str], to: Callable[[str], str]) -> dict[str, int | None]:
        """Write the files that are rebuilt; their CRC-32C, None for a file that does not exist afterwards.

        Raises KdumpError where one does not come, or a checksum inside is wrong.
        """
        found: dict[str, int | None] = {}
        if names:
            request = self.plan.rebuild_request()
            for name, data in self._make(self.plan) if self._make else self.plan.rebuild_cache.rebuild(request):
                if name in names and name not in found:
                    found[name] = None if data is None else self._write_data(name, data, to(name))
        if left := set(names) - found.keys():
            raise KdumpError(f"{self.handle.path_of(min(left))}: nothing makes this file")
        if self._make is None:
            check_snapshots(self.target, {name: to(name) for name, crc in found.items() if crc is not None})
        return found


def _stage(
    handle: DirectoryHandle, folder: UndoFolder, plan: Plan, after: _After, on_bytes: OnBytes | None, make: Make | None
) -> tuple[Step, ...]:
    """Write what is new, copy what is cut off, and give the steps with all that they need to know."""
    links = {name: status.st_nlink for name in plan.files if (status := handle.stat(name)) is not None}
    because = {os.path.basename(action.path): action.because for action in plan.actions if action.because is not None}
    todo = steps(after, plan.files, links, because)
    writer = _FileWriter(handle, handle, plan, on_bytes, make)
    news = {step.name: content for step in todo if step.do in _NEWS and (content := after[step.name]) is not None}
    rebuilt = [name for name, content in news.items() if content.is_rebuilt]
    checksums = writer.write_rebuilt(rebuilt, lambda name: folder.file_name("new", name))
    for name, content in news.items():
        if not content.is_rebuilt:
            checksums[name] = writer.write_content(name, content, folder.file_name("new", name))
    missing = {name for name, checksum in checksums.items() if checksum is None}
    taken = [
        step._replace(do="take") if step.name in missing and step.do == "replace" else step
        for step in todo
        if not (step.name in missing and step.do == "put")
    ]
    return tuple(_complete_step(step, writer, folder, checksums) for step in taken)


def _complete_step(step: Step, writer: _FileWriter, folder: UndoFolder, checksums: Mapping[str, int | None]) -> Step:
    """A step with the checksums and stamps that only the staging knows. The bytes that it cuts off are copied."""
    handle = writer.handle
    if step.do == "sync" or (step.before is None and step.do not in _NEWS):
        return step
    if step.do == "cut":
        assert step.before is not None
        assert step.position is not None
        tail = FileContent((Piece(step.name, step.position, step.before.size),))
        checksum = writer.write_content(step.name, tail, folder.file_name("cut", step.name))
        return step._replace(crc32c=checksum, after=step.before._replace(size=step.position))
    if step.do in ("take", "replace", "rename"):
        step = step._replace(crc32c=handle.checksum(step.name))
    if step.do in _NEWS:
        step = step._replace(after=handle.stamp(folder.file_name("new", step.name)), after_crc32c=checksums[step.name])
    return step


# ---- a copy


def output(plan: Plan, directory: str, *, on_bytes: OnBytes | None = None, make: Make | None = None) -> str:
    """Write the directory that the plan gives as a copy, and change nothing in the partition; returns its path.

    The copy is `directory`/<name of the partition's directory>. Files that do not change share their blocks with it,
    where the file system can do that. Raises KdumpError, and then leaves nothing.
    """
    import shutil  # which, with tempfile, take longer to import than all else here
    import tempfile

    path = os.path.join(directory, os.path.basename(os.path.abspath(plan.path)))
    if os.path.lexists(path):
        raise KdumpError(f"{path}: exists already")
    with DirectoryHandle(plan.path) as handle:
        _check(plan._replace(bytes_needed=0), handle)
        part = None
        try:
            os.makedirs(directory, exist_ok=True)
            part = tempfile.mkdtemp(prefix=".kdump-part-", dir=directory)
            with DirectoryHandle(part) as target:
                target.inherit_attributes(handle)
                _copy(plan, handle, target, on_bytes, make)
            _check(plan._replace(bytes_needed=0), handle)
            os.rename(part, path)
            part = path
            with DirectoryHandle(directory) as target:
                target.sync()
        except (OSError, EOFError, KdumpError, KeyboardInterrupt) as error:
            if part is not None:
                shutil.rmtree(part, ignore_errors=True)
            raise sentence(handle.path, error, f"{path} was not written") from None
    return path


def _copy(
    plan: Plan, handle: DirectoryHandle, target: DirectoryHandle, on_bytes: OnBytes | None, make: Make | None
) -> None:
    writer = _FileWriter(handle, target, plan, on_bytes, make)
    news = {name: content for name, content in plan.after.items() if content is not None}
    for name in plan.files:
        if name not in plan.after and not naming.is_undo(name):
            news[name] = FileContent(_all_of(plan, name) or ())
    writer.write_rebuilt([name for name, content in news.items() if name in plan.after and content.is_rebuilt], str)
    for name, content in news.items():
        if content.pieces and len(content.pieces) == 1 and content.pieces == _all_of(plan, content.pieces[0].name):
            writer.clone(content.pieces[0].name, name)
        elif not content.is_rebuilt:
            writer.write_content(name, content, name)
    target.copy_attributes(handle)
    target.sync()
