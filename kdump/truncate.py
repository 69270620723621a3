"""The plan of a truncation: what a broker's next start would leave of a topic-partition directory, where it refuses after what lets it start, and as little else as possible.

A broker makes every companion of what it walked anew. Here one stays that a verify finds nothing wrong with beside a log that does not change, unless all of
them are asked for (`Options.rebuild_all`); then the directory comes out as a broker leaves it.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Final

from kdump.broker import CUTS, sound
from kdump.errors import SourceError
from kdump.findings import Finding, Severity
from kdump.format.checkpoint import CheckpointError, EpochEntry, build_epochs, epoch_entries
from kdump.format.naming import number_of
from kdump.load_state import name_of
from kdump.loader import EPOCHS
from kdump.losses import Held, total, within
from kdump.mend import COMPANIONS, OF_SEGMENT, Mended, View
from kdump.outcome import Outcome, Start
from kdump.plan import Action, Content, Log, Options, Piece, Plan, Stamp
from kdump.report import Report
from kdump.source import FileSource, whole

NEWEST: Final = (1 << 63) - 1
"""A recovery point behind which only the newest segment lies."""
_LARGEST_CHECKPOINT: Final = 64 << 20
_EPOCH_CODES: Final = frozenset({"epoch/format", "epoch/order", "epoch/checkpoint", "epoch/missing", "epoch/stale"})


def stamps(directory: str) -> dict[str, Stamp]:
    """Every regular file of a directory as it is now. Raises SourceError."""
    found = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    except OSError as error:
        raise SourceError(f"{directory}: {(error.strerror or str(error)).lower()}") from None
    return found


def truncate(report: Report, options: Options) -> Plan:
    """What is to be done with the topic-partition directory that the report, with its proofs, is of. Raises SourceError."""
    return _Truncation(report, options).plan()


class _Truncation:
    def __init__(self, report: Report, options: Options) -> None:
        self._report, self._options, self._directory = report, options, report.path
        self._files = stamps(report.path)
        self._sizes = {name: stamp.size for name, stamp in self._files.items()}
        self._findings: dict[str, list[Finding]] = {}
        for finding in report.findings:
            if finding.severity >= Severity.WARNING:
                self._findings.setdefault(os.path.basename(finding.path), []).append(finding)
        self._after: dict[str, Content | None] = {}
        self._held: dict[Piece, Held] = {}

    # ---- the parts of a plan

    def plan(self) -> Plan:
        report, options, context = self._report, self._options, self._report.context
        bare = Plan(
            self._directory,
            report.topic_partition,
            options,
            files=self._files,
            log_start_offset=report.log_start_offset,
            log_end_offset=report.log_end_offset,
            high_watermark=context.high_watermark,
        )
        if report.state in ("delete", "stray") or not (self._findings or options.rebuild_all):
            return bare
        mended = self._mended()
        outcome, view = mended.outcome, mended.view
        logs = self._logs(outcome, view)
        self._companions(mended, logs)
        self._snapshots(mended, logs)
        self._epochs(mended)
        for name in self._sizes:
            gone = name not in outcome.files and name not in self._after
            if gone and not name.endswith(".snapshot"):
                self._after[name] = None
        lost = [self._within(piece) for piece in self._lost()]
        point = context.recovery_point
        actions = tuple(self._actions(mended, logs))
        return bare._replace(
            actions=actions,
            after=self._after if actions else {},
            segments=tuple(logs.values()),
            log_start_offset=outcome.log_start_offset,
            log_end_offset=outcome.log_end_offset,
            recovery_point=outcome.log_end_offset
            if actions and point is not None and point > outcome.log_end_offset
            else None,
            refusals=tuple(dict.fromkeys((refusal.exception, refusal.name) for refusal in mended.refusals)),
            lost=total(lost, context.high_watermark),
            bytes_needed=sum(self._needed(name, content) for name, content in self._after.items()),
            not_covered=tuple(self._not_covered()),
        )

    def _mended(self) -> Mended:
        options, context = self._options, self._report.context
        walks = {"checkpoint": context.recovery_point, "newest": None, "all": 0}
        point = walks[options.walk]
        view = View(self._directory, self._sizes)
        start = Start(
            self._sizes,
            lambda name: FileSource(os.path.join(self._directory, name)),
            {},
            NEWEST if point is None else point,
            context.log_start_offset or 0,
            index_interval_bytes=options.index_interval_bytes,
        )
        return Mended(view, self._report.proved, self._report.findings, start)

    def _logs(self, outcome: Outcome, view: View) -> dict[str, Log]:
        """The segments afterwards by name; those that change go into `_after`."""
        logs = {}
        for left in outcome.segments:
            name = name_of(left.base_offset, ".log")
            held = outcome.files[name]
            pieces = view.part(held.origin, held.start, held.size) if held.origin else ()
            changed = pieces != self._whole(name) or name not in self._sizes
            if changed:
                self._after[name] = Content(pieces) if pieces else Content(data=b"")
            walked = changed or held.origin in outcome.recovered
            logs[name] = Log(left.base_offset, pieces, self._is_sound(pieces), walked)
        return logs

    def _whole(self, name: str) -> tuple[Piece, ...]:
        size = self._sizes.get(name, 0)
        return (Piece(name, 0, size),) if size else ()

    def _is_sound(self, pieces: tuple[Piece, ...]) -> bool:
        """Whether verify saw nothing in these bytes that a broker would stumble over."""
        if not pieces:
            return True
        piece = pieces[0]
        if len(pieces) > 1 or piece.start or not piece.name.endswith(".log"):
            return False
        if any(file.error for file in self._report.files if os.path.basename(file.file.path) == piece.name):
            return False
        return sound(finding.code for finding in self._of(piece.name) if finding.position < piece.stop)

    def _of(self, name: str) -> list[Finding]:
        return self._findings.get(name, [])

    def _companions(self, mended: Mended, logs: Mapping[str, Log]) -> None:
        for name, log in logs.items():
            changed = name in self._after
            for suffix in COMPANIONS:
                companion = name_of(log.base_offset, suffix)
                held = mended.outcome.files.get(companion)
                there = companion in self._sizes
                wrong = bool(self._of(companion)) or companion in mended.view.reasons
                missing = any(finding.code == f"{suffix[1:]}/missing" for finding in self._of(name))
                anew = changed or (log.walked and self._options.rebuild_all)
                moved = held is not None and held.origin not in ("", companion)
                if moved and held is not None and not wrong and not anew:
                    self._after[companion] = Content(mended.view.part(held.origin, held.start, held.size))
                elif anew or ((wrong or missing or moved) and (log.walked or log.proved)):
                    self._after[companion] = Content()
                elif wrong and not there:
                    continue

    def _snapshots(self, mended: Mended, logs: Mapping[str, Log]) -> None:
        outcome = mended.outcome
        written = {name_of(offset, ".snapshot") for offset in outcome.snapshots}
        kept = {name for name in outcome.files if name.endswith(".snapshot")}
        if self._options.rebuild_all:
            for name in kept:
                if name in written:
                    self._after[name] = Content()
            for name in self._sizes:
                if name.endswith(".snapshot") and name not in kept:
                    self._after[name] = None
            return
        changed = [log.base_offset for name, log in logs.items() if name in self._after]
        changed += [number for name in self._gone_logs(outcome) if (number := number_of(name)) is not None]
        borders = {*(log.base_offset for log in logs.values()), outcome.log_end_offset}
        border = min(changed, default=None)
        for name in self._sizes:
            offset = number_of(name) if name.endswith(".snapshot") else None
            if not name.endswith(".snapshot"):
                continue
            stale = offset is None or (border is not None and offset > border)
            if name in mended.view.reasons or stale or self._of(name):
                again = offset is not None and offset in borders and offset <= outcome.log_end_offset
                self._after[name] = Content() if again else None
        if changed and (end := name_of(outcome.log_end_offset, ".snapshot")) in written and outcome.log_end_offset:
            self._after.setdefault(end, Content())

    def _gone_logs(self, outcome: Outcome) -> Iterator[str]:
        for name in self._sizes:
            if name.endswith(".log") and name not in outcome.files:
                yield name

    def _epochs(self, mended: Mended) -> None:
        outcome, there = mended.outcome, EPOCHS in self._sizes
        codes = {finding.code for finding in self._of(EPOCHS)}
        changed = any(content is None or not content.rebuilt for content in self._after.values())
        entries = outcome.epochs
        if not self._options.rebuild_all:
            if mended.epochs_are_lost or not codes.isdisjoint(_EPOCH_CODES):
                # What the file should say stands in the batches; a broker looks only at those that it walks.
                mended.view.remove(EPOCHS, min(codes, default="epoch/format"))
                entries = mended.foresee(0).epochs
            elif not changed:
                return
        if self._options.rebuild_all:
            if not there and not outcome.epochs_written:
                self._after[EPOCHS] = Content(data=b"")
            same = not outcome.epochs_written and not mended.epochs_are_lost
        else:
            same = not (there or entries) or (there and self._current_epochs() == entries)
        if not same:
            self._after[EPOCHS] = Content(data=build_epochs([EpochEntry(*entry) for entry in entries]))

    def _current_epochs(self) -> tuple[tuple[int, int], ...] | None:
        try:
            with FileSource(os.path.join(self._directory, EPOCHS)) as source:
                data = whole(source, _LARGEST_CHECKPOINT)
            return tuple((entry.epoch, entry.start_offset) for entry in epoch_entries(data))
        except (SourceError, CheckpointError):
            return None

    # ---- what goes

    def _lost(self) -> Iterator[Piece]:
        """The bytes of segments that nothing afterwards holds; of what a replacement stands for, none."""
        kept: dict[str, list[tuple[int, int]]] = {}
        replaced: list[tuple[int, int]] = []
        for name, content in self._after.items():
            for piece in () if content is None else content.pieces:
                kept.setdefault(piece.name, []).append((piece.start, piece.stop))
                if piece.name.endswith(".log.swap") and (number := number_of(name)) is not None:
                    replaced.append((number, NEWEST))
        for name, size in sorted(self._sizes.items()):
            number = number_of(name)
            if name not in self._after or not name.endswith(".log") or number is None:
                continue
            if any(first <= number for first, _ in replaced):
                continue
            position = 0
            for start, stop in [*sorted(kept.get(name, [])), (size, size)]:
                if start > position:
                    yield Piece(name, position, start)
                position = max(position, stop)

    def _within(self, piece: Piece) -> Held:
        if piece not in self._held:
            self._held[piece] = within(self._directory, piece, self._sizes[piece.name], self._options.max_batch_bytes)
        return self._held[piece]

    def _needed(self, name: str, content: Content | None) -> int:
        """Bytes that are written before anything goes."""
        if content is None:
            return 0
        if content.data is not None:
            return len(content.data)
        if not content.rebuilt:
            size = sum(piece.stop - piece.start for piece in content.pieces)
            same = len(content.pieces) == 1 and content.pieces[0][:2] == (name, 0)
            moved = content.pieces == self._whole(content.pieces[0].name)
            return self._sizes[name] - size if same else 0 if moved else size
        stem = name.partition(".")[0] + ".log"
        log = self._after.get(stem)
        size = self._sizes.get(stem, 0) if log is None else sum(piece.stop - piece.start for piece in log.pieces)
        return 20 * (size // max(1, self._options.index_interval_bytes) + 1)

    # ---- as actions

    def _actions(self, mended: Mended, logs: Mapping[str, Log]) -> Iterator[Action]:
        cause = self._cause(mended, logs)
        for name in sorted(self._after, key=_in_order):
            content = self._after[name]
            if content is None or (content.pieces and name not in logs):
                yield from self._whole_file(name, content, mended, cause)
            elif name in logs:
                yield from self._log(name, content, mended, cause)
            else:
                yield from self._made(name, content, mended, cause)

    def _cause(self, mended: Mended, logs: Mapping[str, Log]) -> str | None:
        """The code behind the first log that changes, which is that of everything that follows from it."""
        for name in sorted(logs):
            if name in self._after:
                return self._why(name, mended)
        return "checkpoint/log-start" if any(self._gone_logs(mended.outcome)) else None

    def _why(self, name: str, mended: Mended) -> str | None:
        """Why a log changes."""
        content = self._after.get(name)
        if content is None or not content.pieces:
            position, origin = 0, name
        else:
            origin, _, position = content.pieces[-1]
        if origin in mended.view.reasons:
            return mended.view.reasons[origin]
        if origin.endswith(".swap"):
            return "file/leftover"
        behind = [
            finding
            for finding in self._of(origin)
            if finding.position + max(1, finding.length) > position and finding.code in CUTS
        ]
        if behind:
            return min(behind, key=lambda finding: finding.position).code
        if mended.outcome.log_end_offset == self._report.context.log_start_offset:
            return "checkpoint/log-start"
        return next((finding.code for finding in self._of(origin)), None)

    def _whole_file(self, name: str, content: Content | None, mended: Mended, cause: str | None) -> Iterator[Action]:
        path = os.path.join(self._directory, name)
        if content is not None:
            origin = content.pieces[0].name
            yield Action("rename", os.path.join(self._directory, origin), "file/leftover", target=path)
            return
        taken = {piece.name for other in self._after.values() if other is not None for piece in other.pieces}
        if name in taken:
            return  # told where its bytes go
        code = mended.view.reasons.get(name) or next((finding.code for finding in self._of(name)), None) or cause
        if name.endswith(".log") and number_of(name) is not None and self._sizes[name]:
            held = self._held.get(Piece(name, 0, self._sizes[name]))
            yield self._tell(Action("delete", path, code, 0, self._sizes[name], bytes=self._sizes[name]), held)
        else:
            yield Action("delete", path, code, bytes=self._sizes[name])

    def _tell(self, action: Action, held: Held | None) -> Action:
        if held is None:
            return action
        return action._replace(
            batches=held.batches, records=held.records, first_offset=held.first_offset, last_offset=held.last_offset
        )

    def _log(self, name: str, content: Content, mended: Mended, cause: str | None) -> Iterator[Action]:
        path, code = os.path.join(self._directory, name), self._why(name, mended) or cause
        if not content.pieces:
            if self._sizes.get(name):
                yield self._cut(name, 0, code)
            elif name not in self._sizes:
                yield Action("write", path, code, target=path)
            return
        piece = content.pieces[0]
        if piece.name == name and piece.start == 0:
            yield self._cut(name, piece.stop, code)
            return
        origin = os.path.join(self._directory, piece.name)
        size = self._sizes[piece.name]
        if piece.start == 0 and not self._is_split(piece.name):
            yield Action("rename", origin, code, target=path)
            if piece.stop < size:
                held = within(self._directory, Piece(piece.name, piece.stop, size), size, self._options.max_batch_bytes)
                yield self._tell(Action("truncate", path, code, piece.stop, size, bytes=size - piece.stop), held)
        else:
            yield Action("split", origin, code, piece.start, piece.stop, path, piece.stop - piece.start)

    def _is_split(self, origin: str) -> bool:
        contents = [content for content in self._after.values() if content is not None]
        return sum(any(piece.name == origin for piece in content.pieces) for content in contents) > 1

    def _cut(self, name: str, position: int, code: str | None) -> Action:
        size = self._sizes[name]
        action = Action("truncate", os.path.join(self._directory, name), code, position, size, bytes=size - position)
        return self._tell(action, self._held.get(Piece(name, position, size)))

    def _made(self, name: str, content: Content, mended: Mended, cause: str | None) -> Iterator[Action]:
        path = os.path.join(self._directory, name)
        code = mended.view.reasons.get(name) or next((finding.code for finding in self._of(name)), None)
        log = name.partition(".")[0] + ".log"
        kind = name.rpartition(".")[2]
        code = code or next((one.code for one in self._of(log) if one.code == f"{kind}/missing"), None)
        code = code or (cause if not self._options.rebuild_all or log in self._after else None)
        if name.endswith(COMPANIONS):
            if name.endswith(".txnindex") and name not in self._sizes and code in (None, cause):
                return  # where there is anything to be written, that follows from what is told of the log
            yield Action("rebuild", path, code, bytes=self._sizes.get(name, 0))
        else:
            yield Action("write", path, code, target=path, bytes=self._sizes.get(name, 0))

    # ---- what stays as it is

    def _not_covered(self) -> Iterator[Finding]:
        for finding in self._report.findings:
            if finding.severity >= Severity.WARNING and not self._is_covered(finding):
                yield finding

    def _is_covered(self, finding: Finding) -> bool:
        name = os.path.basename(finding.path)
        family, _, what = finding.code.partition("/")
        if what == "missing" and f".{family}" in COMPANIONS:
            return name.rpartition(".")[0] + f".{family}" in self._after
        if family == "epoch" and name != EPOCHS and what == "missing":
            return EPOCHS in self._after
        if name not in self._after:
            return False
        content = self._after[name]
        if content is None or not name.endswith(".log"):
            return True
        inside = [piece for piece in content.pieces if piece.name == name]
        place = finding.position, finding.position + max(1, finding.length)
        return not any(place[0] < piece.stop and piece.start < place[1] for piece in inside)


def _in_order(name: str) -> tuple[int, int, str]:
    """Segments by their offsets, each with its log first, then what belongs to no segment."""
    number = number_of(name)
    if number is None or not name.startswith(("0", "-", "9", *"12345678")):
        return 1, 0, name
    suffix = name[name.index(".") :] if "." in name else ""
    return 0, number, f"{OF_SEGMENT.index(suffix) if suffix in OF_SEGMENT else 9}{name}"
