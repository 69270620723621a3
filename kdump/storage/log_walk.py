"""Chooses the walk over a log file by its kind."""

from typing import Any

from kdump.format.naming import Kind
from kdump.storage.source import Source
from kdump.storage.walk import Walk
from kdump.storage.walk07 import Walk07


def walk_of(kind: Kind, source: Source, **how: Any) -> Walk:
    """The walk over a log file of this kind; `how` are the arguments of Walk."""
    return (Walk07 if kind is Kind.KAFKA07 else Walk)(source, **how)
