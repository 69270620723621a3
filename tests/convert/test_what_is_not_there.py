"""Records that a conversion of one copy cannot find: segments that are being replaced or gone, batches out of order."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import kdump
from kdump.convert.choice import Choice
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.results import ConvertFindings, PartitionConversion
from kdump.log.swap_segments import with_swap_segments
from kdump.replicas.batch_order import LeftOutBatch, unordered_findings
from kdump.verify.findings import Finding, Severity
from support import build
from support.conversion_losses import has_source

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SEGMENTS = FIXTURES / "segments" / "segments-0"
BASES = sorted(int(path.stem) for path in SEGMENTS.glob("*.log"))


def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SEGMENTS, tmp_path / "logs" / "segments-0"))


def log_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def offsets(directory: Path) -> list[int]:
    found = kdump.arrow(directory, columns=["offset"], isolation="all", on_damage=lambda _: None)
    return list(found.read_all()["offset"].to_pylist())


def findings(directory: Path, out: Path, **how: Any) -> list[Finding]:
    found = convert_logs(kdump.discover(directory), out, ConvertOptions(**how))
    return [each for value in found if isinstance(value, ConvertFindings) for each in value.findings]


@pytest.mark.parametrize("there", [(), BASES[:1], BASES[:2]])
def test_a_swap_segment_is_read_instead_of_what_it_replaces(there: tuple[int, ...], tmp_path: Path) -> None:
    """As a crash leaves it: the first two segments became one; none, one or both of them are marked as deleted."""
    directory = copied(tmp_path)
    wanted = offsets(directory)
    first, second = (log_of(directory, base) for base in BASES[:2])
    joined = first.read_bytes() + second.read_bytes()
    for path in (first, second):
        if int(path.stem) not in there:
            path.rename(f"{path}.deleted")
    Path(f"{first}.swap").write_bytes(joined)
    assert offsets(directory) == wanted
    found = findings(directory, tmp_path / "out")
    assert [(each.code, each.path) for each in found] == [("file/leftover", f"{first}.swap")]


def test_a_damaged_swap_segment_replaces_nothing(tmp_path: Path) -> None:
    directory = copied(tmp_path)
    wanted = offsets(directory)
    first = log_of(directory, BASES[0])
    Path(f"{first}.swap").write_bytes(first.read_bytes()[:200] + bytes(300))
    assert offsets(directory) == wanted
    first.unlink()
    assert 0 < len(offsets(directory)) < len(wanted)


def logs_after_a_start(directory: Path) -> dict[int, str]:
    """The log files that the next start leaves, each by the name that it has now."""
    result = kdump.predict_start(str(directory))
    assert not result.refuses
    now = {target: name for name, target in result.swap_targets.items()}
    return {int(name[:20]): now.get(name, name) for name in result.files if name.endswith(".log")}


@pytest.mark.parametrize(
    "leftovers",
    [
        {f"{BASES[1]:020}.log.swap": 0},
        {f"{BASES[0]:020}.log.swap": 0},
        {f"{BASES[0]:020}.log.swap": 0, f"{BASES[2]:020}.log.swap": 1},
        {f"{BASES[1]:020}.log.swap": 1, f"{BASES[3]:020}.log.swap": 0},
        {f"{BASES[1] + 1:020}.log.swap": 0},
        {f"{BASES[1]:020}.log.swap": 0, f"{BASES[0]:020}.log.cleaned": 0},
        {f"{BASES[1]:020}.log.swap": 0, f"{BASES[1]:020}.index.cleaned": 0},
        {f"{BASES[1]:020}.log.swap": 0, f"{BASES[2]:020}.log.cleaned": 0},
    ],
    ids=str,
)
def test_empty_swap_segments_are_what_a_start_makes_of_them(leftovers: dict[str, int], tmp_path: Path) -> None:
    """The cleaner leaves an empty segment where no record is left. Its end is its base offset, so that a start deletes
    no other segment for it; but it renames it over the one with its base offset."""
    directory = copied(tmp_path)
    for name, is_filled in leftovers.items():
        source = log_of(directory, int(name[:20]))
        (directory / name).write_bytes(source.read_bytes() if is_filled else b"")
    (partition,) = (each for each in kdump.discover(directory) if isinstance(each, kdump.Partition))
    found = with_swap_segments(partition).segments
    assert {each.log.base_offset: Path(each.log.path).name for each in found} == logs_after_a_start(directory)
    gone = {int(name[:20]) for name, is_filled in leftovers.items() if name.endswith(".swap") and not is_filled}
    if not any(name.endswith(".cleaned") for name in leftovers) and gone <= set(BASES):
        kept = offsets(directory)
        assert not [offset for offset in kept if max(base for base in BASES if base <= offset) in gone]


@pytest.mark.parametrize("target", [Target.PARQUET, Target.LOG])
@pytest.mark.parametrize("base", BASES[1:-1:2])
def test_a_missing_segment_is_an_error(base: int, target: Target, tmp_path: Path) -> None:
    directory = copied(tmp_path)
    assert findings(directory, tmp_path / "before", target=target) == []
    log_of(directory, base).unlink()
    (found,) = findings(directory, tmp_path / "out", target=target)
    after = BASES[BASES.index(base) + 1]
    assert (found.code, found.severity, found.path) == (
        "segment/missing",
        Severity.ERROR,
        str(log_of(directory, after)),
    )
    assert found.data["base"] == after
    verified = [each for report in kdump.verify_logs(kdump.discover(directory)) for each in report.findings]
    assert found.message in [each.message for each in verified if each.code == "segment/missing"]


def test_only_holes_among_the_offsets_that_are_asked_for_count(tmp_path: Path) -> None:
    directory = copied(tmp_path)
    log_of(directory, BASES[2]).unlink()
    for number, (first, stop, count) in enumerate([(0, BASES[2], 0), (BASES[3], None, 0), (0, BASES[3] + 1, 1)]):
        assert len(findings(directory, tmp_path / str(number), choice=Choice(offset=(first, stop)))) == count


def test_damage_is_not_a_missing_segment(tmp_path: Path) -> None:
    """The end of a segment is torn: what is missing is in the damaged bytes."""
    directory = copied(tmp_path)
    log = log_of(directory, BASES[1])
    log.write_bytes(log.read_bytes()[:-300] + b"\xff" * 300)
    codes = {each.code for each in findings(directory, tmp_path / "out")}
    assert codes
    assert "segment/missing" not in codes


def test_the_log_cleaner_leaves_holes(tmp_path: Path) -> None:
    for place in sorted((FIXTURES / "compacted").glob("*-0")):
        assert findings(place, tmp_path / place.name) == []


def test_a_batch_that_is_left_out_is_reported(tmp_path: Path) -> None:
    """An error where its records are nowhere else; a warning where a batch in order has the same offsets."""
    directory = copied(tmp_path)
    log = log_of(directory, BASES[0])
    data = bytearray(log.read_bytes())
    size = 12 + int.from_bytes(data[8:12])
    second = 12 + int.from_bytes(data[size + 8 : size + 12])
    data[size + 2] ^= 1  # the base offset of the second batch, which no checksum covers
    log.write_bytes(data)
    found, hole = (each for each in findings(directory, tmp_path / "moved") if each.severity is Severity.ERROR)
    assert (found.path, found.position) == (str(log), size)
    assert found.message.endswith("; its 5 records are in no other batch")
    assert (hole.code, hole.path, hole.position) == ("offset/gap", str(log), size + second)

    data[size + 2] ^= 1
    log.write_bytes(data[: size + second] + data[size : size + second] + data[size + second :])
    (found,) = findings(directory, tmp_path / "twice")
    assert (found.code, found.severity) == ("offset/backwards", Severity.WARNING)
    assert found.message.endswith("the same records with these offsets are kept")


@pytest.mark.parametrize(
    ("unkept", "records", "words"),
    [
        (1, 1, "its record is"),
        (1, 5, "1 of its 5 records is"),
        (2, 5, "2 of its 5 records are"),
        (5, 5, "its 5 records are"),
    ],
)
def test_the_records_of_a_batch_that_is_left_out_are_counted(unkept: int, records: int, words: str) -> None:
    batch = LeftOutBatch("0.log", 0, 100, 5, 4 + records, records, "offset/backwards", unkept)
    (found,) = unordered_findings([batch])
    assert found.message.endswith(f"; {words} in no other batch")


# The offsets of the records of a batch with the offsets 1 to 4, and those that no record has.
MISPLACED = [((0, 1, 1, 3), (3, 3)), ((0, 1, 2, 4), (4, 4)), ((-1, 1, 2, 3), (1, 1)), ((0, 2, 1, 3), None)]


def with_deltas(tmp_path: Path, deltas: tuple[int, ...], codec: int) -> Path:
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    middle = [build.record(b"k", b"v", offset_delta=each) for each in deltas]
    data = build.batch([build.record(b"a")]) + build.batch(middle, base_offset=1, last_offset_delta=3, codec=codec)
    log_of(directory, 0).write_bytes(data + build.batch([build.record(b"b")], base_offset=5))
    return directory


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(("deltas", "gone"), MISPLACED)
def test_records_at_offsets_that_cannot_be_right_are_reported(
    deltas: tuple[int, ...], gone: tuple[int, int] | None, codec: int, tmp_path: Path
) -> None:
    directory = with_deltas(tmp_path, deltas, codec)
    severity = Severity.WARNING if gone is None else Severity.ERROR
    seen: list[kdump.log.DamagedRange] = []
    table = kdump.arrow(directory, columns=["offset"], on_damage=seen.append).read_all()
    assert table["offset"].to_pylist() == [0, *(1 + delta for delta in deltas), 5]
    assert [(each.code, each.severity, each.length, each[-2:]) for each in seen] == [
        ("record/delta", severity, 0, gone or (None, None))
    ]
    for target in (Target.PARQUET, Target.NDJSON, Target.CSV, Target.ARROW):
        found = list(convert_logs(kdump.discover(directory), tmp_path / target.value, ConvertOptions(target=target)))
        (said,) = (each for value in found if isinstance(value, ConvertFindings) for each in value.findings)
        assert (said.code, said.severity, said.offset) == ("record/delta", severity, gone and gone[0])
        (partition,) = (each for each in found if isinstance(each, PartitionConversion))
        assert [(each[:3]) for each in partition.missing] == ([] if gone is None else [(*gone, False)])
        assert partition.left_out.damaged_ranges == 0
    again = findings(directory, tmp_path / "parquet")
    assert [each.data["readable"] for each in again] == ([] if gone is None else [False])


# The offsets in a wrapper message of magic 0 with the offset 12 after the offsets 0 to 9, those that no row has and
# for a new log those that it keeps, and that it lacks.
IN_WRAPPER = [
    ((9, 10, 11), (12, 12), (10, 11), (12, 12)),
    ((4, 5, 6), (7, 12), (), (10, 12)),
    ((10, 11, 5), (6, 12), (10, 11), (12, 12)),
    ((10, 11), (12, 12), (10, 11), (12, 12)),
    ((3, 4, 12), None, (12,), (10, 11)),
    ((17, 10, 12), (11, 11), (10, 12), (11, 11)),
]


@pytest.mark.parametrize(("inner", "gone", "kept", "lacked"), IN_WRAPPER)
def test_messages_at_offsets_that_cannot_be_right_are_reported(
    inner: tuple[int, ...], gone: tuple[int, int] | None, kept: tuple[int, ...], lacked: tuple[int, int], tmp_path: Path
) -> None:
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    items = [build.record(b"k", b"v") for _ in inner]
    before, after = (
        build.wrapper([build.record(b"k", b"v")] * count, magic=0, base_offset=at) for count, at in ((10, 0), (3, 13))
    )
    middle = build.wrapper(items, magic=0, offset=12, inner_offsets=inner)
    log_of(directory, 0).write_bytes(before + middle + after)
    seen: list[kdump.log.DamagedRange] = []
    table = kdump.arrow(directory, columns=["offset"], on_damage=seen.append).read_all()
    assert table["offset"].to_pylist() == [*range(10), *inner, 13, 14, 15]
    assert [(each.code, each.severity, each[-2:]) for each in seen] == [
        ("record/delta", Severity.ERROR, each) for each in (gone,) if each
    ]
    found = list(convert_logs(kdump.discover(directory), tmp_path / "new", ConvertOptions(target=Target.LOG)))
    assert offsets(tmp_path / "new") == [*range(10), *kept, 13, 14, 15]
    (said,) = (each for value in found if isinstance(value, ConvertFindings) for each in value.findings)
    code = "offset/backwards" if len(kept) < len(inner) else "record/delta"
    assert (said.code, said.severity) == (code, Severity.ERROR)
    (partition,) = (each for each in found if isinstance(each, PartitionConversion))
    assert [each[:3] for each in partition.missing] == [(*lacked, False)]


@pytest.mark.skipif(not has_source(), reason="no Spark")
@pytest.mark.parametrize(("deltas", "gone"), MISPLACED)
def test_the_data_source_reports_such_offsets(
    deltas: tuple[int, ...], gone: tuple[int, int] | None, tmp_path: Path
) -> None:
    from support.spark_losses import read_ranges

    directory = with_deltas(tmp_path, deltas, 0)
    rows, missing, is_error, codes = read_ranges([directory.parent], "t-0", 0)
    assert rows == {0, *(1 + delta for delta in deltas), 5}
    assert missing == ([] if gone is None else [(*gone, False)])
    assert (is_error, codes) == (gone is not None, {"record/delta"})


def test_missing_offsets_in_a_segment_are_a_warning(tmp_path: Path) -> None:
    """Bit 8 of the base offset of the last batch: no batch after it contradicts it."""
    directory = copied(tmp_path)
    log = log_of(directory, BASES[-1])
    data, position = bytearray(log.read_bytes()), 0
    while (following := position + 12 + int.from_bytes(data[position + 8 : position + 12])) < len(data):
        position = following
    data[position + 6] ^= 1 << 1
    log.write_bytes(data)
    (found,) = findings(directory, tmp_path / "out")
    assert (found.code, found.severity, found.position) == ("offset/gap", Severity.WARNING, position)


def test_an_empty_swap_segment_is_said_and_its_offsets_are_not_missing(tmp_path: Path) -> None:
    directory = copied(tmp_path)
    swap = Path(f"{log_of(directory, BASES[1])}.swap")
    swap.touch()
    found = findings(directory, tmp_path / "out")
    assert [(each.code, each.path) for each in found if each.severity > Severity.INFO] == [("file/leftover", str(swap))]
