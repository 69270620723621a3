"""What a salvage keeps of a log of Kafka 0.7.

There the offset of a message is its position over all files, and a broker loads no log with missing bytes. So no bytes
can go from the middle: every later message would get another offset. Only what follows the last message goes. Bytes
that are no message stay, and a new file begins after them, which 0.7 allows at any message: a consumer can be sent
there, and a recovery, which reads the active segment only, truncates no valid message.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from kdump.broker.rebuild_request import PlannedSegment
from kdump.log.damage import Damage
from kdump.log.ranges import ByteRange
from kdump.log.segment_batches import SegmentBatches, file_items
from kdump.recover.plan import RecoverOptions
from kdump.recover.salvage.result import SalvageResult
from kdump.storage.pieces import Piece, open_pieces


def keep_kafka07(directory: str, files: Sequence[SegmentBatches], options: RecoverOptions) -> SalvageResult:
    """All up to the last message, with a new file after each damage. Raises SourceError."""
    last = max((one.number for one in files if one.batches), default=-1)
    segments: list[PlannedSegment] = []
    dropped: dict[Piece, str] = {}
    end: int | None = None
    for one in files:
        size, stop, code = one.log.size, one.log.size, "segment/overlap"
        following = next((later.base for later in files[one.number + 1 :] if later.log.size), None)
        if one.number >= last:
            stop = one.batches[-1].end if one.batches else 0
            code = one.damages[-1].code if one.damages else code
        elif following is not None and following < one.base + size:
            stop = max(0, following - one.base)
        if stop < size:
            dropped[Piece(one.name, stop, size)] = code
        if one.number > last >= 0 and not stop and one.base != end:
            continue
        for piece in _split(directory, one, Piece(one.name, 0, stop), options):
            pieces = (piece,) if piece.start < piece.stop else ()
            segments.append(PlannedSegment(one.base + piece.start, pieces, False, False))
        end = one.base + stop
    return SalvageResult(tuple(segments), dropped)


def _split(directory: str, one: SegmentBatches, piece: Piece, options: RecoverOptions) -> Iterator[Piece]:
    """The bytes of a file in pieces, each of which begins with a message that follows a damage.

    The end of a file matters to the bytes before it. So each piece is read again as the file that it will be.
    """
    starts, damages = {batch.position for batch in one.batches}, one.damages
    if (piece.start, piece.stop) != (0, one.log.size):
        part = SegmentBatches(0, one.segment)
        with open_pieces(directory, (piece,), piece.name) as source:
            part.take(file_items(one.log, source, one.base + piece.start, options.max_batch_bytes))
        starts = {batch.position + piece.start for batch in part.batches}
        damages = [
            Damage(ByteRange(damage.start + piece.start, damage.stop + piece.start), damage.code)
            for damage in part.damages
        ]
    borders = [damage.stop for damage in damages if damage.stop < piece.stop and damage.stop in starts]
    if not borders:
        yield piece
    for start, stop in pairwise([piece.start, *borders, piece.stop] if borders else []):
        yield from _split(directory, one, Piece(piece.name, start, stop), options)
