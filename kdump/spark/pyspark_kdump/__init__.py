"""Registers the data source kdump: Spark imports each top-level package whose name begins with pyspark_.

One of them that raises on import switches all of them off. So this one imports nothing but PySpark, and the rest of
kdump in the methods.
"""

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Hands everything to kdump.spark.KdumpSource."""

    @classmethod
    def name(cls) -> str:
        return "kdump"

    def _source(self) -> Any:
        from kdump.spark import KdumpSource

        return KdumpSource(self.options)

    def schema(self) -> Any:
        return self._source().schema()

    def reader(self, schema: Any) -> Any:
        return self._source().reader(schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  # PySpark's name
        return self._source().streamReader(schema)

    def writer(self, schema: Any, overwrite: bool) -> Any:  # PySpark's signature
        return self._source().writer(schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        return self._source().streamWriter(schema, overwrite)
