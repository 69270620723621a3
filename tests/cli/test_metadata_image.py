"""The command `kdump dump --metadata-image`: what it shows, what it keeps secret, what it refuses."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.broker.metadata_image.image_entries import REDACTED
from kdump.dump.events import CompanionDamage
from kdump.dump.metadata_image import ImageOptions, dump_metadata_image
from kdump.render import RenderOptions, renderer
from support import build
from support.laws import examples
from support.metadata_logs import (
    History,
    batch_of,
    change,
    snapshot,
    snapshot_name,
    uuid_of,
    value_of,
    write_log,
)

IMAGE = str(Path(__file__).resolve().parents[2] / "fixtures" / "image")
SECRETS = ("jaas-secret", "plugin-secret", "a fixed salt", "Si6WvcM1TZmht_wLOUEptA", "Vu1VK8BVSwiO0rTrdbBLUw")
"""Those of the fixture that are in its image; the stored keys are found by their length."""


def lines(kdump: Any, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kdump.inside("dump", "--metadata-image", "--format", "json", *arguments).lines]


def test_a_tree(kdump: Any) -> None:
    found = kdump.inside("dump", "--metadata-image", IMAGE)
    assert (found.status, found.err) == (0, b"")
    assert found.lines[0].startswith(f"image {IMAGE}/__cluster_metadata-0 offset=121 epoch=1 ")
    at = found.lines.index("topics")
    assert found.lines[at + 1].startswith("  accounts topic_id=")
    assert found.lines[at + 2].startswith("    0 replicas=[2,1] isr=[] leader=-1 leader_epoch=2 partition_epoch=2 ")
    at = found.lines.index("  broker 1")
    assert found.lines[at + 1 : at + 5] == [
        "    listener.name.other.ssl.keystore.type=PEM",
        "    listener.name.sasl.scram-sha-512.sasl.jaas.config=redacted",
        "    log.segment.bytes=2097152",
        "    plugin.of.ours.token=redacted",
    ]
    assert "  metadata.version level=30 release=4.3-IV0" in found.lines
    assert b"UNCOMMITTED" not in found.out
    terminal = kdump.inside("dump", "--metadata-image", "--format", "terminal", IMAGE)
    assert [line.split()[0] for line in terminal.lines if line.startswith("topics")] == ["topics"]


def test_json_has_a_line_for_each_thing(kdump: Any) -> None:
    found = lines(kdump, IMAGE)
    assert found[0]["type"] == "image"
    assert found[0]["snapshot"] == "00000000000000000098-0000000001.checkpoint"
    assert Counter(line["type"] for line in found[1:-1]) == {
        "feature": 6, "voter": 1, "broker": 2, "controller": 2, "topic": 4, "partition": 8, "configuration": 16,
        "client_quota": 5, "acl": 6, "scram_credential": 4, "delegation_token": 2, "producer_ids": 1,
    }  # fmt: skip
    assert found[-1]["type"] == "summary"
    assert {line["uncommitted"] for line in found[1:-1]} == {False}
    earlier = lines(kdump, "--offset", "40", IMAGE)
    assert earlier[0]["offset"] == 40
    assert "gone" in {line["topic"] for line in earlier if line["type"] == "topic"}


@pytest.mark.parametrize("style", ["text", "terminal", "json"])
@pytest.mark.parametrize("what", [[], ["--diff", "20:"], ["--diff", "100:20"], ["--offset", "91"]])
def test_secrets_are_shown_only_on_demand(kdump: Any, style: str, what: list[str]) -> None:
    arguments = ["dump", "--metadata-image", "--format", style, *what, IMAGE]
    hidden, shown = kdump.inside(*arguments), kdump.inside(*arguments, "--secrets")
    keys = {
        line[name]["base64"] if isinstance(line[name], dict) else line[name]
        for line in lines(kdump, "--secrets", IMAGE)
        if line["type"] == "scram_credential"
        for name in ("salt", "stored_key", "server_key")
    }
    assert len(keys) == 9
    for secret in (*SECRETS, *keys):
        assert secret.encode() not in hidden.out + hidden.err
    assert REDACTED.encode() in hidden.out
    assert all(secret.encode() in shown.out for secret in SECRETS[:2])
    assert REDACTED.encode() not in shown.out


def test_a_secret_that_changes_is_a_change(kdump: Any, tmp_path: Path) -> None:
    def password(value: str) -> Any:
        return change("ConfigRecord", resourceType=4, resourceName="1", name="ssl.key.password", value=value)

    directory = str(write_log(tmp_path / "__cluster_metadata-0", [password("first-one"), password("second-one")]))
    found = lines(kdump, "--diff", "0:1", directory)[2]
    assert (found["kind"], found["change"], found["fields"]) == ("configuration", "changed", ["value"])
    assert (found["before"]["value"], found["after"]["value"]) == (REDACTED, REDACTED)
    text = kdump.inside("dump", "--metadata-image", "--diff", "0:1", directory)
    expected = "~ configuration resource_type=broker resource_name=1 name=ssl.key.password: value=redacted->redacted"
    assert text.lines[2] == expected


def test_a_diff(kdump: Any) -> None:
    found = kdump.inside("dump", "--metadata-image", "--diff", "93:100", IMAGE).lines
    assert [line.split(" ")[0] for line in found] == ["image", "image", "~", "~", "-"]
    assert found[2].startswith("~ partition topic=moved partition=0: replicas=[1]->[2] isr=[1]->[2] leader=1->2 ")
    assert found[4].startswith("- voter voter_id=2 ")
    back = kdump.inside("dump", "--metadata-image", "--diff", "100:93", IMAGE).lines
    assert [line.split(" ")[0] for line in back] == ["image", "image", "+", "~", "~"]


def test_uncommitted_records_are_marked(kdump: Any, tmp_path: Path) -> None:
    path = tmp_path / "__cluster_metadata-0"
    path.mkdir()
    first, second = (change("TopicRecord", name=f"t{number}", topicId=uuid_of(number)) for number in range(2))
    voters = build.kraft_voters([build.Voter(1), build.Voter(2)])
    (path / snapshot_name(1)).write_bytes(snapshot([first], [build.kraft_version(), voters]))
    (path / f"{0:020d}.log").write_bytes(batch_of([first, second], 0))
    found = kdump.inside("dump", "--metadata-image", str(path))
    assert [line for line in found.lines if "UNCOMMITTED" in line] == [
        f"  t1 topic_id={uuid_of(1)} partitions=0 UNCOMMITTED"
    ]
    assert "high_watermark=1 high_watermark_source=snapshot uncommitted_records=1" in found.lines[0]
    marked = {line["topic"]: line["uncommitted"] for line in lines(kdump, str(path)) if line["type"] == "topic"}
    assert marked == {"t0": False, "t1": True}


def test_damage_is_a_finding(kdump: Any, tmp_path: Path) -> None:
    whole = shutil.copytree(Path(IMAGE) / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    log = whole / f"{85:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    found = kdump.inside("dump", "--metadata-image", str(whole))
    assert found.status == 1
    assert " error batch/crc: " in found.lines[0]
    assert "complete=no" in found.lines[1]
    assert b"the image ends with offset " in found.err
    # what the newest snapshot has is not read in the log
    assert kdump.inside("dump", "--metadata-image", "--offset", "97", str(whole)).status == 0
    (whole / "00000000000000000098-0000000001.checkpoint").write_bytes(b"")
    found = kdump.inside("dump", "--metadata-image", "--offset", "50", str(whole))
    assert found.status == 0
    found = kdump.inside("dump", "--metadata-image", "--offset", "110", str(whole))
    assert (found.status, b"the snapshot has no footer" in found.err) == (1, True)
    assert kdump.inside("dump", "--metadata-image", "--fail-on", "never", str(whole)).status == 0


def test_a_record_without_effect_is_named(kdump: Any, tmp_path: Path) -> None:
    directory = write_log(tmp_path / "__cluster_metadata-0", [change("RemoveTopicRecord", topicId=uuid_of(1))])
    found = kdump.inside("dump", "--metadata-image", str(directory))
    assert found.status == 0
    assert (
        f"offset 0: RemoveTopicRecord has no effect on the image: there is no topic with the id {uuid_of(1)}"
        in found.err.decode()
    )
    assert kdump.inside("dump", "--metadata-image", "--fail-on", "warning", str(directory)).status == 1


def test_names_from_the_log_do_not_reach_the_terminal_raw(kdump: Any, tmp_path: Path) -> None:
    topic = change("TopicRecord", name="a\x1b[31m\n", topicId=uuid_of(1))
    value = change(
        "ConfigRecord", resourceType=2, resourceName="x\x1b[0m", name="retention.ms\x07", value="\x1b]0;t\x07"
    )
    directory = str(
        write_log(tmp_path / "__cluster_metadata-0", [topic, value, change("ClearElrRecord", topicName="\x1b")])
    )
    for style in ("text", "terminal"):
        found = kdump.inside("dump", "--metadata-image", "--secrets", "--format", style, directory)
        assert b"\x1b" not in found.out + found.err
        assert b"\x07" not in found.out


def test_an_empty_value_is_shown(kdump: Any, tmp_path: Path) -> None:
    empty = change("ConfigRecord", resourceType=2, resourceName="", name="", value="")
    found = kdump.inside("dump", "--metadata-image", str(write_log(tmp_path / "__cluster_metadata-0", [empty])))
    at = found.lines.index("configurations")
    assert found.lines[at + 1 : at + 3] == ["  topic (default)", '    ""=redacted']
    shown = kdump.inside("dump", "--metadata-image", "--secrets", str(tmp_path / "__cluster_metadata-0"))
    assert '    ""=""' in shown.lines


@given(st.integers(0, 1 << 32), st.sampled_from(["text", "terminal", "json"]))
@settings(max_examples=examples(30))
def test_any_bytes_in_records_make_an_image(tmp_path_factory: pytest.TempPathFactory, seed: int, style: str) -> None:
    rng = random.Random(seed)
    values = [bytearray(value_of(item)) for item in History(rng).sound(25)]
    for value in values:
        for _ in range(rng.randrange(3)):
            value[rng.randrange(len(value))] = rng.choice((0, 1, 2, 0x1B, 0x7F, 0x80, 0xFF))
    directory = write_log(tmp_path_factory.mktemp("any") / "__cluster_metadata-0", list(map(bytes, values)))
    out = io.BytesIO()
    wanted = ImageOptions(diff=(rng.randrange(9), None) if seed % 2 else None)
    with renderer(style, out, RenderOptions(color=False)) as shown:
        for message in shown.show(dump_metadata_image(str(directory), wanted)):
            assert isinstance(message, CompanionDamage)
    assert b"\x1b" not in out.getvalue()
    assert b"scram-secret" not in out.getvalue()
    if style == "json":
        assert [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (["--diff", "1:2"], 2, "--diff needs --metadata-image"),
        (["--secrets"], 2, "--secrets needs --metadata-image"),
        (["--metadata-image", "--format", "kafka"], 2, "--metadata-image has the formats text, terminal, json"),
        (["--metadata-image", "--offset", "1:9"], 2, "--offset is one offset"),
        (["--metadata-image", "--offset", "1", "--diff", "1:2"], 2, "--diff names both offsets"),
        (["--metadata-image", "--diff", ":2"], 2, "--diff needs the first offset"),
        (["--metadata-image", "--batches"], 2, "--batches and --metadata-image cannot be combined"),
        (["--metadata-image", "-n", "1"], 2, "-n and --metadata-image cannot be combined"),
        (["--metadata-image", "--offset", "122"], 3, "the log ends with offset 121; there is no offset 122"),
    ],
)
def test_what_is_refused(kdump: Any, arguments: list[str], status: int, why: str) -> None:
    found = kdump.inside("dump", *arguments, IMAGE)
    assert (found.status, why in found.err.decode()) == (status, True), found.err
