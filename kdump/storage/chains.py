"""Chains of valid frames: batches without a byte between them whose offsets rise.

Where a chain leads shows whether it is of the log: the value of a record can contain whole batches.
"""

from typing import Final

from kdump.format.batch import UP_TO_MAGIC, head_at, last_offset_delta_at
from kdump.kernel.scan import HEADER_BYTES
from kdump.kernel.valid_batches import follow_chain
from kdump.named_tuple import NamedTuple
from kdump.storage.frames import VALID, FrameWindow

LARGE: Final = 1 << 20
NO_EPOCH: Final = -(1 << 31)
CHAIN_BYTES = 4 << 20
"""A chain of valid frames of this length is no value: by default a broker takes batches of up to 1 MiB."""


class Chain(NamedTuple):
    """Valid frames without a byte between them, with rising offsets. `cut`: it goes on."""

    end: int
    last: int
    cut: bool


class ChainWindow(FrameWindow):
    """A window over a source of batches that follows chains."""

    def _chain(self, position: int, last: int, epoch: int, stop: int) -> Chain:
        """The valid frames from `position` on that begin before `stop`, with offsets above `last`."""
        highest = self.scanner.offset_bounds()[1]
        while position < stop and self._end - position >= UP_TO_MAGIC:
            at = self._load(position, UP_TO_MAGIC)
            if self._filled - at < UP_TO_MAGIC:
                break
            _, total, magic = head_at(self._window, at)
            if total > LARGE:
                frame = self._frame(position)
                at = self._load(position, HEADER_BYTES)
                delta = max(last_offset_delta_at(self._window, at), 0) if magic == 2 else 0
                back = magic == 2 and frame.epoch < epoch
                if frame.kind != VALID or back or not last < frame.offset <= highest - delta:
                    break
                epoch = frame.epoch if magic == 2 else epoch
                last = frame.offset + delta
                position += total
                continue
            at = self._load(position, max(UP_TO_MAGIC, min(total, self._end - position)))
            until_index, largest = min(self._filled, at + stop - position), self._max_batch_bytes
            index, last, epoch = follow_chain(
                self._window, at, self._filled, until_index, largest, last, highest, epoch
            )
            if index == at:
                break
            position += index - at
        return Chain(position, last, position >= stop)

    def _is_linked(self, chain: Chain) -> bool:
        """Whether a chain of valid frames leads on as the batches of a log do."""
        left = self._end - chain.end
        if chain.cut or left < UP_TO_MAGIC or self._zeros(chain.end):
            return True
        at = self._load(chain.end, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return True
        _, _, offset, _, possible = self.scanner.look(self._window, at, left)
        if offset == chain.last + 1:
            return True
        magic = self._window[at + UP_TO_MAGIC - 1]
        return magic <= 2 and possible and chain.last < offset <= self.scanner.offset_bounds()[1]

    def _leads_on(self, chain: Chain) -> bool:
        """Whether a chain whose first offset is not above the last one leads on without a gap, as no value does.

        It goes over many bytes, up to the last offset, to the end, to zeros, or to a header with the next offset.
        """
        left = self._end - chain.end
        if self._ends_log(chain) or chain.last >= self.scanner.offset_bounds()[0]:
            return True
        if left < UP_TO_MAGIC:
            return False
        at = self._load(chain.end, UP_TO_MAGIC)
        if self._filled - at < UP_TO_MAGIC:
            return True
        return self.scanner.look(self._window, at, left).offset == chain.last + 1

    def _ends_log(self, chain: Chain) -> bool:
        """Whether a chain ends exactly where the log does, or goes over many bytes."""
        left = self._end - chain.end
        return chain.cut or left == 0 or (left >= UP_TO_MAGIC and self._zeros(chain.end))
