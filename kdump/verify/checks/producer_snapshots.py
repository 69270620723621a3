"""The checks `snapshot/*`: whether a producer snapshot can be read, matches the log, and is at a legal offset."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from kdump.format.producer_snapshot import (
    CRC_FROM,
    ENTRY_SIZE,
    HEADER_SIZE,
    VERSION,
    ProducerEntry,
    Snapshot,
    SnapshotError,
    read_snapshot,
)
from kdump.kernel.producer_results import SnapshotDifference
from kdump.storage.partition import LogFile
from kdump.verify.findings import Finding, Severity, make_finding

__all__ = ["Snapshot", "check_missing", "check_names", "check_state", "check_structure", "entry_bytes"]

EXPIRATION_MS: Final = 86_400_000
"""producer.id.expiration.ms, when a broker forgets a producer that wrote nothing more."""


def check_structure(path: str, data: bytes) -> tuple[Snapshot | None, list[Finding]]:
    """The snapshot, None where its entries cannot be used, and the findings about its structure.

    The entries before a stale tail can be used.
    """
    try:
        snapshot = read_snapshot(data)
    except SnapshotError as error:
        return None, [make_finding("snapshot/format", path, 0, len(data), problem=str(error))]
    if snapshot.version != VERSION or snapshot.count != snapshot.whole_entries:
        return None, [make_finding("snapshot/format", path, 0, HEADER_SIZE, problem=snapshot.problem)]
    if not snapshot.crc_ok:
        stale = snapshot.stale_tail
        crc = make_finding(
            "snapshot/crc",
            path,
            snapshot.end if stale else CRC_FROM,
            stale or len(data) - CRC_FROM,
            stored=snapshot.crc,
            computed=snapshot.computed_crc,
            stale=stale,
        )
        return snapshot if stale else None, [crc]
    if snapshot.end < len(data):
        # The checksum is right: Kafka reads as many entries as the count says.
        more = len(data) - snapshot.end
        problem = f"{more} bytes follow the entries, under the checksum"
        return snapshot, [
            make_finding("snapshot/format", path, snapshot.end, more, severity=Severity.WARNING, problem=problem)
        ]
    return snapshot, []


def entry_bytes(snapshot: Snapshot) -> bytes:
    """The entries as bytes of the file, for `Producers.load` and `Producers.compare`."""
    return snapshot.data[HEADER_SIZE : snapshot.end]


def check_state(
    path: str,
    snapshot: Snapshot,
    differences: Sequence[SnapshotDifference],
    known: bytes,
    newest_timestamp: int,
    compacted: bool,
    log_start: int = 0,
) -> Iterator[Finding]:
    """Check a snapshot against the replay up to its offset. `known` are the entries of the replay there.

    `newest_timestamp` is the largest timestamp of the log up to there, in milliseconds. A broker forgets silent
    producers; up to 2.3 also those without a batch from `log_start` on. Where the log cleaner removed batches, the
    snapshot and the log differ, and only entries that are older than the log are reported.
    """
    stored = {entry.producer_id: (number, entry) for number, entry in enumerate(snapshot.entries())}
    replayed = {entry.producer_id: entry for entry in _unpacked(known)}
    quiet: list[SnapshotDifference] = []
    for difference in differences:
        problem, producer_id, name, there, here = difference
        number, entry = stored.get(producer_id, (None, None))
        own = replayed.get(producer_id)
        if problem == "missing" and own is not None:
            if _forgotten(own, newest_timestamp, log_start):
                continue
            # A broker can forget producers earlier (producer.id.expiration.ms). It keeps those with a transaction.
            if not own.has_transaction:
                quiet.append(difference)
                continue
        if compacted and problem == "surplus":
            continue
        if problem == "differs" and entry is not None and own is not None:
            # A producer that was forgotten and came back has no coordinator epoch.
            if (name, there) == ("coordinator_epoch", -1):
                continue
            if compacted:
                if not _is_older(entry, own):
                    continue
                name = "producer_epoch" if entry.producer_epoch < own.producer_epoch else "last_offset"
                there, here = getattr(entry, name), getattr(own, name)
        yield make_finding(
            "snapshot/state",
            path,
            0 if number is None else HEADER_SIZE + number * ENTRY_SIZE,
            0 if number is None else ENTRY_SIZE,
            producer_id=producer_id,
            problem=problem,
            name=name if problem == "differs" else None,
            stored=there,
            found=here,
            more=0,
        )
    if quiet:
        yield _all_missing(path, quiet)


def _all_missing(path: str, differences: Sequence[SnapshotDifference]) -> Finding:
    """snapshot/state for producers that the snapshot does not have, in one finding of severity info."""
    first = differences[0]
    return make_finding(
        "snapshot/state",
        path,
        0,
        0,
        severity=Severity.INFO,
        more=len(differences) - 1,
        producer_id=first.producer_id,
        problem="missing",
        name=None,
        stored=first.stored,
        found=first.found,
    )


def _unpacked(known: bytes) -> Iterator[ProducerEntry]:
    count = len(known) // ENTRY_SIZE
    return Snapshot(VERSION, 0, 0, count, bytes(HEADER_SIZE) + known).entries()


def _forgotten(entry: ProducerEntry, now_ms: int, log_start: int) -> bool:
    expired = entry.timestamp < 0 or now_ms - entry.timestamp >= EXPIRATION_MS
    return entry.last_offset < log_start or (expired and not entry.has_transaction)


def _is_older(stored: ProducerEntry, replayed: ProducerEntry) -> bool:
    if stored.producer_epoch != replayed.producer_epoch:
        return stored.producer_epoch < replayed.producer_epoch
    return stored.last_offset < replayed.last_offset


def check_names(files: Sequence[LogFile], bases: Collection[int], end_offset: int | None) -> Iterator[Finding]:
    """Yield snapshot/name for the snapshots at offsets where a broker leaves none.

    `bases` are the base offsets of the segments. `end_offset` is the log end offset, None where damage hides it.
    """
    others = [file for file in files if file.base_offset is not None and file.base_offset not in bases]
    offsets = [file.base_offset or 0 for file in others]
    latest = max((offset for offset in offsets if end_offset is None or offset <= end_offset), default=0)
    for file, offset in zip(others, offsets, strict=True):
        beyond = end_offset is not None and offset > end_offset
        # A clean shutdown leaves one at the end of the log.
        if beyond or offset < latest or offset < max(bases, default=0):
            yield make_finding("snapshot/name", file.path, 0, 0, offset=offset, beyond=end_offset if beyond else None)


def check_missing(log_path: str, files: Sequence[LogFile], last_base: int) -> Iterator[Finding]:
    """Yield snapshot/missing where a partition with producers has no snapshot at the base of its active segment.

    Every roll and every recovery writes one.
    """
    if all(file.base_offset != last_base for file in files):
        yield make_finding("snapshot/missing", log_path, 0, 0, offset=last_base)
