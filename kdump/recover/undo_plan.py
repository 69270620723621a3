"""An undo that is a run of its own: it keeps every file that it touches, so that it can be undone itself.

It takes the directory in one step from what it is to what it was before the other run. What that run kept gets a second
name where the file system can do that, so that nothing is copied.
"""

from collections.abc import Collection, Mapping

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.recover.apply import in_place
from kdump.recover.journal import Step
from kdump.recover.plan import FileContent, Plan, RecoverOptions
from kdump.recover.steps import RunExecutor
from kdump.recover.undo_check import SAVED, UndoCheck
from kdump.storage.directory_handle import DirectoryHandle
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp, read_stamps
from kdump.storage.undo_folders import discard


def undo_as_run(executor: RunExecutor, check: UndoCheck, name: str) -> None:
    """Undo a run under the name of another run, which keeps what is there now. Raises KdumpError."""
    handle = executor.handle
    files = {one: stamp for one, stamp in read_stamps(handle.path).items() if not naming.is_undo(one)}
    after, times = _before(executor, files, dict(check.gone))
    after |= {one: None for one in check.others if one not in executor.journal.files and one in files}
    needed = sum(
        piece.stop - piece.start
        for one, content in after.items()
        for piece in (
            () if content is None or len(content.pieces) < 2 or _grows(content, one, files) else content.pieces
        )
    )
    plan = Plan(handle.path, None, RecoverOptions(SAVED), after=after, files=files, bytes_needed=needed)
    in_place(handle, plan, name, undoes=executor.journal.run, times=times)
    if not check.gone:
        discard(handle, executor.folder)
    elif any(handle.stat(kept) is not None for _, kept in check.gone):
        for state in ("applying", "applied", "undoing"):
            handle.remove(executor.folder.journal(state))  # no later run removes what is damaged
    else:
        discard(handle, executor.folder)


def _grows(content: FileContent, name: str, files: Mapping[str, Stamp]) -> bool:
    first = content.pieces[0]
    return name in files and first == Piece(name, 0, files[name].size)


_Contents = dict[str, FileContent | None]


def _before(
    executor: RunExecutor, files: Mapping[str, Stamp], gone: Collection[str]
) -> tuple[_Contents, dict[str, int]]:
    """What the files that a run touched held before it, from the files that are there now and those that it kept.

    And the times of those that are put together. Raises KdumpError where bytes are gone.
    """
    after: _Contents = {}
    times: dict[str, int] = {}
    handle = executor.handle
    for step in executor.journal.steps:
        for name in (step.name, step.to) if step.do in ("put", "rename") else ():
            if name and _comes_back(name, gone, is_put=step.do == "put"):
                after[name] = None
    for step in executor.journal.steps:
        if step.do in ("put", "sync") or step.before is None or not _comes_back(step.name, gone):
            continue
        times[step.name] = step.before.mtime_ns
        if step.do in ("take", "replace"):
            after[step.name] = _whole(handle, executor.folder.file_name("old", step.name), step.name, files)
        else:
            after[step.name] = _log(executor, step, files)
    return {name: content for name, content in after.items() if content is not None or name in files}, times


def _comes_back(name: str, gone: Collection[str], *, is_put: bool = False) -> bool:
    return f"{name.rpartition('.')[0]}.log" not in gone and (name not in gone or is_put)


def _whole(handle: DirectoryHandle, old: str, name: str, files: Mapping[str, Stamp]) -> FileContent:
    """A file that was kept, or that is still there."""
    status = handle.stat(old)
    size = files[name].size if status is None else status.st_size
    return FileContent((Piece(name if status is None else old, 0, size),))


def _log(executor: RunExecutor, step: Step, files: Mapping[str, Stamp]) -> FileContent:
    """A log that lost its end, grew or was renamed. Raises KdumpError where bytes of it are gone."""
    source, size, more = step.name, step.position or 0, None
    if step.do == "rename" and step.to is not None:
        source = step.to if step.to in files else step.name
        size = step.length or 0
    elif step.do == "cut":
        there = files.get(step.name)
        if step.before is not None and there is not None and there[:2] == step.before[:2]:
            size = there.size  # not cut yet
        else:
            more = Piece(executor.folder.file_name("cut", step.name), 0, step.length or 0)
    if source not in files or files[source].size < size:
        path = executor.handle.path_of(source)
        raise KdumpError(f"{path}: bytes before position {size} are gone, so the run cannot be undone")
    return FileContent((Piece(source, 0, size), *(() if more is None else (more,))))
