"""A log that is composed of ranges of files."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from kdump.storage.source import PiecesSource


class Piece(NamedTuple):
    """The bytes [start, stop) of a file of a directory, before recovery changes it."""

    name: str
    start: int
    stop: int


def open_pieces(directory: str, pieces: Iterable[Piece], name: str) -> PiecesSource:
    """The bytes of the pieces in sequence, as a file of that name. Raises SourceError."""
    ranges = [(os.path.join(directory, piece.name), piece.start, piece.stop) for piece in pieces]
    return PiecesSource(ranges, os.path.join(directory, name))
