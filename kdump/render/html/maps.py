"""The maps of a page: those of the partitions with the most errors, as columns, bounded in number and in bytes."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final, NamedTuple

from kdump.render.html.script_data import Encoded, joined, script_json
from kdump.render.sentences import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdump.format.json_types import Fields, FieldValue
    from kdump.verify.log_map import LogMap, MapPlace

MOST_MAPS: Final = 60
_BYTES: Final = 2 << 20
_MOST_SEGMENTS: Final = 10_000


class _EncodedMap(NamedTuple):
    """A map as the page has it, the worst partition first in order."""

    order: tuple[int, int, int]
    text: Encoded


class MapTable:
    """Collects the maps of the worst partitions."""

    def __init__(self) -> None:
        self._maps: list[_EncodedMap] = []
        self._bytes = self._seen = 0

    def add(self, name: str, errors: int, warnings: int, of: LogMap) -> None:
        """Add the map of a partition."""
        self._seen += 1
        order = -errors, -warnings, self._seen
        if len(self._maps) == MOST_MAPS and order > self._maps[-1].order:
            return
        text = script_json(_fields(name, errors, warnings, of))
        insort(self._maps, _EncodedMap(order, text))
        self._bytes += len(text.encode())
        while len(self._maps) > MOST_MAPS or (self._bytes > _BYTES and len(self._maps) > 1):
            self._bytes -= len(self._maps.pop().text.encode())

    @property
    def count(self) -> int:
        return len(self._maps)

    @property
    def cut(self) -> list[str]:
        hidden = self._seen - len(self._maps)
        worst = "those with the most errors have one"
        return [f"{counted(hidden, 'damaged partition')} without a map on this page: {worst}"] if hidden else []

    def data(self) -> Encoded:
        return joined(each.text for each in self._maps)


def _fields(name: str, errors: int, warnings: int, of: LogMap) -> Fields:
    cells = zip(*of.cells, strict=True)
    names = ("size", "batches", "bytes", "damaged", "first", "last", "missing", "transactional", "control", "time")
    shown = of.segments[:_MOST_SEGMENTS]
    return {
        "name": name,
        "errors": errors,
        "warnings": warnings,
        "segments": {"base": [base for base, _ in shown], "bytes": [size for _, size in shown]},
        "cells": {column: _column(values) for column, values in zip(names, cells, strict=True)},
        "log_start": of.log_start_offset,
        "end": of.log_end_offset,
        "recovery_point": of.recovery_point,
        "high_watermark": of.high_watermark,
        "damage": _places(of.damage),
        "cuts": _places(of.cuts),
        "open": {"producer": [one for one, _ in of.open], "offset": [one for _, one in of.open]},
    }


def _column(values: Sequence[int | None]) -> FieldValue:
    """The values of a column; only one where all are the same."""
    return values[0] if len(set(values)) == 1 else list(values)


def _places(places: Sequence[MapPlace]) -> list[FieldValue]:
    return [[each.segment, each.position, each.length, each.code] for each in places]
