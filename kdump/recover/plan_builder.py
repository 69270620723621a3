"""What every strategy shares: what verify said of each file, what the files that change are to hold, and how that reads as a plan."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Final

from kdump.broker import rebuild
from kdump.broker.log_loader import METADATA
from kdump.broker.rebuild_request import PlannedSegment
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.checkpoint import CheckpointError
from kdump.format.meta_properties import parse_meta_properties
from kdump.format.naming import INDEX_SUFFIXES, SEGMENT_SUFFIXES, file_name, number_of
from kdump.format.partition_metadata import build_partition_metadata, parse_partition_metadata
from kdump.format.text_files import MAX_PROPERTIES_BYTES
from kdump.recover.losses import ValidBatches, total, within
from kdump.recover.plan import Action, FileContent, Plan, RecoverOptions
from kdump.storage.pieces import Piece
from kdump.storage.source import FileSource, whole
from kdump.storage.stamps import Stamp, stamps
from kdump.verify.findings import Finding, Severity
from kdump.verify.reaction import CUTS, is_valid_log
from kdump.verify.report import Report

NEWEST: Final = (1 << 63) - 1
"""A recovery point behind which only the newest segment lies."""


_BY_PRODUCERS: Final = (".snapshot", ".txnindex")


class PlanBuilder:
    """The plan of one topic-partition directory while it is made. Put what files are to hold into `after`, by name, and say why in `reasons`,
    or of a range of bytes in `gaps`. `suffix` is that of its segments.

    `report` is that of a verify with its proofs.
    """

    def __init__(self, report: Report, options: RecoverOptions) -> None:
        self.report, self.options, self.directory = report, options, report.path
        self.alone = not os.path.isdir(report.path)
        if self.alone:
            self.directory = os.path.dirname(report.path) or "."
        self.findings: dict[str, list[Finding]] = {}
        for finding in report.findings:
            if finding.severity >= Severity.WARNING:
                self.findings.setdefault(os.path.basename(finding.path), []).append(finding)
        self.after: dict[str, FileContent | None] = {}
        self.reasons: dict[str, str] = {}
        self.gaps: dict[Piece, str] = {}
        self.suffix = ".log"
        self._held: dict[Piece, ValidBatches] = {}
        self._holders: dict[str, dict[str, list[Piece]]] = {}  # by file, the files that get bytes of it, and which

    @cached_property
    def files(self) -> Mapping[str, Stamp]:
        """The regular files of the directory; of one segment alone, those that belong to it. Raises SourceError."""
        found = stamps(self.directory)
        if not self.alone:
            return found
        number = number_of(os.path.basename(self.report.path))
        return {name: stamp for name, stamp in found.items() if _belongs(name, number)}

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return {name: stamp.size for name, stamp in self.files.items()}

    def whole(self, name: str) -> tuple[Piece, ...]:
        size = self.sizes.get(name, 0)
        return (Piece(name, 0, size),) if size else ()

    def is_sound(self, pieces: tuple[Piece, ...]) -> bool:
        """Whether verify saw nothing in these bytes that a broker would stumble over."""
        if not pieces:
            return True
        piece = pieces[0]
        if len(pieces) > 1 or piece.start or not piece.name.endswith(".log"):
            return False
        if any(file.error for file in self.report.files if os.path.basename(file.file.path) == piece.name):
            return False
        return is_valid_log(finding.code for finding in self.of(piece.name) if finding.position < piece.stop)

    def log(self, name: str, base_offset: int, pieces: tuple[Piece, ...], walked: bool) -> PlannedSegment:
        """The segment that these bytes will be."""
        proved = self.report.proved.get(name) if pieces == self.whole(name) else None
        return PlannedSegment(
            base_offset, pieces, self.is_sound(pieces), walked, None if proved is None else proved.indexed
        )

    def of(self, name: str) -> list[Finding]:
        return self.findings.get(name, [])

    @property
    def nothing_to_do(self) -> bool:
        """Whether verify saw nothing that an action could be about. It does not open compressed messages of magic 0 and 1, which a broker does with the last ones."""
        wrappers = any(proved.wrappers for proved in self.report.proved.values())
        start, end = self.report.context.log_start_offset, self.report.log_end_offset
        emptied = start is not None and end is not None and end < start
        gone = self.report.state in ("delete", "stray")
        lacking = self.report.whole and not self.report.has_metadata and self.metadata is not None
        return gone or not (lacking or self.findings or self.options.rebuild_all or wrappers or emptied)

    @cached_property
    def metadata(self) -> bytes | None:
        """The partition.metadata that the other partitions of the topic have: a broker in KRaft mode sets a partition aside that has none."""
        name = self.report.topic_partition
        if name is None or name.topic == naming.METADATA_TOPIC or self.report.state:
            return None
        return _metadata_of(os.path.dirname(os.path.abspath(self.directory)), name.topic)

    def unchanged(self) -> Plan:
        """The plan that changes nothing; with no more of the files than was asked for."""
        report = self.report
        return Plan(
            self.directory,
            report.topic_partition,
            self.options,
            files={} if self.nothing_to_do else self.files,
            log_start_offset=report.log_start_offset,
            log_end_offset=report.log_end_offset,
            high_watermark=report.context.high_watermark,
            not_covered=tuple(self._not_covered()),
            alone=self.alone,
        )

    def plan(
        self, logs: Mapping[str, PlannedSegment], log_start_offset: int | None, log_end_offset: int | None
    ) -> Plan:
        """The plan that leaves these segments, by name."""
        self._settle(logs)
        lost = [self.within(piece) for piece in self._lost()]
        point = self.report.context.recovery_point
        actions = tuple(self._actions(logs))
        if not actions:
            return self.unchanged()
        lower = point is not None and log_end_offset is not None and point > log_end_offset
        return self.unchanged()._replace(
            actions=actions,
            after=self.after,
            segments=tuple(logs.values()),
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset if lower else None,
            lost=total(lost, self.report.context.high_watermark),
            bytes_needed=sum(self._needed(name, content) for name, content in self.after.items()),
        )

    def _settle(self, logs: Mapping[str, PlannedSegment]) -> None:
        """Leave out what would be written as it is, where verify finds something wrong with it all the same."""
        again = {}
        for name, content in self.after.items():
            if content is None or content.pieces or name not in self.sizes or name in logs:
                continue
            log = logs.get(name.partition(".")[0] + self.suffix)
            doubtful = log is not None and not log.proved
            doubtful = doubtful or any(finding.code == "snapshot/state" for finding in self.of(name))
            if content.data is not None or (doubtful and not self.options.rebuild_all):
                again[name] = content
        rebuilt = {name: content for name, content in again.items() if content.rebuilt}
        made: dict[str, bytes | None] = {name: content.data for name, content in again.items() if not content.rebuilt}
        if rebuilt:
            made.update(
                rebuild.make(
                    self.unchanged()._replace(after={**self.after}, segments=tuple(logs.values())).rebuild_request()
                )
            )
        for name in again:
            data = made[name]
            if data is not None and self._reads(name, data):
                del self.after[name]

    def _reads(self, name: str, data: bytes) -> bool:
        """Whether a file holds these bytes."""
        if self.sizes[name] != len(data):
            return False
        with FileSource(os.path.join(self.directory, name)) as source:
            return whole(source, len(data)) == data

    def gone_logs(self, logs: Mapping[str, PlannedSegment]) -> Iterator[str]:
        """The names of segments that are there, and will not be."""
        for name in self.sizes:
            number = number_of(name)
            if name not in logs and number is not None and name == file_name(number, self.suffix):
                yield name

    # ---- what goes

    def _lost(self) -> Iterator[Piece]:
        """The bytes of segments that nothing afterwards holds; of what a replacement stands for, none."""
        kept: dict[str, list[Piece]] = {}
        replaced: list[tuple[int, int]] = []
        for name, content in self.after.items():
            for piece in () if content is None else content.pieces:
                kept.setdefault(piece.name, []).append(piece)
                number = number_of(name)
                if piece.name.endswith(".log.swap") and name.endswith(".log") and number is not None:
                    replaced.append((number, self.within(piece).last_offset or number))
        for name in sorted(self.sizes):
            number = number_of(name)
            if name not in self.after or not name.endswith(self.suffix) or number is None:
                continue
            if not any(first <= number <= last for first, last in replaced):
                yield from self.between(name, kept.get(name, []))

    def between(self, name: str, kept: Iterable[Piece]) -> Iterator[Piece]:
        """What of a file is in none of the pieces."""
        position = 0
        for _, start, stop in sorted(kept):
            if start > position:
                yield Piece(name, position, start)
            position = max(position, stop)
        if self.sizes[name] > position:
            yield Piece(name, position, self.sizes[name])

    def within(self, piece: Piece) -> ValidBatches:
        if piece not in self._held:
            self._held[piece] = within(self.directory, piece, self.sizes[piece.name], self.options.max_batch_bytes)
        return self._held[piece]

    def _needed(self, name: str, content: FileContent | None) -> int:
        """Bytes that are written before anything goes."""
        if content is None:
            return 0
        if content.data is not None:
            return len(content.data)
        if not content.rebuilt:
            size = sum(piece.stop - piece.start for piece in content.pieces)
            same = len(content.pieces) == 1 and content.pieces[0][:2] == (name, 0)
            moved = content.pieces == self.whole(content.pieces[0].name)
            if same and not self._is_linked(name):
                return self.sizes[name] - size
            return 0 if moved else size
        stem = name.partition(".")[0] + self.suffix
        log = self.after.get(stem)
        size = self.sizes.get(stem, 0) if log is None else sum(piece.stop - piece.start for piece in log.pieces)
        entries = 20 * (size // max(1, self.options.index_interval_bytes) + 1)
        kind = name[name.rfind(".") :]
        # How many producers there are nobody knows yet, but those before did not fit into less.
        return max(
            [entries, *(size for other, size in self.sizes.items() if other.endswith(kind) and kind in _BY_PRODUCERS)]
        )

    def _is_linked(self, name: str) -> bool:
        """Whether a file has a second name, so that it is written anew instead of being cut."""
        try:
            return os.lstat(os.path.join(self.directory, name)).st_nlink > 1
        except OSError:
            return False  # gone, which applying will say

    # ---- as actions

    def _actions(self, logs: Mapping[str, PlannedSegment]) -> Iterator[Action]:
        cause = self._cause(logs)
        for name, content in self.after.items():
            for piece in () if content is None else content.pieces:
                self._holders.setdefault(piece.name, {}).setdefault(name, []).append(piece)
        for name in sorted(self.after, key=_in_order):
            content = self.after[name]
            if content is None:
                yield from self._taken(name, cause)
            elif name in logs:
                yield from self._log(name, content, cause)
            else:
                yield from self._made(name, content, cause)

    def _cause(self, logs: Mapping[str, PlannedSegment]) -> str | None:
        """The code behind the first log that changes, which is that of everything that follows from it."""
        for name in sorted(logs):
            content = self.after.get(name)
            if content is not None and (code := self._why_all(name, content)) is not None:
                return code
        gone = list(self.gone_logs(logs))
        if gone:
            return next((code for piece, code in self.gaps.items() if piece.name in gone), "checkpoint/log-start")
        codes = {finding.code for of in self.findings.values() for finding in of}
        return "file/orphan" if logs.keys() - self.sizes.keys() and "file/orphan" in codes else None

    def _why_all(self, name: str, content: FileContent) -> str | None:
        if not content.pieces:
            return self._why(Piece(name, 0, self.sizes.get(name, 0)))
        origin = content.pieces[0].name
        for gap in self.between(origin, content.pieces):
            return self._why(gap)
        return self.reasons.get(origin) or self._why(Piece(origin, 0, self.sizes[origin]))

    def _why(self, gap: Piece) -> str | None:
        """Why these bytes go."""
        if gap in self.gaps:
            return self.gaps[gap]
        if gap.name in self.reasons:
            return self.reasons[gap.name]
        if gap.name.endswith(".swap"):
            return "file/leftover"
        of = self.of(gap.name)
        behind = [one for one in of if one.position + max(1, one.length) > gap.start and one.code in CUTS]
        if behind:
            return min(behind, key=lambda finding: finding.position).code
        return next((finding.code for finding in of), None)

    def _taken(self, name: str, cause: str | None) -> Iterator[Action]:
        if name in self._holders:
            return  # told where its bytes go
        path = os.path.join(self.directory, name)
        code = self.reasons.get(name) or next((code for gap, code in self.gaps.items() if gap.name == name), None)
        code = code or next((finding.code for finding in self.of(name)), None) or cause
        if name.endswith(self.suffix) and number_of(name) is not None and self.sizes[name]:
            held = self._held.get(Piece(name, 0, self.sizes[name]))
            yield self._tell(Action("delete", path, code, 0, self.sizes[name], bytes=self.sizes[name]), held)
        else:
            yield Action("delete", path, code, bytes=self.sizes[name])

    def _tell(self, action: Action, held: ValidBatches | None) -> Action:
        if held is None:
            return action
        return action._replace(
            batches=held.batches, records=held.records, first_offset=held.first_offset, last_offset=held.last_offset
        )

    def _log(self, name: str, content: FileContent, cause: str | None) -> Iterator[Action]:
        path, code = os.path.join(self.directory, name), self._why_all(name, content) or cause
        if not content.pieces:
            if self.sizes.get(name):
                yield self._gone(Piece(name, 0, self.sizes[name]), path, cause)
            elif name not in self.sizes:
                yield Action("write", path, code, target=path)
            return
        origin = content.pieces[0].name
        source = os.path.join(self.directory, origin)
        if origin != name and name in self.sizes:
            yield Action("delete", path, code, 0, self.sizes[name], bytes=self.sizes[name])
        holders = self._holders[origin]
        if len(holders) > 1:
            for piece in content.pieces:
                yield Action("split", source, code, piece.start, piece.stop, path, piece.stop - piece.start)
            if name == max(holders, key=_in_order):
                for gap in self.between(origin, [piece for pieces in holders.values() for piece in pieces]):
                    yield self._gone(gap, source, cause)
            return
        if origin != name:
            yield Action("rename", source, code, target=path)
        for gap in self.between(origin, content.pieces):
            yield self._gone(gap, path, cause)

    def _gone(self, gap: Piece, path: str, cause: str | None) -> Action:
        """Bytes that go out of a log that stays."""
        what = "truncate" if gap.stop == self.sizes[gap.name] else "drop"
        action = Action(what, path, self._why(gap) or cause, gap.start, gap.stop, bytes=gap.stop - gap.start)
        return self._tell(action, self.within(gap))

    def _made(self, name: str, content: FileContent, cause: str | None) -> Iterator[Action]:
        path = os.path.join(self.directory, name)
        code = self.reasons.get(name) or next((finding.code for finding in self.of(name)), None)
        log = name.partition(".")[0] + self.suffix
        kind = name.rpartition(".")[2]
        code = code or next((one.code for one in self.of(log) if one.code == f"{kind}/missing"), None)
        code = code or (cause if not self.options.rebuild_all or log in self.after else None)
        if name.endswith(INDEX_SUFFIXES):
            if name.endswith(".txnindex") and name not in self.sizes and code in (None, cause):
                return  # where there is anything to be written, that follows from what is told of the log
            yield Action("rebuild", path, code, bytes=self.sizes.get(name, 0))
        else:
            yield Action("write", path, code, target=path, bytes=self.sizes.get(name, 0))

    # ---- what stays as it is

    def _not_covered(self) -> Iterator[Finding]:
        for finding in self.report.findings:
            if finding.severity >= Severity.WARNING and not self._is_covered(finding):
                yield finding

    def _is_covered(self, finding: Finding) -> bool:
        name = os.path.basename(finding.path)
        family, _, what = finding.code.partition("/")
        if what == "missing" and f".{family}" in INDEX_SUFFIXES:
            return name.rpartition(".")[0] + f".{family}" in self.after
        if name not in self.after:
            return False
        content = self.after[name]
        if content is None or not name.endswith(self.suffix):
            return True
        inside = [piece for piece in content.pieces if piece.name == name]
        place = finding.position, finding.position + max(1, finding.length)
        return not any(place[0] < piece.stop and piece.start < place[1] for piece in inside)


@lru_cache(maxsize=1)
def _metadata_of(directory: str, topic: str) -> bytes | None:
    """What the partitions of a topic in a log directory of KRaft have for their partition.metadata, if that is one thing."""
    found = set()
    try:
        with FileSource(os.path.join(directory, "meta.properties")) as source:
            if parse_meta_properties(whole(source, MAX_PROPERTIES_BYTES)).version != 1:
                return None
        with os.scandir(directory) as entries:
            beside = [entry.path for entry in entries if entry.name.startswith(f"{topic}-")]
    except (OSError, SourceError, CheckpointError):
        return None
    for path in beside:
        other = naming.topic_partition_of(path)
        if other is not None and other.topic == topic:
            with suppress(SourceError, CheckpointError), FileSource(os.path.join(path, METADATA)) as source:
                found.add(parse_partition_metadata(whole(source, MAX_PROPERTIES_BYTES)))
    return build_partition_metadata(found.pop()) if len(found) == 1 else None


def _belongs(name: str, base_offset: int | None) -> bool:
    return name.endswith(SEGMENT_SUFFIXES) and number_of(name) == base_offset


def _in_order(name: str) -> tuple[int, int, str]:
    """Segments by their offsets, each with its log first, then what belongs to no segment."""
    number = number_of(name)
    if number is None or not name.startswith(("0", "-", "9", *"12345678")):
        return 1, 0, name
    suffix = name[name.index(".") :] if "." in name else ""
    return 0, number, f"{SEGMENT_SUFFIXES.index(suffix) if suffix in SEGMENT_SUFFIXES else 9}{name}"
