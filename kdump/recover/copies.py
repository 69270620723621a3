"""Writes what a plan gives as a copy of the directory."""

import os

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.recover.apply import check_fits, sentence
from kdump.recover.plan import FileContent, Plan
from kdump.recover.staging import FileWriter, Make
from kdump.recover.step_order import all_of
from kdump.storage.directory_handle import DirectoryHandle, OnBytes


def output(plan: Plan, directory: str, *, on_bytes: OnBytes | None = None, make: Make | None = None) -> str:
    """Write the directory that the plan gives as a copy, and change nothing in the partition; returns its path.

    The copy is `directory`/<name of the partition's directory>. Files that do not change share their blocks with it,
    where the file system can do that. Raises KdumpError, and then leaves nothing.
    """
    import shutil  # which, with tempfile, take longer to import than all else here
    import tempfile

    path = os.path.join(directory, os.path.basename(os.path.abspath(plan.path)))
    if os.path.lexists(path):
        raise KdumpError(f"{path}: already exists")
    with DirectoryHandle(plan.path) as handle:
        check_fits(plan._replace(bytes_needed=0), handle)
        part = None
        try:
            os.makedirs(directory, exist_ok=True)
            part = tempfile.mkdtemp(prefix=".kdump-part-", dir=directory)
            with DirectoryHandle(part) as target:
                target.inherit_attributes(handle)
                _copy(plan, handle, target, on_bytes, make)
            check_fits(plan._replace(bytes_needed=0), handle)
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
    writer = FileWriter(handle, target, plan, on_bytes, make)
    news = {name: content for name, content in plan.after.items() if content is not None}
    for name in plan.files:
        if name not in plan.after and not naming.is_undo(name):
            news[name] = FileContent(all_of(plan, name) or ())
    rebuilt = [name for name, content in news.items() if name in plan.after and content.is_rebuilt]
    writer.scan_copies(rebuilt)
    for name, content in news.items():
        if content.pieces and len(content.pieces) == 1 and content.pieces == all_of(plan, content.pieces[0].name):
            writer.clone(content.pieces[0].name, name)
        elif not content.is_rebuilt:
            writer.write_content(name, content, name)
    writer.write_rebuilt(rebuilt, str)
    target.copy_attributes(handle)
    target.sync()
