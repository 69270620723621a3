"""Every code of the catalogue: bytes that fire it, and nearly the same bytes that do not."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from click.testing import CliRunner

from kdump.cli import group
from kdump.format.naming import Kind
from kdump.kernel.scan import SUSPECTS
from kdump.storage.source import BytesSource
from kdump.verify.catalogue import CATALOGUE, CatalogueEntry, logs
from kdump.verify.checks.suspect_batches import EXPLAIN
from kdump.verify.findings import KEPT, Finding, Severity
from support import build, finding_rules
from support.cases import each
from support.file_reports import LogFileReport

VerifyBytes = Callable[..., LogFileReport]


def one(base_offset: int = 0, value: bytes = b"value", **fields: Any) -> bytes:
    """A batch of one record."""
    return build.batch([build.record(b"key", value)], base_offset=base_offset, **fields)


def wrapped(count: int = 2, **fields: Any) -> bytes:
    """A wrapper of magic 1 with that many messages."""
    return build.wrapper([build.record(b"k", b"v%d" % number) for number in range(count)], **fields)


class Changing(BytesSource):
    """A file that another program works on: `size` when it was opened, `later` at the end."""

    def __init__(self, data: bytes, size: int, later: int) -> None:
        super().__init__(data)
        self.size = size
        self._later = later

    def size_now(self) -> int:
        return self._later


def claims(count: int) -> bytes:
    """Beginnings of batches of 4 MiB that never hold, in a file that is long enough for them."""
    head = struct.pack(">qiib", 100, 4 << 20, 0, 2)
    return b"\xff" * 64 + (head + b"\xff" * 15) * count + b"\xff" * (5 << 20)


def snapshot(*records: build.Record) -> bytes:
    parts = []
    for offset, item in enumerate(records):
        parts.append(build.control_batch([item], base_offset=offset))
    return build.segment(*parts)


HEADER, FOOTER, VERSION = build.snapshot_header(), build.snapshot_footer(), build.kraft_version()
TWO = [build.record(b"a", b"1"), build.record(b"b", b"2")]


@dataclass(frozen=True)
class Case:
    """`fires` shows the code, `quiet` shows nothing at all; `how` are words of `verify_bytes`, `quietly` those that
    differ for `quiet`."""

    fires: Any
    quiet: Any
    how: dict[str, Any] = field(default_factory=dict)
    quietly: dict[str, Any] = field(default_factory=dict)
    also: frozenset[str] = frozenset()


DEEP = {"deep": True}
CHECKPOINT = {"kind": Kind.CHECKPOINT, "base_offset": 0}

CASES: dict[str, Case] = {
    "batch/crc": Case(one()[:-1] + b"\xff", build.reseal(one()[:-1] + b"\xff")),
    "batch/length": Case(one(length=65) + one(1), one() + one(1)),
    "batch/magic": Case(one(magic=3) + one(1), one(magic=2) + one(1)),
    "batch/codec": Case(one(codec=5), one(codec=0)),
    "batch/codec-odd": Case(
        one(
            codec="gzip",
            payload=gzip.compress(build.encode_record(build.record(b"k", b"v"), offset_delta=0, timestamp_delta=0))
            + b"\0",
        ),
        one(
            codec="gzip",
            payload=gzip.compress(build.encode_record(build.record(b"k", b"v"), offset_delta=0, timestamp_delta=0)),
        ),
        DEEP,
    ),
    "batch/count": Case(one(count=2), one(count=1)),
    "batch/attributes": Case(one(attributes=0x80), one(attributes=0)),
    "batch/limit": Case(one(), one(), {"max_batch_bytes": len(one()) - 1}, {"max_batch_bytes": len(one())}),
    "offset/backwards": Case(one(1) + one(1), one(1) + one(2)),
    "offset/gap": Case(one(0) + one(2), one(0) + one(1)),
    "offset/range": Case(one(9), one(10), {"base_offset": 10}),
    "epoch/backwards": Case(one(0, epoch=5) + one(1, epoch=4), one(0, epoch=5) + one(1, epoch=5)),
    "control/structure": Case(build.marker(value=b"\0\0\0\0\0"), build.marker(value=b"\0\0\0\0\0\0")),
    "record/structure": Case(
        build.batch([build.record(b"k", b"v", key_length=2)]),
        build.batch([build.record(b"k", b"v", key_length=1)]),
        DEEP,
    ),
    "record/varint": Case(
        build.batch([build.record(b"k", b"v", key_length=build.varint(1, 2))]),
        build.batch([build.record(b"k", b"v", key_length=build.varint(1, 1))]),
        DEEP,
    ),
    "record/delta": Case(
        build.batch([TWO[0], build.record(b"b", b"2", offset_delta=0)]),
        build.batch([TWO[0], build.record(b"b", b"2", offset_delta=1)]),
        DEEP,
    ),
    "time/max": Case(one(max_timestamp=1001), one(max_timestamp=1000), DEEP),
    "legacy/wrapper": Case(wrapped(payload=b""), wrapped(), DEEP),
    "legacy/inner-crc": Case(
        build.wrapper([build.message_v1(b"k", b"v", crc=1)]), build.wrapper([build.message_v1(b"k", b"v")]), DEEP
    ),
    "legacy/inner-magic": Case(wrapped(inner_magic=0), wrapped(inner_magic=1), DEEP),
    "legacy/partial": Case(wrapped(partial=b"\0" * 5), wrapped(partial=b""), DEEP),
    "legacy/trailing": Case(build.message_v1(b"k", b"v", trailing=b"x"), build.message_v1(b"k", b"v"), DEEP),
    "gap/bytes": Case(one(0) + b"\xff" * 20 + one(1), one(0) + one(1)),
    "gap/foreign-batch": Case(
        one(0) + one(1, value=one(0), length=1 << 20) + one(2),
        one(0) + one(1, value=one(0)) + one(2),
        also=frozenset({"batch/length"}),
    ),
    "gap/unsearched": Case(claims(40), b"", also=frozenset({"tail/garbage"})),
    "tail/torn": Case(one(0) + one(1)[:-1], one(0) + one(1)),
    "tail/zeros": Case(one() + bytes(18), one()),
    "tail/garbage": Case(one() + b"\xff" * 18, one()),
    "kraft/snapshot-header": Case(snapshot(VERSION, FOOTER), snapshot(HEADER, VERSION, FOOTER), CHECKPOINT),
    "kraft/snapshot-footer": Case(snapshot(HEADER, VERSION), snapshot(HEADER, FOOTER), CHECKPOINT),
    "file/shrunk": Case(
        lambda: Changing(one(), len(one()) + 100, len(one())), lambda: Changing(one(), len(one()), len(one()))
    ),
    "file/grown": Case(
        lambda: Changing(one(), len(one()), len(one()) + 1), lambda: Changing(one(), len(one()), len(one()))
    ),
}


def run(verify_bytes: VerifyBytes, built: Any, how: dict[str, Any]) -> LogFileReport:
    return verify_bytes(built() if callable(built) else built, **how)


def codes(report: LogFileReport) -> set[str]:
    return {finding.code for finding in report.findings}


def firing(verify_bytes: VerifyBytes, code: str) -> Finding:
    case = CASES[code]
    return next(finding for finding in run(verify_bytes, case.fires, case.how).findings if finding.code == code)


def test_every_code_has_a_case_and_every_case_a_code() -> None:
    assert CASES.keys() == {entry.code for entry in logs.ENTRIES}


@each("code", CASES)
def test_code_fires(verify_bytes: VerifyBytes, code: str) -> None:
    case = CASES[code]
    report = run(verify_bytes, case.fires, case.how)
    assert codes(report) == {code} | case.also
    assert report.error is None
    finding = next(finding for finding in report.findings if finding.code == code)
    assert report.counts[code, finding.severity] == 1
    assert finding.broker is None
    assert 0 <= finding.position <= report.bytes
    assert finding.length >= 0


@each("code", CASES)
def test_code_stays_quiet(verify_bytes: VerifyBytes, code: str) -> None:
    case = CASES[code]
    report = run(verify_bytes, case.quiet, case.how | case.quietly)
    assert report.findings == []
    assert not report.counts


@each("code", [code for code in CASES if CASES[code].how == DEEP])
def test_records_are_looked_at_only_when_deep(verify_bytes: VerifyBytes, code: str) -> None:
    assert codes(run(verify_bytes, CASES[code].fires, {})) == set()


def test_search_gives_up_only_on_many_claims(verify_bytes: VerifyBytes) -> None:
    assert codes(verify_bytes(claims(8))) == {"tail/garbage"}


def test_severity_is_that_of_the_catalogue_unless_a_rule_says_otherwise(verify_bytes: VerifyBytes) -> None:
    for code in CASES:
        assert firing(verify_bytes, code).severity is CATALOGUE[code].severity, code


@each("entry", logs.ENTRIES, ids=lambda entry: entry.code)
def test_sentence_renders_what_it_is_given(verify_bytes: VerifyBytes, entry: CatalogueEntry) -> None:
    finding_rules.check(firing(verify_bytes, entry.code))


@each("entry", CATALOGUE.values(), ids=lambda entry: entry.code)
def test_entry_is_whole(entry: CatalogueEntry) -> None:
    family, dash, what = entry.code.partition("/")
    assert dash
    assert family.isalpha()
    assert what.replace("-", "").isalpha()
    assert entry.code.islower()
    for text in (entry.title, entry.sentence, entry.why, entry.recover, entry.source):
        assert text.strip() == text != ""
    assert entry.why.endswith(".")
    assert entry.recover.endswith(".")


@each("entry", CATALOGUE.values(), ids=lambda entry: entry.code)
def test_explain(entry: CatalogueEntry) -> None:
    done = CliRunner().invoke(group, ["verify", "--explain", entry.code])
    assert done.exit_code == 0
    for text in (entry.code, entry.severity.word, entry.title, entry.why, entry.recover, entry.source):
        assert text in done.output


def test_every_bit_of_the_kernel_is_explained() -> None:
    assert EXPLAIN.keys() == set(SUSPECTS)
    assert EXPLAIN.keys() <= CATALOGUE.keys()


# ---- more than one way to one code


NO_RECORDS = {
    "negative": one(count=-1),
    "none but bytes": one(count=0),
    "more than offsets": build.batch(TWO, last_offset_delta=0),
}


@pytest.mark.parametrize("name", NO_RECORDS)
def test_counts_that_lie(verify_bytes: VerifyBytes, name: str) -> None:
    assert codes(verify_bytes(NO_RECORDS[name])) == {"batch/count"}


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(verify_bytes: VerifyBytes, codec: int) -> None:
    assert codes(verify_bytes(one(codec=codec))) == {"batch/codec"}
    assert codes(verify_bytes(one(codec=codec), deep=True)) == {"batch/codec"}
    assert str(codec) in verify_bytes(one(codec=codec)).findings[0].message
    assert codes(verify_bytes(build.message(1, b"k", b"v", codec=codec))) == {"batch/codec"}


def test_magic_0_and_1_have_no_zstd(verify_bytes: VerifyBytes) -> None:
    for magic in (0, 1):
        assert codes(verify_bytes(build.message(magic, b"k", b"v", codec="zstd"))) == {"batch/codec"}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_data_that_is_not_of_its_codec(verify_bytes: VerifyBytes, codec: str) -> None:
    broken = one(codec=codec, payload=b"no data of any codec")
    assert codes(verify_bytes(broken)) == set()
    assert codes(verify_bytes(broken, deep=True)) == {"batch/codec"}


def test_offsets_beyond_the_segment(verify_bytes: VerifyBytes) -> None:
    assert codes(verify_bytes(one(2**31), base_offset=0)) >= {"offset/range"}
    assert codes(verify_bytes(one(2**31 - 1), base_offset=0)) == set()
    assert codes(verify_bytes(one(-1))) == {"offset/range"}
    assert codes(verify_bytes(one(2**63 - 1), base_offset=2**63 - 1)) == {"offset/range"}
    assert codes(verify_bytes(one(2**63 - 2), base_offset=2**63 - 2)) == set()
    assert codes(verify_bytes(one(2**63 - 1, last_offset_delta=1, count=1))) == {"offset/range"}


# ---- severities that depend


@pytest.mark.parametrize("length", range(1, 18))
@pytest.mark.parametrize("newest", [True, False])
def test_few_zeros_are_an_error(verify_bytes: VerifyBytes, length: int, newest: bool) -> None:
    (finding,) = verify_bytes(one() + bytes(length), newest=newest).findings
    assert (finding.code, finding.severity, finding.position, finding.length) == (
        "tail/zeros",
        Severity.ERROR,
        len(one()),
        length,
    )


@pytest.mark.parametrize("length", [18, 19, 4096, 1 << 20])
def test_many_zeros_are_preallocation_in_the_newest_segment(verify_bytes: VerifyBytes, length: int) -> None:
    (finding,) = verify_bytes(one() + bytes(length), newest=True).findings
    assert (finding.code, finding.severity) == ("tail/zeros", Severity.WARNING)
    (finding,) = verify_bytes(one() + bytes(length), newest=False).findings
    assert (finding.code, finding.severity) == ("tail/zeros", Severity.ERROR)


def test_a_file_of_zeros_only(verify_bytes: VerifyBytes) -> None:
    (finding,) = verify_bytes(bytes(100)).findings
    assert (finding.code, finding.severity, finding.position) == ("tail/zeros", Severity.WARNING, 0)


PLAIN = one(0) + one(5)
SIGNS_OF_A_CLEANER = {
    "count below span": build.batch([TWO[0]], last_offset_delta=1) + one(5),
    "empty batch": build.empty_batch(0, 0) + one(5),
    "delete horizon": build.batch([TWO[0]], delete_horizon_ms=1000) + one(5),
    "first batch above the base": one(1) + one(5),
}


@pytest.mark.parametrize("name", SIGNS_OF_A_CLEANER)
def test_missing_offsets_are_info_in_a_compacted_segment(verify_bytes: VerifyBytes, name: str) -> None:
    for compacted, severity in ((None, Severity.INFO), (True, Severity.INFO), (False, Severity.WARNING)):
        (finding,) = verify_bytes(SIGNS_OF_A_CLEANER[name], base_offset=0, compacted=compacted).findings
        assert (finding.code, finding.severity) == ("offset/gap", severity)


def test_missing_offsets_are_a_warning_without_a_sign_of_a_cleaner(verify_bytes: VerifyBytes) -> None:
    for compacted, severity in ((None, Severity.WARNING), (True, Severity.INFO), (False, Severity.WARNING)):
        (finding,) = verify_bytes(PLAIN, base_offset=0, compacted=compacted).findings
        assert (finding.code, finding.severity) == ("offset/gap", severity)


def test_missing_offsets_are_one_finding_with_numbers(verify_bytes: VerifyBytes) -> None:
    (finding,) = verify_bytes(one(0) + one(2) + one(3) + one(10) + one(12)).findings
    assert (finding.position, finding.offset) == (len(one()), 2)
    assert {name: finding.data[name] for name in ("count", "missing", "largest", "previous")} == {
        "count": 3,
        "missing": 8,
        "largest": 6,
        "previous": 0,
    }


def test_a_wrapper_hides_where_it_begins(verify_bytes: VerifyBytes) -> None:
    assert codes(verify_bytes(build.message_v1(b"k", b"v", offset=0) + wrapped(base_offset=8))) == set()


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("offset", "wrong"), [(8, True), (7, False), (9, True), (10, True)])
def test_a_message_with_an_offset_that_a_wrapper_has_inside(
    verify_bytes: VerifyBytes, magic: int, offset: int, wrong: bool
) -> None:
    """Only who opens the wrapper sees it. The offset of the wrapper itself was compared before."""
    message = {0: build.message_v0, 1: build.message_v1}[magic]
    inside = build.wrapper([build.record(b"k", b"v%d" % n) for n in range(3)], base_offset=8, magic=magic)
    data = message(b"k", b"v", offset=offset) + inside
    report = verify_bytes(data, deep=True)
    assert codes(report) == ({"offset/backwards"} if wrong else set())
    assert codes(verify_bytes(data)) == ({"offset/backwards"} if offset == 10 else set())
    for finding in report.findings:
        assert (finding.offset, finding.data["previous"]) == (10 if offset == 10 else 8, offset)


def test_a_compressed_control_batch_is_opened_even_shallow(verify_bytes: VerifyBytes) -> None:
    """A broker opens it when it loads the log, and refuses what is no marker in it."""
    data = build.batch([build.record(b"key", b"value")], control=True, producer_id=7, producer_epoch=0, codec="gzip")
    assert codes(verify_bytes(data)) == {"control/structure"}


# ---- many


def test_the_first_thousand_are_kept_and_all_are_counted(verify_bytes: VerifyBytes) -> None:
    many = KEPT + 5
    report = verify_bytes(b"".join(one(offset, attributes=0x80) for offset in range(many)))
    assert len(report.findings) == KEPT
    assert report.counts == {("batch/attributes", Severity.WARNING): many}
    assert [finding.offset for finding in report.findings] == list(range(KEPT))


def test_one_batch_can_break_several_rules(verify_bytes: VerifyBytes) -> None:
    report = verify_bytes(one(5, epoch=3) + one(5, epoch=2, attributes=0x80, count=3))
    assert codes(report) == {"offset/backwards", "epoch/backwards", "batch/attributes", "batch/count"}


def test_a_checksum_that_is_wrong_is_the_only_finding_of_its_batch(verify_bytes: VerifyBytes) -> None:
    liar = bytearray(one(0, epoch=1, count=9, attributes=0x80, max_timestamp=77))
    liar[17] ^= 0xFF
    for deep in (False, True):
        assert codes(verify_bytes(one(5, epoch=9) + bytes(liar) + one(7, epoch=9), deep=deep)) == {"batch/crc"}
