"""The options of `kdump verify`, and the contract of its lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import KEPT
from support import build, oracle
from support.command_runs import FINDING_FIELDS, lines, shown

SUMMARY_FIELDS = [
    "type",
    "schema",
    "command",
    "files",
    "segments",
    "batches",
    "records",
    "bytes",
    "valid_bytes",
    "findings",
    "findings_dropped",
    "interrupted",
    "interrupted_at",
    "starts",
    "several_copies",
    "next",
    "exit_status",
    "seconds",
]


def one(base_offset: int = 0, **fields: Any) -> bytes:
    return build.batch([build.record(b"k", b"v")], base_offset=base_offset, **fields)


# One error, one warning and one info: a wrong checksum, missing offsets, an inner message of another magic.
SEVERAL = build.segment(
    one(0, attributes=0x80),
    one(1, crc=1),
    one(2, max_timestamp=5),
    build.wrapper([build.record(b"k", b"v")], base_offset=3, inner_magic=0),
)


@pytest.fixture
def several(tmp_path: Path) -> str:
    directory = tmp_path / "topic-3"
    directory.mkdir()
    (directory / "0.log").write_bytes(SEVERAL)
    return "topic-3/0.log"


def test_lines_of_json(kdump: Any, several: str) -> None:
    ran = kdump("verify", "--deep", "--format", "json", several)
    found = lines(ran)
    assert ran.status == 1
    assert ran.out.endswith(b"}\n")
    for line in found[:-1]:
        assert list(line) == FINDING_FIELDS
        assert (line["type"], line["path"], line["topic"], line["partition"], line["segment"], line["broker"]) == (
            "finding",
            several,
            "topic",
            3,
            0,
            None,
        )
        assert line["severity"] == CATALOGUE[line["code"]].severity.word
        assert isinstance(line["message"], str)
        assert isinstance(line["data"], dict)
    assert [line["code"] for line in found[:-1]] == ["batch/attributes", "batch/crc", "time/max", "legacy/inner-magic"]
    crc = found[1]
    assert (crc["position"], crc["length"], crc["offset"]) == (len(one()), len(one()), None)
    assert crc["data"]["stored"] == 1
    attributes = found[0]
    assert (attributes["position"], attributes["offset"], attributes["data"]) == (
        0,
        0,
        {"attributes": 0x80, "magic": 2},
    )
    summary = found[-1]
    assert list(summary) == SUMMARY_FIELDS
    seconds = summary.pop("seconds")
    assert isinstance(seconds, float)
    assert 0 <= seconds < 60
    assert summary == {
        "type": "summary",
        "schema": 3,
        "command": "verify",
        "files": 1,
        "segments": 1,
        "batches": 3,
        "records": 3,
        "bytes": len(SEVERAL),
        "valid_bytes": len(SEVERAL) - len(one()),
        "findings": {
            "by_severity": {"error": 1, "warning": 2, "info": 1},
            "by_code": {"batch/attributes": 1, "batch/crc": 1, "legacy/inner-magic": 1, "time/max": 1},
        },
        "findings_dropped": 0,
        "interrupted": False,
        "interrupted_at": None,
        "starts": None,
        "several_copies": 0,
        "next": f"kdump recover {several}",
        "exit_status": 1,
    }


def test_lines_of_text(kdump: Any, several: str) -> None:
    ran = kdump.inside("verify", "--deep", "--level", "info", several)
    *found, summary, following = ran.lines
    for line in found:
        match = re.fullmatch(r"(.+?):(\d+): (\w+) ([\w-]+/[\w-]+): (.+)", line)
        assert match is not None
        path, position, severity, code, sentence = match.groups()
        assert (path, CATALOGUE[code].severity.word) == (several, severity)
        assert sentence
        assert int(position) < len(SEVERAL)
    assert len(found) == 4
    assert summary.startswith("1 file, 3 batches, 3 records, ")
    assert following == f"next: kdump recover {several}"


def test_text_and_json_say_the_same(kdump: Any, several: str) -> None:
    text = kdump.inside("verify", "--deep", "--level", "info", several).lines[:-2]
    found = lines(kdump.inside("verify", "--deep", "--format", "json", several))[:-1]
    assert text == [
        f"{line['path']}:{line['position']}: {line['severity']} {line['code']}: {line['message']}" for line in found
    ]


def test_shallow_leaves_records_alone(kdump: Any, several: str) -> None:
    ran = kdump.inside("verify", "--format", "json", several)
    assert shown(ran) == ["batch/attributes", "batch/crc"]
    assert lines(ran)[-1]["records"] is None  # no one opened the wrapper


@pytest.mark.parametrize(
    ("options", "codes", "status"),
    [
        (["--select", "batch"], ["batch/attributes", "batch/crc"], 1),
        (["--select", "batch/"], ["batch/attributes", "batch/crc"], 1),
        (["--select", "batch/attributes"], ["batch/attributes"], 0),
        (["--select", "time", "--select", "legacy"], ["time/max", "legacy/inner-magic"], 0),
        (["--ignore", "batch"], ["time/max", "legacy/inner-magic"], 0),
        (["--ignore", "batch/crc"], ["batch/attributes", "time/max", "legacy/inner-magic"], 0),
        (["--ignore", "time/max", "--ignore", "legacy/inner-magic"], ["batch/attributes", "batch/crc"], 1),
        (["--select", "batch", "--ignore", "batch/crc"], ["batch/attributes"], 0),
        (["--select", "batch", "--ignore", "batch/crc", "--fail-on", "warning"], ["batch/attributes"], 1),
        (["--select", "time", "--fail-on", "info"], ["time/max"], 1),
    ],
)
def test_select_and_ignore(kdump: Any, several: str, options: list[str], codes: list[str], status: int) -> None:
    ran = kdump.inside("verify", "--deep", "--format", "json", *options, several)
    assert shown(ran) == codes
    assert ran.status == status
    assert lines(ran)[-1]["findings"]["by_code"] == dict.fromkeys(sorted(codes), 1)


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_codes_that_do_not_exist(kdump: Any, several: str, option: str) -> None:
    for code in ("batch/crcs", "batc", "Batch", ""):
        ran = kdump.inside("verify", option, code, several)
        assert (ran.status, ran.out) == (2, b"")
        assert "no finding has the code" in ran.problems


def test_quiet_has_no_summary(kdump: Any, several: str) -> None:
    for output_format in ("text", "json"):
        loud = kdump.inside("verify", "--format", output_format, several)
        quiet = kdump.inside("verify", "-q", "--format", output_format, several)
        assert (
            quiet.lines
            == [line for line in loud.lines if "info" not in line and not line.startswith("next: ")][: len(quiet.lines)]
        )
        assert len(quiet.lines) == 2
        assert quiet.status == loud.status == 1
    (kdump.directory / "clean.log").write_bytes(one())
    assert kdump.inside("verify", "-q", "clean.log").out == b""


def test_compacted(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(one(0) + one(5))
    (tmp_path / "1.log").write_bytes(build.empty_batch(1, 1) + one(5))
    said = {}
    for option in ("yes", "no", "auto"):
        for line in lines(kdump.inside("verify", "--format", "json", "--compacted", option, "0.log", "1.log"))[:-1]:
            said[option, line["path"]] = line["severity"]
    assert said == {
        ("yes", "0.log"): "info",
        ("yes", "1.log"): "info",
        ("no", "0.log"): "warning",
        ("no", "1.log"): "warning",
        ("auto", "0.log"): "warning",
        ("auto", "1.log"): "info",
    }


def test_newest_segment(kdump: Any, tmp_path: Path) -> None:
    for name in ("a-0", "a-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(one() + bytes(100))
    (tmp_path / "a-0" / "00000000000000000001.log").write_bytes(one(1) + bytes(100))
    found = lines(kdump.inside("verify", "--format", "json", "."))[:-1]
    assert [(line["path"][-26:], line["severity"]) for line in found] == [
        ("0/00000000000000000000.log", "error"),
        ("0/00000000000000000001.log", "warning"),
        ("1/00000000000000000000.log", "warning"),
    ]


def test_dropped_findings(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"".join(one(number, attributes=0x80) for number in range(KEPT + 50)))
    found = lines(kdump.inside("verify", "--format", "json", "0.log"))
    assert len(found) == KEPT + 1
    assert found[-1]["findings_dropped"] == 50
    assert found[-1]["findings"]["by_severity"] == {"error": 0, "warning": KEPT + 50, "info": 0}
    assert found[-1]["findings"]["by_code"] == {"batch/attributes": KEPT + 50}


def test_the_summary_adds_up(kdump: Any, logs: Path) -> None:
    parts = [
        lines(kdump.inside("verify", "--deep", "--format", "json", name))[-1]
        for name in ("clean.log", "damaged.log", "warned.log", "mixed.log")
    ]
    whole = lines(
        kdump.inside("verify", "--deep", "--format", "json", "clean.log", "damaged.log", "warned.log", "mixed.log")
    )[-1]
    for name in ("files", "segments", "batches", "records", "bytes", "valid_bytes", "findings_dropped"):
        assert whole[name] == sum(part[name] for part in parts), name
    for severity in ("error", "warning", "info"):
        assert whole["findings"]["by_severity"][severity] == sum(
            part["findings"]["by_severity"][severity] for part in parts
        )


@pytest.mark.parametrize("deep", [False, True])
def test_findings_are_those_of_the_reference(kdump: Any, logs: Path, built: dict[str, bytes], deep: bool) -> None:
    for name, data in built.items():
        found = lines(kdump.inside("verify", *(["--deep"] if deep else []), "--format", "json", f"{name}.log"))[:-1]
        expected = oracle.verify(data, deep=deep)
        assert [(line["code"], line["severity"], line["position"]) for line in found] == [
            (finding.code, finding.severity, finding.position) for finding in expected
        ], name


def test_max_batch_bytes(kdump: Any, tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(build.batch([build.record(b"k", b"v" * 3000)]))
    for size, codes in (("3k", []), ("3000", ["batch/limit"]), ("2KiB", ["batch/limit"]), ("1m", []), ("1G", [])):
        ran = kdump.inside("verify", "--format", "json", "--max-batch-bytes", size, "0.log")
        assert (shown(ran), ran.status) == (codes, 0), size


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files that are worth several processes."""
    directory = tmp_path_factory.mktemp("large")
    padding = build.batch([build.record(None, bytes(3 << 20))])
    for number in range(4):
        (directory / f"{number}.log").write_bytes(padding + SEVERAL)
    return directory


@pytest.mark.parametrize("jobs", ["2", "7"])
def test_jobs_change_nothing(kdump: Any, large: Path, jobs: str) -> None:
    one_by_one = lines(kdump("verify", "--deep", "--format", "json", "--jobs", "1", str(large)))
    ran = kdump("verify", "--deep", "--format", "json", "--jobs", jobs, str(large))
    assert (ran.status, ran.err) == (1, b"")
    found = lines(ran)
    assert found[:-1] == one_by_one[:-1]
    assert found[-1] | {"seconds": 0} == one_by_one[-1] | {"seconds": 0}
    assert found[-1]["files"] == 4


def test_explain_needs_no_path(kdump: Any) -> None:
    ran = kdump.inside("verify", "--explain", "tail/torn")
    assert (ran.status, ran.err) == (0, b"")
    assert ran.lines[0] == "tail/torn (error): The last batch is incomplete"


def test_explain_without_a_code_lists_the_catalogue(kdump: Any) -> None:
    ran = kdump.inside("verify", "--explain")
    assert (ran.status, ran.err) == (0, b"")
    assert [line.split()[:2] for line in ran.lines] == [
        [entry.code, entry.severity.word] for entry in CATALOGUE.values()
    ]


def test_explain_of_nothing_says_where_the_codes_are(kdump: Any) -> None:
    ran = kdump.inside("verify", "--explain", "crc")
    assert ran.status == 2
    assert "--explain lists them all" in ran.problems


def test_verbose_has_a_line_for_every_file(kdump: Any, logs: Path) -> None:
    plain = kdump.inside("verify", "clean.log", "damaged.log")
    verbose = kdump.inside("verify", "-v", "clean.log", "damaged.log")
    assert "clean.log" not in plain.text
    *found, _summary = verbose.lines
    assert found[0].startswith("file clean.log batches=3 records=9 bytes=")
    assert found[-1].startswith("file damaged.log batches=2 records=6 bytes=")
    assert found[-1].endswith(" findings=1")
    assert found[1:-1] == plain.lines[:-1]
    fields = lines(kdump.inside("verify", "-v", "--format", "json", "clean.log"))[0]
    assert list(fields) == ["type", "path", "batches", "records", "bytes", "valid_bytes", "findings"]
    assert fields["type"] == "file"
