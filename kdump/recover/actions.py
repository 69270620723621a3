"""The actions of a plan: the same changes as in `Plan.after`, for people and for JSON, in the order of the segments."""

import os
from collections.abc import Iterator

from kdump.format.naming import INDEX_SUFFIXES, SEGMENT_SUFFIXES, number_of
from kdump.named_tuple import NamedTuple
from kdump.recover.plan import Action, FileContent, GivenUp
from kdump.recover.plan_builder import PlanBuilder, Segments
from kdump.storage.pieces import Piece
from kdump.verify.reaction import TRUNCATION_CODES


def actions_of(builder: PlanBuilder, segments: Segments) -> tuple[Action, ...]:
    """The actions of what `builder` has collected, which leaves these segments."""
    return tuple(_ActionList(builder, segments).actions())


class _FileOrder(NamedTuple):
    """Segments by their offsets, each with its log first, then what belongs to no segment."""

    group: int
    number: int
    name: str


def _order(name: str) -> _FileOrder:
    number = number_of(name)
    if number is None or not name.startswith(("0", "-", "9", *"12345678")):
        return _FileOrder(1, 0, name)
    suffix = name[name.index(".") :] if "." in name else ""
    return _FileOrder(0, number, f"{SEGMENT_SUFFIXES.index(suffix) if suffix in SEGMENT_SUFFIXES else 9}{name}")


class _ActionList:
    """Gives the actions of a plan. `_targets` has, by file, the files that get bytes of it, and which bytes."""

    def __init__(self, builder: PlanBuilder, segments: Segments) -> None:
        self._builder, self._given, self._segments = builder, builder.given, segments
        self._after, self._sizes = builder.after, builder.given.sizes
        self._targets: dict[str, dict[str, list[Piece]]] = {}
        for name, content in self._after.items():
            for piece in () if content is None else content.pieces:
                self._targets.setdefault(piece.name, {}).setdefault(name, []).append(piece)
        self._cause = self._first_cause()

    def actions(self) -> Iterator[Action]:
        for name in sorted(self._after, key=_order):
            content = self._after[name]
            if content is None:
                yield from self._deleted(name)
            elif name in self._segments:
                yield from self._segment(name, content)
            else:
                yield from self._written(name)

    # ---- why

    def _first_cause(self) -> str | None:
        """The code of the first segment that changes, which is that of everything that follows from it."""
        for name in sorted(self._segments):
            content = self._after.get(name)
            if content is not None and (code := self._code_of_segment(name, content)) is not None:
                return code
        gone = list(self._builder.gone_segments(self._segments))
        if gone:
            return next((code for gap, code in self._builder.gap_codes.items() if gap.name in gone), _LOG_START)
        is_new = bool(self._segments.keys() - self._sizes.keys())
        return "file/orphan" if is_new and "file/orphan" in self._given.codes else None

    def _code_of_segment(self, name: str, content: FileContent) -> str | None:
        if not content.pieces:
            return self._code_of(Piece(name, 0, self._sizes.get(name, 0)))
        origin = self._origin_of(name, content)
        if origin not in self._sizes:
            return None  # all of it comes from other copies, and nothing of it was here
        for gap in self._builder.between(origin, self._own(content)):
            return self._code_of(gap)
        return self._builder.reasons.get(origin) or self._code_of(Piece(origin, 0, self._sizes[origin]))

    def _code_of(self, gap: Piece) -> str | None:
        """Why these bytes go."""
        if gap in self._builder.gap_codes:
            return self._builder.gap_codes[gap]
        if gap.name in self._builder.reasons:
            return self._builder.reasons[gap.name]
        if gap.name.endswith(".swap"):
            return "file/leftover"
        found = self._given.findings_of(gap.name)
        cuts = [one for one in found if one.position + max(1, one.length) > gap.start and one.code in TRUNCATION_CODES]
        if cuts:
            return min(cuts, key=lambda finding: finding.position).code
        return next((finding.code for finding in found), None)

    def _origin_of(self, name: str, content: FileContent) -> str:
        """The file of the directory whose bytes a segment has; the segment itself where they are of other copies."""
        return next((piece.name for piece in content.pieces if piece.name in self._sizes), name)

    def _own(self, content: FileContent) -> list[Piece]:
        return [piece for piece in content.pieces if piece.name in self._sizes]

    # ---- the actions of one file

    def _deleted(self, name: str) -> Iterator[Action]:
        if name in self._targets:
            return  # the actions of the files that get its bytes say so
        path = os.path.join(self._given.directory, name)
        code = self._builder.reasons.get(name)
        code = code or next((code for gap, code in self._builder.gap_codes.items() if gap.name == name), None)
        size, found = self._sizes[name], self._given.findings_of(name)
        is_log = name.endswith(self._given.suffix) and number_of(name) is not None
        if is_log:  # no other finding about its batches takes a segment away
            found = [finding for finding in found if finding.code in TRUNCATION_CODES or self._cause is None]
        code = code or next((finding.code for finding in found), None) or self._cause
        if is_log and size:
            removed = self._builder.ranges.known(Piece(name, 0, size))
            yield _with_batches(Action("delete", path, code, 0, size, bytes=size), removed)
        else:
            yield Action("delete", path, code, bytes=size)

    def _segment(self, name: str, content: FileContent) -> Iterator[Action]:
        path = os.path.join(self._given.directory, name)
        code = self._code_of_segment(name, content) or self._cause
        if not content.pieces:
            if self._sizes.get(name):
                yield self._removed(Piece(name, 0, self._sizes[name]), path)
            elif name not in self._sizes:
                yield Action("write", path, code, target=path)
            return
        for piece in content.pieces:
            if piece in self._builder.fills:
                yield self._filled(piece, path, code)
        origin = self._origin_of(name, content)
        if origin not in self._sizes:
            return
        source = os.path.join(self._given.directory, origin)
        if origin != name and name in self._sizes and name not in self._targets:
            yield Action("delete", path, code, 0, self._sizes[name], bytes=self._sizes[name])
        targets = self._targets.get(origin, {})
        if len(targets) > 1:
            for piece in self._own(content):
                yield Action("split", source, code, piece.start, piece.stop, path, piece.stop - piece.start)
            if name == max(targets, key=_order):
                for gap in self._builder.between(origin, [piece for pieces in targets.values() for piece in pieces]):
                    yield self._removed(gap, source)
            return
        if origin != name:
            yield Action("rename", source, code, target=path)
        for gap in self._builder.between(origin, self._own(content)):
            yield self._removed(gap, path)

    def _filled(self, piece: Piece, path: str, code: str | None) -> Action:
        """Bytes of another copy that come into a segment."""
        action = Action("fill", piece.name, code, piece.start, piece.stop, path, piece.stop - piece.start)
        return _with_batches(action, self._builder.fills.get(piece))

    def _removed(self, gap: Piece, path: str) -> Action:
        """Bytes that go out of a segment that stays."""
        what = "truncate" if gap.stop == self._sizes[gap.name] else "drop"
        code = self._code_of(gap) or self._cause
        action = Action(what, path, code, gap.start, gap.stop, bytes=gap.stop - gap.start)
        return _with_batches(action, self._builder.ranges.within(gap))

    def _written(self, name: str) -> Iterator[Action]:
        path = os.path.join(self._given.directory, name)
        code = self._builder.reasons.get(name)
        code = code or next((finding.code for finding in self._given.findings_of(name)), None)
        log, kind = name.partition(".")[0] + self._given.suffix, name.rpartition(".")[2]
        missing = (finding.code for finding in self._given.findings_of(log) if finding.code == f"{kind}/missing")
        code = code or next(missing, None)
        code = code or (self._cause if not self._given.options.rebuild_all or log in self._after else None)
        if name.endswith(INDEX_SUFFIXES):
            if name.endswith(".txnindex") and name not in self._sizes and code in (None, self._cause):
                return  # if there is anything to write, it follows from the actions of the log
            yield Action("rebuild", path, code, bytes=self._sizes.get(name, 0))
        else:
            yield Action("write", path, code, target=path, bytes=self._sizes.get(name, 0))


_LOG_START = "checkpoint/log-start"
"""Segments that go without a finding about them end before the log start offset."""


def _with_batches(action: Action, removed: GivenUp | None) -> Action:
    if removed is None:
        return action
    return action._replace(
        batches=removed.batches,
        records=removed.records,
        first_offset=removed.first_offset,
        last_offset=removed.last_offset,
    )
