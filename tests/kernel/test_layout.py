"""The byte positions and row columns of the compiled kernel (layout.pxd) against the byte tables of kdump.format, and
its list of extensions."""

import re
import struct
import tomllib
from itertools import accumulate
from pathlib import Path

import pytest

from kdump.format import batch, index, kafka07, legacy, producer_snapshot
from kdump.kernel.records import HEADER_COLUMNS, RECORD_COLUMNS, decode
from kdump.kernel.results import NO_VALUE
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from support import build

ROOT = Path(__file__).resolve().parents[2]
KERNEL = ROOT / "kdump" / "kernel"
FIELDS = [
    "BASE_OFFSET_AT",
    "LENGTH_AT",
    "LEADER_EPOCH_AT",
    "MAGIC_AT",
    "CRC_AT",
    "ATTRIBUTES_AT",
    "LAST_OFFSET_DELTA_AT",
    "BASE_TIMESTAMP_AT",
    "MAX_TIMESTAMP_AT",
    "PRODUCER_ID_AT",
    "PRODUCER_EPOCH_AT",
    "BASE_SEQUENCE_AT",
    "RECORDS_COUNT_AT",
    "HEADER",
]


def layout() -> dict[str, int]:
    """The constants of layout.pxd; one without a value follows the one before."""
    constants: dict[str, int] = {}
    value = -1
    text = (KERNEL / "layout.pxd").read_text()
    for name, assigned in re.findall(
        r"^    ([A-Z][A-Z_0-9]*)(?: = (.*?))?\s*(?:#.*)?$", text.split("\n\n\n")[0], re.MULTILINE
    ):
        value = eval(assigned, {}, constants) if assigned else value + 1
        constants[name] = value
    return constants


CONSTANTS = layout()


def test_fields_of_a_batch() -> None:
    sizes = [struct.calcsize(">" + code) for code in batch.HEADER.format.removeprefix(">")]
    assert [CONSTANTS[name] for name in FIELDS] == list(accumulate(sizes, initial=0))


def test_named_positions() -> None:
    for name in ("LENGTH_AT", "LEADER_EPOCH_AT", "MAGIC_AT", "ATTRIBUTES_AT", "LAST_OFFSET_DELTA_AT"):
        assert getattr(batch, name) == CONSTANTS[name]
    for name in ("CRC_AT", "ATTRIBUTES_AT", "TIMESTAMP_AT"):
        assert getattr(legacy, name) == CONSTANTS[f"MESSAGE_{name}"]
    assert {0: CONSTANTS["KEY_LENGTH_AT"], 1: CONSTANTS["LARGEST_MESSAGE_HEADER"]} == legacy.KEY_LENGTH_AT


def test_sizes_and_flags() -> None:
    assert batch.HEADER_SIZE == CONSTANTS["HEADER"]
    assert (batch.LOG_OVERHEAD, batch.UP_TO_MAGIC) == (CONSTANTS["LOG_OVERHEAD"], CONSTANTS["UP_TO_MAGIC"])
    minimum = {0: CONSTANTS["MINIMUM_LENGTH_0"], 1: CONSTANTS["MINIMUM_LENGTH_1"], 2: CONSTANTS["MINIMUM_LENGTH"]}
    assert minimum == batch.MINIMUM_SIZE
    flags = ("CODEC_MASK", "LOG_APPEND_TIME", "TRANSACTIONAL_FLAG", "CONTROL_FLAG", "DELETE_HORIZON_FLAG")
    expected = batch.CODEC_MASK, batch.LOG_APPEND_TIME, batch.TRANSACTIONAL, batch.CONTROL, batch.DELETE_HORIZON
    assert tuple(CONSTANTS[name] for name in flags) == expected
    assert (index.OFFSET_ENTRY.size, index.TIME_ENTRY.size) == (CONSTANTS["INDEX_ENTRY"], CONSTANTS["TIME_ENTRY"])


def test_a_column_that_the_format_does_not_have() -> None:
    rows, _, status, _ = decode(
        build.encode_record(build.record(b"k", b"v"), offset_delta=0, timestamp_delta=0), 1, 0, 0
    )
    row = dict(zip(RECORD_COLUMNS, memoryview(rows).cast("q").tolist(), strict=False))
    assert (status, row["crc"], row["computed_crc"]) == (0, NO_VALUE, NO_VALUE)


def test_fields_of_a_snapshot_entry() -> None:
    names = [name for name in CONSTANTS if name.startswith("SNAPSHOT_")]
    sizes = [struct.calcsize(">" + code) for code in producer_snapshot.ENTRY.format.removeprefix(">")]
    assert [CONSTANTS[name] for name in names] == list(accumulate(sizes, initial=0))


def test_fields_of_kafka_07() -> None:
    assert kafka07.UP_TO_MAGIC == CONSTANTS["UP_TO_MAGIC_07"]
    assert kafka07.HEADER_SIZE == {0: CONSTANTS["HEADER_07"] - 1, 1: CONSTANTS["HEADER_07"]}
    assert (kafka07.LENGTH_SIZE, kafka07.CODEC_MASK) == (CONSTANTS["LENGTH_07"], CONSTANTS["CODEC_MASK_07"])


def test_columns_of_rows() -> None:
    assert len(BATCH_COLUMNS) == CONSTANTS["BATCH_WIDTH"]
    assert len(batch.Batch._fields) == CONSTANTS["BATCH_HEADER_WIDTH"]
    assert len(RECORD_COLUMNS) == CONSTANTS["RECORD_WIDTH"]
    assert len(HEADER_COLUMNS) == CONSTANTS["HEADER_WIDTH"]
    for number, name in enumerate(RECORD_COLUMNS):
        assert CONSTANTS[f"R_{name.upper()}"] == number
    others = {
        "EPOCH": "partition_leader_epoch",
        "INNER_CRC": "inner_crc_record",
        "PARTIAL": "partial_bytes",
        "TRAILING": "trailing_record",
    }
    names = [name for name, value in CONSTANTS.items() if name in others or name.lower() in BATCH_COLUMNS]
    assert [others.get(name, name.lower()) for name in names] == list(BATCH_COLUMNS)
    assert [CONSTANTS[name] for name in names] == list(range(len(BATCH_COLUMNS)))


@pytest.mark.parametrize("number", range(len(SUSPECTS)), ids=SUSPECTS)
def test_suspect_bits(number: int) -> None:
    assert [name for name, value in CONSTANTS.items() if name.startswith("S_") and value == 1 << number]


def test_each_module_of_the_kernel_is_compiled() -> None:
    extensions = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    assert {source for each in extensions for source in each["sources"]} == {
        str(path.relative_to(ROOT)) for path in KERNEL.glob("*.pyx")
    }
    for each in extensions:
        (source,) = each["sources"]
        assert each["name"] == source.removesuffix(".pyx").replace("/", ".")
        # What it takes from other modules' .pxd, directly or through them, has to be among its dependencies.
        wanted, left = set[str](), [source.replace(".pyx", ".pxd"), source]
        while left:
            path = ROOT / left.pop()
            if not path.exists():
                continue
            if path.suffix == ".pxd":
                wanted.add(str(path.relative_to(ROOT)))
            names = re.findall(r"^from kdump\.kernel\.(\w+) cimport", path.read_text(), re.MULTILINE)
            left.extend({f"kdump/kernel/{name}.pxd" for name in names} - wanted)
        assert wanted <= set(each.get("depends", ())), each["name"]
