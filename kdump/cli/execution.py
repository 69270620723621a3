"""What the commands that read partitions share: the engine, progress, and the problems on standard error."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kdump.cli import complain, exit_status
from kdump.cli.progress import READING, Progress
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError, NotALog, SourceError
from kdump.named_tuple import NamedTuple
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.verify import size_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kdump.engine.protocol import Engine

SMALL_BYTES = 8 << 20  # for less, starting processes takes longer than the work
SMALL_PARTITIONS = 100  # companions are work too
Found = Partition | LogDirectory | SourceError


class Work(NamedTuple):
    """The engine (--jobs), what shows progress (--progress), and what was found, once."""

    engine: "Engine"
    progress: Progress
    found: Iterator[Found]

    @property
    def own_engine(self) -> "Engine":
        """The engine for what changes files: with a cluster this process, which has the locks."""
        from kdump.engine.processes import Processes

        return self.engine if isinstance(self.engine, Processes) else Serial()


@contextmanager
def execution(
    found: Callable[[], Iterator[Found]], chosen: dict[str, Any], progress: Progress | None = None
) -> Iterator[Work]:
    """Give what the work on what `found` yields needs."""
    with progress or Progress(chosen["progress"]) as progress:
        if progress.wanted:
            progress.enter(READING, "")
            progress.over(sum(size_of(item) for item in progress.read(found()) if isinstance(item, Partition)))
        rest = found()
        master = master_of(chosen)
        if master is not None:
            seen = list(_until_partition(rest))
            with (
                _spark(master, chosen) if seen and isinstance(seen[-1], Partition) else nullcontext(Serial()) as engine
            ):
                yield Work(engine, progress, progress.watch(chain(seen, rest)))
            return
        seen = list(_until_enough(rest)) if chosen["jobs"] > 1 else []
        many = _is_enough(seen)
        yield Work(_engine(chosen["jobs"]) if many else Serial(), progress, progress.watch(chain(seen, rest)))


def master_of(chosen: dict[str, Any]) -> str | None:
    """The master of Spark to work on, None for the processes of this machine.

    --jobs counts those, and goes before KDUMP_MASTER. Refuses it beside --master.
    """
    master: str | None = chosen.get("master")
    given = click.get_current_context().get_parameter_source
    if master is not None and given("jobs") is ParameterSource.COMMANDLINE:
        if given("master") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--jobs counts processes of this machine; with --master the cluster has the slots")
        master = None
    if master is None and chosen.get("spark_settings"):
        raise click.UsageError("--spark-conf has no effect without --master")
    return master


def _spark(master: str, chosen: dict[str, Any]) -> "AbstractContextManager[Engine]":
    from kdump.spark.session import spark_engine  # raises KdumpError where PySpark is missing

    if master.startswith("local[*"):
        complain(f"{master} is this machine alone, where --jobs does the same work in a half to a fifth of the time")
    return spark_engine(master, dict(chosen["spark_settings"]), complain)


def _until_partition(found: Iterator[Found]) -> Iterator[Found]:
    """What was found up to the first partition: without one there is no work for a cluster."""
    for item in found:
        yield item
        if isinstance(item, Partition):
            return


def _engine(jobs: int) -> "Engine":
    from kdump.engine.processes import Processes

    return Processes(jobs)


def _until_enough(found: Iterator[Found]) -> Iterator[Found]:
    """What was found, until it is enough work for several processes."""
    size, partitions = 0, 0
    for item in found:
        yield item
        if isinstance(item, Partition):
            size += size_of(item)
            partitions += 1
        if size > SMALL_BYTES or partitions > SMALL_PARTITIONS:
            return


def _is_enough(found: Sequence[Found]) -> bool:
    partitions = [item for item in found if isinstance(item, Partition)]
    return len(partitions) > SMALL_PARTITIONS or sum(map(size_of, partitions)) > SMALL_BYTES


class ProblemLog:
    """Prints on standard error what could not be read or done.

    A file that is not a log is a failure only where there is nothing else: the * of a shell names indexes too.
    """

    def __init__(self, done: str = "measured") -> None:
        """`done`: the participle of what the command does."""
        self._done = done
        self.failed = 0
        """The exit status of what could not be done."""
        self._not_logs: list[NotALog] = []
        self._said: deque[str] = deque(maxlen=16)  # partitions have the checkpoints of their log directory in common

    def take(self, errors: Iterable[KdumpError]) -> None:
        for error in errors:
            if isinstance(error, NotALog):
                self._not_logs.append(error)
            else:
                self._say(error)

    def end(self, *, some: bool) -> None:
        """Print the files that are not logs, unless there was `some` work."""
        for error in () if some else self._not_logs:
            self._say(error)

    def interrupted(self) -> bool:
        """Say that the run was, which not every format can. Returns true."""
        complain(f"interrupted: not everything was {self._done}")
        return True

    def _say(self, error: KdumpError) -> None:
        self.failed = max(self.failed, exit_status.of_error(error))
        if str(error) not in self._said:
            self._said.append(str(error))
            complain(error)
