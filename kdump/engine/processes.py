"""Engines map a function over tasks and hand the results back in order: one after another, or on several processes.

The pool of the standard library would do, but its import takes longer than some whole runs (25 ms), and its threads share the time of the process that
hands out the work. Here workers are forked: what they run need not be pickled, and they take tasks from one pipe themselves:

    ============  ========================================================================================
    pipe          bytes
    ============  ========================================================================================
    tasks         for each task its number and size, two u64, and the pickled task; the end is the end
    turn          one byte: who has it reads the next task
    results       one a worker: for each task its number and size, two u64, and (failed, result) pickled
    life          none; it ends when this process does, and then a worker ends itself
    ============  ========================================================================================
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
_PIPE_BYTES: Final = 1 << 20  # so that nobody waits for room, or for the next task, while this process is busy
_SIGKILL: Final = 9  # where this is needed at the end of the interpreter, nothing can be imported any more
_LEAD: Final = 4
"""Tasks a worker that are given out before their results are taken; it keeps memory flat however many there are."""


class Processes:
    """On `slots` worker processes, which are forked when the first result is asked for, before any thread exists."""

    def __init__(self, slots: int) -> None:
        self.slots = slots

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """See Engine. Raises KdumpError where a worker ends before its time."""
        pool = _Pool(self.slots, function)
        sent: deque[Task] = deque()
        given = taken = 0
        try:
            for task in tasks:
                pool.give(given, task)
                sent.append(task)
                given += 1
                while len(sent) > _LEAD * self.slots or pool.has(taken):
                    yield sent.popleft(), pool.take(taken)
                    taken += 1
            pool.end()
            while sent:
                yield sent.popleft(), pool.take(taken)
                taken += 1
        except BaseException:
            pool.kill()
            raise
        finally:
            pool.close()


class _Pool:
    """Workers, and what goes to them and comes back."""

    def __init__(self, slots: int, function: Callable[[Any], Any]) -> None:
        import pickle  # noqa: F401  # so that the workers need not
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
                    _be_worker(function, tasks, self._turn, life, end)
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

    def give(self, number: int, task: object) -> None:
        """Put a task into the pipe, as far as it has room now."""
        import pickle

        data = pickle.dumps(task, pickle.HIGHEST_PROTOCOL)
        self._out.append(memoryview(_HEAD.pack(number, len(data)) + data))
        self._write()
        self._pump(0)

    def end(self) -> None:
        """No task comes any more."""
        self._ended = True
        self._write()

    def has(self, number: int) -> bool:
        return number in self._results

    def take(self, number: int) -> Any:
        """The result of a task that was given out; waits for it. Raises what the function raised."""
        while number not in self._results:
            self._pump(None)
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

    def _pump(self, timeout_ms: int | None) -> None:
        """Take what has come, and give what has room; without a time limit at least something."""
        for descriptor, event in self._poll.poll(timeout_ms):
            if descriptor == self._tasks:
                self._write()
            elif event & self._readable:
                self._read(descriptor)

    def _read(self, descriptor: int) -> None:
        import pickle

        data = os.read(descriptor, _PIPE_BYTES)
        held = self._in[descriptor]
        held += data
        at = 0
        while len(held) - at >= _HEAD.size:
            number, size = _HEAD.unpack_from(held, at)
            if len(held) - at - _HEAD.size < size:
                break
            at += _HEAD.size
            self._results[number] = pickle.loads(memoryview(held)[at : at + size])
            at += size
        del held[:at]
        if not data:
            # A worker ends by itself when there are no more tasks.
            if not self._ended or held:
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
        for process in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(process, _SIGKILL)

    def close(self) -> None:
        """Wait until the workers are gone, which have nothing to do any more or were killed."""
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
    raise KdumpError("a worker process was killed, perhaps for want of memory; --jobs 1 needs the least")


def _widen(pipe: int) -> None:
    """Give a pipe more room, where the system has that."""
    import fcntl

    with suppress(AttributeError, OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


# ---- in a worker


def _be_worker(function: Callable[[Any], Any], tasks: int, turn: tuple[int, int], life: int, results: int) -> NoReturn:
    """Work until there are no more tasks; nothing of the parent's is flushed or cleaned up here."""
    import _signal  # type: ignore[import-not-found]  # signal makes enumerations of it, which takes longer than a small task
    import _thread

    status = 1
    try:
        # The parent is interrupted too and ends its workers.
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        # A parent that is killed ends nobody, and a task can take long.
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
    """So many bytes; none at the end."""
    held = b""
    while len(held) < size:
        piece = os.read(pipe, size - len(held))
        if not piece:
            return b""
        held = held + piece if held else piece
    return held


def _outcome(function: Callable[[Any], Any], data: bytes) -> bytes:
    import pickle

    try:
        return pickle.dumps((False, function(pickle.loads(data))), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  # it goes to the parent as it is
        import traceback

        where = "in a worker process:\n" + "".join(traceback.format_exception(error))
        error.add_note(where)
        try:
            data = pickle.dumps((True, error), pickle.HIGHEST_PROTOCOL)
            pickle.loads(data)
        except Exception:  # noqa: BLE001  # one that cannot travel
            return pickle.dumps((True, RuntimeError(where)))
        return data


def _send(results: int, number: int, data: bytes) -> None:
    left = memoryview(_HEAD.pack(number, len(data)) + data)
    while left:
        left = left[os.write(results, left) :]
