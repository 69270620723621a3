"""What commands that go through partitions share: where the work is done, what is told meanwhile, and what could not be read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from kdump.cli import complain
from kdump.cli.progress import Progress
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine
from kdump.engine.serial import Serial
from kdump.errors import KdumpError, NotALog, SourceError
from kdump.storage.partition import LogDirectory, Partition
from kdump.verify.verify import size_of

SMALL_BYTES = 8 << 20  # below it, starting processes takes longer than the work
SMALL_PARTITIONS = 100  # companions are work too
Found = Partition | LogDirectory | SourceError


@contextmanager
def work(
    found: Callable[[], Iterator[Found]], chosen: dict[str, Any]
) -> Iterator[tuple[Engine, Callable[[int], None], Iterator[Found]]]:
    """The engine for what was found, by --jobs, what is to be told of bytes that are done, by --progress, and what was found, to be gone through once."""
    progress = Progress(0, chosen["progress"])
    size = sum(size_of(item) for item in found() if isinstance(item, Partition)) if progress.wanted else 0
    rest = found()
    seen = list(_until_much(rest)) if chosen["jobs"] > 1 else []
    many = _is_much(seen)
    with progress.over(size):
        yield Processes(chosen["jobs"]) if many else Serial(), progress.advance, chain(seen, rest)


def _until_much(found: Iterator[Found]) -> Iterator[Found]:
    """What was found, up to where it is enough for several processes."""
    size, partitions = 0, 0
    for item in found:
        yield item
        if isinstance(item, Partition):
            size += size_of(item)
            partitions += 1
        if size > SMALL_BYTES or partitions > SMALL_PARTITIONS:
            return


def _is_much(found: Sequence[Found]) -> bool:
    partitions = [item for item in found if isinstance(item, Partition)]
    return len(partitions) > SMALL_PARTITIONS or sum(map(size_of, partitions)) > SMALL_BYTES


class ProblemLog:
    """What could not be done, said on standard error as it comes. A shell's * names the indexes beside the logs too; that is no failure unless there is nothing else."""

    def __init__(self) -> None:
        self.failed = False
        self._passed_over: list[NotALog] = []

    def take(self, errors: Iterable[KdumpError]) -> None:
        for error in errors:
            if isinstance(error, NotALog):
                self._passed_over.append(error)
            else:
                self._say(error)

    def end(self, *, some: bool) -> None:
        """Complain of what was passed over, unless there was `some` work."""
        for error in () if some else self._passed_over:
            self._say(error)

    def _say(self, error: KdumpError) -> None:
        self.failed = True
        complain(error)
