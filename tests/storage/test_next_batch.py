"""The search for the next batch reads no further ahead than it has to."""

import pytest

from kdump.storage.next_batch import NextBatchSearch
from kdump.storage.source import BytesSource
from kdump.storage.walk import BatchChunk, Gap, Walk
from kdump.storage.window import BUFFER_BYTES
from support import build

COUNT = 40


def log(codec: str = "none", magic: int = 2) -> bytes:
    if magic < 2:
        one = build.message_v1 if magic else build.message_v0
        return build.segment(*(one(b"key", b"value" * 10, offset=number) for number in range(COUNT)))
    records = [build.Record(value=b"%d" % number * 50) for number in range(10)]
    return build.segment(*(build.batch(records, base_offset=10 * number, codec=codec) for number in range(COUNT)))


def items(data: bytes, buffer_bytes: int = BUFFER_BYTES) -> list[tuple[str, int, int]]:
    """The damaged items of a log."""
    found = []
    for item in Walk(BytesSource(data), base_offset=0, everything=True, buffer_bytes=buffer_bytes):
        if isinstance(item, BatchChunk):
            found += [("damaged", batch.position, batch.size) for batch in item.rows() if item.damaged]
        elif isinstance(item, Gap):
            found.append(("gap", item.position, item.length))
    return found


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_that_end_where_the_batch_does_show_its_end(monkeypatch: pytest.MonkeyPatch, magic: int) -> None:
    # A flipped bit in a value: no other batch is looked at, as no value reaches over the end of the last record.
    whole = log(magic=magic)
    size = build.total_size(whole, 0)

    def follow(*_: object) -> None:
        raise AssertionError("a chain is followed")

    monkeypatch.setattr(NextBatchSearch, "_chain", follow)
    for number in range(1, COUNT - 1):
        data = bytearray(whole)
        data[(number + 1) * size - (2 if magic < 2 else size // 2)] ^= 0x10
        for buffer_bytes in (BUFFER_BYTES, 3 * size, 3 * size + 20, 2 * size - 5):
            # Also where the batch is in the window of the walk, and its end is not.
            assert items(bytes(data), buffer_bytes) == [("damaged", number * size, size)]


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("at", [61, 57, 21], ids=["record length", "records count", "attributes"])
def test_other_batches_show_the_end_where_the_records_do_not(codec: str, at: int) -> None:
    data = bytearray(log(codec))
    size = build.total_size(bytes(data), 0)
    data[size + at] ^= 0x02
    assert items(bytes(data)) == [("damaged", size, size)]
