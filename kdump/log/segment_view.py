"""What one scan showed of a segment: valid stretches and damage in the order of the file.

A stretch is folded, so the view of a segment is small however many batches it has. Where a log is cut at its first
damage, or loses damaged bytes, its folded state is known without another look at the file.
"""

from typing import Final, NamedTuple

from kdump.kernel.results import ScanState
from kdump.kernel.scan import SUSPECTS
from kdump.log.damage import Damage

MOST_CUTS: Final = 16
"""A range with more damaged places has no view: each of them makes the scan begin again, with an empty buffer."""
ORDER_CODES: Final = frozenset({"offset/backwards", "offset/range", "epoch/backwards"})
"""Findings about the place of a batch, which is checked again once it is known which batches stay."""
OUT_OF_ORDER: Final = sum(1 << bit for bit, code in enumerate(SUSPECTS) if code in ORDER_CODES)


class Stretch(NamedTuple):
    """Valid batches [start, stop) of a file, with nothing between them.

    `state` and `suspect` are those of a scan that began here. The first `events` of the summary end with those of its
    producers. `producers` are its producers, None where they were not collected.
    """

    start: int
    stop: int
    state: ScanState
    suspect: int = 0
    events: int = 0
    producers: frozenset[int] | None = None


class SegmentView(NamedTuple):
    """A segment: its stretches and damages in the order of the file, and the state of the whole scan."""

    items: tuple[Stretch | Damage, ...]
    state: ScanState

    @property
    def stretches(self) -> list[Stretch]:
        return [item for item in self.items if isinstance(item, Stretch)]

    @property
    def damages(self) -> list[Damage]:
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
        state = self.state
        if state.control + state.transactional or self.is_out_of_order:
            return False
        return not (state.magics[0] + state.magics[1]) or self._is_uncompressed_magic1

    @property
    def _is_uncompressed_magic1(self) -> bool:
        state = self.state
        return not (state.magics[0] + state.magics[2] + sum(state.codecs[1:]))

    @property
    def is_out_of_order(self) -> bool:
        return bool(self.suspect & OUT_OF_ORDER)
