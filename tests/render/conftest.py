"""Made-up values, one of each kind, that every renderer shows."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from typing import Any, cast
from unittest import mock

import pytest

from kdump.format.batch import Batch
from kdump.format.record import Record
from kdump.kernel.results import NO_VALUE
from kdump.render import RenderOptions, renderer
from kdump.render.base import VerifyRenderer
from kdump.render.dump_renderer import DumpRenderer
from kdump.storage.walk import ForeignBatch, Gap, SearchLimit, Tail, TailContent
from kdump.verify.catalogue import CATALOGUE, CatalogueEntry
from kdump.verify.findings import Severity, make_finding
from kdump.verify.summary import VerifySummary
from support.plain_lines import opened

PATH = "/logs/orders-3/00000000000000000000.log"
HOSTILE_PATH = "/logs/a\x1b[31m\u202eb\udcff-0/00000000000000000007.log"
NOON_MS = 1_700_000_000_123


def make_batch(**fields: int) -> Batch:
    """A valid batch of magic 2 with two records; `fields` are put in their place."""
    plain = dict.fromkeys(Batch._fields, -1) | {
        "position": 0,
        "size": 100,
        "magic": 2,
        "base_offset": 0,
        "last_offset": 1,
        "count": 2,
        "partition_leader_epoch": 4,
        "crc": 3058123456,
        "attributes": 0,
        "base_timestamp": NOON_MS,
        "max_timestamp": NOON_MS + 1,
    }
    return Batch(**(plain | fields))


def make_record(offset: int, key: bytes | None, value: bytes | None, **fields: Any) -> Record:
    plain: dict[str, Any] = {
        "timestamp": NOON_MS + offset,
        "headers": (),
        "sequence": -1,
        "magic": 2,
        "position": 0,
        "size": 20,
    }
    return Record(offset=offset, key=key, value=value, **(plain | fields))


def make_wrapper(**fields: int) -> Batch:
    """A message of magic 1 that is compressed with gzip."""
    legacy = {
        "magic": 1,
        "base_offset": NO_VALUE,
        "last_offset": 12,
        "count": NO_VALUE,
        "partition_leader_epoch": NO_VALUE,
        "attributes": 1,
        "base_timestamp": NOON_MS,
        "max_timestamp": NOON_MS,
    }
    return make_batch(**(legacy | fields))


# the sentences of the real catalogue may change without a word here
MADE_UP = {
    code: CatalogueEntry(
        code, Severity.ERROR, f"Title of {code}", f"{{length}} bytes {sentence}", "", f"Advice on {code}.", ""
    )
    for code, sentence in {
        "batch/crc": "have checksum {computed:#010x}, not {stored:#010x}",
        "time/max": "say {stored}, records say {found}",
        "tail/zeros": "are zero",
    }.items()
}


def make(kind: Any, **fields: Any) -> Any:
    """A NamedTuple of the library with what matters here; the rest is 0."""
    return kind(**(dict.fromkeys(kind._fields, 0) | fields))


COMMIT_KEY = b"\x00\x00\x00\x01"
LEADER_CHANGE = b"\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x03\x00\x00\x00\x00\x04\x00\x02\x00\x00\x00\x03\x00\x00"


def play(to: DumpRenderer) -> None:
    """Show one value of every kind."""
    to.begin(PATH)
    plain = make_batch()
    to.batch(PATH, plain)
    headers = ((b"trace", b"\xff\x00"), (b"", None), (b"k\xc3\xa9y", b""))
    to.records(
        PATH,
        "orders",
        3,
        plain,
        opened(
            [
                make_record(0, b"key", 'va"l\\ue\n\x1b[0m\u202e\x7f\u0085'.encode(), headers=headers),
                make_record(1, None, b"", timestamp=-1),
            ]
        ),
    )
    to.records(
        PATH, "orders", 3, plain, opened([make_record(2, b"\xc3(\xed\xa0\x80", None, timestamp=-62_135_596_800_001)])
    )
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 1, "attributes": 0x54}
    stamped = make_batch(position=100, base_offset=5, last_offset=9, count=1, **producer)
    to.batch(PATH, stamped)
    to.records(PATH, "orders", 3, stamped, opened([make_record(5, b"5", b"five")]))
    marker = make_batch(
        position=200, size=78, base_offset=10, last_offset=10, count=1, producer_id=7, producer_epoch=1, attributes=0x30
    )
    to.batch(PATH, marker)
    to.records(PATH, "orders", 3, marker, opened([make_record(10, COMMIT_KEY, b"\x00\x00\x00\x00\x00\x05")]))
    control = make_batch(position=278, size=200, base_offset=11, last_offset=15, count=5, attributes=0x20)
    to.batch(PATH, control)
    to.records(
        PATH,
        "orders",
        3,
        control,
        opened(
            [
                make_record(11, b"\x00\x00\x00\x02", LEADER_CHANGE),
                make_record(12, COMMIT_KEY, b""),
                make_record(13, b"\x00\x00\x00\x03", b"\x00"),
                make_record(14, b"\x00\x00\x00\x2a", b"later"),
                make_record(15, None, None),
            ]
        ),
    )
    wrong = make_batch(position=478, base_offset=16, last_offset=16, attributes=0x0F)
    to.batch(PATH, wrong, "batch/crc", crc_ok=False)
    to.gap(PATH, make(Gap, position=578, length=12))
    to.gap(PATH, make(Gap, position=590, length=10, zeros=True))
    to.gap(PATH, make(Gap, position=600, length=50, headed=True))
    to.gap(PATH, make(ForeignBatch, position=620, length=30, offset=3))
    to.batch(PATH, make_batch(position=650, magic=9, base_offset=17, last_offset=17), "batch/magic")
    to.batch(PATH, make_batch(position=750), "batch/limit", crc_ok=None)
    to.tail(PATH, make(Tail, position=850, length=17, reason=TailContent.ZEROS))
    to.trailing_bytes(PATH, 17)
    to.end(PATH)

    to.begin(HOSTILE_PATH)
    wrapper = make_wrapper()
    to.batch(HOSTILE_PATH, wrapper)
    inner = {"magic": 1, "crc": 4000000000, "crc_ok": True}
    to.records(
        HOSTILE_PATH,
        None,
        None,
        wrapper,
        opened([make_record(11, None, b"one", **inner), make_record(12, b"k", b"two", **(inner | {"crc_ok": False}))]),
    )
    oldest = make_wrapper(
        position=100,
        magic=0,
        base_offset=13,
        last_offset=13,
        count=1,
        attributes=0,
        base_timestamp=-1,
        max_timestamp=-1,
    )
    to.batch(HOSTILE_PATH, oldest)
    old = make_record(13, None, b"old", timestamp=-1, magic=0, crc=5, crc_ok=True)
    to.records(HOSTILE_PATH, None, None, oldest, opened([old]))
    to.gap(HOSTILE_PATH, make(SearchLimit, position=200, length=1000))
    to.trailing_bytes(HOSTILE_PATH, 1000)
    to.end(HOSTILE_PATH)

    to.begin("00000000000000000000.index")
    to.entry("00000000000000000000.index", "index_entry", {"offset": 5, "position": 4096})
    to.end("00000000000000000000.index")
    to.begin("00000000000000000000.timeindex")
    to.entry("00000000000000000000.timeindex", "time_index_entry", {"timestamp": NOON_MS, "offset": 5})
    to.end("00000000000000000000.timeindex")
    to.begin("00000000000000000000.txnindex")
    aborted = {"version": 0, "producer_id": 7, "first_offset": 5, "last_offset": 9, "last_stable_offset": 5}
    to.entry("00000000000000000000.txnindex", "aborted_transaction", aborted)
    to.end("00000000000000000000.txnindex")

    codes = Severity.WARNING, Severity.ERROR
    to.finding(make_finding("batch/crc", PATH, 478, 100, offset=16, computed=1, stored=3058123456))
    to.finding(make_finding("time/max", PATH, 100, 100, offset=5, severity=codes[0], stored=NOON_MS, found=NOON_MS - 1))
    to.finding(make_finding("tail/zeros", HOSTILE_PATH, 850, 17, severity=codes[1]))
    to.finding(make_finding("batch/crc", HOSTILE_PATH, 478, 100, offset=16, computed=2, stored=3))
    warning, error = codes
    counts = Counter({("batch/crc", error): 2, ("tail/zeros", error): 1, ("time/max", warning): 1})
    following = "kdump recover orders-3"
    if isinstance(to, VerifyRenderer):
        to.verify_summary(VerifySummary(2, 2, 1, None, 867, 850, counts, 0, False, None, following, 0.25), 1)


def shown(name: str, options: RenderOptions | None = None) -> bytes:
    """Everything of `play` in one format."""
    stream = io.BytesIO()
    with mock.patch.dict(cast("dict[str, CatalogueEntry]", CATALOGUE), MADE_UP), renderer(name, stream, options) as to:
        play(to)
    return stream.getvalue()


@pytest.fixture
def show() -> Callable[..., bytes]:
    return shown


@pytest.fixture
def batch_of() -> Callable[..., Batch]:
    return make_batch


@pytest.fixture
def record_of() -> Callable[..., Record]:
    return make_record
