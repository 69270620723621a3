"""The records inside a batch: structure, control records, offsets, and messages inside wrappers."""

from kdump.findings import Finding, found
from kdump.format.batch import Batch
from kdump.format.kafka07 import MAX_DEPTH, Message
from kdump.kernel.records import STATUSES

# What the kernel's statuses say to a person.
REASONS = {
    "record-length": "its length is negative or reaches past the end of the records",
    "varint": "a number has no end",
    "key-length": "its key reaches past its end",
    "value-length": "its value reaches past its end",
    "header-count": "its number of headers is negative or more than its bytes can hold",
    "header-key": "a header key has a negative length or reaches past its end",
    "header-value": "a header value reaches past its end",
    "body-end": "its fields do not end where its length says",
    "missing": "the records end before it",
    "leftover": "bytes follow the last record",
    "control-key": "its key is no version and type",
    "control-value": "its value is no version and coordinator epoch",
    "message-fields": "its key or value reaches past its end",
    "wrapper-size": "the size of an entry is less than 14",
    "wrapper-magic": "an entry has a magic other than 0 and 1",
    "wrapper-nested": "an entry is compressed itself",
    "wrapper-empty": "there is none",
    "wrapper-offset": "the wrapper's offset is below the last inner one",
}
REASONS_07 = {
    **REASONS,
    "wrapper-size": "the size of an entry is negative, too small or, in the first one, more than there is",
    "wrapper-nested": f"compressed messages lie more than {MAX_DEPTH} deep in one another",
}


def _problem(code: str, path: str, batch: Batch, base: int | None) -> Finding:
    status = STATUSES[batch.status]
    return found(
        code,
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=batch.status_record,
        at=batch.status_at,
        problem=status,
        reason=(REASONS_07 if isinstance(batch, Message) else REASONS)[status],
    )


def _structure(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("record/structure", path, batch, base)


def _control(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("control/structure", path, batch, base)


def _wrapper(path: str, batch: Batch, base: int | None) -> Finding:
    return _problem("legacy/wrapper", path, batch, base)


def _varint(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "record/varint", path, batch.position, batch.size, offset=batch.last_offset, record=batch.varint_record
    )


def _delta(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "record/delta",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        record=batch.delta_record,
        delta=batch.delta_offset,
    )


def _inner_crc(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "legacy/inner-crc", path, batch.position, batch.size, offset=batch.last_offset, record=batch.inner_crc_record
    )


def _partial(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "legacy/partial", path, batch.position, batch.size, offset=batch.last_offset, bytes=batch.partial_bytes
    )


def _trailing(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "legacy/trailing", path, batch.position, batch.size, offset=batch.last_offset, record=batch.trailing_record
    )


EXPLAIN = {
    "record/structure": _structure,
    "record/varint": _varint,
    "record/delta": _delta,
    "control/structure": _control,
    "legacy/wrapper": _wrapper,
    "legacy/inner-crc": _inner_crc,
    "legacy/partial": _partial,
    "legacy/trailing": _trailing,
}


def inner_magic(path: str, position: int, count: int) -> Finding:
    """All inner messages of another magic of a segment as one finding."""
    return found("legacy/inner-magic", path, position, 0, count=count)
