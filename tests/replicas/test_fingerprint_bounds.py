"""What a fingerprint has much of: its size, and what is said of what was left out."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

import kdump
from kdump.broker.history import EpochRun
from kdump.format.index import AbortedTransaction, build_transaction_index
from kdump.replicas import log_survey
from kdump.replicas.fingerprint.fingerprint_file import load_copy
from kdump.replicas.fingerprint.fingerprint_format import fitted, parse_section, section_of
from replicas.test_compare import AGREE, DIVERGED, data, directory, marker, pair
from replicas.test_fingerprint import answer, by_fingerprints, known, taken
from support import build
from support.laws import SEED


def test_a_fingerprint_has_at_most_150_kb(tmp_path: Path) -> None:
    """Of a log with everything that it can have much of."""
    log = [data(offset, b"k%d" % offset, b"v") for offset in range(5000)]
    plain_log = directory(tmp_path / "1", log, 130)
    cleaned = directory(tmp_path / "2", log, 130, checkpoints={"cleaner-offset-checkpoint": 5000})
    for name, broker in (("1.f", plain_log), ("2.f", cleaned)):
        assert 90_000 < taken(broker, tmp_path / name).stat().st_size < 150_000
    shorter = directory(tmp_path / "3", log[:1100], checkpoints={"cleaner-offset-checkpoint": 1100})
    ends = known(tmp_path / "2.f", taken(shorter, tmp_path / "3.f"))
    again = taken(cleaned, tmp_path / "2.g", ends)
    (copy,) = map(load_copy, known(again))
    assert (copy.as_of, len(copy.later_keys)) == (1100, 3900)
    assert 90_000 < again.stat().st_size < 150_000
    assert answer(*known(again, taken(shorter, tmp_path / "3.g", ends))).verdict is AGREE


def epochs_log(epochs: int, forked_at: int | None = None) -> list[bytes]:
    """A batch of each leader epoch; from an offset on all are one later."""
    return [
        data(offset, None, b"v", epoch=offset + (forked_at is not None and offset >= forked_at))
        for offset in range(epochs)
    ]


@pytest.mark.parametrize(("epochs", "because"), [(1000, ()), (1001, ("left-out",))])
def test_thousands_of_leader_epochs(epochs: int, because: tuple[str, ...], tmp_path: Path) -> None:
    log = epochs_log(epochs)
    one, other = directory(tmp_path / "1", log), directory(tmp_path / "2", log, 50)
    forked = directory(tmp_path / "3", epochs_log(epochs, epochs - 9), 50)
    assert taken(one, tmp_path / "f").stat().st_size < 150_000
    found = by_fingerprints(one, other, tmp_path)
    assert (found.verdict, found.because) == (AGREE, because)
    found, expected = by_fingerprints(one, forked, tmp_path), pair(one, forked)
    assert found.differs.fork == expected.differs.fork == epochs - 9
    assert set(found.because) - set(expected.because) == {*because}


def test_the_leader_epochs_that_are_kept_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a log in which they change with each batch, and of copies on disks."""
    monkeypatch.setattr(log_survey, "MOST_EPOCHS", 10)
    for count in (10, 11, 20, 21, 30, 77):
        log = [data(offset, None, b"v", epoch=offset % 2) for offset in range(count)]
        one = directory(tmp_path / str(count), log, 8)
        (partition,) = (each for each in kdump.discover([str(one)]) if isinstance(each, kdump.Partition))
        survey = log_survey.survey_log(partition, 1 << 20)
        assert survey.epochs == tuple(EpochRun(at % 2, at, at, 1) for at in range(count - 10, count))
        assert survey.is_cut is (count > 10)
    log = epochs_log(40)
    found = pair(directory(tmp_path / "1", log), directory(tmp_path / "2", log, 7))
    assert (found.verdict, found.because) == (AGREE, ("left-out",))


def with_aborted(broker: Path, entries: list[tuple[int, int, int]]) -> Path:
    """With a transaction index of producer ids, first and last offsets."""
    log = min((broker / "t-0").glob("*.log"))
    several = [AbortedTransaction(0, *entry, entry[2] + 1) for entry in entries]
    log.with_suffix(".txnindex").write_bytes(build_transaction_index(several))
    return broker


def test_thousands_of_aborted_transactions(tmp_path: Path) -> None:
    """The newest are compared; of the others it is said that they are not."""
    log = [build.batch([build.record(None, b"v")] * 3000), marker(3000, "ABORT")]
    entries = [(7, offset, offset + 1) for offset in range(0, 3000, 2)]
    one, same = (with_aborted(directory(tmp_path / name, log), entries) for name in "12")
    found = by_fingerprints(one, same, tmp_path)
    assert (found.verdict, found.because) == (AGREE, ("left-out",))
    assert (tmp_path / "1.f").stat().st_size < 150_000
    entries[-3] = (7, entries[-3][1] - 1, entries[-3][2])
    other = with_aborted(directory(tmp_path / "3", log), entries)
    found, expected = by_fingerprints(one, other, tmp_path), pair(one, other)
    assert (found.verdict, found.differs.earlier_right) == (DIVERGED, expected.differs.earlier_right)
    assert found.differs.earlier_right.first == entries[-3][2]


def test_counts_of_a_section_are_no_larger_than_it(tmp_path: Path) -> None:
    """Any of them: no memory is taken for what is not there."""
    log = [data(offset, b"k%d" % offset, b"v") for offset in range(40)]
    cleaned = directory(tmp_path / "1", log, checkpoints={"cleaner-offset-checkpoint": 40})
    section = section_of(load_copy(known(taken(cleaned, tmp_path / "1.f"))[0]))
    choose = random.Random(SEED)
    for at in range(108, 148, 4):
        for count in (1 << 20, (1 << 31) - 1, (1 << 32) - 1, choose.randrange(1 << 32)):
            forged = bytearray(section)
            struct.pack_into("<I", forged, at, count)
            with pytest.raises(ValueError, match="its counts do not fit its size"):
                parse_section(bytes(forged))
            if at < 128:  # of what a front has
                with pytest.raises(ValueError, match="its counts do not fit its size"):
                    parse_section(bytes(forged), is_front=True)


def test_what_has_room_keeps_its_tables(tmp_path: Path) -> None:
    log = [data(offset, b"k%d" % offset, b"v") for offset in range(40)]
    copy = load_copy(known(taken(directory(tmp_path / "1", log), tmp_path / "1.f"))[0])
    assert fitted(copy) == copy
