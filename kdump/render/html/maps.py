"""The maps of a page: those of the partitions with the most errors, as columns, bounded in bytes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kdump.render.html.budget import BoundedList, Budget
from kdump.render.html.script_data import Column, Encoded, numbers_json, numbers_size, script_json, script_string
from kdump.render.sentences import counted
from kdump.verify.log_map import MOST_OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kdump.format.json_types import Fields
    from kdump.verify.log_map import LogMap, MapPlace

MOST_MAPS: Final = 60
_BYTES: Final = 1536 << 10
_OTHER_BYTES: Final = 4 << 20
_MOST_SEGMENTS: Final = 10_000


class MapTable:
    """Collects the maps of the worst partitions, and which of their open transactions hang."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget.part(_BYTES)
        self._maps = BoundedList(self._budget, MOST_MAPS)
        self._of_maps = set[str]()
        self._others, self._others_left = dict[str, Encoded](), _OTHER_BYTES
        self._hanging: dict[str, list[int]] = {}
        self._without_map = self._without_mark = 0

    def add(self, name: str, errors: int, warnings: int, of: LogMap) -> None:
        """Add the map of a partition. Without an error or a warning it is shown if a transaction in it hangs."""
        if errors or warnings:
            self._add(name, errors, warnings, lambda: script_json(_fields(name, errors, warnings, of)))
        elif of.open and self._others_left > 0:
            self._others[name] = text = script_json(_fields(name, errors, warnings, of))
            self._others_left -= len(text)

    def _add(self, name: str, errors: int, warnings: int, encode: Callable[[], Encoded]) -> None:
        self._maps.add((-errors, -warnings), encode)
        self._of_maps.add(name)

    def add_hanging(self, name: str, offset: int) -> None:
        """Add a transaction that hangs, by the name of its partition and its first offset."""
        if name not in self._of_maps:
            if name in self._others:
                self._add(name, 0, 1, partial(self._others.pop, name))
            else:
                self._of_maps.add(name)
                self._without_map += 1
        size = numbers_size((offset,)) + (0 if name in self._hanging else len(script_string(name).encode()) + 4)
        if self._budget.take(size):
            self._hanging.setdefault(name, []).append(offset)
        else:
            self._without_mark += 1

    @property
    def count(self) -> int:
        return len(self._maps)

    @property
    def cut(self) -> list[str]:
        hidden, said = self._maps.hidden + self._without_map, []
        if hidden:
            worst = "those with the most errors have one"
            said.append(f"{counted(hidden, 'damaged partition')} without a map on this page: {worst}")
        if self._without_mark:
            said.append(f"{counted(self._without_mark, 'hanging transaction')} that no map of this page marks")
        return said

    def data(self) -> Encoded:
        return self._maps.data()

    @property
    def hanging(self) -> Fields:
        """The first offsets of the transactions that hang, by the name of their partition."""
        return dict(self._hanging)


def _fields(name: str, errors: int, warnings: int, of: LogMap) -> Fields:
    cells = zip(*of.cells, strict=True)
    names = ("size", "batches", "bytes", "damaged", "first", "last", "missing", "transactional", "control", "time")
    shown = of.segments[:_MOST_SEGMENTS]
    last, codes = len(shown) - 1, Column()
    return {
        "name": name,
        "errors": errors,
        "warnings": warnings,
        "segments": {
            "base": numbers_json([base for base, _ in shown]),
            "bytes": numbers_json([size for _, size in shown]),
        },
        "segment_count": len(of.segments),
        "cells": {column: _column(values) for column, values in zip(names, cells, strict=True)},
        "log_start": of.log_start_offset,
        "end": of.log_end_offset,
        "recovery_point": of.recovery_point,
        "high_watermark": of.high_watermark,
        "damage": _places(of.damage, last, codes),
        "cuts": _places(of.cuts, last, codes),
        "codes": codes.texts,
        "open_is_cut": len(of.open) >= MOST_OPEN,
        "open": {"producer": [one for one, _ in of.open], "offset": [one for _, one in of.open]},
    }


def _column(values: Sequence[int | None]) -> Encoded:
    """The values of a column; only one where all are the same."""
    return numbers_json(values[0] if len(set(values)) == 1 else values)


def _places(places: Sequence[MapPlace], last: int, codes: Column) -> Encoded:
    """The places in the segments up to the one with this number."""
    return numbers_json(
        [(each.segment, each.position, each.length, codes.index(each.code)) for each in places if each.segment <= last]
    )
