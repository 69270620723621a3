"""The data source `kdump` of Spark: `spark.read.format("kdump").load("/var/lib/kafka")`.

The columns, options and refusals are those of Spark's source of Kafka, so that a query moves by one word and a path.
"""

import warnings
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from kdump.spark.failures import WithoutFrames
from kdump.spark.source_limits import SourceOptionError
from kdump.spark.source_options import parse_batch_options
from kdump.spark.source_reader import KdumpReader
from kdump.spark.source_schema import source_schema
from kdump.spark.stream_options import END_AT, LOSSES_LOCATION, parse_stream_options

if TYPE_CHECKING:
    from kdump.spark.stream import KdumpStreamReader
    from kdump.spark.writer import KdumpWriter


class KdumpSource(DataSource):
    """Reads Kafka's log files as a DataFrame or a stream, and writes new ones, without a broker.

    An installed kdump is found by the name of its format. Where it is not, `spark.dataSource.register(KdumpSource)`.
    """

    @classmethod
    def name(cls) -> str:
        return "kdump"

    def schema(self) -> StructType:
        """The columns that a read gives. Raises SourceOptionError for options that neither a batch nor a stream has."""
        with WithoutFrames(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # options of a stream, in a batch: the reader knows which one it is
            try:
                return source_schema(parse_stream_options(self.options).source)
            except SourceOptionError:
                if END_AT in self.options or LOSSES_LOCATION in self.options:
                    raise
                return source_schema(parse_batch_options(self.options))

    def reader(self, schema: StructType) -> KdumpReader:
        """A reader of the columns of `schema`. Raises SourceOptionError."""
        with WithoutFrames():
            return KdumpReader(parse_batch_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "KdumpStreamReader":  # noqa: N802  # PySpark's name
        """A reader of a stream. Raises SourceOptionError."""
        from kdump.spark.stream import KdumpStreamReader

        with WithoutFrames():
            return KdumpStreamReader(parse_stream_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> "KdumpWriter":  # PySpark's signature
        """A writer of new topic-partitions. Raises KdumpError."""
        from kdump.spark.writer import KdumpWriter

        with WithoutFrames():
            return KdumpWriter(schema, self.options, overwrite=overwrite)
