"""The largest timestamp of a batch against its records."""

from kdump.findings import Finding, found
from kdump.format.batch import Batch


def _max(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "time/max",
        path,
        batch.position,
        batch.size,
        offset=batch.last_offset,
        stored=batch.max_timestamp,
        found=batch.found_timestamp,
    )


EXPLAIN = {"time/max": _max}
