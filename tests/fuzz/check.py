"""What has to hold for any bytes at all: the compiled kernel and the reader say what the plain decoder of oracle.py
says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ctypes import c_ubyte
from typing import NamedTuple
from unittest import mock

from kdump.format.batch import Batch
from kdump.format.naming import Kind
from kdump.storage import next_batch, window
from kdump.storage.log_walk import walk_of
from kdump.storage.partition import LogFile
from kdump.storage.records import open_batch, records
from kdump.storage.source import BytesSource, FileSource
from kdump.storage.walk import BatchChunk, ForeignBatch, Gap, SearchLimit, Tail, Walk
from kdump.storage.walk07 import Walk07
from kdump.verify.checks import framing
from kdump.verify.findings import KEPT
from kdump.verify.scan import ScanOptions
from support import file_reports, oracle
from support.file_reports import LogFileReport

LIMIT_BYTES = 4 << 20  # of a batch, as stored and decompressed


class Difference(AssertionError):
    """The two disagree."""


class _OpenedBytes(BytesSource):
    """Bytes in place of an opened file."""

    def read_until(self, stop: int) -> None:
        """Nothing is read ahead."""


class _Bytes(LogFile):
    """A log file whose bytes are at hand."""

    data: bytes

    def open(self) -> FileSource:
        return _OpenedBytes(self.data)  # type: ignore[return-value]  # as good as a file


class Case(NamedTuple):
    """Bytes, and what is said about them; `tight`: the bounds of steps and searches are so small that these bytes reach
    them."""

    data: bytes
    base_offset: int | None
    newest: bool = True
    max_batch_bytes: int = LIMIT_BYTES
    cuts: tuple[int, ...] = ()
    window_bytes: int = window.BUFFER_BYTES
    kind: Kind = Kind.LOG
    tight: bool = False


Said = list[tuple[str, str, int, int]]


def log_file(case: Case) -> LogFile:
    """The bytes of a case as a log file."""
    file = _Bytes("x.log", case.kind, case.base_offset, case.newest, len(case.data))
    file.data = case.data
    return file


def report(case: Case, deep: bool) -> LogFileReport:
    """What kdump's verify says; the file is cut into ranges at `cuts`."""
    options = ScanOptions(deep=deep, max_batch_bytes=case.max_batch_bytes)
    return file_reports.verify_file(log_file(case), options, cuts=case.cuts)


def said(found: LogFileReport) -> Said:
    """The findings as comparable values. Each has to have a sentence."""
    for finding in found.findings:
        if re.search(r"(record|message) -\d", finding.message):
            raise Difference(f"a sentence about nothing: {finding.message}")
    return sorted((finding.code, finding.severity.word, finding.position, finding.length) for finding in found.findings)


def expected(case: Case, deep: bool) -> Said:
    """What the oracle says."""
    found = oracle.verify(
        case.data,
        deep=deep,
        base_offset=case.base_offset,
        newest=case.newest,
        max_batch_bytes=case.max_batch_bytes,
        limit=KEPT,
        checkpoint=case.kind is Kind.CHECKPOINT,
    )
    return sorted((finding.code, finding.severity, finding.position, finding.length) for finding in found)


def tiles(walk: Walk | Walk07) -> Iterator[tuple[str, int, int, Batch | None, bytes]]:
    """Code (empty for a batch), position and length of everything the reader sees, with the batch and its bytes."""
    for item in walk:
        match item:
            case BatchChunk():
                for batch in item.rows():
                    yield "damaged" if item.damaged else "", batch.position, batch.size, batch, bytes(item.body(batch))
            case Gap() | Tail():
                yield framing.not_a_batch("", item, True).code, item.position, item.length, None, b""
            case ForeignBatch() | SearchLimit():
                pass


def oracle_tiles(case: Case) -> list[tuple[str, int, int]]:
    """The same of the oracle."""
    found = []
    for item in oracle.walk(case.data, base_offset=case.base_offset, max_batch_bytes=case.max_batch_bytes):
        match item:
            case oracle.Batch():
                found.append(("", item.position, item.size))
            case oracle.Damaged():
                found.append(("damaged", item.position, item.length))
            case _:
                found.append((item.reason, item.position, item.length))
    return found


Values = list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], int, int, int | None]]


def opened(batch: Batch, body: bytes | memoryview, limit: int) -> Values | str:
    """The records of a batch as kdump gives them, or the code of what is wrong with them."""
    found = open_batch(batch, body, limit)
    values = [
        (r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence, r.magic, r.crc) for r in records(batch, found)
    ]
    return found.problem or values


def oracle_opened(case: Case, batch: Batch) -> Values | str:
    """The same of the oracle."""
    try:
        found = oracle.records(case.data, batch.position, limit=case.max_batch_bytes)
    except oracle.Malformed as error:
        return error.code
    return [(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence, r.magic, r.crc) for r in found]


# Names of the bounds of the walk here and there, and values that a small segment reaches.
_BOUNDS = (
    ("SEARCH_FACTOR", 2),
    ("SEARCH_ALLOWANCE", 150),
    ("FOREIGN_FACTOR", 1),
    ("CHAIN_BYTES", 200),
    ("END_BYTES", 150),
)


@contextmanager
def bounds(case: Case) -> Iterator[None]:
    """The window of a case, and where it is tight the bounds of steps and searches."""
    with ExitStack() as stack:
        # a small window makes every batch cross its border
        stack.enter_context(mock.patch.object(window, "BUFFER_BYTES", case.window_bytes))
        for name, value in _BOUNDS if case.tight else ():
            stack.enter_context(mock.patch.object(next_batch, name, value))
            stack.enter_context(mock.patch.object(oracle, name, value))
        yield


def check(case: Case) -> None:
    """Raises Difference where kdump and the oracle do not agree on the case."""
    with bounds(case):
        if case.kind is Kind.KAFKA07:
            _check_07(case)
        else:
            _check(case)


def _check(case: Case) -> None:
    for deep in (False, True):
        want = expected(case, deep)
        whole = report(case._replace(cuts=()), deep)
        _same("findings, deep" if deep else "findings", said(whole), want)
        if case.cuts:
            parts = report(case, deep)
            _same(f"findings of ranges, {deep=}", said(parts), want)
            for name in ("batches", "records", "bytes", "valid_bytes", "counts"):
                _same(f"{name} of ranges, {deep=}", getattr(parts, name), getattr(whole, name))
    walk = Walk(
        BytesSource(case.data),
        base_offset=case.base_offset,
        everything=True,
        max_batch_bytes=case.max_batch_bytes,
        rows=3,
    )
    seen = []
    position = 0
    for code, at, length, batch, body in tiles(walk):
        if at != position:
            raise Difference(f"a hole or an overlap: {at} follows {position}")
        position = at + length
        seen.append((code, at, length))
        # unlike bytes, without a byte after the last one
        exact = memoryview((c_ubyte * len(body)).from_buffer_copy(body)).cast("B")
        if batch is not None and not code:
            _same(
                f"records of the batch at {at}", opened(batch, exact, case.max_batch_bytes), oracle_opened(case, batch)
            )
        elif batch is not None and batch.size <= case.max_batch_bytes:
            opened(batch, exact, case.max_batch_bytes)  # what --force shows: anything, without an exception
    if position != len(case.data):
        raise Difference(f"the tiles end at {position} of {len(case.data)}")
    _same("tiles", seen, oracle_tiles(case))


def _check_07(case: Case) -> None:
    """A log of Kafka 0.7: findings in both depths without an exception, tiles, and the messages of what is sound."""
    shallow, deep = report(case, False), report(case, True)
    said(shallow)
    if missing := {found.code for found in shallow.findings} - {found.code for found in deep.findings}:
        raise Difference(f"found only without opening: {missing}")
    walk = walk_of(
        case.kind,
        BytesSource(case.data),
        base_offset=case.base_offset,
        everything=True,
        rows=3,
        max_batch_bytes=case.max_batch_bytes,
    )
    position = 0
    values: list[bytes | None] = []
    for _, at, length, batch, body in tiles(walk):
        if at != position:
            raise Difference(f"a hole or an overlap: {at} follows {position}")
        position = at + length
        if batch is not None and batch.size <= case.max_batch_bytes:
            exact = memoryview((c_ubyte * len(body)).from_buffer_copy(body)).cast("B")
            values += [record.value for record in records(batch, open_batch(batch, exact, case.max_batch_bytes))]
    if position != len(case.data):
        raise Difference(f"the tiles end at {position} of {len(case.data)}")
    if not deep.findings:
        entries, _ = oracle.entries07(case.data, case.base_offset or 0)
        _same("the messages", values, [entry.payload for entry in entries])


def _same(what: str, kdump: object, plain: object) -> None:
    if kdump != plain:
        raise Difference(f"{what}\n  kdump:  {kdump}\n  oracle: {plain}")
