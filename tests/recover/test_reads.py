"""How many bytes the commands read of a log with one flipped bit, for each byte of the log.

What the kernel of the operating system counts: pages that are in its cache count as well.
"""

from __future__ import annotations

import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kdump.engine.protocol import Serial
from kdump.recover.plan import SALVAGE, Plan, RecoverOptions, RecoveryResult
from kdump.recover.planner import plan_recovery
from kdump.recover.recover import recover_logs
from kdump.storage.discovery import discover
from kdump.verify.verify import verify_logs
from support import build

COUNTS = Path("/proc/self/io")
BYTES = 32 << 20
pytestmark = pytest.mark.skipif(not COUNTS.exists(), reason="this system does not count what a process reads")


def read_bytes() -> int:
    return int(COUNTS.read_text().split()[1])


def fill(directory: Path, batch: bytearray, records: int, *, segments: int = 1, flips: int = 1) -> int:
    """A log in a log directory with flipped bits evenly in a segment in its middle; its size in bytes.

    It has this batch of so many records again and again, or this message.
    """
    directory.mkdir(parents=True)
    offset = 0
    for _ in range(segments):
        path = directory / f"{offset:020d}.log"
        index, indexed, base = bytearray(), 0, offset
        with path.open("wb") as log:
            while log.tell() < BYTES // segments:
                if log.tell() - indexed > 4096:
                    indexed = log.tell()
                    index += struct.pack(">ii", offset + records - 1 - base, indexed)
                struct.pack_into(">q", batch, 0, offset)
                log.write(batch)
                offset += records
        path.with_suffix(".index").write_bytes(index)
    (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    logs = sorted(directory.glob("*.log"))
    damaged = logs[len(logs) // 2]
    batches = damaged.stat().st_size // len(batch)
    with damaged.open("r+b") as log:
        for number in range(1, flips + 1):
            log.seek(batches * number // (flips + 1) * len(batch) + 64)
            byte = log.read(1)[0]
            log.seek(-1, os.SEEK_CUR)
            log.write(bytes([byte ^ 1]))
    return sum(log.stat().st_size for log in logs)


def _name(value: object) -> str:
    return getattr(value, "__name__", str(value))


def verify(path: str) -> None:
    for report in verify_logs(discover([path]), engine=Serial()):
        assert not report.errors
        if report.files:
            assert any(finding.code == "batch/crc" for finding in report.findings)


def preview(path: str) -> None:
    plans = list(plan_recovery(discover([path]), compares=True))
    assert any(isinstance(plan, Plan) and plan.salvage is not None for plan in plans)


def check(path: str) -> None:
    assert all(not report.errors for report in verify_logs(discover([path]), engine=Serial()))


def plan_only(path: str) -> None:
    assert any(isinstance(plan, Plan) for plan in plan_recovery(discover([path]), compares=True))


def run_truncate(path: str) -> None:
    assert all(not isinstance(item, RecoveryResult) or item.error is None for item in recover_logs(discover([path])))


def run_salvage(path: str) -> None:
    found = recover_logs(discover([path]), RecoverOptions(strategy=SALVAGE))
    assert all(not isinstance(item, RecoveryResult) or item.error is None for item in found)


def recover(path: str, options: RecoverOptions) -> None:
    done = [item for item in recover_logs(discover([path]), options) if isinstance(item, RecoveryResult)]
    assert any(item.applied and item.error is None for item in done)


def truncate(path: str) -> None:
    recover(path, RecoverOptions())


def salvage(path: str) -> None:
    recover(path, RecoverOptions(strategy=SALVAGE))


@pytest.mark.daily(3)
@pytest.mark.parametrize(("run", "most"), [(verify, 1.6), (preview, 2.0), (truncate, 3.0), (salvage, 4.0)], ids=_name)
@pytest.mark.parametrize("segments", [1, 4])
def test_a_damaged_log_is_read_a_few_times(
    tmp_path: Path, run: Callable[[str], None], most: float, segments: int
) -> None:
    batch = build.batch([build.record(value=b"v" * 1000) for _ in range(16)])
    size = fill(tmp_path / "logs" / "topic-0", bytearray(batch), 16, segments=segments)
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


@pytest.mark.daily(3)
@pytest.mark.parametrize(("run", "most"), [(verify, 1.6), (preview, 2.0), (truncate, 3.0), (salvage, 4.0)], ids=_name)
@pytest.mark.parametrize(
    "batch",
    [build.message_v1(b"k", b"v" * 1000), build.batch([build.record(value=b"v" * 1000)])],
    ids=["magic 1", "one record"],
)
def test_a_damaged_log_of_small_batches_is_read_as_often(
    tmp_path: Path, run: Callable[[str], None], most: float, batch: bytes
) -> None:
    size = fill(tmp_path / "logs" / "topic-0", bytearray(batch), 1)
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


def test_a_small_log_of_small_batches_is_not_read_to_compare_its_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "BYTES", 16 << 20)
    size = fill(tmp_path / "logs" / "topic-0", bytearray(BATCHES["one record"][0]), 1)
    before = read_bytes()
    salvage(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= 3.5


@pytest.mark.daily(3)
@pytest.mark.parametrize(("run", "most"), [(verify, 1.1), (preview, 2.0), (truncate, 3.0), (salvage, 4.0)], ids=_name)
@pytest.mark.parametrize("records", [16, 1], ids=["16 records", "one record"])
def test_a_log_with_many_damages_is_read_as_often(
    tmp_path: Path, run: Callable[[str], None], most: float, records: int
) -> None:
    """One batch in a hundred: what shows that the log goes on after each of them is not read again."""
    batch = build.batch([build.record(value=b"v" * 1000) for _ in range(records)])
    flips = BYTES // len(batch) // 100
    size = fill(tmp_path / "logs" / "topic-0", bytearray(batch), records, flips=flips)
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


def fill_with_transactions(directory: Path, *, byte: int = 100, value: int | None = 0xFF, bit: int = 0) -> int:
    """A log like that of `fill` whose transactions have eight batches of one of ten producers; its size in bytes.

    The byte at this position of a batch in its middle gets this value, or this bit of it is flipped.
    """
    records = [build.record(value=b"v" * 1000) for _ in range(16)]
    directory.mkdir(parents=True)
    path, rng = directory / f"{0:020d}.log", random.Random(1)
    sequences, begun, offset = [0] * 10, [0] * 10, 0
    starts: list[int] = []
    first = dict.fromkeys(range(10), 0)
    index, aborted = bytearray(), bytearray()
    built = [
        bytearray(build.batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True))
        for producer in range(10)
    ]
    with path.open("wb") as log:
        while log.tell() < BYTES:
            producer = rng.randrange(10)
            if begun[producer] == 8:
                begun[producer] = 0
                how = rng.choice(("COMMIT", "ABORT"))
                if how == "ABORT":
                    stable = min((first[other] for other in range(10) if begun[other]), default=offset + 1)
                    aborted += struct.pack(">hqqqq", 0, producer, first[producer], offset, stable)
                log.write(build.marker(how, base_offset=offset, producer_id=producer))
                offset += 1
                continue
            if not begun[producer]:
                first[producer] = offset
            begun[producer] += 1
            struct.pack_into(">i", built[producer], 53, sequences[producer])
            sequences[producer] += 16
            starts.append(log.tell())
            if log.tell():
                index += struct.pack(">ii", offset + 15, log.tell())
            struct.pack_into(">q", built[producer], 0, offset)
            log.write(build.reseal(bytes(built[producer])))
            offset += 16
    with path.open("r+b") as log:
        at = starts[len(starts) // 2] + byte
        log.seek(at)
        log.write(bytes([os.pread(log.fileno(), 1, at)[0] ^ bit if value is None else value]))
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".txnindex").write_bytes(aborted)
    (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return path.stat().st_size


@pytest.mark.daily(2)
@pytest.mark.parametrize(("run", "most"), [(verify, 1.6), (preview, 2.0), (truncate, 3.0), (salvage, 4.0)], ids=_name)
def test_a_damaged_log_with_transactions_is_read_as_often(
    tmp_path: Path, run: Callable[[str], None], most: float
) -> None:
    size = fill_with_transactions(tmp_path / "logs" / "topic-0")
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


@pytest.mark.daily(3)
@pytest.mark.parametrize(
    ("run", "byte", "bit", "most"),
    [
        (check, 2, 1, 1.6),
        (plan_only, 2, 1, 2.0),
        (run_truncate, 2, 1, 3.0),
        (run_salvage, 2, 1, 4.0),
        (check, 7, 1, 1.6),
        (plan_only, 7, 1, 2.0),
        (run_truncate, 7, 1, 3.0),
        (run_salvage, 7, 1, 4.0),
        (check, 7, 2, 1.6),
        (plan_only, 7, 2, 2.0),
        (run_truncate, 7, 2, 3.0),
    ],
    ids=_name,
)
@pytest.mark.parametrize("has_index", [True, False], ids=["txnindex", "no txnindex"])
def test_a_wrong_offset_among_transactions_is_read_as_often(
    tmp_path: Path, run: Callable[[str], None], byte: int, bit: int, most: float, has_index: bool
) -> None:
    """The transactions are told apart by their base offsets, so that the scan shows what a broker makes of them.

    A broker that breaks off has created a transaction index for the markers before.
    """
    directory = tmp_path / "logs" / "topic-0"
    size = fill_with_transactions(directory, byte=byte, value=None, bit=bit)
    if not has_index:
        (directory / f"{0:020d}.txnindex").unlink()
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


def wrong_header(tmp_path: Path, batch: bytes, records: int, byte: int, bit: int) -> int:
    """A log with one flipped bit in the header of a batch in its middle; its size in bytes."""
    size = fill(tmp_path / "logs" / "topic-0", bytearray(batch), records, flips=0)
    (path,) = tmp_path.glob("logs/topic-0/*.log")
    at = path.stat().st_size // len(batch) // 2 * len(batch) + byte
    with path.open("r+b") as log:
        log.seek(at)
        log.write(bytes([os.pread(log.fileno(), 1, at)[0] ^ bit]))
    return size


BATCHES = {
    "16 records": (build.batch([build.record(value=b"v" * 1000) for _ in range(16)]), 16),
    "one record": (build.batch([build.record(value=b"v" * 1000)]), 1),
    "magic 1": (build.message_v1(b"k", b"v" * 1000), 1),
}


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize(("byte", "bit"), [(7, 1), (7, 16), (5, 1), (2, 1), (0, 128)])
def test_a_wrong_offset_is_judged_without_another_look_at_the_log(
    tmp_path: Path, kind: str, byte: int, bit: int
) -> None:
    """No checksum covers it, and a broker reads the log, or begins to, so that order and indexes say what it does."""
    size = wrong_header(tmp_path, *BATCHES[kind], byte, bit)
    before = read_bytes()
    (report, _) = verify_logs(discover([str(tmp_path / "logs")]), engine=Serial())
    assert (read_bytes() - before) / size <= 1.1
    assert report.outcome is not None


@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize(
    ("run", "byte", "bit", "most"),
    [
        *((plan_only, byte, bit, 1.6) for byte, bit in ((7, 1), (7, 16), (2, 1), (0, 128), (12, 128), (15, 4))),
        *((run_truncate, byte, 128 >> byte, 2.7) for byte in (0, 2)),
    ],
    ids=_name,
)
def test_a_plan_about_a_wrong_header_takes_what_the_scan_showed(
    tmp_path: Path, kind: str, run: Callable[[str], None], byte: int, bit: int, most: float
) -> None:
    size = wrong_header(tmp_path, *BATCHES[kind], byte, bit)
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


@pytest.mark.daily(3)
@pytest.mark.parametrize(("run", "most"), [(check, 1.1), (plan_only, 1.1)], ids=_name)
@pytest.mark.parametrize("kind", ["16 records", "one record", "transactions"])
def test_a_batch_with_an_unknown_magic_is_read_once(
    tmp_path: Path, run: Callable[[str], None], most: float, kind: str
) -> None:
    """A broker takes it for one of magic 2, so that it reads the log as if nothing was wrong."""
    if kind == "transactions":
        size = fill_with_transactions(tmp_path / "logs" / "topic-0", byte=16, value=6)
    else:
        size = wrong_header(tmp_path, *BATCHES[kind], 16, 4)
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most


@pytest.mark.daily(3)
@pytest.mark.parametrize(("run", "most"), [(check, 1.1), (plan_only, 1.6), (run_truncate, 3.1)], ids=_name)
@pytest.mark.parametrize(("byte", "bit"), [(7, 1), (2, 1), (0, 1)])
@pytest.mark.parametrize("kind", ["16 records", "one record"])
def test_a_wrong_offset_in_a_log_without_indexes_is_read_as_often(
    tmp_path: Path, kind: str, byte: int, bit: int, run: Callable[[str], None], most: float
) -> None:
    """A broker recovers such a segment when it loads it. To write both indexes of small batches reads the log once."""
    size = wrong_header(tmp_path, *BATCHES[kind], byte, bit)
    (tmp_path / "logs" / "topic-0" / f"{0:020d}.index").unlink()
    before = read_bytes()
    run(str(tmp_path / "logs"))
    assert (read_bytes() - before) / size <= most
