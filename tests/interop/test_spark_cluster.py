"""The standalone cluster that the tests of Spark start: work goes on when a worker and its executor are killed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from support.spark_cluster import cluster, is_alive
from support.spark_session import start_session, stop_session
from support.waits import until


def test_work_goes_on_when_a_worker_and_its_executor_are_killed(tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    def slow(number: int) -> int:
        limit = time.monotonic() + 120
        while number in (6, 7) and not killed.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        (tmp_path / f"done-{number}").touch()
        return number * number

    def kill() -> None:
        until((tmp_path / "done-5").exists, 120)
        found.kill_worker(1)
        killed.touch()

    with cluster(tmp_path) as found:
        session = start_session(found.url, spark__executor__memory="512m")
        try:
            context = session.sparkContext
            assert context.parallelize(range(2), 2).map(slow).collect() == [0, 1]
            killer = threading.Thread(target=kill)
            killer.start()
            assert context.parallelize(range(16), 16).map(slow).collect() == [number**2 for number in range(16)]
            killer.join()
            assert found.alive == [0]
        finally:
            stop_session(session)
        processes = [process for number in found.alive for process in found.executors(number)]
    assert not [process for process in processes if is_alive(process)]
