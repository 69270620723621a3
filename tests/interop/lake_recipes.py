"""How tables of Delta Lake and Iceberg adopt the Parquet files of a folder without rewriting them, for the README.

Both read the manifest. Run again after the next conversion they add what is new. Files that are provisional are left
out: the next run of kdump replaces them. After `--rewrite` the table has to be made anew.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def adopt_in_delta(folder: str) -> None:
    import json
    from pathlib import Path

    import pyarrow.parquet as pq
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, create_table_with_add_actions

    def action(file: dict) -> AddAction:
        columns = {name: file["columns"][name] for name in ("topic", "partition", "offset")}
        statistics = {
            "numRecords": file["rows"],
            "minValues": {name: column["smallest"] for name, column in columns.items()},
            "maxValues": {name: column["largest"] for name, column in columns.items()},
            "nullCount": {name: column["nulls"] for name, column in columns.items()},
        }
        modified = int(Path(folder, file["name"]).stat().st_mtime * 1000)
        return AddAction(file["name"], file["bytes"], {}, modified, True, json.dumps(statistics))

    with open(f"{folder}/_manifest.jsonl") as lines:
        files = [line for line in map(json.loads, lines) if line["type"] == "file" and not line["provisional"]]
    table = DeltaTable(folder) if DeltaTable.is_deltatable(folder) else None
    known = {Path(uri).name for uri in table.file_uris()} if table else set()
    new = [action(file) for file in files if file["name"] not in known]
    if not new:
        return
    if table:
        table.create_write_transaction(new, "append", table.schema())
    else:
        schema = Schema.from_arrow(pq.read_schema(f"{folder}/{new[0].path}").remove_metadata())
        create_table_with_add_actions(folder, schema, new, "error", [])


def adopt_in_iceberg(folder: str, catalog: Catalog, name: str) -> None:
    import json

    import pyarrow.parquet as pq

    with open(f"{folder}/_manifest.jsonl") as lines:
        files = [line for line in map(json.loads, lines) if line["type"] == "file" and not line["provisional"]]
    paths = [f"{folder}/{file['name']}" for file in files]
    table = catalog.create_table_if_not_exists(name, pq.read_schema(paths[0]).remove_metadata())
    known = set(table.inspect.files()["file_path"].to_pylist())
    new = [path for path in paths if path not in known]
    if new:
        table.add_files(new)


def recipe_text(recipe: Callable[..., Any]) -> str:
    """The source of a recipe, for the README."""
    return inspect.getsource(recipe)
