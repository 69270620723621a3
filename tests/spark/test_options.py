"""--master, KDUMP_MASTER and --spark-conf: what is refused, and what is said where Spark cannot be had."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from conftest import Command
from kdump.errors import KdumpError
from kdump.spark import masters, requirements, session
from kdump.spark.driver_log import read_driver_log
from kdump.spark.failures import ResultTooLarge, SparkFailure, sentence_of

LOG = Path(__file__).resolve().parents[2] / "fixtures" / "codecs" / "none-0"


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[2]",
        "local[2,4]",
        "local[*,4]",
        "local-cluster[2,1,1024]",
        "spark://host:7077",
        "spark://one:7077,two:7077",
        "spark://[::1]:7077",
        "yarn",
        "k8s://https://host:6443",
        "sc://host",
        "sc://host:15002/;token=abc",
        " local[2] ",
    ],
)
def test_masters(master: str) -> None:
    assert masters.check_master(master) == master.strip()


@pytest.mark.parametrize(
    "master",
    [
        *("", "locale", "local[0]", "local[x]", "local[2", "spark://", "spark://host", "spark://host:99999"),
        *("spark://host:x", "sc://", "sc://:15002", "host:7077", "http://host:7077", "mesos://host"),
        *("sc://host:15002/path", "yarn-client"),
    ],
)
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(masters.MasterError, match="one of local"):
        masters.check_master(master)


def test_addresses() -> None:
    assert masters.addresses("spark://one:7077,two:7078") == [("one", 7077), ("two", 7078)]
    assert masters.addresses("sc://host/;token=abc") == [("host", 15002)]
    assert masters.addresses("sc://[::1]:1") == [("::1", 1)]
    assert masters.addresses("yarn") == masters.addresses("local[2]") == []


@pytest.mark.parametrize("command", ["verify", "stat", "recover"])
def test_options_that_do_not_fit(kdump: Command, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(LOG)
    for arguments, sentence in (
        (
            ("--master", "spork"),
            "Invalid value for '--master' (env var: 'KDUMP_MASTER'): 'spork' is not a master of Spark",
        ),
        (("--master", "local[2]", "--jobs", "2"), "--jobs counts processes of this machine"),
        (("--spark-conf", "spark.executor.memory=1g"), "--spark-conf has no effect without --master"),
        (("--master", "local[2]", "--spark-conf", "memory=1g"), "'memory=1g' is not a setting of Spark"),
        (("--master", "local[2]", "--spark-conf", "spark.x"), "'spark.x' is not a setting of Spark"),
    ):
        ran = kdump.inside(command, *arguments, path)
        assert ran.status == 2
        assert sentence in " ".join(ran.problems.split())
    monkeypatch.setenv("KDUMP_MASTER", "nonsense")
    ran = kdump.inside(command, path)
    assert ran.status == 2
    assert "'nonsense' is not a master of Spark; it is one of local[*], spark://host:7077, yarn" in ran.problems
    monkeypatch.setenv("KDUMP_MASTER", "spark://127.0.0.1:1")
    # --jobs goes before the environment, and without partitions nothing is started.
    assert kdump.inside(command, "--jobs", "1", path).status == 0
    assert "no such file" in kdump.inside(command, path + "/nothing").problems


def test_a_run_that_is_taken_back_has_no_master(kdump: Command) -> None:
    ran = kdump.inside("recover", "--undo", "--master", "local[2]", str(LOG))
    assert ran.status == 2
    assert "--master: --undo undoes or finishes a run" in ran.problems


def test_a_master_that_does_not_answer(kdump: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "ANSWER_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for master in (f"spark://127.0.0.1:{port}", f"sc://127.0.0.1:{port}", f"spark://127.0.0.1:{port},127.0.0.1:1"):
        ran = kdump.inside("verify", "--master", master, str(LOG))
        assert (ran.status, ran.out) == (3, b"")
        assert ran.problems == f"kdump: {master}: the master of Spark does not answer (no connection within 1 s)\n"


def test_pyspark_is_missing_or_too_old(kdump: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_pyspark_version", lambda: "4.1.2")
    ran = kdump.inside("verify", "--master", "local[2]", str(LOG))
    assert ran.status == 3
    said = "kdump: Spark needs PySpark 4.2 or later, and 4.1.2 is installed: pip install 'kdump[spark]'\n"
    assert ran.problems == said
    ran = kdump.inside("verify", "--master", "local[*]", str(LOG))  # one machine, all of it
    notice = "kdump: local[*] is this machine alone, where --jobs does the same work in a half to a fifth of the time\n"
    assert ran.problems == notice + said
    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None)
    ran = kdump.inside("stat", "--master", "local[2]", str(LOG))
    assert ran.status == 3
    assert "which is not installed: pip install 'kdump[spark]'" in ran.problems
    with pytest.raises(KdumpError, match=r"pip install 'kdump\[spark\]' 'pyspark\[connect\]'"):
        requirements.check_connect()


def java(directory: Path, told: str) -> None:
    """A program that says that it is a Java."""
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_java_is_missing_or_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert requirements.java_problem() == (
        "Spark needs Java 17 or later, and no java is on the PATH; install one, or set JAVA_HOME"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for told, problem in (
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.2" 2019-01-15', f"Spark needs Java 17 or later, and {tmp_path}/java is 11"),
        ('java version "1.8.0_292"', f"Spark needs Java 17 or later, and {tmp_path}/java is 8"),
        ("hello", f"Spark needs Java 17 or later, and {tmp_path}/java is not Java"),
    ):
        java(tmp_path, told)
        found = requirements.java_problem()
        assert found == problem or (found is not None and problem is not None and found.startswith(problem))


PY4J = "An error occurred while calling {}.\n: {}\n\tat org.apache.spark.x(X.scala:1)\nDriver stacktrace:\n\tat y"
REMOVED = "org.apache.spark.SparkException: Job aborted due to stage failure: Master removed our application: FAILED"
INSUFFICIENT = (
    "org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY.CONFIG_MEMORY] Insufficient executor"
    " memory: Executor memory 10485760 must be at least 471859200."
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Lost task 0.3 (TID 3) (10.0.0.7 executor 1): No module named 'kdump'", "worker 10.0.0.7 has no kdump"),
        ("ModuleNotFoundError: No module named 'kdump.spark'", "the Python of a worker has no kdump"),
        ("No module named 'zstandard'", "the Python of a worker has no zstandard; install kdump[spark] there"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9", "has another version of Python than"),
        ('java.io.IOException: Cannot run program "python3": error=2', "cannot start the Python python3"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "was killed, perhaps because"),
        ("All masters are unresponsive! Giving up.", "the master of Spark does not answer"),
        (
            PY4J.format("z:org.apache.spark.api.python.PythonRDD.collectAndServe", REMOVED),
            "its executors cannot start or end at once",
        ),
        (
            "Caused by: java.lang.IllegalStateException: SparkContext has been shutdown",
            "its executors cannot start or end at once",
        ),
        (
            PY4J.format("None.org.apache.spark.api.java.JavaSparkContext", INSUFFICIENT),
            "Spark failed: org.apache.spark.SparkIllegalArgumentException: [INVALID_EXECUTOR_MEMORY.CONFIG_MEMORY]",
        ),
        (
            "x\ny\nCaused by: java.io.IOException: No space left on device",
            "Spark failed: java.io.IOException: No space",
        ),
        ("", "Spark failed: RuntimeError"),
    ],
)
def test_what_spark_says_is_one_sentence(text: str, sentence: str) -> None:
    found = sentence_of(RuntimeError(text))
    assert sentence in str(found)
    assert "\n" not in str(found)
    assert sentence_of(found) is found


LOG_TEXT = """\
26/11/26 18:53:22 INFO StandaloneAppClient$ClientEndpoint: Executor added: app-1/0 on worker-1-10.0.0.7-34991 (10.0.0.7:34991) with 1 core(s)
26/11/26 18:53:22 INFO StandaloneAppClient$ClientEndpoint: Executor added: app-1/1 on worker-1-10.0.0.8-34991 (10.0.0.8:34991) with 1 core(s)
26/11/26 18:53:23 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now RUNNING
26/11/26 18:53:24 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now EXITED (Command exited with code 1)
26/11/26 18:53:56 WARN TaskSchedulerImpl: Initial job has not accepted any resources; check your cluster UI
26/11/26 18:53:57 WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0) (10.0.0.8 executor 1): something
"""  # noqa: E501  # Spark's lines


def test_the_log_names_the_host_and_how_an_executor_ended(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(LOG_TEXT)
    found = sentence_of(RuntimeError("[PYTHON_EXCEPTION] No module named 'kdump'"))
    assert isinstance(found, SparkFailure)
    assert str(found.with_log(str(log))).startswith("the Python of the worker 10.0.0.8 has no kdump 0.1.0 with Spark")
    found = sentence_of(RuntimeError("Master removed our application: FAILED"))
    assert isinstance(found, SparkFailure)
    assert str(found.with_log(str(log))).endswith(
        "; the last one of the worker 10.0.0.7: Executor updated: app-1/0 is now EXITED (Command exited with code 1)"
        f", and its own log is in the worker's work directory (Spark's log: {log})"
    )
    assert str(found.with_log(str(tmp_path / "gone"))) == f"{found} (Spark's log: {tmp_path}/gone)"
    log.write_text(LOG_TEXT * 20_000 + "x" * 1000)
    assert read_driver_log(str(log))[1:2] == ("10.0.0.7",)
    assert read_driver_log(str(log)).ended == 1
    assert read_driver_log(str(log)).waits == "Initial job has not accepted any resources; check your cluster UI"


def test_a_bound_of_the_results_is_told_apart() -> None:
    assert isinstance(sentence_of(RuntimeError("bigger than spark.driver.maxResultSize (1024.0 MiB)")), ResultTooLarge)


def test_the_python_of_local_workers_is_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "other")
    for master, settings, expected in (
        ("local[2]", {}, sys.executable),
        ("spark://host:7077", {}, "other"),
        ("spark://host:7077", {"spark.pyspark.python": "./env/bin/python"}, "./env/bin/python"),
        ("local[2]", {"spark.pyspark.python": "/opt/python"}, "/opt/python"),
    ):
        with session._python_of_workers(master, settings):
            assert os.environ["PYSPARK_PYTHON"] == expected
        assert os.environ["PYSPARK_PYTHON"] == "other"
