"""A broker on directories with a wrong partition.metadata: it starts and serves them where a recovery says so, renames
those to -stray of which verify says it, and serves such a directory again after the way back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interop.test_recover_broker import QUICK, Place, recover
from interop.wire import Wire

TOPIC = "orders"
DAMAGES: dict[str, bytes | None] = {
    f"{TOPIC}-0": None,
    f"{TOPIC}-1": b"",
    f"{TOPIC}-2": b"garbage",
}
OTHER = f"{TOPIC}-3"
END = 27
"""The records of each partition: nine batches of three."""
OTHER_ID = b"version: 0\ntopic_id: wCO-p8jMSDOmjbmG5aH4gA"


@pytest.fixture(scope="module")
def place(kafka: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A broker that stopped, with records in four partitions."""
    with kafka.kraft_broker(tmp_path_factory.mktemp("broker"), settings=QUICK) as broker:
        place = Place(kafka, broker)
        place.client.make(f"{TOPIC}:4:retention.ms=-1")
        place.client.write(*(f"{TOPIC}-{number}:pP9" for number in range(4)))
        broker.stop()
        place.keep("whole")
        yield place


def codes(logs: Path) -> dict[str, str]:
    """The findings of verify about partition.metadata and strays: the word about the broker by code."""
    command = (sys.executable, "-P", "-m", "kdump", "verify", "--format", "json", str(logs))
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    lines = map(json.loads, done.stdout.splitlines())
    return {line["code"]: line["broker"] for line in lines if line.get("code", "").startswith("metadata/")}


def ends(place: Place) -> dict[str, Any]:
    with Wire(place.broker.port, 4) as wire:
        return {f"{TOPIC}-{number}": wire.at_time(f"{TOPIC}-{number}", -1) for number in range(4)}


def test_a_broker_serves_what_got_its_topic_id_back(place: Place) -> None:
    place.reset("whole")
    for name, data in DAMAGES.items():
        file = place.logs / name / "partition.metadata"
        file.unlink() if data is None else file.write_bytes(data)
    assert set(codes(place.logs).values()) == {"renames", "refuses"}
    status, lines, said = recover("--truncate", place.logs)
    assert (status, said, lines[-1]["next"]) == (0, "", "start the broker")
    place.broker.start()
    assert set(ends(place).values()) == {(END, -1)}
    place.broker.stop()
    assert list(place.logs.glob("*-stray")) == []


def test_a_stray_and_the_way_back(place: Place) -> None:
    place.reset("whole")
    (place.logs / OTHER / "partition.metadata").write_bytes(OTHER_ID)
    assert codes(place.logs) == {"metadata/topic-id": "renames"}
    status, lines, _ = recover("--truncate", place.logs)
    assert status == 1
    assert "to NAME-stray: see metadata/topic-id of " in lines[-1]["next"]
    place.broker.start()
    assert ends(place)[OTHER] == (0, -1)
    place.broker.stop()
    (stray,) = place.logs.glob(f"{OTHER}.*-stray")
    assert codes(place.logs) == {"metadata/stray": "ignores"}

    shutil.rmtree(place.logs / OTHER)
    stray.rename(place.logs / OTHER)
    (place.logs / OTHER / "partition.metadata").unlink()
    status, lines, _ = recover("--truncate", place.logs)
    assert (status, lines[-1]["next"]) == (0, "start the broker")
    assert codes(place.logs) == {}
    place.broker.start()
    assert set(ends(place).values()) == {(END, -1)}
    place.broker.stop()
    assert list(place.logs.glob("*-stray")) == []
