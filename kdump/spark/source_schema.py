"""The columns of the data source as Spark has them, and the projection that `.schema(…)` is."""

from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from kdump.convert.log_tables.schemas import TABLES
from kdump.convert.tables import DEFAULT_COLUMNS, RECORDS
from kdump.spark.source_limits import SourceOptionError
from kdump.spark.source_losses import LOSSES
from kdump.spark.source_options import SourceOptions, Table

_KAFKA_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
assert {*_KAFKA_COLUMNS, "headers"} == set(DEFAULT_COLUMNS)


def source_schema(options: SourceOptions) -> StructType:
    """The columns that a read gives: those of Spark's source of Kafka, or those of a table."""
    if options.table is Table.LOSSES:
        return loss_columns()
    if options.table is not Table.RECORDS:
        return _spark_schema(TABLES[options.table])
    return record_columns(include_headers=options.include_headers)


def record_columns(*, include_headers: bool) -> StructType:
    """The schema of Spark's source of Kafka; each column can be null."""
    names = [*_KAFKA_COLUMNS, *(("headers",) if include_headers else ())]
    return _spark_schema(pa.schema([RECORDS.field(name) for name in names]))


def loss_columns() -> StructType:
    """The schema of the table losses."""
    return _spark_schema(LOSSES)


def check_projection(asked: StructType, options: SourceOptions) -> None:
    """Refuse a schema that is no subset of the columns. Raises SourceOptionError."""
    whole = source_schema(options._replace(include_headers=True))
    types = {field.name: field.dataType for field in whole.fields}
    if not asked.fields:
        raise SourceOptionError(f"a schema needs one of the columns {', '.join(types)}")
    for field in asked.fields:
        if field.name not in types:
            near = get_close_matches(field.name, types, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; the columns are {', '.join(types)}"
            raise SourceOptionError(f"the source kdump has no column {field.name!r}{hint}")
        if field.dataType != types[field.name]:
            wanted, given = types[field.name].simpleString(), field.dataType.simpleString()
            raise SourceOptionError(f"the column {field.name} is {wanted}, not {given}")
    if len({field.name for field in asked.fields}) < len(asked.fields):
        raise SourceOptionError("a schema names each column once")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema that Spark expects of record batches."""
    return to_arrow_schema(schema, timezone="UTC")


def as_expected(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of the same columns with exactly this schema."""
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spark_schema(schema: pa.Schema) -> StructType:
    return StructType([StructField(field.name, _spark_type(field.type), nullable=True) for field in schema])


def _spark_type(kind: pa.DataType) -> DataType:
    """The type of Spark; it has no unsigned numbers, and no dictionaries."""
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    return from_arrow_type(pa.int64() if kind == pa.uint32() else kind)
