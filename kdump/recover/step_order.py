"""The steps of a run, in an order that leaves a valid log after each of them, as far as it already is what it will be.

Segments go from the last to the first. The offset index of a segment that changes goes before its log and comes back
last, because a broker trusts a log that has an index and recovers a log without one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kdump.format import naming
from kdump.named_tuple import NamedTuple
from kdump.recover.journal import Step
from kdump.recover.plan import FileContent, Plan
from kdump.storage.pieces import Piece
from kdump.storage.stamps import Stamp

_PARTS: Final = ("index", "log", "timeindex", "txnindex")
_CUT: Final = (".log", ".kafka")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_TIMES: Final[Mapping[str, int]] = MappingProxyType({})

After = Mapping[str, FileContent | None]
Files = Mapping[str, Stamp]


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


def steps(
    after: After,
    files: Files,
    links: Mapping[str, int],
    because: Mapping[str, str] = _NONE,
    times: Mapping[str, int] = _NO_TIMES,
) -> list[Step]:
    """The steps from `files` to `after`, in order, without what only the staging knows.

    `links` has the number of hard links of each file, `because` the codes of the findings, `times` the modification
    times that files have afterwards, in nanoseconds, where they are not those of the files that they come from.
    """
    targets = _renames(after, files, times)
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
        elif (at := _cut_at(name, content, files, links, times)) is not None:
            into.append(step("cut", name, position=at))
        elif _is_longer(name, content, files, links, times):
            into.append(step("append", name, position=files[name].size))
        elif suffix in ("", "log"):
            into.append(step("replace", name))
        else:
            away.append(step("take", name))
            into.append(step("put", name))
    sync = Step("sync")
    groups = swaps + dropped + away, free + logs + others, indexes
    return [one for group in groups if group for one in (*group, sync)]


def _renames(after: After, files: Files, times: Mapping[str, int]) -> dict[str, str]:
    """Files that are only renamed: the old name by the new one."""
    renames: dict[str, str] = {}
    for target, content in after.items():
        if content is not None and len(content.pieces) == 1 and content.data is None:
            (piece,) = content.pieces
            whole = piece.name in files and piece == Piece(piece.name, 0, files[piece.name].size)
            goes = piece.name in after and piece.name not in renames.values()
            if whole and goes and target != piece.name and _keeps_time(target, files[piece.name], times):
                renames[target] = piece.name
    # A name that is given and removed in one run would need an order of its own.
    return {target: source for target, source in renames.items() if target not in renames.values()}


def _is_dropped(name: str, after: After, files: Files) -> bool:
    """Whether it belongs to a segment without a log afterwards."""
    stem, _, suffix = name.rpartition(".")
    log = f"{stem}.log"
    return suffix in _PARTS and (after[log] is None if log in after else log not in files)


def _cut_at(
    name: str, content: FileContent, files: Files, links: Mapping[str, int], times: Mapping[str, int]
) -> int | None:
    """Where a log ends that loses its end and nothing else, None for others; a second name would lose its end too."""
    if not name.endswith(_CUT) or links.get(name) != 1 or len(content.pieces) != 1:
        return None
    if not _keeps_time(name, files[name], times):
        return None
    (piece,) = content.pieces
    return piece.stop if piece.name == name and piece.start == 0 and piece.stop < files[name].size else None


def _is_longer(
    name: str, content: FileContent, files: Files, links: Mapping[str, int], times: Mapping[str, int]
) -> bool:
    """Whether a log only gets the bytes back that a run cut off and kept."""
    if not name.endswith(_CUT) or links.get(name) != 1 or len(content.pieces) != 2:
        return False
    first, second = content.pieces
    return first == Piece(name, 0, files[name].size) and is_kept(second) and _keeps_time(name, files[name], times)


def is_kept(piece: Piece) -> bool:
    """Whether it is of a file that a run keeps."""
    return naming.is_undo(piece.name.partition("/")[0])


def _keeps_time(name: str, source: Stamp, times: Mapping[str, int]) -> bool:
    return times.get(name, source.mtime_ns) == source.mtime_ns


def with_indexes(plan: Plan) -> dict[str, FileContent | None]:
    """What changes, with the offset indexes that stay beside a log that changes: they go and come back."""
    after = {
        name: content
        for name, content in plan.after.items()
        if (name in plan.files if content is None else content.pieces != all_of(plan, name))
    }
    for name in list(after):
        index = f"{name.removesuffix('.log')}.index"
        if name.endswith(".log") and index in plan.files and index not in after and after[name] is not None:
            after[index] = FileContent(all_of(plan, index) or ())
    return after


def all_of(plan: Plan, name: str) -> tuple[Piece, ...] | None:
    return (Piece(name, 0, plan.files[name].size),) if name in plan.files else None
