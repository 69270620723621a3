"""The sanity check of an index in itself, as `kafka-dump-log.sh --index-sanity-check` does it.

Brokers before 2.3 made this check when they loaded an index.
"""

from collections.abc import Callable
from typing import Final

from kdump.dump.events import CompanionDamage, SanityCheckPassed
from kdump.format.index import OFFSET_ENTRY, TIME_ENTRY, index_extent
from kdump.format.naming import Kind
from kdump.storage.partition import LogFile
from kdump.storage.source import Source, reader_of
from kdump.verify.findings import Severity

INDEX_ENTRIES: Final = {Kind.INDEX: OFFSET_ENTRY, Kind.TIMEINDEX: TIME_ENTRY}
"""The indexes that the tool checks and compares with their log, and the layout of their entries."""


def sanity_check_index(file: LogFile, source: Source) -> SanityCheckPassed | CompanionDamage | None:
    """The sanity check of an index (`sanityCheck` of OffsetIndex and TimeIndex).

    Returns None for an offset index without entries, which the tool does not check. A time index fails when it ends
    with zeros that a broker preallocated. These have the severity that they have in `kdump verify`.
    """
    entry = INDEX_ENTRIES[file.kind]
    if file.kind is Kind.INDEX and source.size < entry.size:
        return None
    read = reader_of(source)
    reason = _refusal(read, source.size, file.kind)
    if reason is None:
        return SanityCheckPassed(file.path)
    extent = index_extent(read, source.size, entry.size)
    severity = Severity.ERROR
    if extent.padding and not extent.remainder and _refusal(read, extent.entries, file.kind) is None:
        severity = Severity.INFO if file.active else Severity.WARNING
        reason += f"; the last {extent.padding} bytes are zeros, preallocated for later entries"
    return CompanionDamage(file.path, severity, f"fails the sanity check: {reason}")


def _refusal(read: Callable[[int, int], bytes], size: int, kind: Kind) -> str | None:
    """Why the check refuses the first `size` bytes."""
    entry = INDEX_ENTRIES[kind]
    slots = size // entry.size
    if slots:
        first, last = (entry.unpack(read(slot * entry.size, entry.size)) for slot in (0, slots - 1))
        if kind is Kind.TIMEINDEX and last[0] < first[0]:
            return f"the last timestamp {last[0]} is below the first one {first[0]}"
        if last[-1 if kind is Kind.TIMEINDEX else 0] < 0:
            return "the last offset is below the base offset"
    return f"{size} bytes are not a multiple of {entry.size}" if size % entry.size else None
