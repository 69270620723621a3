"""The page of `--format html`: what is in it, what must never be in it, and where it is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kdump.errors import KdumpError
from kdump.render.html import page as pages
from kdump.render.html.budget import TABLE_BYTES, Budget
from kdump.render.html.finding_table import FindingTable
from kdump.render.html.names import PathNames
from kdump.render.html.script_data import script_json
from kdump.verify.findings import Severity, make_finding
from support import build, directories
from support.command_runs import run_inside

VENDOR = Path(pages.__file__).parent / "vendor"
SCRIPTED = frozenset(("script", "style", "data", "title"))
HOSTILE = ("<img src=x onerror=alert(1)>-0", '"><script>alert(1)<_script>-1', "a\u202eb\u2066\x1b[31m\n\x7f-2")


class Page(HTMLParser):
    """The elements of a page, with their attributes, and the text in those of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag in SCRIPTED:
            self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside in SCRIPTED:
            self.texts[-1] = (self._inside, self.texts[-1][1] + data)

    @property
    def policy(self) -> str:
        return next(of["content"] or "" for tag, of in self.elements if of.get("http-equiv"))

    @property
    def data(self) -> dict[str, Any]:
        kinds = [of.get("type") for tag, of in self.elements if tag == "script"]
        scripts = [text for tag, text in self.texts if tag == "script"]
        found: dict[str, Any] = json.loads(scripts[kinds.index("application/json")])
        return found

    def texts_of(self, tag: str) -> Iterator[str]:
        kinds = iter([of.get("type") for name, of in self.elements if name == tag])
        return (text for name, text in self.texts if name == tag and next(kinds) is None)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log directory whose partitions have hostile names; each is damaged in one batch."""
    batches = [build.batch([build.record(b"k", b"v%d" % at)], base_offset=at) for at in range(20)]
    log = directories.partition({0: b"".join(batches[:10]), 10: b"".join(batches[10:])})
    name = "00000000000000000010.log"
    data = bytearray(log[name])
    data[-20] ^= 1
    return directories.write(
        tmp_path / "logs", directories.log_directory({each: {**log, name: bytes(data)} for each in HOSTILE})
    )


def page_of(directory: Path, *arguments: str) -> tuple[int, str]:
    ran = run_inside(directory, *arguments, "--format", "html")
    assert not ran.problems, ran.problems
    return ran.status, ran.text


def test_a_page_holds_the_findings_with_what_the_catalogue_says(damaged: Path) -> None:
    status, text = page_of(damaged, "verify", str(damaged))
    assert status == 1
    found = Page(text).data["findings"]
    codes = [found["codes"][number]["code"] for number in found["code"]]
    assert codes.count("batch/crc") == 3
    assert all(each["why"] and each["title"] and each["recover"] for each in found["codes"])
    assert len({len(found[name]) for name in ("code", "severity", "file", "position", "text")}) == 1
    assert "kdump recover" in text


def test_names_and_texts_are_data_and_never_markup(damaged: Path) -> None:
    _, text = page_of(damaged, "verify", str(damaged))
    page = Page(text)
    assert {tag for tag, _ in page.elements}.isdisjoint(("img", "iframe", "link", "object"))
    attributes = {name for _, of in page.elements for name in of}
    assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "href", "srcdoc")] or {
        of["href"] for _, of in page.elements if "href" in of
    } == {"#main"}
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    names = page.data["findings"]["partitions"]
    assert sorted(names) == sorted(
        ["<img src=x onerror=alert(1)>-0", '"><script>alert(1)<_script>-1', "a\\u202eb\\u2066\\x1b[31m\\n\\x7f-2"]
    )


@pytest.mark.parametrize("options", [(), ("--deep",)])
def test_the_policy_allows_the_scripts_and_styles_of_the_page_and_nothing_else(
    damaged: Path, options: tuple[str, ...]
) -> None:
    page = Page(page_of(damaged, "verify", *options, str(damaged))[1])
    for tag in ("script", "style"):
        sums = [
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for text in page.texts_of(tag)
        ]
        assert f"{tag}-src {' '.join(sums)};" in page.policy
        assert sums
    assert page.policy.startswith("default-src 'none'; ")
    assert "unsafe" not in page.policy
    assert "http" not in page.policy


def test_a_page_names_the_paths_and_the_time_in_its_head(damaged: Path, tmp_path: Path) -> None:
    _, text = page_of(tmp_path, "verify", str(damaged))
    inside = text[text.index('<dl id="head"') : text.index('<dl class="tiles"')]
    assert str(tmp_path) in inside
    command = text[text.index('<code id="next">') : text.index("</code>", text.index('<code id="next">'))]
    assert str(tmp_path) in command  # it can be run from anywhere
    assert str(tmp_path) not in text.replace(inside, "").replace(command, "")


RUNS = (
    ("stat", "--deep", "--by", "hour", "--by", "partition"),
    ("verify", "--deep"),
    ("verify", "--compare"),
    ("recover",),
    ("recover", "--truncate"),
    ("recover", "--undo"),
)


def test_a_reproducible_page_is_the_same_from_another_folder_at_another_time(
    cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of a directory, at two paths without a name in common, half a year apart."""
    folders = []
    for name in ("one/place", "and/another one/it's"):
        for copy in ("x", "y"):
            shutil.copytree(cut, tmp_path / name / copy)
        folders.append(tmp_path / name)
    clock = time.time
    for arguments in RUNS:
        several = []
        for months, folder in enumerate(folders):
            monkeypatch.setattr(time, "time", lambda months=months: clock() + months * 6 * 30 * 86_400)
            paths = (folder / "x" / "t-0",) if "--undo" in arguments else (folder / "x", folder / "y")
            several.append(page_of(tmp_path, *arguments, "--reproducible", *map(str, paths))[1])
        first, second = (Page(text).data for text in several)
        assert first == second, arguments
        assert several[0] == several[1], arguments
        assert str(tmp_path) not in several[0]


def test_a_page_has_a_bound_and_says_what_it_leaves_out() -> None:
    table = FindingTable(str, Budget(TABLE_BYTES))
    long = "x" * 150
    for number in range(40_000):
        path = f"/logs/{long}{number % 9000}-{number % 7}/{number:020d}.log"
        table.add(make_finding("batch/crc", path, 0, 1, severity=Severity(number % 3), computed=1, stored=2))
    assert sum(int(re.findall(r"^\d+", said)[0]) for said in table.cut) + table.count == 40_000
    assert len(table.cut) == 3
    data = script_json(table.data())
    assert len(data.encode()) < TABLE_BYTES // 2
    by_severity = [json.loads(data)["severity"].count(each) for each in (2, 1)]
    assert by_severity[0] > 1.5 * by_severity[1] > 1500


def test_a_terminal_is_refused_with_the_redirection_to_type(kdump: Any, damaged: Path) -> None:
    ran = kdump.terminal("verify", "--format", "html", str(damaged))
    assert ran.status == 2
    assert " > kdump.html" in " ".join(ran.text.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reproducible",), "--reproducible has no effect without --format html"),
        (("--format", "html", "--quiet"), "leave out --quiet"),
    ],
)
def test_what_does_not_go_together(damaged: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = run_inside(damaged, "verify", *arguments, str(damaged))
    assert ran.status == 2
    assert said in " ".join(ran.problems.split())


def test_without_jinja2_it_is_said_what_to_install(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(KdumpError, match=r"jinja2 is not installed: pip install 'kdump\[html\]'"):
        pages.check_libraries()
    ran = run_inside(damaged, "verify", "--format", "html", str(damaged))
    assert (ran.status, ran.out) == (3, b"")
    assert "pip install" in ran.problems


def test_the_charting_library_is_as_its_authors_made_it() -> None:
    sums = dict(reversed(line.split()) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    assert sorted(sums) == ["LICENSE", "uPlot.iife.min.js", "uPlot.min.css"]
    for name, digest in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
    assert sum(file.stat().st_size for file in VENDOR.iterdir()) <= 300_000
    scripts = [file for folder in ("templates", "vendor") for file in VENDOR.parent.joinpath(folder).glob("*.js")]
    assert len(scripts) > 4
    for file in scripts:
        text = file.read_text()
        assert not re.search(r"\beval\(|\bnew Function\b|\bFunction\(", text), file
        if file.parent != VENDOR:
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|https?:", text), file


@pytest.mark.parametrize(
    ("paths", "root", "path", "short"),
    [
        (("/data/kafka",), "/data/kafka", "/data/kafka/t-0/0.log", "t-0/0.log"),
        (("/data/kafka/t-0",), "/data/kafka", "/data/kafka/t-0/0.log", "t-0/0.log"),
        (("/data/kafka/t-0/0.log",), "/data/kafka", "/data/kafka/t-0/0.log", "t-0/0.log"),
        (("/data/kafka/t-*",), "/data/kafka", "/data/kafka/t-0", "t-0"),
        (("/a/x/t-0", "/a/y/t-0"), "/a", "/a/y/t-0", "y/t-0"),
        (("/a/t-0", "b/t-0"), "", "b/t-0", "b/t-0"),
        (("-",), "", "-", "-"),
        (("/a/x", "/b/y"), "/", "/b/y/t-0/0.log", "b/y/t-0/0.log"),
        (("/a/b",), "/a/b", "/a/bc/t-0", "/a/bc/t-0"),
        (("/a/b",), "/a/b", "kdump recover '/a/b/t 0' /a/b, and /a/b: no", "kdump recover 't 0' b, and b: no"),
        (("logs",), "logs", "the catalogs/x of logs/t-0", "the catalogs/x of t-0"),
    ],
)
def test_paths_are_shown_inside_the_directory_of_all(paths: tuple[str, ...], root: str, path: str, short: str) -> None:
    names = PathNames(paths)
    assert (names.root, names.text(path)) == (root, short)


def test_absurd_values_are_json() -> None:
    assert script_json({"a": [None, True, 1, 1.5, float("nan"), b"xy", "</script>\u2028"]}) == (
        '{"a":[null,true,1,1.5,null,"2 bytes","\\u003c/script\\u003e\\\\u2028"]}'
    )


def test_a_damaged_partition_has_a_map(damaged: Path) -> None:
    _, text = page_of(damaged, "verify", str(damaged))
    page = Page(text)
    assert len(page.data["maps"]) == 3
    one = page.data["maps"][0]
    columns = [column for column in one["cells"].values() if isinstance(column, list)]
    assert {len(column) for column in columns} == {len(columns[0])}
    assert [place[0] for place in one["damage"]] == [1]
    assert sum(one["cells"]["batches"]) == 19
    assert not Page(page_of(damaged, "verify", "--select", "metadata", str(damaged))[1]).data["partitions"]["path"]


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """A partition with one flipped bit in its first segment, in a log directory with a high watermark."""
    batches = [build.batch([build.record(b"k", b"v%d" % at)], base_offset=at) for at in range(40)]
    files = directories.partition({0: b"".join(batches[:20]), 20: b"".join(batches[20:])})
    name = "00000000000000000000.log"
    data = bytearray(files[name])
    data[len(batches[0]) * 12 + 70] ^= 1
    marks = {"replication-offset-checkpoint": b"0\n1\nt 0 30\n", "recovery-point-offset-checkpoint": b"0\n1\nt 0 0\n"}
    log_directory = directories.log_directory({"t-0": {**files, name: bytes(data)}}, **marks)
    return directories.write(tmp_path / "logs", directories.without(log_directory, ".kafka_cleanshutdown"))


def test_a_recovery_shows_both_strategies_and_afterwards_the_undo(cut: Path) -> None:
    status, text = page_of(cut, "recover", str(cut))
    assert status == 1
    (block,) = Page(text).data["recoveries"]
    truncate, salvage = block["cards"]
    assert (truncate["strategy"], truncate["records"], truncate["end"]) == ("truncate", 27, 12)
    assert (salvage["strategy"], salvage["records"], salvage["end"], salvage["better"]) == ("salvage", 0, 40, True)
    assert truncate["committed"] == "missing: offsets 12..29, next 30"
    assert "--undo" not in text
    (of,) = Page(text).data["maps"]
    assert of["cuts"]
    assert sum(length for _, _, length, _ in of["cuts"]) == truncate["bytes"] + sum(
        length for _, _, length, _ in of["damage"]
    )
    (of,) = Page(page_of(cut, "recover", "--salvage", "--dry-run", str(cut))[1]).data["maps"]
    assert of["cuts"] == of["damage"]

    status, text = page_of(cut, "recover", "--truncate", str(cut))
    assert status == 4
    assert "kdump recover --undo --run" in text
    assert Page(text).data["recoveries"][0]["applied"]
    status, text = page_of(cut, "recover", "--undo", "--reproducible", str(cut / "t-0"))
    assert status == 0
    assert "The run is undone" in text
    assert str(cut) not in text


def test_a_hanging_transaction_is_marked_apart_from_an_open_one(tmp_path: Path) -> None:
    """As the log directory decides it; a partition where nothing hangs has no map."""
    hour = 3_600_000

    def log(*transactions: tuple[int, int]) -> dict[str, bytes]:
        own = [
            build.batch(
                [build.record(b"k", b"v", timestamp=NOW_MS - age)],
                base_offset=at,
                transactional=True,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
            )
            for at, (producer, age) in enumerate(transactions)
        ]
        return directories.partition({0: b"".join(own)})

    partitions = {"t-0": log((7, 2 * hour), (8, 0)), "t-1": log((9, 0)), "t-2": log((10, 0))}
    where = directories.write(tmp_path / "logs", directories.log_directory(partitions))
    data = Page(page_of(tmp_path, "verify", str(where))[1]).data
    (of,) = data["maps"]
    assert (of["name"], of["open"]) == ("t-0", {"producer": [7, 8], "offset": [0, 1]})
    assert data["hanging"] == {"t-0": [0]}


NOW_MS = 1_795_284_000_000


@pytest.fixture
def keyed(tmp_path: Path) -> Path:
    """A log directory whose records have keys and values that a page must not show."""
    batches = [
        build.batch(
            [build.record(b"secret-key-%d" % (at % 3), b"secret-value", headers=[(b"trace", b"secret-header")])],
            base_offset=at,
        )
        for at in range(30)
    ]
    files = directories.partition({0: b"".join(batches)})
    return directories.write(tmp_path / "logs", directories.log_directory({"orders-0": files, "orders-1": files}))


def test_the_numbers_of_a_stat(keyed: Path) -> None:
    status, text = page_of(keyed, "stat", str(keyed))
    assert status == 0
    data = Page(text).data
    tiles = data["space"]["tiles"]
    named = [(tiles["topics"][topic], name) for topic, name, _ in tiles["tiles"]]
    assert named == [("orders", "orders-0"), ("orders", "orders-1")]
    bars, sizes = data["space"]["batch_size_bars"], data["space"]["batch_sizes"]
    assert sum(count for _, _, count in bars) == sizes["count"] == 60
    assert bars[0][0] <= sizes["minimum"] <= sizes["maximum"] <= bars[-1][1]
    assert data["space"]["codecs"] == [["none", data["space"]["codecs"][0][1], 60]]
    assert sum(data["space"]["rate"]["bytes"]) == data["space"]["codecs"][0][1]
    assert [column[1] for column in data["rows-partition"]["columns"]][:2] == ["Partition", "Bytes"]
    assert data["disks"][0]["used"] > 0
    assert all(option in text for option in ("--deep: ", "--by group: ", "--retention: "))
    assert "uPlot" in text
    assert "secret" not in text


def test_keys_are_hashes_unless_they_are_asked_for_and_values_are_never_shown(keyed: Path) -> None:
    _, text = page_of(keyed, "stat", "--deep", str(keyed))
    keys = Page(text).data["keys"]
    assert len(keys) == 6
    assert keys[0][1].startswith("12 bytes, SHA-256 ")
    assert "secret" not in text
    assert "This page holds no keys" in text
    _, text = page_of(keyed, "stat", "--deep", "--show-keys", str(keyed))
    assert Page(text).data["keys"][0][1].startswith("secret-key-")
    assert "This page holds keys of records" in text
    assert "secret-value" not in text
    assert "secret-header" not in text
    ran = run_inside(keyed, "stat", "--show-keys", str(keyed))
    assert ran.status == 2
    assert "--show-keys has no effect without --format html" in " ".join(ran.problems.split())


def test_groups_come_with_their_lag(tmp_path: Path) -> None:
    groups = Path(__file__).parents[2] / "fixtures" / "groups"
    _, text = page_of(tmp_path, "stat", "--by", "group", "--by", "group_partition", "--reproducible", str(groups))
    columns = {column[0]: number for number, column in enumerate(Page(text).data["rows-group"]["columns"])}
    values = Page(text).data["rows-group"]["values"]
    assert "workers" in values[columns["group"]]
    assert 6 in values[columns["lag"]]
    assert str(groups) not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify",), "No log was verified"),
        (("verify", "--compare"), "Nothing was compared"),
        (("stat",), "Nothing was measured"),
    ],
)
def test_what_was_not_read_is_never_called_sound(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ran = run_inside(tmp_path, *arguments, "--format", "html", str(tmp_path / "nothing"))
    assert ran.status == 3
    assert f"</span>{said}" in ran.text
    assert 'class="verdict good"' not in ran.text


def test_a_path_that_cannot_be_read_is_in_the_verdict(keyed: Path) -> None:
    ran = run_inside(keyed, "verify", "--format", "html", str(keyed), str(keyed / "nothing"))
    assert ran.status == 3
    assert "something could not be read or done" in ran.text
    assert 'class="verdict good"' not in ran.text


def test_copies_have_a_strip_each(tmp_path: Path) -> None:
    def copy(name: str, *batches: bytes) -> str:
        files = directories.partition({0: b"".join(batches)})
        return str(directories.write(tmp_path / name, directories.log_directory({"t-0": files})))

    batches = [build.batch([build.record(b"k", b"v%d" % at)], base_offset=at) for at in range(20)]
    other = [build.batch([build.record(b"k", b"other")], base_offset=at) for at in range(10, 18)]
    paths = copy("a", *batches), copy("b", *batches), copy("c", *batches[:10], *other)
    status, text = page_of(tmp_path, "verify", "--compare", *paths)
    assert status == 1
    (of,) = Page(text).data["copies"]
    assert [(each["path"], each["start"], each["end"]) for each in of["extents"]] == [
        ("a/t-0", 0, 20),
        ("b/t-0", 0, 20),
        ("c/t-0", 0, 18),
    ]
    assert of["stale"] == "c/t-0"
    assert [pair["verdict"] for pair in of["pairs"]] == ["agree", "diverged", "diverged"]
    assert of["pairs"][1]["differs"] == [[10, 18]]
    assert of["merged"] == [[0, 0, 20]]


def test_copies_show_what_a_merge_takes_from_which(tmp_path: Path) -> None:
    batches = [build.batch([build.record(b"k", b"v%d" % at)], base_offset=at) for at in range(20)]
    size = len(batches[0])
    for name, at in (("a", 3), ("b", 12)):
        data = bytearray(b"".join(batches[:10]) + b"".join(batches[10:]))
        data[sum(map(len, batches[:at])) + size - 3] ^= 1
        files = directories.partition({0: bytes(data)})
        directories.write(tmp_path / name, directories.log_directory({"t-0": files}))
    (of,) = Page(page_of(tmp_path, "verify", "--compare", str(tmp_path / "a"), str(tmp_path / "b"))[1]).data["copies"]
    assert of["merged"] == [[0, 0, 3], [1, 3, 4], [0, 4, 20]]


def test_a_full_disk_is_in_the_verdict(keyed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdump.stat.rows.LogDirectoryRow.is_nearly_full", property(lambda self: True))
    _, text = page_of(keyed, "stat", str(keyed))
    assert "less than a tenth is free on the file system of logs" in text
    assert 'class="verdict doubtful"' in text
    assert Page(text).data["disks"][0]["free"] > 0
    _, text = page_of(keyed, "stat", "--reproducible", str(keyed))  # others write to the file system, too
    assert "less than a tenth" not in text
    assert Page(text).data["disks"][0]["free"] is None
