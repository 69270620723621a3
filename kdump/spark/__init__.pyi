from kdump.spark.frames import losses as losses
from kdump.spark.frames import read as read
from kdump.spark.source import KdumpSource as KdumpSource
