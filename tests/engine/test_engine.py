"""Engines give the results in the order of the tasks, whatever becomes of the processes that do the work."""

from __future__ import annotations

import faulthandler
import fcntl
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine, Serial
from kdump.errors import KdumpError, SourceError
from support.laws import examples
from support.waits import until


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(0, 300_000), max_size=40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_results_come_in_order_however_large_they_are(sizes: list[int], slots: int, rng: random.Random) -> None:
    tasks = [(number, b"t" * size, rng.randrange(300_000)) for number, size in enumerate(sizes)]

    def work(task: tuple[int, bytes, int]) -> tuple[int, int, bytes]:
        return task[0], len(task[1]), b"r" * task[2]

    before = open_descriptors()
    assert list(Processes(slots).map(work, iter(tasks))) == list(Serial().map(work, tasks))
    assert open_descriptors() == before
    assert not has_children()


def test_tasks_are_taken_no_further_than_needed() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    results = Processes(2).map(abs, tasks())
    for number in range(10):
        assert next(results) == (number, number)
        assert len(taken) <= number + 2 + 4 * 2
    results.close()  # type: ignore[attr-defined]
    assert not has_children()


@pytest.mark.parametrize("engine", [Serial(), Processes(2)], ids=["serial", "processes"])
def test_a_task_comes_back_as_the_object_that_was_given(engine: Engine) -> None:
    given = [[number] for number in range(50)]
    assert [id(task) for task, _ in engine.map(len, iter(given))] == [id(task) for task in given]


def test_every_worker_works() -> None:
    together = multiprocessing.get_context("fork").Barrier(3)

    def who(_: int) -> int:
        together.wait(60)
        return os.getpid()

    assert len({process for _, process in Processes(3).map(who, range(12))}) == 3


def test_what_the_function_raises_is_raised_here() -> None:
    def fails(task: int) -> int:
        if task == 5:
            raise SourceError("x.log: gone")
        return task

    results = Processes(2).map(fails, range(20))
    assert [next(results) for _ in range(5)] == [(number, number) for number in range(5)]
    with pytest.raises(SourceError, match=r"^x\.log: gone") as caught:
        next(results)
    assert "in fails" in caught.value.__notes__[0]
    assert not has_children()


def test_what_cannot_travel_is_reported_in_words() -> None:
    class Odd(Exception):
        def __init__(self, left: int, right: int) -> None:
            super().__init__("odd")

    def fails(task: int) -> int:
        raise Odd(1, 2)

    with pytest.raises(RuntimeError, match=r"in a worker process:(.|\n)*odd"):
        list(Processes(2).map(fails, [1]))


def test_a_task_that_cannot_be_made_ends_the_workers() -> None:
    def tasks() -> Iterator[int]:
        yield 1
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        list(Processes(2).map(abs, tasks()))
    assert not has_children()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
@pytest.mark.parametrize("last", [False, True])
def test_a_worker_that_is_killed_is_reported(how: signal.Signals, last: bool) -> None:
    def dies(task: int) -> int:
        if task == 9:
            faulthandler.disable()  # pytest's would print a traceback, as if the run had crashed
            os.kill(os.getpid(), how)
            signal.pause()
        return task

    with pytest.raises(KdumpError, match="a worker process was killed"):
        list(Processes(2).map(dies, range(10 if last else 1000)))
    assert not has_children()


PARENT = """
import os, signal
from kdump.engine.processes import Processes
from kdump.engine.protocol import Engine
def slow(task):
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
list(Processes(2).map(slow, range(2)))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(how: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        assert len({parent.stdout.readline() for _ in range(2)}) == 2
        parent.send_signal(how)
        # The pipe ends when the last of them is gone.
        began = time.monotonic()
        assert parent.stdout.read() == b""
        assert time.monotonic() - began < 60


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have one size here")
def test_workers_go_on_while_the_parent_is_busy(tmp_path: Path) -> None:
    """What was given out is theirs, and what they give back has room, though no one looks."""

    asked = multiprocessing.get_context("fork").Value("i", 0)

    def tasks() -> Iterator[tuple[int, bytes]]:
        for number in range(100):
            asked.value += 1
            yield number, bytes(100_000)

    def work(task: tuple[int, bytes]) -> bytes:
        if task[0] == 0:
            until(lambda: asked.value >= 1 + 4 * 2)  # so that as many tasks are given out as may be
        (tmp_path / str(task[0])).touch()
        return bytes(50_000)

    results = Processes(2).map(work, tasks())
    next(results)
    until(lambda: len(list(tmp_path.iterdir())) >= 1 + 4 * 2)
    results.close()  # type: ignore[attr-defined]
