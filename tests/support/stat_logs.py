"""Partitions as stat returns them, from a few words a segment.

    partition("0..9 100b @50", "10..19 100b @60 mtime=70", "20.. 0b", hw=20)

A segment is `base..last` (`base..` without a batch), its size, `@` the last time index entry (none without), and any of
`mtime=`, `batches=` (the largest timestamp of the batches, else that of the time index), `from=` (the smallest one),
`zeros=`, `allocated=`, `beside=` (bytes of its companions), `linked=`, `magic=`, `newest=`, `codec=`, `suffix=`,
`damage=reason:position+length`. The last segment is the active one.
"""

from __future__ import annotations

from typing import Any

from kdump.format.naming import TopicPartition
from kdump.stat.producers import ProducerTable
from kdump.stat.values import (
    CODECS,
    BatchStatistics,
    Damage,
    DamagedStretch,
    PartitionStatistics,
    SegmentStatistics,
    TimeIndexEntry,
    TransactionStatistics,
    Volume,
    sum_measures,
)

MTIME_MS = 1_000_000


def segment(words: str, *, active: bool = False, directory: str = "t-0") -> SegmentStatistics:
    offsets, size_word, *rest = words.split()
    base_word, last_word = offsets.split("..")
    base, last = int(base_word), int(last_word) if last_word else None
    size = int(size_word.removesuffix("b"))
    indexed = next((int(word[1:]) for word in rest if word.startswith("@")), None)
    options = dict(word.split("=", 1) for word in rest if not word.startswith("@"))
    path = f"{directory}/{base:020}{options.get('suffix', '.log')}"
    return SegmentStatistics(
        path,
        base,
        size,
        int(options.get("allocated", size)),
        int(options.get("beside", 0)),
        int(options.get("mtime", MTIME_MS)),
        totals=totals(base, last, size, indexed, options),
        damage=damage(path, options.get("damage", "")),
        tail_zero_bytes=int(options.get("zeros", 0)),
        is_active=active,
        last_time_index_entry=None if indexed is None else TimeIndexEntry(indexed, last or base),
        companions_allocated_bytes=int(options.get("beside", 0)),
        linked_bytes=int(options.get("linked", 0)),
    )


def totals(base: int, last: int | None, size: int, indexed: int | None, options: dict[str, str]) -> BatchStatistics:
    if last is None:
        return BatchStatistics()
    volume = Volume(1, last - base + 1, size)
    magic, codec = int(options.get("magic", 2)), CODECS.index(options.get("codec", "none"))
    batches = int(options["batches"]) if "batches" in options else indexed
    newest = [None, None, None]
    newest[magic] = int(options["newest"]) if "newest" in options else batches  # type: ignore[call-overload]
    return BatchStatistics(
        volume,
        by_codec=tuple(volume if number == codec else Volume() for number in range(len(CODECS))),
        by_magic=tuple(volume if number == magic else Volume() for number in range(3)),
        first_offset=base,
        last_offset=last,
        largest_timestamp=batches,
        smallest_timestamp=int(options["from"]) if "from" in options else batches,
        newest_by_magic=(newest[0], newest[1], newest[2]),
    )


def damage(path: str, words: str) -> Damage:
    stretches = []
    for word in words.split(",") if words else ():
        reason, where = word.split(":")
        position, length = map(int, where.split("+"))
        stretches.append(DamagedStretch(path, position, length, reason))
    return Damage(tuple(stretches), len(stretches), sum(stretch.length for stretch in stretches))


def partition(
    *words: str,
    hw: int | None = None,
    start: int | None = None,
    end: int | None = None,
    opened: int | None = None,
    name: str = "t-0",
    state: str | None = None,
    **more: Any,
) -> PartitionStatistics:
    """A partition. `opened` is the first offset of an open transaction, `end` the log end offset if not after the last
    batch.
    """
    segments = tuple(
        segment(word, active=number == len(words) - 1, directory=name) for number, word in enumerate(words)
    )
    if end is None and segments:
        last = segments[-1].totals.last_offset
        end = segments[-1].base_offset if last is None else last + 1
    topic, number_word = name.split("/")[-1].rsplit("-", 1)
    return sum_measures(segments).part_of(
        PartitionStatistics,
        name,
        TopicPartition(topic, int(number_word)),
        None,
        state,
        (segments[0].base_offset if segments else 0) if start is None else start,
        end,
        hw,
        segments,
        ProducerTable(),
        TransactionStatistics(open=opened is not None, first_open_offset=opened),
        **more,
    )
