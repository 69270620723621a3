"""What a stream leaves out, as a table beside its checkpoint: Spark has no place for it in the progress of a query.

A file for each range that lost something, JSON lines with the columns of LOSSES, `time` and `batch`. A task that runs
again writes the same file again.
"""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from kdump.errors import SourceError
from kdump.spark.source_losses import Loss
from kdump.storage.file_store import is_url, names_in, open_source
from kdump.storage.object_store import object_store
from kdump.storage.source import read_whole, reason_of

_BATCH: Final = "streaming.sql.batchId"
_SUFFIX: Final = ".json"
_MOST_BYTES: Final = 64 << 20


class LossTable:
    """The folder of the table, at a path or a URL that the driver and all workers can write."""

    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self._written = set[str]()
        self._before = set[str]()

    def write(self, losses: Iterable[Loss]) -> None:
        """Write the losses of a range, once in this process. Raises SourceError."""
        found = list(losses)
        if not found:
            return
        first = found[0]
        of = (f"{first.topic}-{first.partition}", first.first_offset, found[-1].last_offset, first.code)
        name = "_".join(str(each).replace("/", ".") for each in of) + _SUFFIX
        if name in self._written:
            return
        beside = {"time": datetime.now(UTC).isoformat(), "batch": _batch_number()}
        text = "".join(json.dumps({**loss._asdict(), **beside}) + "\n" for loss in found)
        try:
            self._put(name, text.encode())
        except OSError as error:
            raise SourceError(f"{self.location}: the losses cannot be written: {reason_of(error)}") from None
        self._written.add(name)

    def begin_batch(self) -> None:
        """Note what is there before the tasks of a batch run. Raises SourceError."""
        self._before = self._names()

    def sums_of_batch(self) -> str | None:
        """What the tasks have lost since, as a sentence; None for nothing. Raises SourceError."""
        rows = [json.loads(line) for name in sorted(self._names() - self._before) for line in self._lines(name)]
        if not rows:
            return None
        known = [row["records"] for row in rows if row["records"] is not None]
        more = f", and of {len(rows) - len(known)} it is not known how many" if len(known) < len(rows) else ""
        return f"this batch left out {len(rows)} ranges of offsets with {sum(known)} records{more}: {self.location}"

    def _names(self) -> set[str]:
        if is_url(self.location):
            object_store().forget(self.location)
        try:
            return {name for name in names_in(self.location) if name.endswith(_SUFFIX) and not name.startswith(".")}
        except FileNotFoundError:
            return set()

    def _lines(self, name: str) -> list[bytes]:
        with open_source(f"{self.location}/{name}") as source:
            return read_whole(source, _MOST_BYTES).splitlines()

    def _put(self, name: str, data: bytes) -> None:
        path = f"{self.location}/{name}"
        if is_url(path):
            object_store().write(path, data)
            return
        os.makedirs(self.location, exist_ok=True)
        scratch = f"{self.location}/.{name}.{os.getpid()}"
        with open(scratch, "wb") as file:
            file.write(data)
        os.replace(scratch, path)


def _batch_number() -> int | None:
    """The number of the batch of this task; None in the driver."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty(_BATCH)
    return None if number is None else int(number)
