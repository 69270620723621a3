from kdump.spark.source import KdumpSource as KdumpSource
