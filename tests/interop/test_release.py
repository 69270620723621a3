"""The log loader of Kafka 4.4.0 beside that of 4.3.1, which kdump predicts, on the same damaged directories.

The sizes of offset and time indexes are not compared: 4.4.0 leaves them preallocated in this helper. What differs
otherwise is in kdump-recover(1).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interop.damaged_partitions import LOADER, Case, damaged, room

__all__ = ["room"]  # a fixture
NEXT = "4.4.0"
QUIET = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")


def load(kafka: ModuleType, release: str, cases: list[Case]) -> list[dict[str, Any]]:
    lines = "".join(f"{case.directory}\t{case.recovery_point}\t{case.log_start_offset}\n" for case in cases)
    done = kafka.run_source(release, LOADER, stdin=lines.encode(), flags=QUIET)
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def files(directory: Path) -> dict[str, bytes]:
    read = {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
    return {name: data.rstrip(b"\0") if "index" in name else data for name, data in read.items()}


def differences(kafka: ModuleType, room: Path, seeds: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each directory that the two leave in different states: its damage, and what each loader said."""
    cases = list(damaged(room, seeds))
    again = [case._replace(directory=Path(f"{case.directory.parent}-next", case.directory.name)) for case in cases]
    for case, copy in zip(cases, again, strict=True):
        shutil.copytree(case.directory, copy.directory)
    for case, copy, old, new in zip(
        cases, again, load(kafka, kafka.NEWEST, cases), load(kafka, NEXT, again), strict=True
    ):
        old, new = [
            {key: value for key, value in one.items() if key not in ("directory", "files", "message")}
            for one in (old, new)
        ]
        if old != new or files(case.directory) != files(copy.directory):
            yield case.name, old, new


def test_what_4_4_0_does_otherwise(kafka: ModuleType, room: Path) -> None:
    try:
        kafka.classpath(NEXT)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"no jars of Kafka {NEXT}: {error}")
    found = list(differences(kafka, room, 1))
    other = [
        (name, old, new)
        for name, old, new in found
        if any(old.get(key) != new.get(key) for key in ("loaded", "log_start_offset", "log_end_offset"))
        and not ("txnindex" in name and old["loaded"] and new.get("exception") == "KafkaException")
    ]
    assert other == []
