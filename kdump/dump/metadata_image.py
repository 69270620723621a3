"""Shows the image of a cluster at an offset of `__cluster_metadata`, or what differs between two of them."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdump.broker.metadata_image.image_entries import EntryChange, ImageEntry, differences, entries_of
from kdump.broker.metadata_image.image_reader import ClusterMetadata, UnusableSnapshot, read_image
from kdump.broker.metadata_image.metadata_log import MAX_BATCH_BYTES, MetadataDamage, MetadataLog, find_metadata_log
from kdump.dump.dump import damage_note
from kdump.dump.events import CompanionDamage, DamageNote, DumpFailure, Event, ImageLine
from kdump.errors import KdumpError
from kdump.named_tuple import NamedTuple
from kdump.verify.checks import framing
from kdump.verify.checks.suspect_batches import explain
from kdump.verify.findings import Finding, Severity

if TYPE_CHECKING:
    from kdump.format.json_types import Fields


class ImageOptions(NamedTuple):
    """What to show: the image after the record at `offset` (None: the last one), or what differs between the images
    after the two records of `diff` (the second None: the last one). `secrets` shows sensitive values.
    """

    offset: int | None = None
    diff: tuple[int, int | None] | None = None
    secrets: bool = False
    max_batch_bytes: int = MAX_BATCH_BYTES


def dump_metadata_image(path: str | os.PathLike[str], options: ImageOptions | None = None) -> Iterator[Event]:
    """The image of the metadata log that a path names (kdump.broker.metadata_image.metadata_log.find_metadata_log).

    What ends the image early, and each record that is not in it, comes before its lines. What cannot be read becomes a
    `DumpFailure`.
    """
    options = options or ImageOptions()
    try:
        log = find_metadata_log(os.fspath(path))
        if options.diff is None:
            yield from _image(read_image(log, options.offset, options.max_batch_bytes), options)
        else:
            yield from _diff(log, options.diff, options)
    except KdumpError as error:
        yield DumpFailure(error)


def _image(found: ClusterMetadata, options: ImageOptions) -> Iterator[Event]:
    yield from _damage(found)
    path = found.log.path
    yield ImageLine(path, "image", image_fields(found))
    before = None if found.committed is None else {(each.kind, each.key): each.fields for each in found.committed}
    for entry in entries_of(found.image):
        uncommitted = None if found.source is None else False
        if before is not None:
            uncommitted = before.get((entry.kind, entry.key)) != entry.fields
        yield ImageLine(path, entry.kind, {**entry.shown(secrets=options.secrets), "uncommitted": uncommitted})


def _diff(log: MetadataLog, offsets: tuple[int, int | None], options: ImageOptions) -> Iterator[Event]:
    lists: list[list[ImageEntry]] = []
    for offset in offsets:
        found = read_image(log, offset, options.max_batch_bytes)
        yield from _damage(found)
        yield ImageLine(log.path, "image", image_fields(found))
        lists.append(list(entries_of(found.image)))
    for change in differences(*lists):
        yield ImageLine(log.path, "change", _change_fields(change, secrets=options.secrets))


def image_fields(found: ClusterMetadata) -> "Fields":
    """Where an image comes from, and how much of it is sure."""
    snapshot, transaction = found.snapshot, found.open_transaction
    return {
        "offset": found.offset,
        "epoch": found.epoch,
        "timestamp": found.timestamp,
        "leader_id": found.leader_id,
        "snapshot": None if snapshot is None else os.path.basename(snapshot.file.path),
        "snapshot_end_offset": None if snapshot is None else snapshot.end_offset,
        "records": found.records,
        "log_start_offset": found.log.log_start_offset,
        "log_end_offset": found.log_end_offset,
        "high_watermark": found.high_watermark,
        "high_watermark_source": found.source,
        "uncommitted_records": found.uncommitted_records,
        "open_transaction": None if transaction is None else transaction._asdict(),
        "committed_transactions": found.committed_transactions,
        "aborted_transactions": found.aborted_transactions,
        "records_without_effect": len(found.problems) + found.more_problems,
        "complete": found.is_complete,
    }


def _change_fields(change: EntryChange, *, secrets: bool) -> "Fields":
    before, after = change.before, change.after
    return {
        "kind": change.entry.kind,
        "change": "added" if before is None else "removed" if after is None else "changed",
        "fields": change.changed,
        "before": before and before.shown(secrets=secrets),
        "after": after and after.shown(secrets=secrets),
    }


def _damage(found: ClusterMetadata) -> Iterator[Event]:
    """What is wrong with the files, and with records."""
    for unusable in found.unusable:
        yield from _unusable(unusable)
    if found.damage is not None:
        yield from _findings(found.damage)
    path = found.log.path
    if found.missing_from is not None and found.damage is None:
        yield DamageNote(path, Severity.ERROR)
        yield CompanionDamage(path, Severity.ERROR, f"the log has no offset {found.missing_from}")
    if not found.is_complete:
        yield CompanionDamage(
            path,
            Severity.ERROR,
            f"the image ends with offset {found.offset}; no later snapshot has what comes after it",
        )
    for problem in found.problems:
        yield DamageNote(problem.path, Severity.WARNING)
        what = "a record" if problem.record is None else problem.record
        reason = f"offset {problem.offset}: {what} has no effect on the image: {problem.reason}"
        yield CompanionDamage(problem.path, Severity.WARNING, reason)
    if found.more_problems:
        yield CompanionDamage(path, Severity.WARNING, f"{found.more_problems} more records have no effect on the image")


def _unusable(unusable: UnusableSnapshot) -> Iterator[Event]:
    path = unusable.snapshot.file.path
    yield DamageNote(path, Severity.ERROR)
    if unusable.damage is not None:
        yield from _findings(unusable.damage)
        yield CompanionDamage(path, Severity.ERROR, "the snapshot is damaged and is not used")
    else:
        yield CompanionDamage(path, Severity.ERROR, "the snapshot has no footer: it is incomplete and is not used")


def _findings(damage: MetadataDamage) -> Iterator[Finding | DamageNote | CompanionDamage]:
    file, batch = damage.file, damage.batch
    found: list[Finding] = []
    if damage.item is not None:
        found = [framing.not_a_batch(file.path, damage.item, file.preallocated)]
    elif batch is not None and damage.code is not None:
        yield DamageNote(file.path, Severity.ERROR, damage.code)
        reason = f"the records of the batch at byte {batch.position} cannot be read: {damage.code}"
        yield CompanionDamage(file.path, Severity.ERROR, reason)
    elif batch is not None and damage.diagnosis is not None:
        found = list(explain(file.path, batch, damage.diagnosis, file.base_offset))
    for finding in found:
        yield damage_note(finding)
        yield finding
