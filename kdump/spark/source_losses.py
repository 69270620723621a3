"""What becomes of records that are gone: an error that names the option, or one warning."""

import socket
import warnings
from typing import Final

from kdump.errors import KdumpError, SourceError
from kdump.format.naming import TopicPartition
from kdump.log.damage import DamagedRange
from kdump.log.ranges import OffsetRange
from kdump.log.records import DamageWarning
from kdump.replicas.batch_order import LeftOutBatch, subject_of
from kdump.verify.findings import Severity

_MISSING: Final = ": no such file"


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


class LossPolicy:
    """Takes what is lost of a range: raises DataLoss, or warns once and counts."""

    def __init__(self, of: TopicPartition | None, *, fail: bool) -> None:
        self._name = "the log" if of is None else f"{of.topic}-{of.partition}"
        self._fail = fail
        self._warned = False

    def lost(self, each: DamagedRange) -> None:
        """Take offsets that no copy has."""
        many = _offsets(each.offsets)
        self._take(f"{each.path}: at byte {each.position}: {each.code}: {many} of {self._name} cannot be read")

    def damaged(self, each: DamagedRange, offsets: OffsetRange, *, ends: bool) -> None:
        """Take bytes that are not a valid batch, where `offsets` were expected; `ends`: others may follow.

        Only what may have had records is a loss: zeros that a broker may have preallocated are a warning.
        """
        what = f"records from offset {offsets.start} on" if ends else _offsets(offsets)
        where = f"{each.path}: at byte {each.position}: {each.code}"
        if each.severity < Severity.ERROR:
            self._warn(f"{where}: {each.length} bytes, and {what} of {self._name} may be missing")
        else:
            self._take(f"{where}: {what} of {self._name}, in {each.length} bytes, cannot be read")

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

    def left_out(self, each: LeftOutBatch) -> None:
        """Take a valid batch that contradicts others about its offsets: a loss unless the same records are read."""
        unkept = f"{subject_of(each.unkept, each.records)} not read"
        offsets = f"the batch with the offsets {each.first_offset} to {each.last_offset} of {self._name}"
        what = f"{each.path}: at byte {each.position}: {each.code}: {offsets} contradicts others"
        if each.severity is Severity.ERROR:
            self._take(f"{what}: {unkept}")
        else:
            self._warn(f"{what}: the same records are read")

    def undecided(self, records: int, offset: int | None, path: str) -> None:
        """Take records whose transaction is not decided because of damage after them."""
        self._take(
            f"{path}: txn/open: what became of the transaction at offset {offset} of {self._name} is not known; "
            f"{records} records are not read"
        )

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
