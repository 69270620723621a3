"""Each named damage of a topic-partition directory is reported: by a finding that was not there before, with what a
broker does about it."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from kdump.storage.discovery import discover
from kdump.verify.findings import Finding
from kdump.verify.verify import VerifyOptions, verify_logs
from support import damage_partition
from support.damage import NotApplicable
from support.laws import QUICK

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
PARTITIONS = (
    "transactions/transactions-0",
    "segments/segments-0",
    "idempotent/wrap-0",
    "restarted/retained-0",
    "v1-segments-0.10.2.2/segments-0",
    "v2-segments-1.1.1/codecs-0",
)
ROUNDS = 3
WORDS = {"truncates", "deletes", "rebuilds", "refuses", "renames", "ignores"}

# What leaves a directory that a healthy history leaves too.
HEALTHY = {
    "epochs-deleted": "a broker makes the file from the batches, and older ones had none",
    "epochs-no-newline": "readers do without it",
    "partition-metadata-missing": "releases before 2.8 had none; in a log directory of KRaft it is metadata/missing",
    "index-emptied": "a segment may do without entries: readers then begin at its start",
}
# What a healthy history leaves too in some of the partitions, for the place or the value that the damage happens to
# choose.
SOMETIMES = {
    "resealed-attributes": "with the checksum made right this is another batch, mostly as whole as the one before",
    "resealed-payload": "other bytes of a value are as good as the true ones",
    "resealed-sequence": "a sequence is compared only where more than one batch of the producer is at hand",
    "resealed-producer": "as with sequences",
    "resealed-producer-epoch": "as with sequences",
    "resealed-control": "a control batch without a producer is no business of a broker's",
    "resealed-not-transactional": "the last batch of a transaction may have been its first",
    "bad-marker": "bytes after the fields of a marker are ignored",
    "index-flip": "an offset may be any of those after the position and before the next entry",
    "missing-segment": "retention takes the first one, and of the last one nothing is left to tell",
    "timeindex-emptied": "the newest one gets its entry when the segment is closed",
    "timeindex-stale": "an older copy can be the same",
    "timeindex-cut": "as with emptied ones",
    "index-stale": "as with time indexes",
    "index-zeroed": "entries of an index that is short enough are padding",
    "snapshot-deleted": "only the one where the last segment begins is needed",
    "snapshot-stale": "an older copy can be the same",
}


def reported(directory: Path) -> tuple[list[Finding], int]:
    reports = list(verify_logs(discover([str(directory)]), VerifyOptions(deep=True)))
    findings = [finding for report in reports for finding in report.findings]
    return findings, sum(len(report.errors) for report in reports)


@cache
def healthy(partition: str) -> Counter[tuple[str, str, int, str]]:
    """What is found in a copy of the partition that nothing damaged."""
    with tempfile.TemporaryDirectory() as room:
        directory = Path(room) / Path(partition).name
        shutil.copytree(FIXTURES / partition, directory)
        return identities(reported(directory)[0])


def identities(findings: list[Finding]) -> Counter[tuple[str, str, int, str]]:
    return Counter((f.code, Path(f.path).name, f.position, f.severity.word) for f in findings)


def test_the_tables_name_damages() -> None:
    assert {*HEALTHY, *SOMETIMES} <= damage_partition.DAMAGES.keys()


@pytest.mark.daily(3)
@pytest.mark.laws
@pytest.mark.parametrize("name", damage_partition.DAMAGES)
def test_a_damage_is_reported(name: str, tmp_path: Path) -> None:
    done, silent = 0, []
    rounds = ROUNDS if name in SOMETIMES or not QUICK else 1
    for number, partition in enumerate(PARTITIONS * rounds):
        directory = tmp_path / str(number) / Path(partition).name
        shutil.copytree(FIXTURES / partition, directory)
        try:
            damage_partition.apply(name, directory, random.Random(f"{name} {number}"))
        except NotApplicable:
            continue
        done += 1
        after, errors = reported(directory)
        new = identities(after) - healthy(partition)
        assert {finding.broker for finding in after} <= WORDS
        if not new and not errors:
            silent.append(partition)
    assert done
    if name in HEALTHY:
        assert len(silent) == done, "it is reported after all"
    elif name not in SOMETIMES:
        assert not silent
    else:
        assert 0 < len(silent) < done, "never, or always"
