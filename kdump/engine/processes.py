"""The engine that works in several processes of this machine.

Workers are forked, so the function that they run does not have to pickle. They take tasks from one pipe themselves:

    ============  ====================================================================================
    pipe          bytes
    ============  ====================================================================================
    tasks         for each task its number and size, two u64, and the pickled task; the end is the end
    turn          one byte: the worker that has it reads the next task
    results       one pipe a worker: for each task its number and size, two u64, and the pickled pair
                  (failed, result)
    life          none; it ends when the parent process ends, and then a worker ends itself
    ============  ====================================================================================

It stands in place of concurrent.futures and multiprocessing.Pool. Measured again, with the same tasks and two workers:
over 256 MiB both take 14 to 17 % longer (30 ms: imports, and threads in the parent), over a log directory of 2,000
partitions 0 and 7 %. Here a killed worker is an error at once, and workers end when their parent is killed.
"""

import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NoReturn

from kdump.engine.protocol import Result, Task
from kdump.errors import KdumpError

_HEAD: Final = struct.Struct("=QQ")
# Room in a pipe, so that no worker waits for room or for its next task while the parent is busy.
_PIPE_BYTES: Final = 1 << 20
_SIGKILL: Final = 9  # needed at the end of the interpreter, when nothing can be imported
_LEAD: Final = 4
"""So many tasks a worker are sent before their results are read. It bounds memory, however many tasks there are."""


class Processes:
    """Works in `slots` worker processes, forked when the first result is asked for and before any thread exists."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See Engine. Raises KdumpError when a worker is killed."""
        pool = _Pool(self.slots, function)
        sent: deque[Task] = deque()
        given = taken = 0
        try:
            for task in tasks:
                pool.send(given, task)
                sent.append(task)
                given += 1
                while len(sent) > _LEAD * self.slots or pool.has_result(taken):
                    yield sent.popleft(), pool.wait_for(taken)
                    taken += 1
            pool.end()
            while sent:
                yield sent.popleft(), pool.wait_for(taken)
                taken += 1
        except BaseException:
            pool.kill()
            raise
        finally:
            pool.close()


class _Pool:
    """The workers, and the pipes to them and back."""

    def __init__(self, slots: int, function: Callable[[Any], Any]) -> None:
        import pickle  # noqa: F401  # once, before the workers are forked
        import select

        tasks, self._tasks = os.pipe()
        _widen(self._tasks)
        self._turn = os.pipe()
        life, self._life = os.pipe()
        self._workers: dict[int, int] = {}  # process by the descriptor of its results
        self._poll = select.poll()
        self._out: deque[memoryview] = deque()
        self._in: dict[int, bytearray] = {}
        self._results: dict[int, tuple[bool, Any]] = {}
        self._ended = False
        try:
            os.write(self._turn[1], b"\0")
            for _ in range(slots):
                results, end = os.pipe()
                _widen(end)
                process = os.fork()
                if process == 0:
                    for descriptor in (self._tasks, self._life, results, *self._workers):
                        os.close(descriptor)
                    _run_worker(function, tasks, self._turn, life, end)
                os.close(end)
                self._workers[results] = process
                self._in[results] = bytearray()
                self._poll.register(results, select.POLLIN)
        except BaseException:
            self.kill()
            self.close()
            raise
        finally:
            os.close(tasks)
            os.close(life)
        os.set_blocking(self._tasks, False)
        self._poll.register(self._tasks, 0)
        self._writable, self._readable = select.POLLOUT, select.POLLIN | select.POLLHUP | select.POLLERR

    def send(self, number: int, task: object) -> None:
        """Write a task to the pipe, as far as there is room now."""
        import pickle

        data = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
        self._out.append(memoryview(_HEAD.pack(number, len(data)) + data))
        self._write()
        self._transfer(0)

    def end(self) -> None:
        """There are no more tasks."""
        self._ended = True
        self._write()

    def has_result(self, number: int) -> bool:
        """Whether the result of a task is here already."""
        return number in self._results

    def wait_for(self, number: int) -> Any:
        """Wait for the result of a task that was sent. Raises what the function raised."""
        while number not in self._results:
            self._transfer(None)
        failed, result = self._results.pop(number)
        if failed:
            raise result
        return result

    def _write(self) -> None:
        try:
            while self._out:
                sent = os.write(self._tasks, self._out[0])
                if sent == len(self._out[0]):
                    self._out.popleft()
                else:
                    self._out[0] = self._out[0][sent:]
        except BlockingIOError:
            self._poll.modify(self._tasks, self._writable)
            return
        except BrokenPipeError:
            _killed()
        if self._tasks >= 0:
            self._poll.modify(self._tasks, 0)
            if self._ended:
                self._poll.unregister(self._tasks)
                os.close(self._tasks)
                self._tasks = -1

    def _transfer(self, timeout_ms: int | None) -> None:
        """Read results that have come and write tasks that have room; without a time limit, wait for one of both."""
        for descriptor, event in self._poll.poll(timeout_ms):
            if descriptor == self._tasks:
                self._write()
            elif event & self._readable:
                self._read(descriptor)

    def _read(self, descriptor: int) -> None:
        import pickle

        data = os.read(descriptor, _PIPE_BYTES)
        buffer = self._in[descriptor]
        buffer += data
        at = 0
        while len(buffer) - at >= _HEAD.size:
            number, size = _HEAD.unpack_from(buffer, at)
            if len(buffer) - at - _HEAD.size < size:
                break
            at += _HEAD.size
            self._results[number] = pickle.loads(memoryview(buffer)[at : at + size])
            at += size
        del buffer[:at]
        if not data:
            # A worker ends itself when there are no more tasks.
            if not self._ended or buffer:
                _killed()
            self._poll.unregister(descriptor)
            self._reap(descriptor)

    def _reap(self, descriptor: int) -> None:
        process = self._workers.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(process, 0)
        if status:
            _killed()

    def kill(self) -> None:
        """Kill the workers."""
        for process in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(process, _SIGKILL)

    def close(self) -> None:
        """Wait for the end of the workers, which have no more tasks or were killed."""
        for descriptor in (self._tasks, self._life, *self._turn):
            if descriptor >= 0:
                os.close(descriptor)
        self._tasks = -1
        for descriptor, process in self._workers.items():
            os.close(descriptor)
            with suppress(ChildProcessError):
                os.waitpid(process, 0)
        self._workers = {}


def _killed() -> NoReturn:
    raise KdumpError("a worker process was killed, perhaps because memory ran out; --jobs 1 needs the least memory")


def _widen(pipe: int) -> None:
    """Give a pipe more room, where the operating system can."""
    import fcntl

    with suppress(AttributeError, OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


# ---- in a worker


def _run_worker(function: Callable[[Any], Any], tasks: int, turn: tuple[int, int], life: int, results: int) -> NoReturn:
    """Run tasks until there are no more. Nothing that belongs to the parent is flushed or closed here."""
    # The module signal builds enumerations at import, which takes longer than a small task.
    import _signal  # type: ignore[import-not-found]
    import _thread

    status = 1
    try:
        # The parent is interrupted too, and ends its workers.
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        # A parent that is killed does not end its workers, and a task can take long.
        _thread.start_new_thread(_end_with_parent, (life,))
        while (item := _next(tasks, turn)) is not None:
            number, data = item
            _send(results, number, _outcome(function, data))
        status = 0
    except BrokenPipeError:
        pass  # the parent is gone
    finally:
        os._exit(status)


def _end_with_parent(life: int) -> None:
    os.read(life, 1)
    os._exit(1)


def _next(tasks: int, turn: tuple[int, int]) -> tuple[int, bytes] | None:
    os.read(turn[0], 1)
    try:
        head = _exactly(tasks, _HEAD.size)
        if not head:
            return None
        number, size = _HEAD.unpack(head)
        return number, _exactly(tasks, size)
    finally:
        os.write(turn[1], b"\0")


def _exactly(pipe: int, size: int) -> bytes:
    """Read exactly `size` bytes; return none at the end of the pipe."""
    data = b""
    while len(data) < size:
        piece = os.read(pipe, size - len(data))
        if not piece:
            return b""
        data = data + piece if data else piece
    return data


def _outcome(function: Callable[[Any], Any], data: bytes) -> bytes:
    import pickle

    try:
        return pickle.dumps((False, function(pickle.loads(data))), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  # the parent raises it
        import traceback

        where = "in a worker process:\n" + "".join(traceback.format_exception(error))
        error.add_note(where)
        try:
            data = pickle.dumps((True, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data)
        except Exception:  # noqa: BLE001  # an exception that does not pickle
            return pickle.dumps((True, RuntimeError(where)))
        return data


def _send(results: int, number: int, data: bytes) -> None:
    left = memoryview(_HEAD.pack(number, len(data)) + data)
    while left:
        left = left[os.write(results, left) :]
