"""Chooses the walk over a log file by its kind."""

from typing import Any

from kdump.format.naming import Kind
from kdump.storage.source import Source
from kdump.storage.walk import Walk


def walk_of(kind: Kind, source: Source, **how: Any) -> Walk:
    """The walk over a log file of this kind; `how` are the arguments of Walk."""
    if kind is Kind.KAFKA07:
        from kdump.storage.walk07 import Walk07

        return Walk07(source, **how)
    return Walk(source, **how)
