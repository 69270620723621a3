"""What becomes of records that are gone: an error that names the option, or a warning and rows of the table losses."""

import socket
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from kdump.convert.records.holes import PartHoles
from kdump.convert.records.outcome_ranges import OutcomeRange
from kdump.errors import KdumpError, SourceError
from kdump.format.naming import TopicPartition, as_utf8
from kdump.log.damage import DamagedRange
from kdump.log.ranges import OffsetRange, united, without
from kdump.log.records import DamageWarning
from kdump.named_tuple import NamedTuple
from kdump.replicas.batch_order import LeftOutBatch, subject_of
from kdump.verify.findings import Severity

LOSSES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),  # null where the end of the log is not known
        ("records", pa.int64()),  # null where not known
        ("code", pa.string()),  # of the finding, or one of the words below
        ("path", pa.string()),
        ("host", pa.string()),
    ]
)
"""The table losses: what a read leaves out where `failOnDataLoss` is false."""
DELETED: Final = "deleted"
"""The code of offsets below the log start offset."""
TRUNCATED: Final = "truncated"
"""The code of offsets after the log end."""
REPLACED: Final = "replaced"
"""The code of offsets that a stream has read, and that other records have now."""
KEPT_LOSSES: Final = 10_000
"""The most losses of a range; the last one has all others."""
_MISSING: Final = ": no such file"
_MARKER_BYTES: Final = 78
"""The size of a control batch, which has an offset and no record."""


class Loss(NamedTuple):
    """Offsets, first and last, that a read leaves out, as a row of the table losses.

    `last_offset` is None where the end of the log is not known. `records`: how many are not among the rows; None where
    the log cleaner or a marker may have had some of the offsets, or where rows have these offsets, too.
    """

    topic: str | None
    partition: int | None
    first_offset: int
    last_offset: int | None
    records: int | None
    code: str
    path: str | None
    host: str


def loss_of(
    of: TopicPartition | None, first: int, last: int | None, code: str, path: str | None, *, records: int | None = None
) -> Loss:
    """A loss that shows on this host."""
    topic, partition = (None, None) if of is None else (as_utf8(of.topic), of.partition)
    return Loss(topic, partition, first, last, records, code, path and as_utf8(path), socket.gethostname())


def loss_rows(losses: Iterable[Loss]) -> pa.RecordBatch:
    """The losses as rows."""
    return pa.RecordBatch.from_pylist([each._asdict() for each in losses], schema=LOSSES)


class DataLoss(KdumpError):
    """Records that a read asks for are not there, and `failOnDataLoss` is true."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f'{what}. The option failOnDataLoss is true: with false such records are left out; option("table",'
            ' "findings") lists the damage'
        )
        self.what = what

    def __reduce__(self) -> tuple[type["DataLoss"], tuple[str]]:
        return DataLoss, (self.what,)


class _Gone(NamedTuple):
    """Offsets [start, stop) that are gone, and how many records, where that is known beforehand.

    `is_missing`: no row has them. `length`: the damaged bytes there.
    """

    start: int
    stop: int
    code: str
    path: str
    records: int | None = None
    is_missing: bool = True
    length: int | None = None


class LossPolicy:
    """Takes what is lost of a range: raises DataLoss, or warns once, and keeps it. `is_quiet`: it does not warn."""

    def __init__(self, of: TopicPartition | None, *, fail: bool, is_quiet: bool = False) -> None:
        self._of = of
        self._name = "the log" if of is None else f"{of.topic}-{of.partition}"
        self._fail = fail
        self._warned = is_quiet
        self._damaged: list[_Gone] = []
        self._lost: list[_Gone] = []
        self._undecided: list[_Gone] = []
        self._end: _Gone | None = None
        """What is damaged after the last batch of the log."""

    def lost(self, each: DamagedRange) -> None:
        """Take offsets that no copy has, or that are in doubt; those at the end of the log have no last one."""
        if each.last_offset is None:
            start = each.offsets.start
            self._take(f"{each.path}: {each.code}: records from offset {start} on of {self._name} cannot be read")
            self._end = self._end or _Gone(start, start, each.code, each.path)
            return
        many = _offsets(each.offsets)
        self._take(f"{each.path}: at byte {each.position}: {each.code}: {many} of {self._name} cannot be read")
        is_missing = each.code != "replica/differs"
        self._keep(self._lost, _Gone(*each.offsets, each.code, each.path, is_missing=is_missing))

    def gone(self, offsets: OffsetRange, code: str, path: str) -> None:
        """Take offsets, if any, that were DELETED or TRUNCATED after the read was planned."""
        if offsets.start < offsets.stop:
            self._take(f"{path}: {_offsets(offsets)} of {self._name} were {code} after the read was planned")
            self._keep(self._lost, _Gone(*offsets, code, path, is_missing=False))  # how many had a record is not known

    def damaged(
        self,
        each: DamagedRange,
        offsets: OffsetRange,
        *,
        ends: bool,
        gone: Sequence[OffsetRange] | None = None,
        is_last: bool = True,
    ) -> None:
        """Take bytes that are not a valid batch, where `offsets` were expected; `ends`: others may follow.

        Only what may have had records is a loss: zeros that a broker may have preallocated are a warning. `gone`: what
        of the offsets is missing, where that is known; all of them otherwise. `is_last`: no batch
        follows it in its file.
        """
        what = f"records from offset {offsets.start} on" if ends else _offsets(offsets)
        where = f"{each.path}: at byte {each.position}: {each.code}"
        if each.severity < Severity.ERROR:
            self._warn(f"{where}: {each.length} bytes, and {what} of {self._name} may be missing")
        else:
            self._take(f"{where}: {what} of {self._name}, in {each.length} bytes, cannot be read")
        for start, stop in [offsets] if gone is None else gone:
            if start < stop:
                self._keep(self._damaged, _Gone(start, stop, each.code, each.path, length=each.length))
        if ends and is_last and each.severity >= Severity.ERROR and self._end is None:
            self._end = _Gone(offsets.start, offsets.stop, each.code, each.path)

    def misplaced(self, each: DamagedRange, offsets: OffsetRange | None) -> None:
        """Take a batch whose records are read at offsets that cannot be right; no record is at `offsets` of it."""
        what = f"{each.path}: at byte {each.position}: {each.code}: records of {self._name} have offsets that are wrong"
        if offsets is None:
            self._warn(f"{what}, and are read with these")
            return
        what = f"{what}, and are read with these; which ones had {_offsets(offsets)} is not known"
        if self._fail:
            raise DataLoss(what)
        self._warn(what)
        self._keep(self._lost, _Gone(*offsets, each.code, each.path, is_missing=False))

    def left_out(self, each: LeftOutBatch) -> None:
        """Take a valid batch that contradicts others about its offsets: a loss unless the same records are read."""
        unkept = f"{subject_of(each.unkept, each.records)} not read"
        offsets = f"the batch with the offsets {each.first_offset} to {each.last_offset} of {self._name}"
        what = f"{each.path}: at byte {each.position}: {each.code}: {offsets} contradicts others"
        if each.severity is Severity.ERROR:
            self._take(f"{what}: {unkept}")
            offset = each.first_offset, each.last_offset + 1
            self._keep(self._lost, _Gone(*offset, each.code, each.path, is_missing=False))
        else:
            self._warn(f"{what}: the same records are read")

    def undecided(self, ranges: Iterable[OutcomeRange], offset: int | None, path: str) -> None:
        """Take records whose transaction is not decided because of damage after them."""
        several = list(ranges)
        records = sum(each.records for each in several)
        self._take(
            f"{path}: txn/open: what became of the transaction at offset {offset} of {self._name} is not known; "
            f"{records} records are not read"
        )
        for first, last, records in several:
            many = min(records, last + 1 - first)  # of a batch that goes on in the next range
            self._keep(self._undecided, _Gone(first, last + 1, "txn/open", path, many))

    def losses(self, holes: PartHoles, offsets: OffsetRange, *, exact: bool, is_last: bool) -> Iterator[Loss]:
        """What was kept of the range with these offsets, each offset that no row has once.

        `holes` are those that reading it showed. `exact`: each offset of the log was a record. `is_last`: the log ends
        with the range.
        """
        known = self._known(holes) if exact else []
        found = [self._loss(each, each.start, each.stop, each.records) for each in self._undecided]
        taken: list[OffsetRange] = []
        for several in (self._damaged, self._lost):
            own: list[OffsetRange] = []
            for each in sorted(several, key=lambda gone: gone[:2]):
                if not each.is_missing:
                    found.append(self._loss(each, each.start, each.stop, None))
                    continue
                start = max(each.start, own[-1].stop) if own else each.start
                for part in without([OffsetRange(start, each.stop)], taken):
                    own.append(part)
                    count = part.stop - part.start
                    may_be_marker = each.length == _MARKER_BYTES and count == 1
                    found.append(self._loss(each, *part, None if may_be_marker or without([part], known) else count))
            taken = united([*taken, *own])
        if is_last and self._end is not None:
            found.append(self._loss(self._end, max(self._end.start, offsets.stop), None, None))
        yield from sorted(found, key=lambda loss: loss.first_offset)

    def _known(self, holes: PartHoles) -> list[OffsetRange]:
        """The offsets of which it is sure that they are missing: a batch of the range follows."""
        first, end = holes.first_hole, holes.end
        several = holes.holes if first is None else (first, *holes.holes)
        sure = [each.offsets for each in several if each.exact and each.offsets.last is not None]
        lost = [OffsetRange(each.start, each.stop) for each in self._lost if each.is_missing]
        return united([*sure, *(each for each in lost if end is not None and each.stop < end)])

    def _loss(self, gone: _Gone, start: int, stop: int | None, records: int | None) -> Loss:
        return loss_of(self._of, start, None if stop is None else stop - 1, gone.code, gone.path, records=records)

    @staticmethod
    def _keep(kept: list[_Gone], each: _Gone) -> None:
        if len(kept) < KEPT_LOSSES:
            kept.append(each)
            return
        last = kept[-1]
        start, stop = min(each.start, last.start), max(each.stop, last.stop)
        kept[-1] = last._replace(start=start, stop=stop, records=None, is_missing=False)

    def _take(self, what: str) -> None:
        if self._fail:
            raise DataLoss(what)
        self._warn(f"{what}, and are left out")

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(what, DamageWarning, stacklevel=2)


def _offsets(offsets: OffsetRange) -> str:
    start, stop = offsets
    return f"offsets {start} to {stop - 1}" if stop - start > 1 else f"offset {start}"


def on_this_host(error: SourceError) -> SourceError:
    """The error of a task with the name of the host: the path may be on another one."""
    shared = "; the driver and every worker must be able to reach the same paths" if _MISSING in str(error) else ""
    return SourceError(f"{error} (on host {socket.gethostname()}){shared}")
