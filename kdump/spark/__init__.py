"""Work on Spark: the engine of the commands, and what Spark programs use."""

from kdump.exports import exports

_MODULES = {
    "kdump.spark.frames": "losses read",
    "kdump.spark.source": "KdumpSource",  # PySpark takes long to import, and may be missing
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
