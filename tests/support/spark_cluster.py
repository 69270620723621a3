"""A standalone Spark cluster on loopback: a master and workers of the PySpark package, each a process of its own.

    with cluster(tmp_path) as spark:
        session = start_session(spark.url)

Every process is known by its id, every wait has a limit, and all of them are gone at the end of the block.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from support.spark_session import JAVA_OPTIONS, need_spark, python_environment

START_SECONDS = 90
STOP_SECONDS = 20
EXECUTOR_SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
}
"""Of sessions on a cluster whose executors are small."""


class SparkCluster:
    """The processes of a cluster. `url` is its master's."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.url = ""
        self._environment = environment
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int, cores: int, memory: str, *, several_hosts: bool = False) -> None:
        """Start the master and the workers, and wait until the master knows them all."""
        ports = ("--port", "0", "--webui-port", "0")
        self._master = self._launch("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", *ports)
        self.url = self._wait_for("master", r"Starting Spark master at (spark://\S+)", 1)[0]
        for number in range(workers):
            name = f"worker{number}"
            where = ("--host", f"127.0.0.{1 + number * several_hosts}", *ports)
            more = ("--cores", str(cores), "--memory", memory, "--work-dir", str(self.directory / name))
            self._workers.append(self._launch(name, "org.apache.spark.deploy.worker.Worker", *where, *more, self.url))
        self._wait_for("master", r"Registering worker (\S+)", workers)

    @property
    def alive(self) -> list[int]:
        """The numbers of the workers that are not dead."""
        return [number for number, worker in enumerate(self._workers) if worker.poll() is None]

    def executors(self, number: int) -> list[int]:
        """The processes that a worker has started, those of their Python included."""
        return descendants(self._workers[number].pid)

    def kill_worker(self, number: int) -> None:
        """Kill a worker and its executors: an executor outlives its worker."""
        below = self.executors(number)
        self._workers[number].kill()
        for process in below:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._workers[number].wait(STOP_SECONDS)

    def log_of(self, name: str) -> str:
        """What `master`, `worker0` … have said so far."""
        return (self.directory / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """End every process."""
        processes = [process for process in (*self._workers, self._master) if process is not None]
        below = [child for process in processes for child in descendants(process.pid)]
        for process in processes:
            process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for process in processes:
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_SECONDS)
        for child in below:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def _launch(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        program = Path(pyspark.__path__[0]) / "bin" / "spark-class"
        with (self.directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [str(program), *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def _wait_for(self, name: str, pattern: str, times: int) -> list[str]:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            found = re.findall(pattern, self.log_of(name))
            if len(found) >= times:
                return found
            dead = [process for process in (self._master, *self._workers) if process is not None and process.poll()]
            if dead:
                break
            time.sleep(0.05)
        logs = "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.directory.glob("*.log")))
        raise RuntimeError(f"the cluster did not start\n{logs}")


@contextmanager
def cluster(
    directory: Path,
    workers: int = 2,
    cores: int = 1,
    memory: str = "768m",
    environment: Mapping[str, str] | None = None,
    *,
    several_hosts: bool = False,
) -> Iterator[SparkCluster]:
    """A master and its workers in processes of their own. Skips the test where Spark cannot run.

    `several_hosts`: each worker has a loopback address of its own, as Linux has them. Spark gives a task no second
    attempt on a host that has the first one.
    """
    need_spark()
    given = {
        **os.environ,
        **python_environment(),
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": JAVA_OPTIONS,  # also of executors
        **(environment or {}),
    }
    started = SparkCluster(directory, given)
    try:
        started.start(workers, cores, memory, several_hosts=several_hosts)
        yield started
    finally:
        started.stop()


def is_alive(process: int) -> bool:
    """Whether a process runs. One that is dead and that nobody waited for does not."""
    with suppress(OSError):
        return (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def descendants(process: int) -> list[int]:
    """The processes below a process, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(parents.get(process, ()))
    for one in found:
        found += parents.get(one, ())
    return found
