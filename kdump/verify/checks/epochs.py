"""The checks `epoch/*`: leader epochs of neighbouring batches, and leader-epoch-checkpoint against the batches."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kdump.format.batch import Batch
from kdump.format.checkpoint import CheckpointError, epoch_entries
from kdump.kernel.results import BatchDiagnosis
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Finding, FindingValue, make_finding


def _backwards(path: str, batch: Batch, diagnosis: BatchDiagnosis, base: int | None) -> Finding:
    place = path, batch.position, batch.size, batch.base_offset
    return backwards(*place, epoch=batch.partition_leader_epoch, previous=diagnosis.previous_epoch)


def backwards(path: str, position: int, size: int, offset: int, *, epoch: int, previous: int) -> Finding:
    """epoch/backwards: the leader epoch is lower than that of the batch before, also across a border of segments."""
    return make_finding("epoch/backwards", path, position, size, offset=offset, epoch=epoch, previous=previous)


EXPLAIN = {"epoch/backwards": _backwards}


# ---- leader-epoch-checkpoint


class _EpochLine(NamedTuple):
    """An entry of the checkpoint, and the bytes of its line in the file."""

    number: int
    epoch: int
    start_offset: int
    position: int
    length: int

    def finding(self, code: str, path: str, **data: FindingValue) -> Finding:
        """A finding about this line, with its values."""
        return make_finding(
            code,
            path,
            self.position,
            self.length,
            offset=self.start_offset,
            severity=None,
            epoch=self.epoch,
            start_offset=self.start_offset,
            **data,
        )


class _Span(NamedTuple):
    """A leader epoch as the batches show it.

    `first` and `end` are the offsets of its first batch and of the first batch of the next epoch, `previous` that of
    the first batch of the epoch before, None for the first epoch.
    """

    epoch: int
    first: int
    end: int
    previous: int | None


def check_checkpoint(
    path: str,
    data: bytes,
    seen: Sequence[Sequence[int]],
    log_start: int | None,
    log_end: int,
    *,
    partial: bool,
    legacy: bool,
) -> Iterator[Finding]:
    """Check a leader-epoch-checkpoint against the batches of its partition.

    A missing file is legal: a broker rebuilds it. The items of `seen` begin with the leader epoch and the first offset
    of each batch whose epoch differs from that of the batch before.
    `log_start` is None where no checkpoint says it. `partial`: cleaning or damage may have removed batches. `legacy`:
    the partition has messages of magic 0 or 1, which have no leader epoch.
    """
    try:
        lines = _lines(data)
    except CheckpointError as error:
        yield make_finding("epoch/format", path, 0, len(data), problem=str(error))
        return
    for before, line in pairwise(lines):
        # Brokers up to 1.1 kept an epoch without records. It has the start offset of the next epoch.
        if line.epoch <= before.epoch or line.start_offset < before.start_offset:
            previous = {"previous_epoch": before.epoch, "previous_offset": before.start_offset}
            yield line.finding("epoch/order", path, entry=line.number, **previous)
    loaded, known = _loaded(lines), {line.epoch for line in lines}
    # A deletion sets the first entry to the new log start offset at once. The log start offset checkpoint follows
    # within a minute.
    lifted = loaded[0].start_offset if loaded and loaded[0].start_offset <= log_end else 0
    start = max(log_start or 0, lifted)
    spans = _spans(seen, log_end, known)
    yield from _wrong(path, loaded, spans, start, partial or legacy)
    missing = [span for span in spans if span.end > start and span.epoch not in known]
    if legacy:
        # The file begins with the first batch of magic 2, and again when the topic returns to magic 2.
        missing = [span for span in missing if loaded and span.epoch > loaded[0].epoch]
    for span in missing:
        yield make_finding("epoch/missing", path, 0, 0, offset=span.first, epoch=span.epoch, found=span.first)
    for line in loaded:
        higher = bool(spans) and line.epoch > spans[-1].epoch and not legacy
        if higher and (line.start_offset < log_end or missing):
            yield line.finding("epoch/stale", path, latest=spans[-1].epoch)
        elif line.start_offset > log_end:
            yield line.finding("epoch/beyond", path, end_offset=log_end)


def _lines(data: bytes) -> list[_EpochLine]:
    """The entries. Raises CheckpointError where a broker refuses the file, in its reader or in its epoch cache."""
    positions = [0]
    for text in data.splitlines(keepends=True):
        positions.append(positions[-1] + len(text))
    lines = []
    for number, entry in enumerate(epoch_entries(data)):
        begin, end = positions[number + 2 : number + 4]  # after the version and the count
        lines.append(_EpochLine(number, *entry, begin, end - begin))
    for line in lines:
        if line.epoch < 0 or line.start_offset < 0:
            raise CheckpointError(f"line {line.number + 3} has a negative number")
    return lines


def _loaded(lines: list[_EpochLine]) -> list[_EpochLine]:
    """The entries that a broker keeps: a later entry drops those that it contradicts (LeaderEpochFileCache.assign)."""
    kept: list[_EpochLine] = []
    for line in lines:
        if kept and line.epoch == kept[-1].epoch and line.start_offset >= kept[-1].start_offset:
            continue
        while kept and (kept[-1].epoch >= line.epoch or kept[-1].start_offset >= line.start_offset):
            kept.pop()
        kept.append(line)
    return kept


def _spans(seen: Sequence[Sequence[int]], log_end: int, known: set[int]) -> list[_Span]:
    """The leader epochs of the batches, in rising order.

    An epoch after which a lower one follows comes from a damaged batch, unless the checkpoint has it.
    """
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
    """Yield epoch/checkpoint for the entries that contradict the batches."""
    epochs = [span.epoch for span in spans]
    for line in loaded:
        at = bisect_left(epochs, line.epoch)
        if at == len(spans) or spans[at].end <= start or line.start_offset == spans[at].first:
            continue
        # The batches of the epoch, or of the next one. An epoch without batches begins where the next one does, or
        # all of its batches are gone.
        span = spans[at]
        if line.start_offset > span.first:
            wrong = line.start_offset > start
        else:
            # The first batches of the epoch may be gone. They were not before the batches of the previous epoch.
            wrong = span.previous is not None and (line.start_offset <= span.previous or not partial)
        if wrong:
            yield line.finding("epoch/checkpoint", path, found=span.first)
