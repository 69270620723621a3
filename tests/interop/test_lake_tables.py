"""Delta Lake and Iceberg adopt the Parquet files of a folder, and go on doing so."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from support import build, manual
from support.parquet_folders import MANIFEST, SETTINGS, contents, convert, converted, records, write_log

from . import lake_recipes

TOPICS = ("2024", "2024-01-01", "true", "a.b", "__x")
OPEN = {"transactional": True, "producer_id": 5, "producer_epoch": 0}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs of topics whose names look like other types; one has an open transaction."""
    for topic in TOPICS:
        write_log(tmp_path / "logs" / f"{topic}-3", records(0, 20))
    write_log(tmp_path / "logs" / "a.b-3", records(20, 23, **OPEN), records(23, 30), more=True)
    convert(tmp_path / "logs", tmp_path / "out")
    return tmp_path / "logs"


def go_on(logs: Path, out: Path) -> None:
    write_log(logs / "a.b-3", build.marker("COMMIT", base_offset=30, producer_id=5), records(31, 40), more=True)
    convert(logs, out)


def parquet(out: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(out).items() if name.endswith(".parquet") and "/" not in name}


def check(rows: list[dict[str, object]], last: list[int]) -> None:
    found: dict[object, list[object]] = {}
    for row in rows:
        assert row["partition"] == 3
        found.setdefault(row["topic"], []).append(row["offset"])
    assert {topic: sorted(offsets, key=str) for topic, offsets in found.items()} == {
        topic: sorted([*range(20), *(last if topic == "a.b" else [])], key=str) for topic in TOPICS
    }


def test_delta(logs: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    out = tmp_path / "out"

    def rows() -> list[dict[str, object]]:
        table = deltalake.DeltaTable(str(out))
        fields = {field.name: str(field.type) for field in table.schema().fields}
        assert fields["topic"] == 'PrimitiveType("string")'
        assert fields["partition"] == 'PrimitiveType("integer")'
        dataset = table.to_pyarrow_dataset()
        return list(dataset.to_table(columns=["topic", "partition", "offset"]).to_pylist())

    before = parquet(out)
    lake_recipes.adopt_in_delta(str(out))
    lake_recipes.adopt_in_delta(str(out))
    assert parquet(out) == before
    check(rows(), [])
    go_on(logs, out)
    lake_recipes.adopt_in_delta(str(out))
    check(rows(), [*range(20, 30), *range(31, 40)])
    converted(logs / "2024-3", out)  # the folder of the table does not disturb kdump
    one = deltalake.DeltaTable(str(out)).to_pyarrow_dataset()
    import pyarrow.compute as pc

    assert one.to_table(filter=(pc.field("topic") == "2024") & (pc.field("offset") >= 15)).num_rows == 5


def test_delta_converts_a_folder_as_a_whole(logs: Path, tmp_path: Path) -> None:
    """With its own call, for a folder without provisional files."""
    deltalake = pytest.importorskip("deltalake")
    go_on(logs, tmp_path / "out")
    deltalake.convert_to_deltalake(str(tmp_path / "out"))
    table = deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_dataset().to_table()
    check(table.select(["topic", "partition", "offset"]).to_pylist(), [*range(20, 30), *range(31, 40)])


def test_delta_takes_partition_folders(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for topic in TOPICS:
        write_log(tmp_path / "logs" / f"{topic}-3", records(0, 20))
    convert(tmp_path / "logs", tmp_path / "out", SETTINGS._replace(partition_folders=True))
    fields = [deltalake.Field("topic", "string"), deltalake.Field("partition", "integer")]
    deltalake.convert_to_deltalake(
        str(tmp_path / "out"), partition_by=deltalake.Schema(fields), partition_strategy="hive"
    )
    table = deltalake.DeltaTable(str(tmp_path / "out")).to_pyarrow_dataset().to_table()
    check(table.select(["topic", "partition", "offset"]).to_pylist(), [])


def test_iceberg(logs: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    pytest.importorskip("sqlalchemy")
    out = tmp_path / "out"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pyiceberg itself
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
        catalog.create_namespace("kafka")
        before = parquet(out)
        lake_recipes.adopt_in_iceberg(str(out), catalog, "kafka.records")
        lake_recipes.adopt_in_iceberg(str(out), catalog, "kafka.records")
        assert parquet(out) == before
        columns = ("topic", "partition", "offset")
        table = catalog.load_table("kafka.records")
        assert {field.name: str(field.field_type) for field in table.schema().fields}["topic"] == "string"
        assert {field.name: str(field.field_type) for field in table.schema().fields}["partition"] == "int"
        check(table.scan(selected_fields=columns).to_arrow().to_pylist(), [])
        go_on(logs, out)
        lake_recipes.adopt_in_iceberg(str(out), catalog, "kafka.records")
        table = catalog.load_table("kafka.records")
        check(table.scan(selected_fields=columns).to_arrow().to_pylist(), [*range(20, 30), *range(31, 40)])
        some = table.scan(row_filter="topic == '2024' and offset >= 15", selected_fields=columns).to_arrow()
        assert some.num_rows == 5
        catalog.close()


@pytest.mark.parametrize("name", ["adopt_in_delta", "adopt_in_iceberg"])
def test_the_manual_shows_the_recipes(name: str) -> None:
    shown = [line.replace("\\-", "-") for line in manual.program(name)]
    page = (manual.PAGES / "kdump-convert.1").read_text(encoding="utf-8").replace("\\-", "-")
    assert "\n".join(shown) in page
    text = "\n".join(line.removeprefix("\\&") for line in shown if not line.startswith("."))
    assert MANIFEST in text
    known: dict[str, object] = {}
    exec(text, known)  # no name of this module is needed to define it
    assert callable(known[name])
