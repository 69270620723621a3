"""Iterating over the records of a log: skipped damage is reported, control records are left out, and each record says
what it is."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from kdump.errors import OffsetOutOfRange
from kdump.format.control import ControlType
from kdump.log.damage import DamagedRange
from kdump.log.records import DamageWarning
from kdump.writer.builder import NewRecord, marker
from kdump.writer.log import Log
from support import build


def batch(offset: int, count: int = 1) -> bytes:
    return build.batch([build.Record(value=b"%d" % (offset + step)) for step in range(count)], base_offset=offset)


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def log_of(tmp_path: Path, *segments: tuple[int, bytes]) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for base_offset, data in segments:
        (directory / f"{base_offset:020}.log").write_bytes(data)
    return directory


def places(damage: list[DamagedRange]) -> list[tuple[str, int, int, str]]:
    return [(Path(each.path).name, each.position, each.length, each.code) for each in damage]


def test_damage_between_batches_is_reported(tmp_path: Path) -> None:
    parts = [batch(0), flipped(batch(1, 2)), batch(3), b"\xff" * 30, batch(9)]
    directory = log_of(tmp_path, (0, b"".join(parts)))
    name = f"{0:020}.log"
    first, second = len(parts[0]), len(b"".join(parts[:3]))
    expected = [(name, first, len(parts[1]), "batch/crc"), (name, second, 30, "gap/bytes")]
    reported: list[DamagedRange] = []
    with Log(directory) as log:
        records = log.records(on_damage=reported.append)
        assert next(records).offset == 0
        assert not records.damage
        assert next(records).offset == 3
        assert places(records.damage) == expected[:1]
        assert [record.offset for record in records] == [9]
        assert places(records.damage) == expected
        assert reported == records.damage
        assert [record.offset for record in log.records(9, on_damage=reported.append)] == [9]
        assert reported == records.damage


def test_without_a_function_the_first_damage_gives_a_warning(tmp_path: Path) -> None:
    parts = [batch(0), flipped(batch(1)), batch(2), flipped(batch(3)), batch(4)]
    directory = log_of(tmp_path, (0, b"".join(parts)))
    with Log(directory) as log:
        records = log.records()
        with pytest.warns(DamageWarning, match=rf"bytes {len(parts[0])} to \d+ are skipped: batch/crc") as caught:
            assert [record.offset for record in records] == [0, 2, 4]
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert len(records.damage) == 2


def test_damage_at_the_end_of_a_segment_is_reported(tmp_path: Path) -> None:
    directory = log_of(tmp_path, (0, batch(0) + flipped(batch(1))), (2, batch(2) + flipped(batch(3))))
    size = len(batch(0))
    with Log(directory) as log:
        for start in (None, 0, 1, 2, 3):
            records = log.records(start, on_damage=lambda _: None)
            assert [record.offset for record in records] == [offset for offset in (0, 2) if offset >= (start or 0)]
            expected = [(f"{2:020}.log", size, size, "batch/crc")]
            if start is None or start < 2:
                expected.insert(0, (f"{0:020}.log", size, size, "batch/crc"))
            assert places(records.damage) == expected


def test_a_torn_batch_at_the_end_is_reported_and_zeros_are_not(tmp_path: Path) -> None:
    directory = log_of(tmp_path, (0, batch(0) + batch(1)[:-3]))
    with Log(directory) as log:
        records = log.records(on_damage=lambda _: None)
        assert [record.offset for record in records] == [0]
        assert places(records.damage) == [(f"{0:020}.log", len(batch(0)), len(batch(1)) - 3, "tail/torn")]
    (directory / f"{0:020}.log").write_bytes(batch(0) + bytes(4096))
    with Log(directory) as log, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [record.offset for record in log.records()] == [0]


def test_a_batch_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    closed = bytearray(batch(1, 2))
    closed[22] |= 1  # gzip, which it is not
    parts = [batch(0), build.reseal(bytes(closed)), batch(3)]
    directory = log_of(tmp_path, (0, b"".join(parts)))
    with Log(directory) as log:
        records = log.records(on_damage=lambda _: None)
        assert next(records).offset == 0
        assert next(records).offset == 3
        assert places(records.damage) == [(f"{0:020}.log", len(parts[0]), len(parts[1]), "batch/codec")]


def test_a_valid_log_gives_no_warning(tmp_path: Path) -> None:
    directory = log_of(tmp_path, (0, batch(0) + batch(1)), (2, batch(2)))
    with Log(directory) as log, warnings.catch_warnings():
        warnings.simplefilter("error")
        records = log.records()
        assert iter(records) is records
        assert [record.offset for record in records] == [0, 1, 2]
        assert records.damage == []
        assert list(log.records(3)) == []
        with pytest.raises(OffsetOutOfRange):
            log.records(4)


def transaction(kind: ControlType, offset: int) -> bytes:
    return marker(kind, producer_id=7, producer_epoch=0, coordinator_epoch=1, offset=offset, timestamp_ms=5)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_control_records_are_left_out_and_flags_are_set(codec: str, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    with Log(directory, write=True) as log:
        log.append([NewRecord(b"k", b"plain")], codec=codec)
        log.append(
            [NewRecord(b"k", b"in a transaction")],
            codec=codec,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        log.append(transaction(ControlType.COMMIT, 2))
        log.append([NewRecord(b"k", b"after it")], codec=codec)
    flags = [(0, False, False), (1, False, True), (2, True, True), (3, False, False)]
    with Log(directory) as log:
        assert [(each.offset, each.control, each.transactional) for each in log.records(control=True)] == flags
        assert [each.offset for each in log.records()] == [0, 1, 3]
        assert [each.offset for each in log.records(2)] == [3]
        # A read is what a broker sends: the control records are among them.
        assert [(each.offset, each.control, each.transactional) for each in log.read(0)] == flags
        for offset, *both in flags:
            record = next(iter(log.read(offset)))
            assert (record.offset, [record.control, record.transactional]) == (offset, both)


def test_header_names_are_strings_or_bytes(tmp_path: Path) -> None:
    wide = [("trace", b"1"), ("größe", None), ("", b"")]
    encoded = [(name.encode(), value) for name, value in wide]
    built = []
    for number, headers in enumerate((wide, encoded)):
        directory = tmp_path / f"t-{number}"
        with Log(directory, write=True) as log:
            log.append([NewRecord(b"k", b"v", headers, 5)] * 3)
            assert next(log.records()).headers == tuple(encoded)
        built.append((directory / f"{0:020}.log").read_bytes())
    assert built[0] == built[1]


def test_header_names_of_other_types(tmp_path: Path) -> None:
    with Log(tmp_path / "t-0", write=True) as log:
        for name, error, why in (
            (5, TypeError, "name of a header is of type int, expected str or bytes"),
            (None, ValueError, "name of a header is null"),
            ("\ud800", ValueError, "name of a header cannot be encoded as UTF-8"),
        ):
            with pytest.raises(error, match=why):
                log.append([NewRecord(b"k", b"v", [(name, b"v")])])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="value of a header is of type str, expected bytes"):
            log.append([NewRecord(b"k", b"v", [("name", "text")])])  # type: ignore[list-item]
        assert log.end_offset == 0


def test_batches_are_cut_alike_for_strings_and_bytes(tmp_path: Path) -> None:
    name = "ü" * 3000
    files = []
    for number, header in enumerate((name, name.encode())):
        directory = tmp_path / f"t-{number}"
        with Log(directory, write=True) as log:
            log.append([NewRecord(b"k", b"v", [(header, b"")], 5)] * 400)
        files.append((directory / f"{0:020}.log").read_bytes())
    assert files[0] == files[1]
