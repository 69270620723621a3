"""The sentences about a conversion, for text and the terminal."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kdump.render.measures import size_text
from kdump.render.sentences import counted

if TYPE_CHECKING:
    from kdump.convert.results import ConvertSummary, LeftOutCounts, PartitionConversion
    from kdump.replicas.merge import MissingRecords

_SHOWN: Final = 10
"""The most ranges of offsets in a sentence."""


def partition_words(value: "PartitionConversion") -> str:
    """What was converted of a partition, without its path."""
    words = counted(value.rows, "row")
    if value.first_offset is not None and value.last_offset is not None:
        words += f", offsets {value.first_offset}..{value.last_offset}"
    if value.next_offset is not None:
        words += f", next {value.next_offset}"
    if value.files:
        words += f", in {counted(len(value.files), 'file')}"
    if value.total_rows != value.rows:
        words += f"; {value.total_rows} including earlier runs"
    left_out = [*missing_words(value.missing), *left_out_words(value.left_out)]
    if left_out:
        words += f"; {'; '.join(left_out)}"
    return words


def missing_words(missing: "Sequence[MissingRecords]") -> Iterator[str]:
    """The offsets that the output should have, as a clause."""
    if not missing:
        return
    ranges = [
        f"{each.first_offset}.." if each.last_offset is None else _offsets(each.first_offset, each.last_offset)
        for each in missing[:_SHOWN]
    ]
    more = f" and {counted(len(missing) - _SHOWN, 'more range')}" if len(missing) > _SHOWN else ""
    count = sum(each.last_offset - each.first_offset + 1 for each in missing if each.last_offset is not None)
    bound = (
        "at least " if missing[-1].last_offset is None else "" if all(each.exact for each in missing) else "at most "
    )
    known = (
        "unknown how many" if missing[-1].last_offset is None and not count else f"{bound}{counted(count, 'record')}"
    )
    yield f"missing: offsets {', '.join(ranges)}{more} ({known})"


def _offsets(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def left_out_words(counts: "LeftOutCounts") -> Iterator[str]:
    """What is not in the output, and what changed, each as a clause."""
    ranges = counted(counts.damaged_ranges, "range")
    left_out = [
        clause
        for count, clause in (
            (counts.aborted, f"{counted(counts.aborted, 'record')} of aborted transactions"),
            (
                counts.undecided,
                f"{counted(counts.undecided, 'record')} of transactions that are open or undecided",
            ),
            (
                counts.damaged_ranges,
                f"{counted(counts.damaged_bytes, 'byte')} in {ranges} that are not a valid batch",
            ),
            (
                counts.repeated_batches,
                f"{counted(counts.repeated_batches, 'batch', 'batches')} not in order",
            ),
            (counts.deleted, f"{counted(counts.deleted, 'record')} below the log start offset"),
            (counts.control, counted(counts.control, "control batch", "control batches")),
        )
        if count
    ]
    if left_out:
        yield f"left out: {', '.join(left_out)}"
    if counts.unfit_timestamps:
        yield f"{counted(counts.unfit_timestamps, 'timestamp')} null because they do not fit the column"
    if counts.malformed:
        yield f"{counted(counts.malformed, 'key or value', 'keys and values')} with U+FFFD for malformed UTF-8"
    if counts.not_json:
        yield f"{counted(counts.not_json, 'key or value', 'keys and values')} null because they are not JSON text"
    if counts.undecoded:
        yield f"{counted(counts.undecoded, 'value')} null in value_json because they cannot be decoded"


def convert_summary(summary: "ConvertSummary") -> str:
    """The totals as one sentence."""
    from kdump.verify.summary import counts_by

    interrupted = "interrupted: " if summary.interrupted else ""
    rows = f"{counted(summary.rows, 'row')} of {counted(summary.partitions, 'partition')}"
    if summary.dry_run:
        free = "" if summary.free_bytes is None else f"; {size_text(summary.free_bytes)} free there"
        size = f", {size_text(summary.bytes)}," if summary.bytes else ""
        words = f"{rows}{size} would be written ({summary.target}, {summary.isolation}){free}"
    else:
        size = f", {size_text(summary.bytes)}" if summary.bytes else ""
        words = f"{rows} in {counted(summary.files, 'file')}{size} ({summary.target}, {summary.isolation})"
    found = ", ".join(
        counted(count, word) for word, count in counts_by(summary.findings)["by_severity"].items() if count
    )
    left_out = "; ".join(left_out_words(summary.left_out))
    return interrupted + words + (f"; {left_out}" if left_out else "") + (f": {found}" if found else "")
