"""Work on Spark: the engine of the commands, and what Spark programs use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kdump.spark.source import KdumpSource as KdumpSource


def __getattr__(name: str) -> Any:
    if name == "KdumpSource":  # PySpark takes long to import, and may be missing
        from kdump.spark.source import KdumpSource

        return KdumpSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
