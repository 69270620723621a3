"""Logs that are cut into ranges at random places."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kdump.format.naming import Kind
from kdump.storage.ranges import SegmentRange


class Ranges:
    """Work done here, as if several did it."""

    slots = 2

    def map(self, function: Any, tasks: Any) -> Iterator[Any]:
        for task in tasks:
            yield task, function(task)


def borders(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Cut every log at random places."""

    def ranges(segment: Any, slots: int, later_bytes: int) -> Iterator[SegmentRange]:
        size = segment.log.size
        cuts = sorted({rng.randrange(1, size) for _ in range(rng.randrange(6))}) if size > 1 else []
        if segment.log.kind is not Kind.LOG:
            cuts = []
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
            yield SegmentRange(segment, start, stop)

    monkeypatch.setattr("kdump.verify.verify.SMALL_BYTES", 0)
    monkeypatch.setattr("kdump.verify.verify.cut_into_ranges", ranges)
