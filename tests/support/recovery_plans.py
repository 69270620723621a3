"""Plans made by hand on partitions from a few words, and what a directory is to hold after them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kdump.broker import rebuild
from kdump.broker.rebuild_request import PlannedSegment
from kdump.recover import planner
from kdump.recover.plan import FILL, STRATEGIES, Action, FileContent, Plan, RecoverOptions
from kdump.recover.staging import Make
from kdump.storage.discovery import discover
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp
from support import build, directories
from support.directories import Files, stem

A, B, C, END = (stem(offset) for offset in (0, 10, 20, 30))
REBUILT = FileContent()
BUILT = b"made for "

After = dict[str, FileContent | None]


def stamps(directory: Path) -> dict[str, Stamp]:
    found = {}
    for entry in os.scandir(directory):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            found[entry.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def plan_of(directory: Path, after: Mapping[str, FileContent | None], **how: Any) -> Plan:
    """The plan with these contents for the directory as it is."""
    segments = tuple(
        PlannedSegment(int(name[:20]), content.pieces, True, True)
        for name, content in after.items()
        if content is not None and name.endswith(".log")
    )
    actions = (Action("truncate", str(directory / next(iter(after), "")), "batch/crc"),)
    return Plan(str(directory), None, RecoverOptions(), actions, after, stamps(directory), segments, **how)


def make(plan: Plan) -> Iterator[tuple[str, bytes | None]]:
    """In place of kdump.broker.rebuild: bytes that tell what they are for, and no transaction indexes."""
    for name, content in plan.after.items():
        if content is not None and content.is_rebuilt:
            yield name, None if name.endswith(".txnindex") else BUILT + name.encode()


Tree = dict[str, tuple[bytes, int, int]]


def tree(directory: Path, *, undo: bool = False) -> Tree:
    """Bytes, modification time and mode of every file, without what recover keeps."""
    found = {}
    for path in directory.rglob("*"):
        name = str(path.relative_to(directory))
        if path.is_file() and (undo or ".kdump-undo" not in name):
            status = path.stat()
            found[name] = path.read_bytes(), status.st_mtime_ns, stat.S_IMODE(status.st_mode)
    return found


def contents(of: Tree) -> dict[str, bytes]:
    return {name: content[0] for name, content in of.items()}


def wanted(
    before: Tree, after: Mapping[str, FileContent | None], built: Mapping[str, bytes | None]
) -> dict[str, bytes]:
    """What the files hold when the plan is carried out: said without a step."""
    result = contents(before)
    for name, content in after.items():
        data: bytes | None = None
        if content is not None and content.data is not None:
            data = content.data
        elif content is not None and content.pieces:
            data = b"".join(_bytes_of(before, piece) for piece in content.pieces)
        elif content is not None:
            data = built[name]
        if data is None:
            result.pop(name, None)
        else:
            result[name] = data
    return result


def _bytes_of(before: Tree, piece: Piece) -> bytes:
    whole = before[piece.name][0] if piece.name in before else Path(piece.name).read_bytes()
    return whole[piece.start : piece.stop]


# ---- cases


class Case(NamedTuple):
    """A directory by the name t-0, and what is to become of its files; `outside` does something beside it.

    With a `strategy` the plan is the one that recover makes.
    """

    files: Files
    after: Callable[[Mapping[str, Stamp]], After]
    outside: Callable[[Path], None] | None = None
    root: bool = False
    keep: bool = True
    strategy: str | None = None


def planned(case: Case, directory: Path) -> tuple[Plan, Make]:
    """The plan of a case, and what makes the contents that it leaves open."""
    if case.strategy is None:
        return plan_of(directory, case.after(stamps(directory))), make
    options = RecoverOptions(case.strategy, walk="all", rebuild_all=True, now_ms=directories.NOW_MS)
    if case.strategy == FILL:
        options = options._replace(fill_from=(str(directory.parent / "other"),))
    (plan,) = planner.plan_recovery(discover([str(directory)]), options)
    assert isinstance(plan, Plan)
    return plan, lambda plan: rebuild.rebuild_companions(plan.rebuild_request())


def write(case: Case, place: Path) -> Path:
    """The directory that the case is about."""
    directory = directories.write(place / ("d" if case.root else "t-0"), case.files)
    if case.outside is not None:
        case.outside(directory)
    return directory


def companions(base: str, *kinds: str) -> Iterable[str]:
    return (f"{base}.{kind}" for kind in kinds or ("index", "timeindex", "txnindex"))


def gone(base: str, *kinds: str) -> After:
    return dict.fromkeys(companions(base, *kinds))


def again(base: str, *kinds: str) -> After:
    return dict.fromkeys(companions(base, *kinds), REBUILT)


def up_to(name: str, size: int) -> FileContent:
    return FileContent((Piece(name, 0, size),))


def truncated(files: Mapping[str, Stamp]) -> After:
    """The second segment is cut, the third one dropped."""
    log = f"{B}.log"
    return {
        log: up_to(log, files[log].size // 2),
        **again(B),
        **gone(C, "log", "index", "timeindex", "txnindex", "snapshot"),
        f"{B}.snapshot": REBUILT,
        f"{stem(15)}.snapshot": REBUILT,
        f"{END}.snapshot": None,
        "leader-epoch-checkpoint": FileContent(data=build.checkpoint("0 0")),
    }


def split(files: Mapping[str, Stamp]) -> After:
    """The last segment becomes two."""
    log, size = f"{C}.log", files[f"{C}.log"].size
    return {
        log: up_to(log, size // 2),
        f"{stem(25)}.log": FileContent((Piece(log, size // 2, size),)),
        **again(C),
        **again(stem(25)),
        f"{stem(25)}.snapshot": REBUILT,
    }


def renamed(files: Mapping[str, Stamp]) -> After:
    """The second segment gets the name that it should have."""
    log = f"{B}.log"
    return {
        f"{stem(9)}.log": up_to(log, files[log].size),
        **gone(B, "log", "index", "timeindex"),
        **again(stem(9)),
        f"{B}.snapshot": None,
        f"{stem(9)}.snapshot": REBUILT,
    }


def salvaged(files: Mapping[str, Stamp]) -> After:
    """Every segment loses bytes from its middle."""
    after: After = {}
    for base in (A, B, C):
        log, size = f"{base}.log", files[f"{base}.log"].size
        after[log] = FileContent((Piece(log, 0, size // 4), Piece(log, size // 2, size)))
        after |= again(base, "index", "timeindex")
    return {**after, f"{A}.txnindex": FileContent(data=b"\0" * 34), f"{END}.snapshot": REBUILT}


def reindexed(files: Mapping[str, Stamp]) -> After:
    return {**again(A), **again(B, "index")}


def promoted(files: Mapping[str, Stamp]) -> After:
    """What a cleaner had finished takes the place of two segments; what it had not finished goes."""
    swap = f"{A}.log.swap"
    return {
        f"{A}.log": up_to(swap, files[swap].size),
        f"{A}.timeindex": up_to(f"{A}.timeindex.swap", files[f"{A}.timeindex.swap"].size),
        f"{A}.index": REBUILT,
        f"{A}.txnindex": None,
        f"{A}.log.swap": None,
        f"{A}.index.swap": None,
        f"{A}.timeindex.swap": None,
        **gone(B, "log", "index", "timeindex"),
        f"{C}.log.cleaned": None,
        f"{C}.index.cleaned": None,
        f"{stem(5)}.log.deleted": None,
    }


def emptied(files: Mapping[str, Stamp]) -> After:
    """The log begins after its end."""
    after: After = dict.fromkeys(name for name in files if name != "partition.metadata")
    return {**after, f"{stem(50)}.log": FileContent(data=b""), **again(stem(50), "index", "timeindex")}


def odd_names(files: Mapping[str, Stamp]) -> After:
    """Names that a broker refuses go, and a checkpoint that it cannot read is written again."""
    return {**dict.fromkeys(("letters.log", "99999999999999999999.log", "bad\nname.log", "leader-epoch-checkpoint"))}


def at_root(files: Mapping[str, Stamp]) -> After:
    return {
        "recovery-point-offset-checkpoint": FileContent(data=build.checkpoint("t 0 15")),
        ".kafka_cleanshutdown": None,
    }


def linked(directory: Path) -> None:
    """A backup that shares the logs."""
    backup = directory.parent / "backup"
    backup.mkdir()
    for log in directory.glob("*.log"):
        os.link(log, backup / log.name)


def other_copy(directory: Path) -> None:
    """A copy in which nothing is damaged."""
    directories.write(directory.parent / "other" / directory.name, PARTITION)


def untouched(files: Mapping[str, Stamp]) -> After:
    return {}


PARTITION = directories.partition(directories.history().logs)
SWAPPED: Files = {
    **PARTITION,
    f"{A}.log.swap": PARTITION[f"{A}.log"],
    f"{A}.timeindex.swap": PARTITION[f"{A}.timeindex"],
    f"{A}.index.swap": b"",
    f"{C}.log.cleaned": b"half",
    f"{C}.index.cleaned": b"",
    f"{stem(5)}.log.deleted": b"gone",
}
ODD: Files = {
    **PARTITION,
    "letters.log": b"a",
    "99999999999999999999.log": b"",
    "bad\nname.log": b"",
    "leader-epoch-checkpoint": b"no",
}


def _damaged() -> Files:
    """A flipped byte in the second segment, an index that has lost an entry, and what was left of a deletion."""
    log = bytearray(PARTITION[f"{B}.log"])  # type: ignore[arg-type]
    log[len(log) // 2] ^= 1
    index = PARTITION[f"{A}.timeindex"]
    assert isinstance(index, bytes)
    return {**PARTITION, f"{B}.log": bytes(log), f"{A}.timeindex": index[12:], f"{stem(5)}.log.deleted": b"gone"}


DAMAGED = _damaged()

CASES = {
    "truncate": Case(PARTITION, truncated),
    "truncate, nothing kept": Case(PARTITION, truncated, keep=False),
    "truncate, linked": Case(PARTITION, truncated, linked),
    "split": Case(PARTITION, split),
    "rename": Case(PARTITION, renamed),
    "salvage": Case(PARTITION, salvaged),
    "reindex": Case(PARTITION, reindexed),
    "promote": Case(SWAPPED, promoted),
    "empty": Case(PARTITION, emptied),
    "names": Case(ODD, odd_names),
    "root": Case(directories.clean(), at_root, root=True),
}

REAL = {f"recover --{strategy}": Case(DAMAGED, untouched, strategy=strategy) for strategy in STRATEGIES}
REAL["recover --fill-from"] = Case(DAMAGED, untouched, other_copy, strategy=FILL)
