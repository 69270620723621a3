"""How groups of tasks reach the workers: as an RDD on a cluster, as a DataFrame through Spark Connect.

A job is a list of groups, one task of Spark each; its answers come back in the same order. Several threads may run
jobs at once, and `cancel` ends them all.
"""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kdump.spark.driver_log import DriverLog, read_driver_log
from kdump.spark.failures import NoExecutor
from kdump.spark.masters import is_local
from kdump.spark.tasks import run_batches, run_group

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.connect.session import SparkSession

_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DEFAULT_RESULT: Final = "1g"
_MOST_ENDED: Final = 5
"""So many executors end before any has taken work, where none ever will: a master starts new ones without end."""
_OF_EXECUTORS: Final = ("spark.executor.memory", "spark.executor.cores", "spark.cores.max")


class SparkBackend(Protocol):
    """Runs jobs.

    `slots` is how many tasks run at once now; `most_result_bytes` bounds the answers of a job, 0 for no bound.
    `names_host`: what cannot be read is reported with the host that could not.
    """

    @property
    def slots(self) -> int: ...

    most_result_bytes: int
    names_host: bool

    def run(self, groups: Sequence[bytes], description: str) -> list[bytes]:
        """The answers of the groups, in order; Spark's pages show the description. Raises what Spark raises."""

    def cancel(self) -> None:
        """End the jobs that run."""

    def has_workers(self) -> bool:
        """Whether any worker takes tasks, as far as that is known."""

    def why_it_waits(self) -> str:
        """What is known about work that no worker takes, as the end of a sentence.

        Raises SparkFailure where executors end as soon as they start.
        """


class RddBackend:
    """The back end for every master URL: an element of an RDD for each group."""

    def __init__(self, context: "SparkContext", log: str = "") -> None:
        """`log` is the file that the driver prints to, where kdump started it."""
        self._context, self._log = context, log
        self._tag = f"kdump-{uuid.uuid4()}"
        self.names_host = not is_local(context.master or "")
        self.most_result_bytes = bytes_of(context.getConf().get("spark.driver.maxResultSize", _DEFAULT_RESULT))

    @property
    def slots(self) -> int:
        """See SparkBackend. Spark counts the cores of the executors that there are now."""
        return max(self._context.defaultParallelism, 1)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """Spark's settings, those of its files too."""
        return self._context.getConf().getAll()

    def run(self, groups: Sequence[bytes], description: str) -> list[bytes]:
        """See SparkBackend."""
        self._context.addJobTag(self._tag)  # of this thread, as the description
        self._context.setJobDescription(description)
        return self._context.parallelize(groups, len(groups)).map(run_group).collect()

    def cancel(self) -> None:
        """See SparkBackend."""
        self._context.cancelJobsWithTag(self._tag)

    def has_workers(self) -> bool:
        """See SparkBackend."""
        # The driver counts as one.
        executors: Any = self._context._jsc.sc().getExecutorMemoryStatus().size()
        return not self.names_host or executors > 1

    def why_it_waits(self) -> str:
        """See SparkBackend."""
        seen = read_driver_log(self._log) if self._log else DriverLog()
        if seen.ended >= _MOST_ENDED:
            raise NoExecutor(f"no Spark executor stays alive: {seen.ended} have ended, and none has taken any work")
        settings = self._context.getConf()
        asked = ", ".join(f"{name}={settings.get(name)}" for name in _OF_EXECUTORS if settings.contains(name))
        ended = seen.executor and f"{seen.executor}{seen.executor_host and f' on the host {seen.executor_host}'}"
        log = ended or seen.waits
        return (f"; asked for: {asked}" if asked else "") + (f"; Spark's log: {log}" if log else "")


class ConnectBackend:
    """The back end for Spark Connect, which has no RDD: a row of a DataFrame for each group, a partition each."""

    def __init__(self, session: "SparkSession") -> None:
        from pyspark.sql.connect import functions

        self._session = session
        self._tag = f"kdump-{uuid.uuid4()}"
        self.names_host = True
        self.most_result_bytes = bytes_of(session.conf.get("spark.driver.maxResultSize", _DEFAULT_RESULT) or "0")
        # A range has as many partitions as the cluster has slots.
        pieces = session.range(1 << 20).select(functions.spark_partition_id().alias("piece"))
        self.slots = max(pieces.distinct().count(), 1)

    def run(self, groups: Sequence[bytes], description: str) -> list[bytes]:
        """See SparkBackend. A client has no place for the description."""
        import pyarrow

        self._session.addTag(self._tag)  # of this thread
        table = pyarrow.table(
            {
                "number": pyarrow.array(range(len(groups)), pyarrow.int64()),
                "task": pyarrow.array(groups, pyarrow.binary()),
            }
        )
        # By range, each number gets a partition of its own; by hash some would share one.
        frame = self._session.createDataFrame(table).repartitionByRange(len(groups), "number")
        done = frame.mapInArrow(run_batches, "number bigint, answer binary").toArrow()
        answers = dict(zip(done["number"].to_pylist(), done["answer"].to_pylist(), strict=True))
        return [answers[number] for number in range(len(groups))]

    def cancel(self) -> None:
        """See SparkBackend."""
        self._session.interruptTag(self._tag)

    def has_workers(self) -> bool:
        """See SparkBackend. The client cannot see them."""
        return True

    def why_it_waits(self) -> str:
        """See SparkBackend."""
        return ""


def bytes_of(text: str) -> int:
    """A size as Spark writes it: 512m, 1g, 1073741824. 0 for what is none."""
    text = text.strip().lower().removesuffix("b") or "0"
    unit = text[-1] if text[-1].isalpha() else ""
    try:
        return int(text.removesuffix(unit)) * _UNITS.get(unit, 0)
    except ValueError:
        return 0
