"""Directories that a broker in KRaft mode renames to NAME-stray: said before the start, and prevented where the
metadata log of the same broker has the topic id."""

from __future__ import annotations

import json
import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.laws import QUICK, of_the_day

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
START = "next: start the broker"
OTHER_ID = "wCO-p8jMSDOmjbmG5aH4gA"
UNREADABLE = {
    "missing": None,
    "empty": b"",
    "garbage": bytes(range(40)),
    "cut": b"version: 0\ntopic_",
    "zero": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
}


@pytest.fixture
def leader(tmp_path: Path) -> Path:
    """A log directory that a broker left, with its metadata log."""
    shutil.copytree(FIXTURES / "leader", tmp_path / "d", ignore=shutil.ignore_patterns("expected", "case.toml"))
    return tmp_path / "d"


def damage(file: Path, name: str) -> None:
    data = UNREADABLE[name]
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)


def finding(ran: Any, code: str) -> dict[str, Any]:
    (found,) = (line for line in map(json.loads, ran.text.splitlines()) if line.get("code") == code)
    return dict(found)


@pytest.mark.laws
@pytest.mark.parametrize(
    ("name", "strategy", "given"),
    of_the_day(
        product(UNREADABLE, ["--truncate", "--salvage", "--reindex"], [["d"], ["d/retained-0"]]), 8, whole=not QUICK
    ),
)
def test_the_id_comes_from_the_metadata_log(
    changing: Any, leader: Path, name: str, strategy: str, given: list[str]
) -> None:
    file = leader / "retained-0" / "partition.metadata"
    before = file.read_bytes()
    damage(file, name)
    preview = changing.inside("recover", *given)
    assert (preview.status, "start the broker" in preview.text) == (1, False)
    ran = changing.inside("recover", strategy, *given)
    assert (ran.status, ran.text.splitlines()[-1]) == (0, START)
    assert file.read_bytes() == before
    assert "metadata/" not in changing.inside("verify", "d").text


@pytest.mark.daily(3)
@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("strategy", ["--truncate", "--salvage"])
def test_without_the_id_nobody_starts_the_broker(changing: Any, leader: Path, name: str, strategy: str) -> None:
    shutil.rmtree(leader / "__cluster_metadata-0")
    damage(leader / "retained-0" / "partition.metadata", name)
    ran = changing.inside("recover", strategy, "d")
    last = ran.text.splitlines()[-1]
    assert (ran.status, "start the broker" in ran.text) == (1, False)
    assert last.startswith(
        "next: a broker would rename d/retained-0 to NAME-stray and begin an empty partition; before"
    )
    assert r"printf 'version: 0\ntopic_id: ID\n' > d/retained-0/partition.metadata" in last
    assert "kafka-topics.sh --describe --topic retained" in last
    found = finding(changing.inside("verify", "--format", "json", "d/retained-0"), "metadata/missing")
    assert (found["severity"], found["broker"]) == ("error", "renames")
    assert "renames the directory to NAME-stray" in changing.inside("verify", "d/retained-0").text
    (leader / "retained-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    assert changing.inside("recover", strategy, "d").status == 0


def test_a_copy_without_the_id_is_not_put_in_place(changing: Any, leader: Path) -> None:
    shutil.rmtree(leader / "__cluster_metadata-0")
    damage(leader / "retained-0" / "partition.metadata", "empty")
    ran = changing.inside("recover", "--truncate", "--output", "copy", "d/retained-0")
    assert ran.status == 1
    assert "> copy/retained-0/partition.metadata, with the ID" in ran.text.splitlines()[-1]


def test_a_plan_that_is_only_previewed_names_the_file(changing: Any, leader: Path) -> None:
    shutil.rmtree(leader / "__cluster_metadata-0")
    damage(leader / "retained-0" / "partition.metadata", "missing")
    ran = changing.inside("recover", "d")
    assert ran.status == 1
    assert "> d/retained-0/partition.metadata, with the ID" in ran.text.splitlines()[-1]


def changed_id(leader: Path) -> str:
    (leader / "retained-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {OTHER_ID}")
    return "metadata/topic-id"


def unknown_topic(leader: Path) -> str:
    (leader / "retained-0").rename(leader / "gone-0")
    return "metadata/topic"


def other_broker(leader: Path) -> str:
    path = leader / "meta.properties"
    path.write_text(re.sub(r"node\.id=\d+", "node.id=77", path.read_text()))
    return "metadata/replica"


@pytest.mark.parametrize("change", [changed_id, unknown_topic, other_broker])
def test_a_stray_is_said_before_the_start(changing: Any, leader: Path, change: Any) -> None:
    code = change(leader)
    before = {path: path.read_bytes() for path in leader.rglob("*") if path.is_file()}
    for given in (["verify"], ["recover"], ["recover", "--truncate"]):
        ran = changing.inside(*given, "d")
        assert f" {code}: " in ran.text
        assert "renames the directory to NAME-stray" in ran.text
        assert START not in ran.text
        if given != ["verify"]:
            assert ran.status == 1
            assert f"to NAME-stray: see {code} of d/" in ran.text.splitlines()[-1]
    assert {path: path.read_bytes() for path in leader.rglob("*") if path.is_file()} == before


def test_another_log_directory(changing: Any, leader: Path) -> None:
    """A broker serves it from here."""
    path = leader / "meta.properties"
    path.write_text(re.sub(r"directory\.id=\S+", f"directory.id={OTHER_ID}", path.read_text()))
    ran = changing.inside("verify", "--format", "json", "d/retained-0")
    found = finding(ran, "metadata/directory")
    assert (ran.status, found["severity"], found["broker"]) == (0, "warning", "ignores")


@pytest.mark.parametrize(("directory", "is_used"), [("directory.id=" + OTHER_ID, True), ("", False)])
def test_the_metadata_log_of_another_disk(changing: Any, leader: Path, directory: str, is_used: bool) -> None:
    """That of the same broker counts; a copy of the log directory, perhaps an old one, does not."""
    one, two = (leader.parent / "disks" / name / "kafka" for name in ("one", "two"))
    one.parent.mkdir(parents=True)
    two.mkdir(parents=True)
    leader.rename(one)
    (one / "__cluster_metadata-0").rename(two / "__cluster_metadata-0")
    properties = (one / "meta.properties").read_text()
    (two / "meta.properties").write_text(
        re.sub(r"directory\.id=\S+", directory, properties) if directory else properties
    )
    (one / "retained-0" / "partition.metadata").unlink()
    assert changing.inside("recover", "--truncate", "disks/one/kafka").status == (0 if is_used else 1)


def test_a_stray_directory_has_a_way_back(changing: Any, leader: Path) -> None:
    stray = leader / "retained-0.0123456789abcdef0123456789abcdef-stray"
    (leader / "retained-0").rename(stray)
    (stray / "partition.metadata").unlink()
    found = finding(changing.inside("verify", "--format", "json", "d"), "metadata/stray")
    assert (found["severity"], found["broker"]) == ("warning", "ignores")
    assert "to bring it back: stop the broker, move retained-0 away where it is there" in found["message"]
    stray.rename(leader / "retained-0")
    assert changing.inside("recover", "--truncate", "d").status == 0
    assert "metadata/" not in changing.inside("verify", "d").text
