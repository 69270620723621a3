"""What the next unclean start of Kafka 4.3 does with a topic-partition directory as it is.

`foresee` follows Kafka's LogLoader step by step (kdump.loader). Segments that verify proved are not read again; the others are walked batch by batch as
LogSegment.recover does, which stops at the first bad batch and notices less than verify: whether offsets that go back empty a segment depends on the interval
of the index. `judge` says of each finding what becomes of it.

A broker that refuses a log does not start. Here the first refusal is noted and the rest goes on as if what caused it were not there, so that everything that
would stop the broker is known at once, and also what the start does to the rest.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from kdump.errors import SourceError, reason
from kdump.findings import Finding, Severity
from kdump.format.naming import number_of
from kdump.load_state import Backwards, Overflow, Producers, name_of
from kdump.loader import EPOCHS, Loader
from kdump.outcome import INDEX_INTERVAL_BYTES, Left, Outcome, Proved, Refusal, Start
from kdump.source import FileSource, Source

__all__ = [
    "Left",
    "Outcome",
    "Proved",
    "Recovered",
    "Refusal",
    "Start",
    "foresee",
    "judge",
    "judge_directory",
    "replay",
    "sound",
    "start_at",
    "word",
]


def start_at(
    directory: str, proved: Mapping[str, Proved] | None = None, *, recovery_point: int = 0, log_start_offset: int = 0
) -> Start:
    """The directory as it stands on disk. Raises SourceError."""
    files = {}
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                # A link that leads nowhere is no file to a broker either.
                with suppress(OSError):
                    if entry.is_file():
                        files[entry.name] = entry.stat().st_size
    except OSError as error:
        raise SourceError(f"{directory}: {reason(error)}") from None
    return Start(
        files,
        lambda name: FileSource(os.path.join(directory, name)),
        proved or {},
        recovery_point,
        log_start_offset,
        directory.rstrip("/").endswith("-delete"),
    )


_NOTICED: Final = frozenset(
    {
        *("batch/crc", "batch/length", "batch/magic", "batch/limit", "batch/count", "gap/bytes", "gap/unsearched"),
        *("offset/range", "offset/backwards", "control/structure", "txn/state", "file/shrunk", "file/grown"),
        *("legacy/wrapper", "batch/codec", "record/structure"),
    }
)
_TAILS: Final = frozenset({"tail/torn", "tail/zeros", "tail/garbage"})
CUTS: Final = _NOTICED | _TAILS
"""The codes of what a recovery can stumble over in a log."""


def sound(codes: Iterable[str], *, tail: bool = False) -> bool:
    """Whether a recovery passes over a log with findings of these codes, so that it can be given as `Proved`.

    With `tail`, bytes behind the last batch do not count: `Proved.valid_bytes` then says where they begin.
    """
    found = set(codes)
    return _NOTICED.isdisjoint(found) and (tail or _TAILS.isdisjoint(found))


class Recovered(NamedTuple):
    """What a recovery makes of one segment: how many bytes stay, the offset behind them, whether indexed offsets go back (then nothing stays), refusals.

    `overflow` is the position of a batch whose last offset the segment cannot hold, where the recovery breaks off to split it.
    """

    valid_bytes: int
    next_offset: int
    wiped: bool
    overflow: int | None
    refusals: tuple[Refusal, ...]


def foresee(start: Start) -> Outcome:
    """What the start would leave. Reads companions, and the logs that are not proved. Raises SourceError."""
    loader = Loader(start)
    try:
        return loader.run()
    finally:
        loader.close()


def replay(source: Source, base_offset: int, interval: int = INDEX_INTERVAL_BYTES) -> Recovered:
    """One segment alone, with nothing before it. The source stays open."""
    name = name_of(base_offset, ".log")
    loader = Loader(Start({name: source.size}, lambda _: source, index_interval_bytes=interval))
    segment = loader.segment(name, base_offset)
    try:
        loader.replay(segment, Producers(loader))
    except Overflow as overflow:
        return Recovered(segment.size, base_offset, False, overflow.position, tuple(loader.refusals))
    except Backwards:
        return Recovered(0, base_offset, True, None, tuple(loader.refusals))
    return Recovered(segment.size, loader.end_of(segment), False, None, tuple(loader.refusals))


# ---- what it does about a finding

_REFUSED: Final[Mapping[str, frozenset[str]]] = {
    "name": frozenset({"file/name", "file/leftover", "file/orphan", "snapshot/name"}),
    "size": frozenset({"file/leftover", "tail/garbage", "tail/torn", "tail/zeros"}),
    "epochs": frozenset({"epoch/format", "epoch/order"}),
    "metadata": frozenset({"metadata/format"}),
    "txnindex": frozenset({"txnindex/version"}),
    "split": frozenset({"offset/range", "file/leftover"}),
    "transaction": frozenset({"txn/state"}),
    "marker": frozenset({"offset/backwards", "offset/range", "segment/overlap"}),
    "control": frozenset({"control/structure", "record/structure", "batch/codec", "batch/count"}),
    "backwards": frozenset({"offset/backwards", "segment/overlap"}),
    "walk": frozenset(
        {"batch/length", "gap/bytes", "gap/unsearched", "tail/torn", "tail/zeros", "tail/garbage", "file/leftover"}
    ),
    "wrapper": frozenset({"legacy/wrapper", "batch/codec", "batch/limit", "file/leftover"}),
}
"""The codes of what a refusal is about, by its word."""

_ANYWHERE: Final = frozenset({"split", "marker", "backwards"})
"""Words of refusals at another place than their cause, which lies somewhere in the file."""

_DIRECTORY: Final[Mapping[str, str]] = {
    # The checkpoints of a log directory are written anew from the logs that were loaded.
    "checkpoint/unknown": "deletes",
    "checkpoint/beyond": "rebuilds",
    "checkpoint/below": "rebuilds",
    "checkpoint/duplicate": "rebuilds",
    "checkpoint/log-start": "deletes",
}
_ELSEWHERE: Final = frozenset({"txn/open", "txn/hanging", "time/retention"})
"""Codes of what is no place in the log."""
_ROOT: Final[Mapping[str, str]] = {
    # What cannot be read marks its log directory as failed, and a broker without another one stops.
    "checkpoint/format": "refuses",
    "properties/format": "refuses",
    "file/name": "refuses",
}
"""Codes of the files at the root of a log directory."""


def judge(findings: Iterable[Finding], outcome: Outcome) -> Iterator[Finding]:
    """The findings of one partition with their `broker`, in the same order."""
    for finding in findings:
        yield replace(finding, broker=word(finding, outcome))


def judge_directory(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Those of the files of a log directory itself."""
    for finding in findings:
        yield replace(finding, broker=word(finding, None))


def word(finding: Finding, outcome: Outcome | None) -> str:
    """What the start does about it, in one word.

    `refuses`: because of this the broker does not start. `truncates`: these bytes are cut off, or all of a file is. `deletes`: the file goes, or the entry does.
    `rebuilds`: the file is made anew from the log, a segment is split, a .swap file put into its place, a checkpoint written as it should be. `ignores`: nothing,
    also where it does not look, because the recovery point lies above.
    """
    name, code = os.path.basename(finding.path), finding.code
    if outcome is None:
        return _ROOT.get(code) or _DIRECTORY.get(code, "ignores")
    if any(_is_about(refusal, finding, name) for refusal in outcome.refusals):
        return "refuses"
    if code in _DIRECTORY:
        return _DIRECTORY[code]
    if name in outcome.promoted:
        return "truncates" if name in outcome.cuts else "rebuilds"
    if name.endswith(".snapshot"):
        written = number_of(name) in outcome.snapshots
        return "rebuilds" if written else "deletes" if name in outcome.deleted else "ignores"
    if name in outcome.deleted:
        return "deletes"
    if code.startswith(("index/", "timeindex/", "txnindex/")):
        # One that is missing is spoken of at the log.
        return "rebuilds" if name.rpartition(".")[0] + ".log" in outcome.recovered else "ignores"
    if code == "snapshot/missing":
        return "rebuilds" if any(offset >= (finding.offset or 0) for offset in outcome.snapshots) else "ignores"
    if name == EPOCHS:
        return _epoch_word(finding, outcome)
    if name.endswith(".checkpoint"):
        return "refuses" if finding.severity is Severity.ERROR else "ignores"
    if code.startswith(("segment/", "file/")) or code in _ELSEWHERE:
        return "ignores"
    if name in outcome.split and code == "offset/range":
        return "rebuilds"
    cut = outcome.cuts.get(name)
    return "truncates" if cut is not None and finding.position + max(1, finding.length) > cut else "ignores"


def _is_about(refusal: Refusal, finding: Finding, name: str) -> bool:
    if finding.code not in _REFUSED.get(refusal.word, ()):
        return False
    if refusal.name != name:
        # What makes two transactions begin at one offset lies before the marker of the second.
        return refusal.word == "marker" and name.endswith(".log") and name < refusal.name
    if refusal.position is None or refusal.word in _ANYWHERE:
        return True
    return finding.position <= refusal.position < finding.position + max(1, finding.length)


def _epoch_word(finding: Finding, outcome: Outcome) -> str:
    epoch = finding.data.get("epoch")
    left = dict(outcome.epochs)
    if finding.code == "epoch/missing":
        return "rebuilds" if epoch in left else "ignores"
    if epoch not in left:
        return "deletes"
    return "ignores" if left[epoch] == finding.data.get("start_offset", left[epoch]) else "rebuilds"
