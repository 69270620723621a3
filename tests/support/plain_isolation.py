"""Which transactional batches of a partition are committed, decided over the reference decoder, plainly."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from support import build, oracle
from support.damage import NotApplicable, damage

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = sorted({path.parent for path in FIXTURES.rglob("*.log") if "trans" in path.parent.name})


class Decided(NamedTuple):
    """Each batch that is left out, by base offset and position, and how many records these count."""

    left_out: set[tuple[int | None, int]]
    aborted_batches: set[tuple[int | None, int]]
    aborted: int
    undecided: int
    stable: int | None


class Open(NamedTuple):
    """What is open: the batches of each producer whose marker may still come."""

    waiting: dict[int, list[oracle.Batch]]
    undecided: list[oracle.Batch]

    def lose(self) -> None:
        """A marker may be lost here."""
        self.undecided.extend(batch for batches in self.waiting.values() for batch in batches)
        self.waiting.clear()


def decided(directory: Path, left_out: Collection[tuple[str, int]] = ()) -> Decided:
    """What becomes of each transactional batch; `left_out` are the path and position of those that are in no order."""
    found = Open(defaultdict(list), [])
    aborted: list[oracle.Batch] = []
    logs = {log: log.read_bytes() for log in sorted(directory.glob("*.log"))}
    walks = {log: oracle.walk(data, base_offset=int(log.stem)) for log, data in logs.items()}
    compacted = any(is_compacted(int(log.stem), items) for log, items in walks.items())
    end: int | None = None
    for log, data in logs.items():
        for item in walks[log]:
            if not isinstance(item, oracle.Batch):
                if log != max(logs) or not (isinstance(item, oracle.Tail) and item.reason == "zeros"):
                    found.lose()
                continue
            if (str(log), item.position) in left_out:
                found.lose()
                continue
            is_next = None in (end, item.base_offset) or item.offset == end
            if not is_next and (item.offset < end or not compacted):
                found.lose()
            end = item.furthest + 1
            if item.control:
                marker = marker_of(data, item)
                ended = [] if marker is None else found.waiting.pop(item.producer_id, [])
                aborted += ended if marker == 0 else []
                found.undecided.extend(ended if marker == -1 else [])
            elif item.magic == 2 and item.attributes & 0x10:
                found.waiting[item.producer_id].append(item)
    found.lose()
    undecided = found.undecided
    return Decided(
        {(batch.base_offset, batch.position) for batch in (*aborted, *undecided)},
        {(batch.base_offset, batch.position) for batch in aborted},
        sum(max(batch.count or 0, 0) for batch in aborted),
        sum(max(batch.count or 0, 0) for batch in undecided),
        min((batch.offset for batch in undecided), default=None),
    )


def is_compacted(base_offset: int, items: list[oracle.Item]) -> bool:
    """Whether a segment shows that the log cleaner went over it."""
    batches = [item for item in items if isinstance(item, oracle.Batch)]
    first = items[0] if items else None
    begins_later = isinstance(first, oracle.Batch) and first.base_offset is not None and first.offset > base_offset
    return begins_later or any(
        batch.magic == 2 and (batch.count < batch.last_offset_delta + 1 or batch.delete_horizon) for batch in batches
    )


def marker_of(data: bytes, batch: oracle.Batch) -> int | None:
    """0 for an abort, 1 for a commit, -1 for one that cannot be read; None for what ends no transaction."""
    if batch.producer_id < 0 or not batch.count:
        return None
    try:
        of = oracle.records(data, batch.position)[0] if batch.codec else oracle.first_record(data, batch)
    except (oracle.Malformed, IndexError):
        return -1
    if of.key is None or oracle.control_fault(of.key, of.value, ends=True):
        return -1
    return int.from_bytes(of.key[2:4])


def damaged_partition(directory: Path, rng: random.Random) -> None:
    """A partition of a broker that has transactions, with one log file damaged."""
    shutil.copytree(rng.choice(PARTITIONS), directory)
    log = rng.choice(sorted(directory.glob("*.log")))
    try:
        log.write_bytes(damage(log.read_bytes(), rng, rng.randrange(1, 4)))
    except NotApplicable as error:
        pytest.skip(str(error))


def partition_without_a_segment(directory: Path, rng: random.Random) -> None:
    """A partition of a broker that has transactions and several segments, with one of them missing."""
    several = [each for each in PARTITIONS if len(list(each.glob("*.log"))) > 1]
    shutil.copytree(rng.choice(several), directory)
    rng.choice(sorted(directory.glob("*.log"))).unlink()


def some_transactions(directory: Path, data: st.DataObject) -> None:
    """Batches of a few producers and their markers, in one or two segments, with a byte of one of them changed."""
    batches: list[bytes] = []
    holes = data.draw(st.sets(st.integers(1, 11), max_size=2))
    for offset in range(data.draw(st.integers(1, 12))):
        if offset in holes:
            batches.append(b"")
            continue
        producer = {"producer_id": data.draw(st.integers(1, 3)), "producer_epoch": 0, "base_offset": offset}
        kind = data.draw(st.sampled_from(["data", "data", "plain", "commit", "abort"]))
        if kind in ("commit", "abort"):
            batches.append(build.marker(kind.upper(), **producer))
        elif kind == "plain":
            batches.append(build.batch([build.Record(b"k", b"v")], base_offset=offset))
        else:
            batches.append(build.batch([build.Record(b"k", b"v")], transactional=True, base_sequence=0, **producer))
    cut = data.draw(st.integers(0, len(batches)))
    if data.draw(st.booleans()):
        which = data.draw(st.integers(0, len(batches) - 1))
        changed = bytearray(batches[which])
        if changed:
            changed[data.draw(st.integers(17, len(changed) - 1))] ^= 1
        batches[which] = bytes(changed)
    directory.mkdir()
    for first, part in ((0, batches[:cut]), (cut, batches[cut:])):
        (directory / f"{first:020d}.log").write_bytes(b"".join(part))
