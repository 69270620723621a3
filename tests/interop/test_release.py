"""The log loader of Kafka 4.4.0 beside that of 4.3.1, which kdump predicts, on the same damaged directories.

The sizes of offset and time indexes are not compared: 4.4.0 leaves them preallocated in this helper. What differs
otherwise is in kdump-recover(1). Where 4.4.0 alone refuses, the prediction says so (`later_refusals`), and a reindex
mends it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interop.damaged_partitions import LOADER, Case, damaged, room
from kdump.broker import predict as broker
from kdump.recover.plan import RecoverOptions, RecoveryResult
from kdump.recover.recover import ApplyOptions, recover_logs
from kdump.storage.discovery import discover

__all__ = ["room"]  # a fixture
NEXT = "4.4.0"
QUIET = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def load(kafka: ModuleType, release: str, cases: list[Case]) -> list[dict[str, Any]]:
    lines = "".join(f"{case.directory}\t{case.recovery_point}\t{case.log_start_offset}\n" for case in cases)
    done = kafka.run_source(release, LOADER, stdin=lines.encode(), flags=QUIET)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def refused_later(case: Case) -> bool:
    """Whether the prediction says that 4.4.0 refuses what 4.3 loads."""
    state = broker.directory_state(
        str(case.directory), recovery_point=case.recovery_point, log_start_offset=case.log_start_offset
    )
    predicted = broker.predict_start(state)
    return bool(predicted.later_refusals) and not predicted.refusals


@pytest.fixture(scope="module")
def later(kafka: ModuleType) -> str:
    """The later release, with its class path at hand."""
    try:
        kafka.classpath(NEXT)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"no jars of Kafka {NEXT}: {error}")
    return NEXT


def test_what_4_4_0_does_otherwise(kafka: ModuleType, room: Path, later: str) -> None:
    """The same of every damaged directory, but for what the prediction says that 4.4.0 alone refuses."""
    cases = list(damaged(room, 1))
    again = [case._replace(directory=Path(f"{case.directory.parent}-next", case.directory.name)) for case in cases]
    for case, copy in zip(cases, again, strict=True):
        shutil.copytree(case.directory, copy.directory)
    predicted = [refused_later(case) for case in cases]
    assert any(predicted)
    other = []
    for case, refused, old, new in zip(
        cases, predicted, load(kafka, kafka.NEWEST, cases), load(kafka, later, again), strict=True
    ):
        wrong = [key for key in ("loaded", "log_start_offset", "log_end_offset") if old.get(key) != new.get(key)]
        expected = old["loaded"] and new.get("exception") == "KafkaException" if refused else not wrong
        if not expected:
            other.append((case.name, refused, old, new))
    assert other == []


def test_a_reindex_mends_what_4_4_0_refuses(kafka: ModuleType, room: Path, later: str, tmp_path: Path) -> None:
    refused = []
    for case in damaged(room / "reindex", 2, 1):
        if "txnindex" in case.name and " and " not in case.name and refused_later(case):
            copy = tmp_path / str(len(refused)) / case.directory.name
            shutil.copytree(case.directory, copy)
            [result] = recover_logs(
                discover([str(copy)]), RecoverOptions(strategy="reindex"), apply_options=ApplyOptions("1")
            )
            assert isinstance(result, RecoveryResult)
            assert result.error is None
            refused.append((case, case._replace(directory=copy)))
    assert refused
    before, after = zip(*refused, strict=True)
    assert {(one["loaded"], one.get("exception")) for one in load(kafka, later, list(before))} == {
        (False, "KafkaException")
    }
    assert [one for one in load(kafka, later, list(after)) if not one["loaded"]] == []
