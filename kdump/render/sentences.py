"""Wording that the formats share: counts, times, CRC states, reasons of gaps, one-line summaries."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kdump.render.escaping import path_text, quoted

if TYPE_CHECKING:
    from kdump.dump.events import MatchCount, ReadEntry
    from kdump.replicas.compare import ComparisonSummary, PartitionComparison
    from kdump.replicas.comparison import ReplicaComparison
    from kdump.replicas.evidence import Evidence
    from kdump.replicas.fingerprint.fingerprint_file import FingerprintSummary
    from kdump.storage.walk import ForeignBatch, Gap, SearchLimit
    from kdump.verify.display import FoldedFindings
    from kdump.verify.findings import Finding
    from kdump.verify.start_verdict import StartVerdict
    from kdump.verify.summary import PartitionSummary, VerifySummary

WITH_COMPANIONS = " with their companions"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS = range(-62_135_596_800, 253_402_300_800)  # the years 1 to 9999


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its word: `1 batch`, `2 batches`."""
    if one == "info":
        return f"{count} info"
    return f"{count} {one if count == 1 else many or one + 's'}"


def iso_time(timestamp_ms: int | None) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC; `-` for none (null, -1) and outside the years 1 to 9999."""
    if timestamp_ms is None or timestamp_ms == -1:
        return "-"
    seconds, ms = divmod(timestamp_ms, 1000)
    if seconds not in _SECONDS:
        return "-"
    return f"{_iso_seconds(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=64)
def _iso_seconds(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def gap_reason(gap: Gap | ForeignBatch | SearchLimit) -> str:
    """Why the bytes are not a batch of the log, in the words of the finding codes (`batch/length`, `gap/bytes` …)."""
    from kdump.storage.walk import ForeignBatch, SearchLimit

    if isinstance(gap, ForeignBatch):
        return "foreign-batch"
    if isinstance(gap, SearchLimit):
        return "unsearched"
    return "length" if gap.headed else "zeros" if gap.zeros else "bytes"


_REACTIONS = {
    "truncates": "the next start of {} truncates these bytes",
    "deletes": "the next start of {} deletes the file",
    "rebuilds": "the next start of {} rebuilds the file",
    "refuses": "{} does not start with it",
    "renames": "the next start of {} renames the directory to NAME-stray, and serves none of its records",
    "ignores": "the next start of {} does nothing about it",
}
_OF_LINES = {
    "deletes": "the next start of {} deletes the line",
    "rebuilds": "the next start of {} corrects it",
}
"""The same for a finding about a line of a checkpoint."""
_COMPLETE = frozenset(("file/name", "txn/hanging"))
"""The codes whose sentences say it already, or end with a command to be copied."""


def finding_sentence(finding: Finding) -> str:
    """The sentence of a finding, and what a broker's next start does about it where that is predicted.

    That it does nothing is not said of what is legal.
    """
    ignored = finding.broker == "ignores"
    if finding.broker is None or finding.code in _COMPLETE or (ignored and not finding.severity):
        return finding.message
    from kdump.broker.defaults import RELEASE  # without findings nothing is said of a broker

    words = _REACTIONS | _OF_LINES if finding.code.startswith(("checkpoint/", "epoch/")) else _REACTIONS
    return f"{finding.message}; {words[finding.broker].format(RELEASE)}{_later_words(finding)}"


def _later_words(finding: Finding) -> str:
    """What LATER_RELEASE does about a finding where that differs, and what mends it."""
    if finding.later_broker is None:
        return ""
    from kdump.broker.defaults import LATER_RELEASE
    from kdump.verify.next_step import repair_of  # rarely needed

    return f"; {LATER_RELEASE} does not start with it, until it is mended ({repair_of(finding.code)})"


def folded_sentence(folded: FoldedFindings) -> str:
    """How many findings of a code and file are not shown."""
    words = f"{folded.others} more of {'this file' if folded.first is not None else folded.code}"
    if not folded.kept:
        return f"{words}, which were counted and not kept"
    return f"{words}; --all shows {'them' if folded.kept == folded.others else f'{folded.kept} of them'}"


def match_sentence(count: MatchCount) -> str:
    """How many of the records that a dump compared match: `3 of 90 records match`."""
    searched = count.searched
    of = counted(searched.records, "batch", "batches") if count.batches else counted(searched.records, "record")
    return f"{count.matches} of {'' if searched.exact else 'at least '}{of} match"


def offsets_text(start: int | None, end: int | None) -> str:
    """Offsets up to the next one: `0..48, next 49`; `none, next 0` of an empty log."""
    if start is None or end is None:
        return ""
    return f"none, next {end}" if start >= end else f"{start}..{end - 1}, next {end}"


def verify_summary(summary: VerifySummary) -> str:
    """The summary of a verify as one sentence."""
    from kdump.verify.summary import counts_by  # loaded already where there is such a summary

    records = "an unknown number of" if summary.records is None else summary.records
    severities = counts_by(summary.counts)["by_severity"]
    found = ", ".join(f"{counted(count, word)}" for word, count in severities.items())
    dropped = f" ({summary.findings_dropped} of them not shown)" if summary.findings_dropped else ""
    at = summary.interrupted_at
    where = "" if at is None else f" at byte {at.position} of {at.size} in {path_text(at.path)}"
    interrupted = f"interrupted{where}: " if summary.interrupted else ""
    files, batches = counted(summary.files, "file"), counted(summary.batches, "batch", "batches")
    return (
        f"{interrupted}{files}, {batches}, {records} records,"
        f" {summary.valid_bytes} of {summary.bytes} bytes in valid batches: {found}{dropped}"
    )


def verify_verdict(summary: VerifySummary) -> list[tuple[str, str]]:
    """What is said before the details: whether a broker starts, what is lost, what to do; nothing of healthy logs."""
    if not summary.has_verdict:
        return []
    from kdump.verify.findings import Severity  # loaded already where there is such a summary

    verdict = summary.verdict
    words = _loss_words(verdict)
    if below := summary.counts.get(("checkpoint/beyond", Severity.ERROR), 0):
        words.append(
            f"{counted(below, 'log ends', 'logs end')} below {'its' if below == 1 else 'their'} high watermark"
        )
    lost = "; ".join(words) or "no batch is known to be damaged or missing"
    return [("broker", start_sentence(verdict)), ("lost", lost), *((("do", summary.next),) if summary.next else ())]


def _loss_words(verdict: StartVerdict) -> list[str]:
    """What is lost in the partitions with damage, as far as a verify counts it."""
    loss, number = verdict.loss, verdict.truncated.number
    damaged = number + verdict.damaged.number + verdict.undecided.number
    if not damaged:
        return []
    words = []
    if number:
        gone = f"at least {counted(loss.records, 'record')}" if loss.records else "an unknown number of records"
        if loss.exact:
            gone = counted(loss.records, "valid record") if loss.records else "no valid record"
        of = f" of {counted(number, 'partition')}" if number > 1 else ""
        first, end = (None, None) if loss.offsets is None or damaged > 1 else loss.offsets
        start = "the attempt to start can give up" if verdict.starts is False else "a start gives up"
        words.append(f"{start} {gone}{of}" + (f", offsets {offsets_text(first, end)}" if end else ""))
    absent = [f"{counted(loss.damaged_bytes, 'byte')} damaged"] if loss.damaged_bytes else []
    absent += [f"{counted(loss.missing, 'offset')} missing"] if loss.missing else []
    what = " and ".join(absent) or "batches are damaged or missing"
    return [*words, f"{what} in {counted(damaged, 'partition')}"]


def start_sentence(verdict: StartVerdict) -> str:
    """What a broker's next start does with what was looked at."""
    match verdict.starts:
        case False:
            words = [f"does not start: {verdict.refused}"]
        case None:
            words = [f"whether it starts is not known: {verdict.unknown}"]
        case _:
            words = ["starts: nothing that was looked at prevents it"]
    # Before it gives up, a broker may have loaded some of the logs.
    start, s = ("the attempt can", "") if verdict.starts is False else ("a start", "s")
    for paths, what, then in (
        (verdict.truncated, f"{start} truncate{s} the log of", ""),
        (verdict.renamed, f"{start} rename{s}", f" to NAME-stray and begin{s} empty ones"),
        (verdict.damaged, "a start leaves the damage in", ""),
        (verdict.undecided, "a start may truncate the log of, or leave the damage in,", ""),
    ):
        if paths.number:
            more = "" if paths.number == len(paths.first) else f" and {paths.number - len(paths.first)} more"
            words.append(
                f"{what} {counted(paths.number, 'partition')} ({', '.join(map(path_text, paths.first))}{more}){then}"
            )
    return "; ".join(words)


def partition_summary(summary: PartitionSummary) -> str:
    """A partition of a verify as one sentence."""
    from kdump.verify.summary import counts_by

    counts, outcome = counts_by(summary.counts), summary.outcome
    line = f"{counted(summary.segments, 'segment')}, {counted(summary.batches, 'batch', 'batches')}"
    if not summary.segments and summary.topic_partition is None:
        line = "the log directory itself"
    if summary.log_end_offset is not None:
        line += f", offsets {offsets_text(summary.log_start_offset, summary.log_end_offset)}"
    found = ", ".join(counted(count, word) for word, count in counts["by_severity"].items() if count)
    codes = ", ".join(f"{code} {count}" for code, count in counts["by_code"].items())
    line += f": {found} ({codes})" if found else ": clean"
    if outcome is None:
        return line
    if outcome.refusals:
        return f"{line}; a broker refuses to start"
    if outcome.later_refusals:
        from kdump.broker.defaults import LATER_RELEASE

        line += f"; {LATER_RELEASE} refuses to start"
    if outcome.log_end_offset != summary.log_end_offset or outcome.truncations:
        left = offsets_text(outcome.log_start_offset, outcome.log_end_offset)
        line += f"; a broker's next start leaves offsets {left}"
    return line


def read_summary(read: ReadEntry) -> str:
    """How an offset of a log was found, as one sentence."""
    time = "" if read.timestamp is None else f" ({iso_time(read.timestamp)})"
    walked = counted(read.walked_bytes, "byte")
    position, entry = read.position, read.index_entry
    if not read.size:
        how = f"nothing at position {position} yet"
    elif entry is None:
        how = f"position {position}, without an index entry, {walked} walked"
    else:
        how = (
            f"position {position}, by the index entry of offset {entry.offset} at position {entry.position},"
            f" {walked} walked"
        )
    start, end = read.log_start_offset, read.log_end_offset
    extent = "the log is empty" if start == end else f"the log has the offsets {start} to {end - 1}"
    return (
        f"offset {read.offset}{time}: {how}; {counted(read.size, 'byte')} read,"
        f" the next read is at offset {read.next_offset}; {extent}"
    )


_SHOWN_KEYS: Final = 5
_EVIDENCE: Final = {
    "metadata": (
        "broker {broker} was not in the ISR from {left} to {back}, {away} ms; delete.retention.ms is {retention}, "
        "producer.id.expiration.ms {expiration}; what differs was written before"
    ),
    "rules": "a transaction begins earlier or goes on longer here than in {other}: a marker is missing here",
    "majority": "all other copies agree; compare again before you delete anything",
}
_STEPS: Final = {
    "describe": "see which broker leads the partition",
    "fill": (
        "while its broker is stopped, give {path} the valid batches that it lacks and another copy has; with --dry-run "
        "it is only shown"
    ),
    "unknown": (
        "nothing says which copy is right: delete no copy; give --metadata, or produce again the keys that have a "
        "wrong value"
    ),
    "leadership": "if {path} leads, first put another broker first in its replicas, and make that one the leader",
    "delete": "then stop the broker of the stale copy, delete this directory alone, start it, and wait for the ISR",
    "wrong": "never delete another copy, or this one, while {path} leads: that spreads what it has",
    "abort": "end the transaction that is open in {path} alone, while that copy leads",
}


def copies_sentence(summary: VerifySummary) -> str | None:
    """That --compare can say more about what was read; None where it cannot."""
    number = summary.several_copies
    if not number:
        return None
    several = "1 topic-partition has" if number == 1 else f"{number} topic-partitions have"
    return f"{several} several copies here: kdump verify --compare says whether they mean the same"


_UNDECIDED: Final = {
    "reach": "a log cleaner was above the common end: not comparable before the other copy has caught up",
    "damage": "a copy is damaged where the other has records: kdump verify",
    "cleaned": "a copy lacks records, and whether a log cleaner removed them is not known",
    "no-high-watermark": "their leader epochs contradict each other, and no high watermark says whether committed",
    "no-common-offsets": "they have no offsets in common",
    "out-of-order": "the offsets of a copy go back: kdump verify",
    "unreadable": "a copy cannot be read",
    "kafka-0.7": "a log of Kafka 0.7 is not compared",
    "records": "the records of a batch with a right checksum cannot be read: kdump verify --deep",
    "changed": "a file changed whenever it was read",
    "as-of": "fingerprints were taken as of other ends: take them again with --as-of and the files of all copies",
    "no-state": "a fingerprint has no last records of keys: take all again with --as-of and the files of all copies",
    "edges": "fingerprints have no sums of a part of the offsets: take them again with --as-of and the files of all",
    "many": "more differs than fingerprints can name: compare the disks",
    "replaced": "records that a later one of their key replaces were not compared: compare the disks for these",
    "not-read-again": "segments that had not changed were not read again for a fingerprint: --full reads all of them",
    "left-out": "a copy has so many leader epochs or aborted transactions that only a part of them was compared",
    "limit": "a copy has more open transactions than a fingerprint holds: compare the disks",
}


def comparison_sentences(compared: PartitionComparison) -> Iterator[str]:
    """What is said of the copies: each pair, its first differing keys, the evidence, and what to do."""
    for pair in compared.pairs:
        why = "".join(f"; {_UNDECIDED[each]}" for each in pair.because)
        how = "one by one" if pair.batches or not pair.records else "by the sums of their hashes"
        yield (
            f"{pair.verdict}: {pair.left} and {pair.right}, up to offset {pair.end_offset}: {pair.batches} batches "
            f"read, {pair.records} records and {pair.keys} keys compared {how}{why}"
        )
        yield from _key_sentences(pair)
    for each in compared.evidence:
        yield f"stale: {each.stale}: {_evidence_words(each)}"
    for election in compared.unclean_elections[-_SHOWN_KEYS:]:
        at = iso_time(election.timestamp_ms)
        yield f"broker {election.broker} was elected leader uncleanly at {at}: committed records can be lost"
    for step in compared.repair_steps():
        run = "" if step.command is None else f": {step.command}"
        yield f"to do: {_STEPS[step.step].format(path=step.path)}{run}"
    if compared.pairs and compared.topic_id is None:
        yield "no copy has a topic id: these are copies of one topic-partition by its name alone"


def _evidence_words(evidence: Evidence) -> str:
    away = (evidence.back_ms or 0) - (evidence.left_ms or 0)
    return _EVIDENCE[evidence.reason].format(
        other=evidence.other,
        broker=evidence.broker,
        left=iso_time(evidence.left_ms),
        back=iso_time(evidence.back_ms),
        away=away,
        retention=evidence.delete_retention_ms,
        expiration=evidence.producer_id_expiration_ms,
    )


def _key_sentences(pair: ReplicaComparison) -> Iterator[str]:
    """The first keys that differ."""
    for key in pair.differs.keys.offsets[:_SHOWN_KEYS]:
        name = key.key_hash if key.key is None else quoted(key.key.decode("utf-8", "backslashreplace"))
        left, right = ("none" if offset < 0 else f"offset {offset}" for offset in (key.left, key.right))
        yield f"key {name}: {left} in {pair.left}, {right} in {pair.right}"
    if pair.differs.keys.keys > _SHOWN_KEYS:
        yield f"{pair.differs.keys.keys - _SHOWN_KEYS} more keys differ"


def fingerprint_summary(summary: FingerprintSummary) -> str:
    """What was written of a fingerprint, as one sentence."""
    without = f", {summary.not_comparable} of them not comparable" if summary.not_comparable else ""
    unread = ""
    if summary.read_whole:
        unread = f"; {summary.read_whole} read whole, as a log cleaner goes over them or they have transactions"
    if summary.oldest_read_ms is not None:
        what = f"{summary.unread_bytes} bytes of segments" if summary.unread_bytes else "segments"
        unread += (
            f"; {what} that had not changed were not read again, the oldest since {iso_time(summary.oldest_read_ms)}"
        )
    return f"{summary.path}: {counted(summary.partitions, 'topic-partition')}{without}, {summary.bytes} bytes{unread}"


def comparison_summary(summary: ComparisonSummary) -> str:
    """The totals of a comparison of copies, as one sentence."""
    return (
        f"{counted(summary.partitions, 'topic-partition')}, {counted(summary.pairs, 'pair')} of copies: "
        f"{summary.agree} agree, {summary.diverged} diverged, {summary.undecided} undecided"
    )
