"""The scan knows the base offset of the batch before each one that is out of order, and of the last one."""

from __future__ import annotations

import random

from kdump.format.naming import Kind
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import SUSPECTS
from kdump.log.segment_view import OFFSETS_OUT_OF_ORDER
from kdump.storage.log_walk import walk_of
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk
from support import damage, wrong_headers
from support.laws import examples


def test_the_base_offsets_at_breaks_are_those_of_the_headers() -> None:
    seen = 0
    for number in range(examples(200)):
        rng = random.Random(number)
        (base, data), *_ = wrong_headers.log_of(rng).items()
        log = wrong_headers.flipped(wrong_headers.flipped(data, rng), rng)
        bases = {0: NO_VALUE}
        for batch in damage.batches(log):
            bases[batch.position + batch.size] = batch.base_offset
        walk = walk_of(Kind.LOG, BytesSource(log), base_offset=base, everything=rng.random() < 0.5)
        for item in walk:
            if not isinstance(item, BatchChunk) or item.damaged:
                continue
            for index, suspect in enumerate(item.suspects()):
                wanted = NO_VALUE
                if suspect & OFFSETS_OUT_OF_ORDER:
                    wanted, seen = bases[item.row(index).position], seen + 1
                assert item.diagnosis(index).previous_base_offset == wanted, (number, SUSPECTS)
        state = walk.scanner.state()
        assert state.last_base_offset == bases[state.last_position + _size_at(log, state.last_position)], number
    assert seen > examples(200) // 2


def _size_at(log: bytes, position: int) -> int:
    return next(batch.size for batch in damage.batches(log) if batch.position == position)
