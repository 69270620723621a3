"""What the scan shows of a log decides what a broker's start does with it as a look at its batches does.

Neither a checksum nor a length shows a wrong base offset, leader epoch or magic.
"""

from __future__ import annotations

import random
from pathlib import Path

from kdump.broker.predict import directory_state, predict_start
from kdump.broker.result import NEW, LoadResult
from kdump.storage.discovery import discover
from kdump.verify.report import Report
from kdump.verify.scan import ScanOptions
from kdump.verify.verify import verify_logs
from support import directories, wrong_headers
from support.expected_files import NOW_MS, report_of
from support.laws import QUICK, examples


def check_start(report: Report, directory: Path, case: object) -> None:
    """The start is the one where all of the log is read."""
    assert report.outcome is not None
    found, wanted = _known(report.outcome), _known(predict_start(directory_state(str(directory))))
    if found.open_transactions is None:
        wanted = wanted._replace(open_transactions=None)
    assert found == wanted, case


def is_decided(directory: Path, case: object) -> bool:
    """Whether a segment with batches out of order was not read; the start is the same where all of it is read."""
    report = report_of(directory)
    if report.outcome is None:
        return False
    check_start(report, directory, case)
    return any(valid.disorder for valid in report.valid_segments.values())


def _known(result: LoadResult) -> LoadResult:
    """The result without transaction indexes that are created, which no scan shows of a segment that stays."""
    files = {
        name: content for name, content in result.files.items() if content != NEW or not name.endswith(".txnindex")
    }
    return result._replace(files=files)


def test_a_start_is_what_it_is_where_the_log_is_read(tmp_path: Path) -> None:
    decided = 0
    # The first two have transactions after an overflow. Of the next two the last segment ends inside the first one.
    for number in (5316, 6753, 200017, 201047, *range(examples(150))):
        rng = random.Random(number)
        directory = directories.write(tmp_path / str(number) / "topic-0", wrong_headers.damaged_partition(rng))
        decided += is_decided(directory, number)
    assert decided > examples(150) // 20


def test_transactions_begin_where_they_do_where_the_log_is_read(tmp_path: Path) -> None:
    """A broker knows them by their first offsets, of which some are wrong. Only a scan for a recovery has a view."""
    decided = 0
    # In the first one the last batch of a segment reaches into the next one, where a transaction begins at its offset.
    for number in (31645, *range(examples(250))):
        rng = random.Random(number)
        directory = directories.write(tmp_path / str(number) / "topic-0", wrong_headers.with_wrong_offset(rng))
        decided += is_decided(directory, number)
        (plain,) = verify_logs(discover([str(directory)]), ScanOptions(now_ms=NOW_MS))
        if plain.outcome is not None:
            check_start(plain, directory, number)
    assert decided > examples(250) // 12


def test_a_batch_with_an_unknown_magic_is_one_for_a_broker(tmp_path: Path) -> None:
    """Its CRC is right, so a recovery passes it, though verify knows no such batch."""
    decided = 0
    for number in range(examples(150)):
        rng = random.Random(number)
        directory = directories.write(tmp_path / str(number) / "topic-0", wrong_headers.with_unknown_magic(rng))
        report = report_of(directory)
        if report.outcome is None:
            continue
        check_start(report, directory, number)
        has_magic = any(finding.code == "batch/magic" for finding in report.findings)
        decided += has_magic and not any(valid.is_damaged for valid in report.valid_segments.values())
    assert decided > (0 if QUICK else examples(150) // 5)
