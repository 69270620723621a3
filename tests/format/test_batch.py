"""A batch is the header on disk, and where it is."""

import random
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kdump
from kdump.broker.file_records import batch_from_header
from kdump.format import batch as batch_format
from kdump.format.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    Batch,
    head_at,
    header_at,
    last_offset_delta_at,
    wrapped,
)
from kdump.format.kafka07 import Message
from kdump.format.legacy import timestamp_at
from kdump.kernel import valid_batches
from kdump.kernel.valid_batches import row
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Walk
from support import build

NAMES = re.findall(r"^ +\d+ +\d+ +[iu]\d+ +(\w+)", batch_format.__doc__ or "", re.MULTILINE)
"""The fields of the byte table."""
BY_ACCESSOR = {"batchLength": "size", "lastOffsetDelta": "last_offset", "recordsCount": "count"}
"""The fields of a Batch that have the value of an accessor of Kafka's."""


def field_of(name: str) -> str:
    return BY_ACCESSOR.get(name, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name))


def header_of(batch: Batch) -> tuple[int, ...]:
    """The header on disk that a batch of magic 2 says."""
    values = dict(zip(NAMES, (getattr(batch, field_of(name)) for name in NAMES), strict=True))
    values["batchLength"] -= LOG_OVERHEAD
    values["lastOffsetDelta"] = wrapped(batch.last_offset - batch.base_offset)
    values["attributes"] = wrapped(batch.attributes, 16)
    return tuple(values.values())


def test_the_fields_are_those_of_the_header() -> None:
    assert len(NAMES) == len(HEADER.unpack(bytes(HEADER_SIZE)))
    assert sorted(Batch._fields) == sorted(["position", *map(field_of, NAMES)])
    assert kdump.format.Batch is Batch
    assert Message._fields == Batch._fields


@given(
    base_offset=st.integers(0, 2**62),
    epoch=st.integers(-1, 2**31 - 1),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
    transactional=st.booleans(),
    count=st.integers(1, 3),
)
def test_every_reader_gives_the_header(**fields: int) -> None:
    records = [build.record(b"k", b"v", timestamp=1000 + number) for number in range(fields.pop("count"))]
    before = build.batch([build.record(None, None)], base_offset=0)
    data = build.batch(records, **fields)  # type: ignore[arg-type]
    header = HEADER.unpack_from(data)
    (walked,) = [
        batch
        for chunk in Walk(BytesSource(before + data), everything=True)
        if isinstance(chunk, BatchChunk)
        for batch in chunk.rows()
        if batch.position
    ]
    read = Batch._make(valid_batches.row(data, len(before)))
    from_header = batch_from_header(data[:HEADER_SIZE], len(before), len(data))
    assert walked == read == from_header
    assert (walked.position, walked.size) == (len(before), len(data))
    assert header_of(walked) == header


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_the_readers_of_a_header_agree_with_the_kernel(magic: int) -> None:
    """At any position of a buffer, and of an offset and a length that no log has."""
    rng = random.Random(magic)
    for _ in range(50):
        header = bytearray(rng.randbytes(HEADER_SIZE))
        header[16] = magic
        at = rng.randrange(9)
        data = bytes(at) + header
        batch = Batch._make(row(header, 0))
        length = struct.unpack_from(">i", header, 8)[0]
        assert head_at(data, at) == (
            batch.last_offset if magic < 2 else batch.base_offset,
            LOG_OVERHEAD + length,
            magic,
        )
        if magic == 1:
            assert timestamp_at(data, at) == batch.max_timestamp
        if magic == 2:
            fields = header_at(data, at)
            assert last_offset_delta_at(data, at) == fields.last_offset_delta == batch.last_offset_delta
            assert (fields.base_offset, fields.crc, fields.records_count) == (batch.base_offset, batch.crc, batch.count)
