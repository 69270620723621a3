"""What a worker of Spark runs: a group of tasks, and their results as bytes.

    ========  =============================================================================================
    bytes     pickled values
    ========  =============================================================================================
    group     (build of kdump, working directory, whether errors name the host, bytes);
              the bytes: (function, [task, …], settings of object stores)
    answer    (build of kdump, host, kind, bytes); the bytes: [result, …] compressed, the exception, or none
    ========  =============================================================================================

The outer values have types of Python alone, so that two builds of kdump can read each other's. The function is
imported by its name on the worker: the worker's own kdump does the work, and another build refuses it. Relative
paths belong to the working directory of the driver.
"""

import os
import pickle
import socket
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from kdump.errors import name_host
from kdump.spark.builds import build_name, other_build
from kdump.spark.store_settings import NO_STORES, StoreSettings
from kdump.spark.worker_process import begin_task

if TYPE_CHECKING:
    from pyarrow import RecordBatch

DONE: Final = "done"
RAISED: Final = "raised"
REFUSED: Final = "refused"
_LEVEL: Final = 1
"""The compression: results are numbers and names that repeat, and the driver unpacks them all."""


def run_group(data: bytes) -> bytes:
    """Run the tasks of a group. Returns their results, or why there are none; raises nothing, as Spark would retry."""
    begin_task()
    version, *request = pickle.loads(data)
    host = socket.gethostname()
    if version != build_name():
        return pickle.dumps((build_name(), host, REFUSED, b""))
    directory, names_host, work = request
    name_host(host if names_host else "")
    with _working_directory(directory):
        kind, answer = _outcome(work)
    return pickle.dumps((build_name(), host, kind, answer), pickle.HIGHEST_PROTOCOL)


@contextmanager
def _working_directory(directory: str) -> Iterator[None]:
    """Work in a directory, where this machine has it."""
    sys.path[:] = [os.path.abspath(path) if path else path for path in sys.path]
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            os.chdir(directory)
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _outcome(work: bytes) -> tuple[str, bytes]:
    try:
        function, tasks, stores = pickle.loads(work)
        stores.use()
        results = [function(task) for task in tasks]
        return DONE, zlib.compress(pickle.dumps(results, pickle.HIGHEST_PROTOCOL), _LEVEL)
    except Exception as error:  # noqa: BLE001  # the driver raises it
        import traceback

        where = "in a worker of Spark:\n" + "".join(traceback.format_exception(error))
        error.add_note(where)
        try:
            data = pickle.dumps(error, pickle.HIGHEST_PROTOCOL)
            pickle.loads(data)
        except Exception:  # noqa: BLE001  # an exception that does not pickle
            return RAISED, pickle.dumps(RuntimeError(where))
        return RAISED, data


def run_batches(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
    """The same for rows (number, group) of Arrow, which become rows (number, answer)."""
    import pyarrow

    for batch in batches:
        numbers, groups = batch.columns
        answers = [run_group(group.as_py()) for group in groups]
        yield pyarrow.record_batch([numbers, pyarrow.array(answers, pyarrow.binary())], names=["number", "answer"])


# ---- on the driver


def packed_group(
    function: Callable[..., Any], tasks: list[Any], *, names_host: bool, stores: StoreSettings = NO_STORES
) -> bytes:
    """A group to send."""
    work = pickle.dumps((function, tasks, stores), pickle.HIGHEST_PROTOCOL)
    return pickle.dumps((build_name(), os.getcwd(), names_host, work), pickle.HIGHEST_PROTOCOL)


class WorkerAnswer:
    """What a worker sent: its build of kdump, its host, what became of the group."""

    __slots__ = ("_data", "host", "kind", "version")

    def __init__(self, data: bytes) -> None:
        self.version, self.host, self.kind, self._data = pickle.loads(data)

    def results(self) -> list[Any]:
        """The results of the group's tasks. Raises what the function raised."""
        if self.kind == RAISED:
            raise pickle.loads(self._data)
        found: list[Any] = pickle.loads(zlib.decompress(self._data))
        return found

    @property
    def refusal(self) -> str | None:
        """Why the worker did nothing, as a sentence."""
        if self.kind != REFUSED:
            return None
        return other_build(self.host, self.version, build_name())


def python_version() -> str:
    """The version that Python has here and has to have on the workers."""
    return ".".join(map(str, sys.version_info[:2]))
