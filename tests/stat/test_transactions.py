"""Transactions over ranges and segments: any cutting gives the numbers of a plain recount."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import kdump
from kdump.stat.fold import fold
from kdump.stat.partition import PartitionFold
from kdump.stat.scan import StatTask, scan
from kdump.storage.offset_checkpoints import CheckpointContext
from kdump.storage.ranges import SegmentRange
from support import stat_oracle
from support.build import batch, marker, record
from support.laws import examples


def log(rng: random.Random, offset: int, batches: int) -> tuple[bytes, int]:
    """Batches of a few producers, in and outside of transactions, and markers, some of which end nothing."""
    data = b""
    for _ in range(batches):
        producer, kind = rng.randrange(4), rng.randrange(5)
        if kind < 2:
            name = "COMMIT" if kind else "ABORT"
            part = marker(name, base_offset=offset, producer_id=producer, timestamp=1000 + offset * 7)
            offset += 1
        else:
            count = rng.randrange(1, 4)
            part = batch(
                [record(b"k", b"v", timestamp=1000 + (offset + number) * 7) for number in range(count)],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=kind > 2,
            )
            offset += count
        data += bytes(part)
    return data, offset


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(60)))
def test_any_cutting_gives_the_numbers_of_a_recount(seed: int, tmp_path: Path) -> None:
    rng, offset = random.Random(seed), 0
    directory = tmp_path / "topic-0"
    directory.mkdir()
    plain = []
    for _ in range(rng.randrange(1, 5)):
        data, following = log(rng, offset, rng.randrange(1, 25))
        (directory / f"{offset:020d}.log").write_bytes(data)
        plain.append(stat_oracle.Segment.of(data, offset))
        offset = following
    expected = stat_oracle.partition(plain)
    partition = next(each for each in kdump.discover([directory]) if isinstance(each, kdump.Partition))
    (whole,) = kdump.stat_logs([partition])
    assert isinstance(whole, kdump.PartitionStatistics)
    assert stat_oracle.found_in(whole) == expected
    cut = PartitionFold(partition, CheckpointContext())
    for segment in partition.segments:
        cuts = sorted({rng.randrange(1, segment.log.size) for _ in range(4)})
        tasks = [
            StatTask(SegmentRange(segment, start, stop), kdump.StatOptions())
            for start, stop in zip([0, *cuts], [*cuts, None], strict=True)
        ]
        cut.add_segment(segment, fold([(task, scan(task)) for task in tasks]))
    assert stat_oracle.found_in(cut.conclude()) == expected
    assert cut.conclude().totals == whole.totals
