"""Leader epochs of a batch against the batch before."""

from kdump.findings import Finding, found
from kdump.format.batch import Batch


def _backwards(path: str, batch: Batch, base: int | None) -> Finding:
    return found(
        "epoch/backwards",
        path,
        batch.position,
        batch.size,
        offset=batch.base_offset,
        epoch=batch.partition_leader_epoch,
        previous=batch.previous_epoch,
    )


EXPLAIN = {"epoch/backwards": _backwards}
