"""The producers of a transactional id, by the partitions of `__transaction_state` beside a log."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kdump.dump.transactional_ids import find_producers, log_directories
from kdump.format.internal_topics import transaction_state
from support import oracle

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
DIRECTORIES = ["internal", "killed", "follower"]
NAME = "committer"


def in_transaction_logs(directory: Path) -> dict[str, set[int]]:
    """The producer ids of each transactional id, record by record."""
    found: dict[str, set[int]] = {}
    for path in sorted(directory.glob("__transaction_state-*/*.log")):
        data = path.read_bytes()
        for item in oracle.walk(data, base_offset=int(path.stem)):
            if not isinstance(item, oracle.Batch) or item.control:
                continue
            for record in oracle.records(data, item.position):
                known = found.setdefault(transaction_state.decode_key(record.key).transactional_id, set())
                value = transaction_state.decode_value(record.value)
                if value is not None:
                    ids = value.producer_id, value.previous_producer_id, value.next_producer_id
                    known |= {each for each in ids if each >= 0}
    return found


@pytest.mark.parametrize("name", DIRECTORIES)
def test_the_producers_of_every_transactional_id(name: str) -> None:
    directory = FIXTURES / name
    wanted = in_transaction_logs(directory)
    assert wanted
    found = find_producers(wanted, [str(directory)])
    assert found.producer_ids == wanted
    assert found.problems == []
    assert len(found.partitions) == len(list(directory.glob("__transaction_state-*")))


def test_half_a_batch_at_the_end_is_no_damage_while_a_broker_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(FIXTURES / "killed", tmp_path / "logs"))
    log = max((copy / "__transaction_state-0").glob("*.log"))
    with log.open("ab") as file:
        file.write(log.read_bytes()[:70])
    for live, problems in ((False, 1), (True, 0)):
        monkeypatch.setattr("kdump.dump.transactional_ids.is_written", lambda _, live=live: live)
        assert len(find_producers([NAME], [str(copy)]).problems) == problems


def test_the_log_directory_of_what_is_named() -> None:
    directory = FIXTURES / "killed"
    log = next((directory / "transfers-0").glob("*.log"))
    for path in (directory, directory / "transfers-0", log):
        assert log_directories([str(path)]) == [str(directory)]
    assert log_directories([str(FIXTURES / "follower" / "transfers-0"), str(directory)]) == [
        str(FIXTURES / "follower"),
        str(directory),
    ]


def test_a_log_directory_with_the_name_of_a_partition_and_directories_above(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(FIXTURES / "killed", tmp_path / "broker-1"))
    assert log_directories([str(copy)]) == [str(copy)]
    assert log_directories([str(copy / "transfers-0"), str(copy / "transfers-*")]) == [str(copy)]
    assert log_directories([str(tmp_path), str(tmp_path / "missing")]) == [str(tmp_path)]
    assert find_producers([NAME], log_directories([str(tmp_path)])).producer_ids == (
        find_producers([NAME], [str(copy)]).producer_ids
    )
    (copy / "loose").mkdir()
    shutil.copy(next((copy / "transfers-0").glob("*.log")), copy / "loose")
    assert log_directories([str(path) for path in (copy / "loose").iterdir()]) == []


def test_each_directory_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = list[str]()
    scan = os.scandir

    def scandir(path: str) -> Any:
        listed.append(str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    find_producers([NAME], log_directories([str(FIXTURES / "killed")]))
    assert listed
    assert len(listed) == len(set(listed))


def test_the_records_of_a_transactional_id(kdump: Any) -> None:
    path = str(FIXTURES / "killed")
    (producer_id,) = in_transaction_logs(FIXTURES / "killed")[NAME]
    by_name = kdump.inside("dump", "--format", "json", "--no-summary", "--transactional-id", NAME, path)
    by_number = kdump.inside("dump", "--format", "json", "--no-summary", "--producer", str(producer_id), path)
    assert by_name.out == by_number.out
    assert (by_name.status, by_name.err) == (by_number.status, by_number.err)
    lines = [json.loads(line) for line in by_name.out.splitlines()]
    assert {line["producer_id"] for line in lines if line["type"] == "record"} == {producer_id}


def test_what_cannot_be_looked_up(kdump: Any, tmp_path: Path) -> None:
    ran = kdump.inside("dump", "--transactional-id", "none-of-them", str(FIXTURES / "killed"))
    assert (ran.status, b"none-of-them: no record of __transaction_state names its producer" in ran.err) == (3, True)
    for options, words in (
        (("--producer", "1", "."), b"cannot be combined"),
        (("-",), b"standard input"),
        (("--format", "kafka", "."), b"cannot be combined with --format kafka"),
    ):
        ran = kdump.inside("dump", "--transactional-id", NAME, *options)
        assert (ran.status, words in ran.err) == (2, True)

    copy = Path(shutil.copytree(FIXTURES / "killed", tmp_path / "logs"))
    log = next((copy / "__transaction_state-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    transfers = str(copy / "transfers-0")
    assert kdump.inside("dump", "--count", "--producer", "1", transfers).status == 0
    ran = kdump.inside("dump", "--count", "--transactional-id", NAME, transfers)
    assert (ran.status, b"damaged stretches: 1" in ran.err) == (1, True)
