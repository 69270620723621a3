"""kdump.arrow beside the libraries that read Arrow. Each test is an example of its use."""

from __future__ import annotations

from pathlib import Path

import pytest

import kdump
from support import build


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A partition of 3000 records in two segments."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for base in (0, 1000):
        count = 1000 if base == 0 else 2000
        records = [
            build.Record(b"customer-%d" % (offset % 7), b"%d" % offset if offset % 10 else None, ((b"source", b"web"),))
            for offset in range(base, base + count)
        ]
        (directory / f"{base:020d}.log").write_bytes(build.batch(records, base_offset=base, codec="zstd"))
    return directory


def test_pandas(orders: Path) -> None:
    pytest.importorskip("pandas")
    frame = kdump.arrow(orders, columns=["key", "value", "offset", "timestamp"]).read_pandas()
    assert len(frame) == 3000
    assert frame["value"].isna().sum() == 300
    assert frame.groupby("key")["offset"].max().loc[b"customer-0"] == 2996
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"


def test_polars(orders: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(kdump.arrow(orders, offset=(10, 20)))
    assert frame["offset"].to_list() == list(range(10, 20))
    assert frame["headers"].to_list()[0] == [{"key": "source", "value": b"web"}]


def test_sql_over_segments_with_duckdb(orders: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("orders", kdump.arrow(orders))
        found = connection.sql(
            'select key::varchar as customer, count(*), max("offset") from orders'
            " where value is null and list_contains(list_transform(headers, lambda h: h.key), 'source')"
            " group by customer order by customer limit 2"
        ).fetchall()
    wanted = list(range(0, 3000, 10))
    assert found == [
        (f"customer-{i}", sum(o % 7 == i for o in wanted), max(o for o in wanted if o % 7 == i)) for i in range(2)
    ]


def test_a_dataset_that_is_larger_than_memory_is_read_batch_by_batch(orders: Path) -> None:
    compute = pytest.importorskip("pyarrow.compute")
    total = sum(compute.count(batch.column("value")).as_py() for batch in kdump.arrow(orders, columns=["value"]))
    assert total == 2700
