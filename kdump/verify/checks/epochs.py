"""Leader epochs: of a batch against the batch before, and of leader-epoch-checkpoint against the batches."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from kdump.format.batch import Batch
from kdump.format.checkpoint import CheckpointError, epoch_entries
from kdump.verify.findings import Finding, found


def _backwards(path: str, batch: Batch, base: int | None) -> Finding:
    place = path, batch.position, batch.size, batch.base_offset
    return backwards(*place, epoch=batch.partition_leader_epoch, previous=batch.previous_epoch)


def backwards(path: str, position: int, size: int, offset: int, *, epoch: int, previous: int) -> Finding:
    """A batch has a lower leader epoch than the one before, in its segment or in the one before that."""
    return found("epoch/backwards", path, position, size, offset=offset, epoch=epoch, previous=previous)


EXPLAIN = {"epoch/backwards": _backwards}


# ---- leader-epoch-checkpoint


class _EpochLine(NamedTuple):
    """An entry and the bytes of its line."""

    number: int
    epoch: int
    start_offset: int
    position: int
    length: int

    def finding(self, what: str, path: str, **data: Any) -> Finding:
        return found(
            f"epoch/{what}",
            path,
            self.position,
            self.length,
            offset=self.start_offset,
            epoch=self.epoch,
            start_offset=self.start_offset,
            **data,
        )


class _Span(NamedTuple):
    """An epoch of batches: the offset of the first one, where the next epoch begins, and of the first batch of the epoch before."""

    epoch: int
    first: int
    end: int
    previous: int | None


def checkpoint(
    path: str,
    data: bytes,
    seen: Sequence[Sequence[int]],
    log_start: int | None,
    log_end: int,
    *,
    partial: bool,
    legacy: bool,
) -> Iterator[Finding]:
    """A leader-epoch-checkpoint against the batches of its partition. That there is none is fine: a broker makes it from the batches.

    `seen` begins with leader epoch and first offset of each batch whose epoch is another one than before. `log_start` is None where no checkpoint says it.
    `partial`: batches may be missing, by cleaning or damage. `legacy`: there are messages of magic 0 or 1, which carry no epoch.
    """
    try:
        lines = _lines(data)
    except CheckpointError as error:
        yield found("epoch/format", path, 0, len(data), problem=str(error))
        return
    for before, line in pairwise(lines):
        # Brokers up to 1.1 kept an epoch without records, which has the start offset of the next one.
        if line.epoch <= before.epoch or line.start_offset < before.start_offset:
            previous = {"previous_epoch": before.epoch, "previous_offset": before.start_offset}
            yield line.finding("order", path, entry=line.number, **previous)
    loaded, known = _loaded(lines), {line.epoch for line in lines}
    # A deletion lifts the first entry to the new start of the log at once, the checkpoint of log starts follows within a minute.
    lifted = loaded[0].start_offset if loaded and loaded[0].start_offset <= log_end else 0
    start = max(log_start or 0, lifted)
    spans = _spans(seen, log_end, known)
    yield from _wrong(path, loaded, spans, start, partial or legacy)
    missing = [span for span in spans if span.end > start and span.epoch not in known]
    if legacy:
        # The file began with the first batch of magic 2, or began again when the topic came back to it.
        missing = [span for span in missing if loaded and span.epoch > loaded[0].epoch]
    for span in missing:
        yield found("epoch/missing", path, 0, 0, offset=span.first, epoch=span.epoch, found=span.first)
    for line in loaded:
        higher = bool(spans) and line.epoch > spans[-1].epoch and not legacy
        if higher and (line.start_offset < log_end or missing):
            yield line.finding("stale", path, latest=spans[-1].epoch)
        elif line.start_offset > log_end:
            yield line.finding("beyond", path, end_offset=log_end)


def _lines(data: bytes) -> list[_EpochLine]:
    """The entries. Raises CheckpointError for what a broker refuses, be it the reader of the file or the cache that it fills."""
    positions = [0]
    for text in data.splitlines(keepends=True):
        positions.append(positions[-1] + len(text))
    lines = []
    for number, entry in enumerate(epoch_entries(data)):
        begin, end = positions[number + 2 : number + 4]  # behind the version and the count
        lines.append(_EpochLine(number, *entry, begin, end - begin))
    for line in lines:
        if line.epoch < 0 or line.start_offset < 0:
            raise CheckpointError(f"line {line.number + 3} has a negative number")
    return lines


def _loaded(lines: list[_EpochLine]) -> list[_EpochLine]:
    """What a broker makes of the entries (LeaderEpochFileCache.assign): a later one drops those that it contradicts."""
    kept: list[_EpochLine] = []
    for line in lines:
        if kept and line.epoch == kept[-1].epoch and line.start_offset >= kept[-1].start_offset:
            continue
        while kept and (kept[-1].epoch >= line.epoch or kept[-1].start_offset >= line.start_offset):
            kept.pop()
        kept.append(line)
    return kept


def _spans(seen: Sequence[Sequence[int]], log_end: int, known: set[int]) -> list[_Span]:
    """The epochs of the batches, rising. An epoch that goes back again is a broken batch, unless the checkpoint knows it."""
    spans: list[_Span] = []
    for number, (epoch, first, *_) in enumerate(seen):
        following = seen[number + 1] if number + 1 < len(seen) else None
        if spans and epoch <= spans[-1].epoch:
            continue
        if following is not None and following[0] < epoch and epoch not in known:
            continue
        if spans:
            spans[-1] = spans[-1]._replace(end=first)
        spans.append(_Span(epoch, first, log_end, spans[-1].first if spans else None))
    return spans


def _wrong(path: str, loaded: list[_EpochLine], spans: list[_Span], start: int, partial: bool) -> Iterator[Finding]:
    """Entries that no log can have together with these batches."""
    epochs = [span.epoch for span in spans]
    for line in loaded:
        at = bisect_left(epochs, line.epoch)
        if at == len(spans) or spans[at].end <= start or line.start_offset == spans[at].first:
            continue
        # The epoch's own batches, or the first later ones: without batches an epoch begins where the next one does, or all of them are gone.
        span = spans[at]
        if line.start_offset > span.first:
            wrong = line.start_offset > start
        else:
            # Before the first batch that is left there may have been others, but not among those of the epoch before.
            wrong = span.previous is not None and (line.start_offset <= span.previous or not partial)
        if wrong:
            yield line.finding("checkpoint", path, found=span.first)
