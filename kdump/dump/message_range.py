"""Consecutive messages that are a part of a file: of a log, or of the result of a fetch."""

from kdump.format import kafka07
from kdump.format.batch import LOG_OVERHEAD
from kdump.format.naming import Kind
from kdump.kernel.results import Carry
from kdump.named_tuple import NamedTuple
from kdump.storage.source import Source
from kdump.storage.walk import Tail, TailContent


class MessageRange(NamedTuple):
    """Consecutive messages from `position` of a file; `kind` and `base_offset` are those of the log that they are from.

    Positions in `source` count from the first message. `carry` is the state of a walk that ended before it.
    """

    position: int
    kind: Kind
    base_offset: int | None
    source: Source
    carry: Carry | None = None

    def is_cut_off(self, tail: Tail) -> bool:
        """Whether the tail of the messages can be a message that is cut off.

        The buffer of a consumer ends anywhere. The message may begin with zeros, up to its size field.
        """
        before_size = kafka07.LENGTH_SIZE if self.kind is Kind.KAFKA07 else LOG_OVERHEAD
        return tail.reason is TailContent.TORN or (tail.reason is TailContent.ZEROS and tail.length < before_size)
