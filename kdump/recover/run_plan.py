"""The plan of a whole run, which is on the disk before the run changes anything.

It lies at the root of each log directory that the run touches, or in a partition on its own, as a file of its undo
folder (kdump.storage.undo_folders). Its name is its state, as that of a journal: `applying` until every partition is
done, `applied` as long as the run can be undone, `undoing` while all of it is undone. It is JSON Lines: a line about
the run, a line for each partition, and a line with the CRC-32C of the lines before it.
"""

import os
from collections.abc import Mapping
from typing import Final

from kdump.errors import KdumpError
from kdump.format import naming
from kdump.format.naming import TopicPartition
from kdump.kernel.crc import crc32c
from kdump.named_tuple import NamedTuple
from kdump.recover.plan import Plan, RecoverOptions
from kdump.recover.run_values import from_json, to_json
from kdump.recover.steps import refuse_other_owner
from kdump.storage.directory_handle import DirectoryHandle, write_all
from kdump.storage.stamps import Stamp
from kdump.storage.undo_folders import APPLYING, UndoFolder, discard, plan_state
from kdump.verify.findings import Finding

VERSION: Final = 1


class RunPlan(NamedTuple):
    """All that a run does below one directory.

    `plans` are those of its partitions, whose paths are names in the directory. An undo that keeps what it overwrites
    has none: it `undoes` a run in the partitions `names`, with `takes_root` also at the root, and may be `forced`.
    `drop_marker`: the clean-shutdown file
    is deleted. `repairs_points`: a checkpoint of recovery points that cannot be read is moved away. `files` are the
    checkpoints and the clean-shutdown file of the log directory as the run found them, `lines` what the checkpoints
    said of the partitions, by the checkpoint's name. `others` are the plans of partitions that stay as they are, with
    what is said of them, and `not_covered` the findings about the log directory.
    """

    run: str
    time_ms: int
    options: RecoverOptions = RecoverOptions()
    keep: bool = True
    drop_marker: bool = False
    undoes: str | None = None
    forced: bool = False
    names: tuple[str, ...] = ()
    files: Mapping[str, Stamp] = {}
    lines: Mapping[str, Mapping[TopicPartition, int]] = {}
    plans: tuple[Plan, ...] = ()
    repairs_points: bool = False
    others: tuple[Plan, ...] = ()
    not_covered: tuple[Finding, ...] = ()
    takes_root: bool = True


def to_bytes(plan: RunPlan) -> bytes:
    import json

    fields = plan._replace(plans=(), others=())._asdict()
    head = {"type": "run", "version": VERSION, **{name: to_json(value) for name, value in fields.items()}}
    parts = [*(("partition", one) for one in plan.plans), *(("other", one) for one in plan.others)]
    lines = [head, *({"type": kind, "plan": to_json(one)} for kind, one in parts)]
    data = "".join(f"{json.dumps(line)}\n" for line in lines).encode("ascii")
    return data + json.dumps({"type": "end", "crc32c": crc32c(data)}).encode("ascii") + b"\n"


def from_bytes(data: bytes, path: str) -> RunPlan:
    """The plan in these bytes. Raises KdumpError where it is damaged, or of a later version."""
    import json

    try:
        cut = data.rstrip(b"\n").rfind(b"\n") + 1
        head, *partitions, end = (json.loads(line) for line in data.splitlines())
        if head["version"] != VERSION:
            raise KdumpError(f"{path}: a plan of version {head['version']}, this kdump reads {VERSION}")
        if end != {"type": "end", "crc32c": crc32c(data[:cut])}:
            raise KdumpError(f"{path}: the plan is damaged: its checksum is wrong")
        fields = {name: value for name, value in head.items() if name not in ("type", "version")}
        found: RunPlan = from_json(RunPlan, fields)
        plans = [_checked(from_json(Plan, line["plan"])) for line in partitions]
        count = sum(1 for line in partitions if line["type"] == "partition")
        if any(map(_is_elsewhere, found.names)):
            raise ValueError("a name that a directory cannot have")
        return found._replace(plans=tuple(plans[:count]), others=tuple(plans[count:]))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise KdumpError(f"{path}: the plan is damaged: {error}") from None


def _checked(plan: Plan) -> Plan:
    """A plan that changes nothing outside of its directory, whoever wrote the file."""
    pieces = (
        piece.name
        for content in plan.after.values()
        for piece in (() if content is None else content.pieces)
        if piece.name not in plan.sources  # which are only read
    )
    if not all(map(_is_log_elsewhere, plan.sources)):
        raise ValueError("a source that is no log file of another copy")
    if _is_elsewhere(plan.path, ".") or any(map(_is_elsewhere, (*plan.after, *plan.files, *pieces))):
        raise ValueError("a name that a file of a log cannot have")
    return plan


def _is_log_elsewhere(path: str) -> bool:
    """Whether a path can be that of a log file that gives bytes: no other file is read, whoever wrote the plan."""
    number = naming.number_of(os.path.basename(path))
    return os.path.isabs(path) and number is not None and path.endswith(naming.segment_file_name(number, ".log"))


def _is_elsewhere(name: str, here: str = "") -> bool:
    return name != here and ("/" in name or "\0" in name or name in ("", ".", "..") or naming.is_undo(name))


# ---- on the disk


def write(handle: DirectoryHandle, folder: UndoFolder, plan: RunPlan) -> None:
    """Write the plan of a run that begins. Raises OSError and KdumpError, and then leaves nothing."""
    try:
        for name in folder.directories[:2]:
            handle.make_directory(name)
        handle.remove(folder.of_run("plan.tmp"))
        with handle.create(folder.of_run("plan.tmp")) as target:
            write_all(target, to_bytes(plan))
        handle.rename(folder.of_run("plan.tmp"), folder.plan(APPLYING))
        for name in (*reversed(folder.directories[:2]), "."):
            handle.sync(name)
    except BaseException:
        discard(handle, folder)
        raise


def read(handle: DirectoryHandle, folder: UndoFolder) -> RunPlan | None:
    """The plan of a run, None where it left none. Raises KdumpError."""
    state = plan_state(handle, folder)
    if state is None:
        return None
    name = folder.plan(state)
    refuse_other_owner(handle, name)
    return from_bytes(handle.read(name), handle.path_of(name))


def enter(handle: DirectoryHandle, folder: UndoFolder, state: str) -> None:
    """Rename the plan to a new state; without a plan nothing happens."""
    now = plan_state(handle, folder)
    if now is not None and now != state:
        handle.rename(folder.plan(now), folder.plan(state))
        handle.sync(os.path.dirname(folder.plan(state)) or ".")
