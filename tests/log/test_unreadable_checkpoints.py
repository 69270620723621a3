"""A log start offset, a high watermark or a cleaner offset that cannot be read is not taken for none."""

from __future__ import annotations

from pathlib import Path

import pytest

import kdump
from kdump.convert.ranges.known_log import LogKnowledge
from kdump.errors import SourceError
from kdump.replicas.log_survey import UNREADABLE, survey_log
from kdump.storage.discovery import discover
from kdump.storage.partition import Partition
from kdump.storage.walk import MAX_BATCH_BYTES
from kdump.writer.log import Log
from support import build

NAMES = ("log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(build.batch([build.record(b"k", b"v")]))
    for name in NAMES:
        (tmp_path / name).write_bytes(build.checkpoint("t 0 0"))
    (found,) = (each for each in discover([str(directory)]) if isinstance(each, Partition))
    return found


def hide(tmp_path: Path, name: str) -> str:
    """Put a directory in the place of a file: nobody can read it, not even the superuser."""
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    return str(tmp_path / name)


@pytest.mark.parametrize("name", NAMES)
def test_what_needs_it_says_which_file(tmp_path: Path, partition: Partition, name: str) -> None:
    assert LogKnowledge().of([partition]).start == 0
    assert survey_log(partition, MAX_BATCH_BYTES).problem is None
    path = hide(tmp_path, name)
    with pytest.raises(SourceError, match=name):
        LogKnowledge().of([partition])
    survey = survey_log(partition, MAX_BATCH_BYTES)
    assert (survey.problem, path in (survey.error or "")) == (UNREADABLE, True)
    with pytest.raises(SourceError, match=name), Log(partition.path):
        pass


def test_no_pair_is_said_to_agree(tmp_path: Path, partition: Partition) -> None:
    other = tmp_path / "other" / "t-0"
    other.mkdir(parents=True)
    (other / f"{0:020}.log").write_bytes(Path(partition.segments[0].log.path).read_bytes())
    copies = [each for each in discover([partition.path, str(other)]) if isinstance(each, Partition)]
    (found,) = kdump.compare_logs(copies)
    assert found.verdict.name == "AGREE"
    hide(tmp_path, "cleaner-offset-checkpoint")
    (found,) = kdump.compare_logs(copies)
    assert found.verdict.name == "UNDECIDED"


def test_a_recovery_point_says_nothing_of_records(tmp_path: Path, partition: Partition) -> None:
    hide(tmp_path, "recovery-point-offset-checkpoint")
    assert LogKnowledge().of([partition]).start == 0
    assert survey_log(partition, MAX_BATCH_BYTES).problem is None
