"""How tables of Delta Lake and Iceberg adopt the Parquet files of a folder as they are, for kdump-convert(1).

Both read the manifest. Run again after the next conversion they add what is new. Files that are provisional are left
out: the next run of kdump replaces them. After `--rewrite` the table has to be made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def adopt_in_delta(folder: str) -> None:
    import json
    from pathlib import Path

    import pyarrow.parquet as pq
    from deltalake import DeltaTable, Schema, transaction

    def action(file: dict) -> transaction.AddAction:
        names = "topic", "partition", "offset"
        columns = {name: file["columns"][name] for name in names}

        def each(word: str) -> dict:
            return {name: columns[name][word] for name in names}

        statistics = {
            "numRecords": file["rows"],
            "minValues": each("smallest"),
            "maxValues": each("largest"),
            "nullCount": each("nulls"),
        }
        path, size = file["name"], file["bytes"]
        modified = int(Path(folder, path).stat().st_mtime * 1000)
        text = json.dumps(statistics)
        add = transaction.AddAction
        return add(path, size, {}, modified, True, text)

    with open(f"{folder}/_manifest.jsonl") as manifest:
        lines = [json.loads(line) for line in manifest]
    files = [line for line in lines if line["type"] == "file"]
    known: set[str] = set()
    table = None
    if DeltaTable.is_deltatable(folder):
        table = DeltaTable(folder)
        known = {Path(uri).name for uri in table.file_uris()}
    final = [file for file in files if not file["provisional"]]
    new = [action(file) for file in final if file["name"] not in known]
    if new and table:
        table.create_write_transaction(new, "append", table.schema())
    elif new:
        schema = pq.read_schema(f"{folder}/{new[0].path}")
        schema = schema.remove_metadata()
        create = transaction.create_table_with_add_actions
        create(folder, Schema.from_arrow(schema), new, "error", [])


def adopt_in_iceberg(folder: str, catalog: Catalog, name: str) -> None:
    import json

    import pyarrow.parquet as pq

    with open(f"{folder}/_manifest.jsonl") as manifest:
        lines = [json.loads(line) for line in manifest]
    files = [line for line in lines if line["type"] == "file"]
    final = [file["name"] for file in files if not file["provisional"]]
    paths = [f"{folder}/{file}" for file in final]
    schema = pq.read_schema(paths[0]).remove_metadata()
    table = catalog.create_table_if_not_exists(name, schema)
    known = set(table.inspect.files()["file_path"].to_pylist())
    new = [path for path in paths if path not in known]
    if new:
        table.add_files(new)
