"""The engine that works on Spark: tasks in groups, groups in waves, results in order.

A group is one task of Spark: so many tasks of kdump that it reads some hundred mebibytes of logs. A wave is one job.
Some waves are under way at once, so that no slot waits for the last task of a wave, and so few that the driver holds
few results: a wave's results are given out, and then the next wave is made.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kdump.engine.protocol import Result, Task, TaskSizes, paths_of_task, size_of_task
from kdump.errors import KdumpError
from kdump.format.naming import as_utf8
from kdump.spark.backends import SparkBackend
from kdump.spark.failures import ResultTooLarge, as_sentences, sentence_of
from kdump.spark.store_settings import NO_STORES, StoreSettings
from kdump.spark.tasks import WorkerAnswer, packed_group

LEAST_BYTES: Final = 128 << 20
"""The logs that one task of Spark reads, at least, where there is enough for all slots."""
MOST_BYTES: Final = 512 << 20
"""The same at most. A partition up to this size is verified by one worker from beginning to end."""
MOST_WHOLE_BYTES: Final = 4 << 30
"""Where there is work for hours, larger partitions too: the driver only adds up. More would let waves wait for one."""
_SMALL_BYTES: Final = 8 << 20
"""Where there is little, no task of Spark has less."""
_TASK_BYTES: Final = 2 << 20
"""What a task costs beside the logs that it reads, as bytes of logs: files to open, a result to send."""
_LEAD: Final = 3
"""The number of waves under way."""
_GROUPS: Final = 4
"""The groups of a wave for each slot."""
_WAIT_SECONDS: Final = 0.5
_NOTICE_SECONDS: Final = 30
_CANCEL_SECONDS: Final = 30


class SparkEngine:
    """Works on the slots of a Spark back end. See kdump.engine.protocol.Engine."""

    def __init__(
        self,
        backend: SparkBackend,
        on_notice: Callable[[str], object] | None = None,
        stores: StoreSettings = NO_STORES,
    ) -> None:
        """`on_notice` is called with a sentence where the cluster lets the work wait. `stores` are for the workers."""
        self._stores = stores
        self.slots = backend.slots
        self._backend = backend
        self._on_notice = on_notice
        self._sent_bytes = 0
        self._answer_bytes = 0

    @property
    def sizes(self) -> TaskSizes:
        """How large tasks should be now. They grow with the work: the last ones take a small part of all the time."""
        share = self._sent_bytes // self.slots
        return TaskSizes(min(max(share // 8, MOST_BYTES), MOST_WHOLE_BYTES), self._group_bytes)

    @property
    def _group_bytes(self) -> int:
        return min(max(self._sent_bytes // self.slots // 16, LEAST_BYTES), MOST_BYTES)

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See Engine. Raises KdumpError where Spark fails, or a worker has another version of kdump."""
        source, waves = iter(tasks), deque[_Wave]()
        more = True
        try:
            while more or waves:
                while more and len(waves) < _LEAD:
                    with as_sentences():
                        self.slots = self._backend.slots  # executors come and go
                    groups = self._next_groups(source)
                    more = bool(groups)
                    if more:
                        packed = [
                            packed_group(function, group, names_host=self._backend.names_host, stores=self._stores)
                            for group in groups
                        ]
                        waves.append(_Wave(groups, packed, self._backend))
                if waves:
                    wave = waves.popleft()
                    self._wait_for(wave)
                    for group, data in wave.answers():
                        yield from zip(group, self._results(data), strict=True)
        except BaseException:
            self._end(waves)
            raise

    def _results(self, data: bytes) -> list[Any]:
        self._answer_bytes = max(self._answer_bytes, len(data))
        answer = WorkerAnswer(data)
        if answer.refusal is not None:
            raise KdumpError(answer.refusal)
        return answer.results()

    def _next_groups(self, tasks: Iterator[Task]) -> list[list[Task]]:
        """The groups of the next wave; none where there are no more tasks."""
        most = self._most_groups()
        groups, group, size, taken = list[list[Task]](), list[Task](), 0, list[Task]()
        for task in tasks:
            weight = size_of_task(task) + _TASK_BYTES
            if group and size + weight > MOST_BYTES:
                groups.append(group)
                group, size = [], 0
            group.append(task)
            taken.append(task)
            size += weight
            self._sent_bytes += weight
            if size >= self._group_bytes or len(groups) >= most:
                groups.append(group)
                group, size = [], 0
            if len(groups) >= most:
                return groups  # one more where the last task was too much for a group that was not full
        if group:
            groups.append(group)
        return groups if len(groups) >= self.slots else _spread(taken, self.slots)

    def _most_groups(self) -> int:
        """How many groups a wave may have, so that its answers stay well below what Spark allows."""
        if not self._answer_bytes:
            return self.slots  # the first waves: reports come soon
        most, bound = _GROUPS * self.slots, self._backend.most_result_bytes
        return most if not bound else max(min(most, bound // 4 // self._answer_bytes), 1)

    def _wait_for(self, wave: "_Wave") -> None:
        looked, is_idle = time.monotonic(), False
        while not wave.wait(_WAIT_SECONDS):
            if is_idle or time.monotonic() - looked < _NOTICE_SECONDS:
                continue
            with as_sentences():
                looked, is_idle = time.monotonic(), not self._backend.has_workers()
                notice = self._why_it_waits() if is_idle else ""
            if notice and self._on_notice is not None:
                self._on_notice(notice)

    def _why_it_waits(self) -> str:
        if self._answer_bytes:
            return "no Spark worker is left; waiting for one that goes on (Ctrl-C ends the run)"
        return (
            f"no Spark worker has taken any work for {_NOTICE_SECONDS} s; waiting (has the cluster free cores and"
            f" memory for an executor?{self._backend.why_it_waits()})"
        )

    def _end(self, waves: Iterable["_Wave"]) -> None:
        """Cancel what is under way."""
        try:
            self._backend.cancel()
        except Exception:  # noqa: BLE001  # the session is gone, and its jobs with it
            return
        until = time.monotonic() + _CANCEL_SECONDS
        for wave in waves:
            wave.wait(max(until - time.monotonic(), 0))


class _Wave:
    """A job that runs in a thread, its groups and their answers."""

    def __init__(self, groups: list[list[Any]], packed: Sequence[bytes], backend: SparkBackend) -> None:
        self._groups = groups
        self._description = description_of(groups)
        self._backend = backend
        self._answers: list[bytes] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(packed,), daemon=True, name="kdump-spark-wave")
        self._thread.start()

    def _run(self, packed: Sequence[bytes]) -> None:
        try:
            self._answers = self._answers_of(packed)
        except BaseException as error:  # noqa: BLE001  # the thread that waits raises it
            self._error = error

    def _answers_of(self, packed: Sequence[bytes]) -> list[bytes]:
        try:
            return self._backend.run(packed, self._description)
        except Exception as error:
            meant = sentence_of(error)
            if not isinstance(meant, ResultTooLarge) or len(packed) == 1:
                raise meant from error
        half = len(packed) // 2
        return self._answers_of(packed[:half]) + self._answers_of(packed[half:])

    def wait(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def answers(self) -> Iterator[tuple[list[Any], bytes]]:
        """The groups with their answers. Each is forgotten when the next one is asked for. Raises what Spark raised."""
        if self._error is not None:
            raise self._error
        answers, self._answers = deque(self._answers), []
        for group in self._groups:
            yield group, answers.popleft()


def description_of(groups: Sequence[Sequence[object]]) -> str:
    """What Spark's pages show of a wave: the first and the last path that it reads, and how many there are."""
    paths = list(dict.fromkeys(path for group in groups for task in group for path in paths_of_task(task)))
    if len(paths) < 2:
        return f"kdump: {as_utf8(paths[0])}" if paths else "kdump"
    return f"kdump: {as_utf8(paths[0])} to {as_utf8(paths[-1])}, {len(paths)} paths"


def _spread(tasks: list[Task], slots: int) -> list[list[Task]]:
    """The tasks in about as many groups as there are slots, of about the same size."""
    total = sum(size_of_task(task) + _TASK_BYTES for task in tasks)
    target = max(total // slots, _SMALL_BYTES)
    groups, group, size = list[list[Task]](), list[Task](), 0
    for task in tasks:
        weight = size_of_task(task) + _TASK_BYTES
        if group and size + weight > MOST_BYTES:
            groups.append(group)
            group, size = [], 0
        group.append(task)
        size += weight
        if size >= target:
            groups.append(group)
            group, size = [], 0
    return [*groups, group] if group else groups
