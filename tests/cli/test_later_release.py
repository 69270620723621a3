"""What is said where Kafka 4.4.0 does not start on files on which Kafka 4.3, whose start is predicted, does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

INDEX = "transfers-0/00000000000000000000.txnindex"
ENTRY = 34
VERSION = b"\0\x07"


@pytest.fixture
def killed(killed: Path) -> Path:
    """With a version in a transaction index that Kafka up to 4.3 reads over."""
    data = bytearray((killed / INDEX).read_bytes())
    data[ENTRY : ENTRY + 2] = VERSION
    (killed / INDEX).write_bytes(data)
    return killed


def objects(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, ran.text.splitlines()) if line["type"] == kind]


def test_verify_says_it(changing: Any, killed: Path) -> None:
    ran = changing.inside("verify", str(killed))
    assert ran.status == 1
    [line] = [line for line in ran.text.splitlines() if "txnindex/version" in line]
    assert "the next start of Kafka 4.3 does nothing about it" in line
    assert "Kafka 4.4.0 does not start with it, until it is mended (kdump recover --reindex PATH)" in line
    [finding] = objects(changing.inside("verify", "--level", "error", "--format", "json", str(killed)), "finding")
    assert (finding["severity"], finding["broker"], finding["later_broker"]) == ("error", "ignores", "refuses")


def test_the_preview_and_the_result_say_it(changing: Any, killed: Path) -> None:
    said = "Kafka 4.4.0 does not start on it as it is: KafkaException (00000000000000000000.txnindex)"
    preview = changing.inside("recover", str(killed))
    assert f"refused: {said}; --reindex also rebuilds the file\n" in preview.text
    planned = objects(changing.inside("recover", "--format", "json", str(killed)), "partition")
    [partition] = [line for line in planned if not line["empty"]]
    assert partition["refusals"] == []
    assert partition["later_refusals"] == [{"exception": "KafkaException", "name": Path(INDEX).name}]
    done = changing.inside("recover", "--truncate", str(killed))
    assert "Kafka 4.4.0 would not have started on the directory: KafkaException" in done.text
    assert (done.status, changing.inside("verify", str(killed)).status) == (0, 0)


def test_a_reindex_mends_it(changing: Any, killed: Path) -> None:
    assert changing.inside("recover", "--reindex", str(killed)).status == 0
    assert "4.4.0" not in changing.inside("verify", str(killed)).text
    assert changing.inside("verify", str(killed)).status == 0


def test_nothing_is_said_where_both_refuse(changing: Any, killed: Path) -> None:
    data = bytearray((killed / INDEX).read_bytes())
    data[ENTRY : ENTRY + 2] = b"\x01\0"
    (killed / INDEX).write_bytes(data)
    text = changing.inside("verify", str(killed)).text
    assert "Kafka 4.3 does not start with it" in text
    assert "4.4.0" not in text


def test_a_plan_of_a_release_without_the_field_still_holds(changing: Any, killed: Path, tmp_path: Path) -> None:
    saved = [json.loads(line) for line in changing.inside("recover", "--format", "json", str(killed)).text.splitlines()]
    for line in saved:
        line.pop("later_refusals", None)
        line.pop("later_broker", None)
    plan = tmp_path / "plan"
    plan.write_text("".join(json.dumps(line) + "\n" for line in saved))
    assert changing.inside("recover", "--plan", str(plan)).status == 0
