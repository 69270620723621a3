"""What is said where Kafka 4.4.0 does not start on files on which Kafka 4.3, whose start is predicted, does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from support.command_runs import unwatched

FIXTURES = Path(__file__).parents[2] / "fixtures"
INDEX = "transfers-0/00000000000000000000.txnindex"
ENTRY = 34
VERSION = b"\0\x07"


@pytest.fixture
def kdump(kdump: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command, which may change what it is given."""
    monkeypatch.setattr(type(kdump), "watched", unwatched)
    return kdump.inside


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A log directory, with a version in a transaction index that Kafka up to 4.3 reads over."""
    directory = tmp_path / "data"
    shutil.copytree(FIXTURES / "killed", directory, ignore=shutil.ignore_patterns("expected", "case.toml"))
    data = bytearray((directory / INDEX).read_bytes())
    data[ENTRY : ENTRY + 2] = VERSION
    (directory / INDEX).write_bytes(data)
    return directory


def objects(ran: Any, kind: str) -> list[dict[str, Any]]:
    return [line for line in map(json.loads, ran.text.splitlines()) if line["type"] == kind]


def test_verify_says_it(kdump: Any, killed: Path) -> None:
    ran = kdump("verify", str(killed))
    assert ran.status == 1
    [line] = [line for line in ran.text.splitlines() if "txnindex/version" in line]
    assert "the next start of Kafka 4.3 does nothing about it" in line
    assert "Kafka 4.4.0 does not start with it, until it is mended (kdump recover --reindex PATH)" in line
    [finding] = objects(kdump("verify", "--level", "error", "--format", "json", str(killed)), "finding")
    assert (finding["severity"], finding["broker"], finding["later_broker"]) == ("error", "ignores", "refuses")


def test_the_preview_and_the_result_say_it(kdump: Any, killed: Path) -> None:
    said = "Kafka 4.4.0 does not start on it as it is: KafkaException (00000000000000000000.txnindex)"
    preview = kdump("recover", str(killed))
    assert f"refused: {said}; --reindex, too, rebuilds the file\n" in preview.text
    [partition] = [
        line for line in objects(kdump("recover", "--format", "json", str(killed)), "partition") if not line["empty"]
    ]
    assert partition["refusals"] == []
    assert partition["later_refusals"] == [{"exception": "KafkaException", "name": Path(INDEX).name}]
    done = kdump("recover", "--truncate", str(killed))
    assert "Kafka 4.4.0 would not have started on the directory: KafkaException" in done.text
    assert (done.status, kdump("verify", str(killed)).status) == (0, 0)


def test_a_reindex_mends_it(kdump: Any, killed: Path) -> None:
    assert kdump("recover", "--reindex", str(killed)).status == 0
    assert "4.4.0" not in kdump("verify", str(killed)).text
    assert kdump("verify", str(killed)).status == 0


def test_nothing_is_said_where_both_refuse(kdump: Any, killed: Path) -> None:
    data = bytearray((killed / INDEX).read_bytes())
    data[ENTRY : ENTRY + 2] = b"\x01\0"
    (killed / INDEX).write_bytes(data)
    text = kdump("verify", str(killed)).text
    assert "Kafka 4.3 does not start with it" in text
    assert "4.4.0" not in text


def test_a_plan_of_a_release_without_the_field_still_holds(kdump: Any, killed: Path, tmp_path: Path) -> None:
    saved = [json.loads(line) for line in kdump("recover", "--format", "json", str(killed)).text.splitlines()]
    for line in saved:
        line.pop("later_refusals", None)
        line.pop("later_broker", None)
    plan = tmp_path / "plan"
    plan.write_text("".join(json.dumps(line) + "\n" for line in saved))
    assert kdump("recover", "--plan", str(plan)).status == 0
