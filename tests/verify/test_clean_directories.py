"""What `verify --deep` says of everything that a broker made: nothing, or what the history of the directory explains.

Each folder of `fixtures/` is verified as a broker left it, whole log directories as such, else its topic-partition
directories. Every finding needs a line of the tables below, and every line that names a case must be met.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.command_runs import verified, verified_inside

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = sorted(path.parent.name for path in FIXTURES.glob("*/case.toml"))
LIMIT_S = 120


class Known(NamedTuple):
    """A finding that the history of a directory explains. `case` and `directory` are patterns as of file names."""

    severity: str
    code: str
    case: str
    directory: str
    why: str


# met somewhere, not in every case that the pattern takes in
ANYWHERE = (
    Known(
        "info",
        "index/differs",
        "*",
        "*",
        "index.interval.bytes of the topic, or a release that put first offsets in, or an entry for each fetch",
    ),
    *(
        Known("info", code, case, directory, "the cleaner went over it")
        for case, directory in (
            ("*compacted-*", "compacted*"),
            ("compacted", "*"),
            ("mixed-cleaned-0.10.0.1", "*"),
            ("log-directory", "settings-0"),
            *((case, "compacted-transactions-0") for case in ("killed", "restarted", "follower*", "leader*")),
        )
        for code in ("offset/gap", "segment/missing", "segment/empty", "producer/gap")
    ),
    *(
        Known("info", "snapshot/name", case, "*", "a clean stop in the middle of a segment")
        for case in ("segments", "compacted", "metadata", "mixed-through-*", "restarted", "follower*", "leader*")
    ),
)

HISTORY = (
    *(
        Known("info", code, case, directory, "killed: the active segment's indexes have the size they were made with")
        for code in ("index/padding", "timeindex/padding")
        for case, directory in (
            ("crash", "crash-0"),
            ("crash", "preallocated-0"),
            ("crash", "__transaction_state-0"),
            ("killed", "transfers-[01]"),
            ("killed", "retained-0"),
            ("killed", "trimmed-0"),
            ("killed", "compacted-transactions-0"),
            ("killed", "__transaction_state-0"),
            ("killed", "__consumer_offsets-0"),
            ("log-directory", "gone-0.*-delete"),
        )
    ),
    Known("warning", "tail/zeros", "crash", "preallocated-0", "killed, and `preallocate=true`"),
    *(
        Known("info", "txn/open", case, directory, "a transaction was left open")
        for case, directory in (
            ("crash", "crash-0"),
            ("crash", "preallocated-0"),
            ("segments", "segments-0"),
            ("transactions", "transactions-0"),
            ("fetched", "transactions-0"),
            ("transactions-v1", "transactions-0"),
            *((case, f"transfers-{number}") for case in ("killed", "restarted") for number in (0, 1)),
            *((f"{role}{of}", "transfers-[01]") for role in ("follower", "leader") for of in ("", "-1.1.1", "-2.8.2")),
        )
    ),
    Known(
        "warning", "txn/hanging", "restarted", "transfers-0", "data of a producer that the coordinator does not know"
    ),
    Known("warning", "txn/hanging", "restarted", "transfers-1", "data that came when the transaction had ended"),
    *(
        Known(severity, code, f"v2-transactions-{release}", "transactions-0", why)
        for release in ("0.11.0.3", "1.1.1")
        for severity, code, why in (
            ("warning", "txn/hanging", "left open with a timestamp of 2014, markers have the broker's clock"),
            ("info", "time/back", "timestamps of 2014 beside markers of the broker's clock"),
        )
    ),
    Known("info", "time/back", "times", "create-time-0", "timestamps that go back, on purpose"),
    Known("warning", "file/leftover", "log-directory", "settings-0", "stopped within file.delete.delay.ms of cleaning"),
    *(
        Known("info", "legacy/inner-magic", "mixed-cleaned-0.10.0.1", directory, "KAFKA-4298")
        for directory in ("up-0", "down-0")
    ),
    *(
        Known("info", "segment/magic", case, directory, "message.format.version has changed")
        for case, directory in (
            ("mixed-cleaned-0.10.0.1", "up-0"),
            ("mixed-cleaned-0.10.0.1", "down-0"),
            ("mixed-through-*", "mixed-0"),
        )
    ),
)


def left_by_the_broker(case: str, copy: Path) -> list[Path]:
    """Copy a case without what the scripts here added; the log directory, or its topic-partition directories."""
    shutil.copytree(FIXTURES / case, copy, ignore=lambda _, names: {"expected", "case.toml"} & set(names))
    if (copy / "meta.properties").exists():
        return [copy]
    return sorted(copy.iterdir())


def directory_of(finding: dict[str, Any], copy: Path) -> str:
    """The topic-partition directory; "." for the root of a log directory."""
    parts = Path(finding["path"]).relative_to(copy).parts
    return parts[0] if (copy / parts[0]).is_dir() else "."


def fits(expected: Known, finding: dict[str, Any], case: str, directory: str) -> bool:
    return (
        (expected.severity, expected.code) == (finding["severity"], finding["code"])
        and fnmatchcase(case, expected.case)
        and fnmatchcase(directory, expected.directory)
    )


def unexplained(case: str, copy: Path, found: list[dict[str, Any]], met: Counter[Known]) -> Iterator[str]:
    for finding in found:
        directory = directory_of(finding, copy)
        explained = [expected for expected in (*ANYWHERE, *HISTORY) if fits(expected, finding, case, directory)]
        met.update(explained)
        if not explained:
            name = Path(finding["path"]).relative_to(copy)
            yield f"{finding['severity']} {finding['code']} {name}: {finding['message']} {finding['data']}"


@pytest.mark.daily(3)
@pytest.mark.parametrize("case", CASES)
def test_a_broker_made_it(case: str, tmp_path: Path) -> None:
    copy = tmp_path / case
    status, found = verified_inside(*left_by_the_broker(case, copy), options=("-j", "1"))
    met: Counter[Known] = Counter()
    wrong = list(unexplained(case, copy, found, met))
    assert not wrong, "\n".join([f"{len(wrong)} findings that nothing explains", *wrong[:20]])
    assert status == 0
    lacking = [expected for expected in HISTORY if fnmatchcase(case, expected.case) and not met[expected]]
    assert not lacking


def test_every_line_is_of_a_case() -> None:
    assert all(any(fnmatchcase(case, expected.case) for case in CASES) for expected in (*ANYWHERE, *HISTORY))


def test_hanging_and_open_transactions_are_distinguished(tmp_path: Path) -> None:
    copy = tmp_path / "restarted"
    _, found = verified(*left_by_the_broker("restarted", copy), options=("-j", "1"))
    transactions = {
        (finding["code"], finding["data"].get("problem"), directory_of(finding, copy))
        for finding in found
        if finding["code"].startswith("txn/")
    }
    assert transactions == {
        ("txn/open", None, "transfers-0"),
        ("txn/open", None, "transfers-1"),
        ("txn/hanging", "unknown", "transfers-0"),
        ("txn/hanging", "ended", "transfers-1"),
    }
