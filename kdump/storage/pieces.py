"""Ranges of files, and a log that is put together from them."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from kdump.storage.source import PiecesSource


class Piece(NamedTuple):
    """The bytes [start, stop) of a file of the directory as it is before."""

    name: str
    start: int
    stop: int


def opened(directory: str, pieces: Iterable[Piece], name: str) -> PiecesSource:
    """The bytes of the pieces, one behind the other, as a file of that name. Raises SourceError."""
    places = [(os.path.join(directory, piece.name), piece.start, piece.stop) for piece in pieces]
    return PiecesSource(places, os.path.join(directory, name))
