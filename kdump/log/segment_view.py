"""What one scan showed of a segment: valid stretches and damage in the order of the file.

A stretch is folded, so the view of a segment is small however many batches it has. Where a log is cut at its first
damage, or loses damaged bytes, its folded state is known without another look at the file.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.kernel.results import ScanState
from kdump.kernel.scan import SUSPECTS
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.log.damage import Damage
    from kdump.storage.walk import ForeignBatch

MOST_CUTS: Final = 1 << 14
"""A range with more damaged places has no view. The stretch before each of them takes about 2 KiB."""
MOST_ITEMS: Final = 4 * MOST_CUTS
"""So many stretches and damages are kept in all views of a partition, about 64 MiB: two full segments and more."""
MOST_BREAKS: Final = 5
"""So often a stretch of a range ends because the next batch does not continue it (kdump.kernel.scan)."""
ORDER_CODES: Final = frozenset({"offset/backwards", "offset/range", "epoch/backwards"})
"""Findings about the place of a batch, which is checked again once it is known which batches stay."""
OUT_OF_ORDER: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in ORDER_CODES)
OFFSETS_OUT_OF_ORDER: Final = OUT_OF_ORDER & ~(1 << SUSPECTS.index("epoch/backwards"))
_EPOCH_BACKWARDS: Final = OUT_OF_ORDER & ~OFFSETS_OUT_OF_ORDER

MOST_ROWS: Final = 1 << 17
"""So many producers and transactions are kept in all stretches of a partition: about 24 MiB."""


class StretchProducers(NamedTuple):
    """The producers and transactions of a stretch: packed rows of kdump.kernel.transactions.

    `control_batches` are those that were seen: not those without a producer, nor those from which the log cleaner
    removed the marker.
    """

    rows: bytes
    ended: bytes
    control_batches: int


class Stretch(NamedTuple):
    """Valid batches [start, stop) of a file, with nothing between them.

    `state` and `suspect` are those of a scan that began here. The first `events` of the summary end with those of its
    producers. `producers` is None where they were not collected. `is_rising`: no batch is out of order but maybe the
    first one, which then has a last offset that is not below its first one.
    """

    start: int
    stop: int
    state: ScanState
    suspect: int = 0
    events: int = 0
    producers: StretchProducers | None = None
    is_rising: bool = True

    @property
    def gaps(self) -> int:
        """How often its offsets go on above those of the batch before in it."""
        state = self.state
        return state.gaps - (state.gap_position == state.first_position >= 0)

    @property
    def is_dense(self) -> bool:
        """Whether its batches continue one another, of one leader epoch."""
        return self.is_rising and not self.gaps and len(self.state.epochs) <= 1

    @property
    def is_run(self) -> bool:
        """Whether its batches are one run (kdump.kernel.valid_batches.batch_runs), which no producer wrote."""
        state = self.state
        legacy = state.magics[0] + state.magics[1]
        if not state.batches or state.produced or state.unopened or state.control or state.transactional:
            return False
        if legacy:
            return self.is_dense and legacy == state.batches and not sum(state.codecs[1:])
        return self.is_dense and state.first_epoch == state.known_epoch and not self.suspect & _EPOCH_BACKWARDS


ViewItem: TypeAlias = "Stretch | Damage | ForeignBatch"


class SegmentView(NamedTuple):
    """A segment: its stretches and damages in the order of the file, and the state of the whole scan.

    After a damage come the batches in it of which nothing shows whether they are of the log.
    """

    items: "tuple[ViewItem, ...]"
    state: ScanState

    @property
    def stretches(self) -> list[Stretch]:
        return [item for item in self.items if isinstance(item, Stretch)]

    @property
    def damages(self) -> "list[Damage]":
        from kdump.log.damage import Damage

        return [item for item in self.items if isinstance(item, Damage)]

    @property
    def suspect(self) -> int:
        """The defects of all valid batches, as bits of kdump.kernel.scan.SUSPECTS."""
        suspect = 0
        for stretch in self.stretches:
            suspect |= stretch.suspect
        return suspect

    @property
    def is_plain(self) -> bool:
        """Whether the folded states say all of the batches: they are in order, without transactions, and all of magic 2
        or all of magic 1 and not compressed.
        """
        return self.is_uniform and not (self.has_transactions or self.is_out_of_order)

    @property
    def is_uniform(self) -> bool:
        """Whether all batches are of magic 2, or all of magic 1 and not compressed."""
        return not (self.state.magics[0] + self.state.magics[1]) or self._is_uncompressed_magic1

    @property
    def has_transactions(self) -> bool:
        return bool(self.state.control or self.state.transactional)

    @property
    def says_offsets(self) -> bool:
        """Whether the folded states say which offsets the batches have: those of each stretch rise, without wrapper
        messages.
        """
        return not self.state.unopened and all(stretch.is_rising for stretch in self.stretches)

    @property
    def _is_uncompressed_magic1(self) -> bool:
        state = self.state
        return not (state.magics[0] + state.magics[2] + sum(state.codecs[1:]))

    @property
    def is_out_of_order(self) -> bool:
        return bool(self.suspect & OUT_OF_ORDER)
