"""Starts Spark for a command and stops it: a driver of its own, or a session of a Connect server.

A driver is a Java process. What it prints, and what the workers of a local master print, goes to a file that is deleted
when all went well. Nothing of it reaches the terminal.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from kdump.errors import KdumpError
from kdump.named_tuple import NamedTuple
from kdump.spark import driver_log, masters
from kdump.spark.backends import ConnectBackend, RddBackend, SparkBackend
from kdump.spark.engine import SparkEngine
from kdump.spark.failures import SparkFailure, sentence_of
from kdump.spark.requirements import check_connect, check_pyspark, java_problem
from kdump.spark.store_settings import NO_STORES, StoreSettings

if TYPE_CHECKING:
    from pyspark import SparkContext

_Started = TypeVar("_Started")
ANSWER_SECONDS: Final = 10
"""The time that a master has to accept a connection."""
START_SECONDS: Final = 150
"""The time that Spark has to start. A standalone master is asked for a minute before Spark gives up."""
_STOP_SECONDS: Final = 20
_GATEWAY: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit, which has started the driver already."""
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PYTHON: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
_SETTINGS: Final = {
    "spark.app.name": "kdump",
    "spark.ui.showConsoleProgress": "false",
    # The working directory of a process is no place to import from: a folder there may be called kdump, too.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
_LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@contextmanager
def spark_engine(
    master: str, settings: Mapping[str, str] | None = None, on_notice: Callable[[str], object] | None = None
) -> Iterator[SparkEngine]:
    """Give an engine on a master, and stop what was started for it.

    `settings` are Spark's own. A context of this process with the same master is used, and left as it is. On a Connect
    server the engine has a session of its own. `on_notice` is called with a sentence while the cluster lets the work
    wait. Raises KdumpError where Spark cannot be had.
    """
    master = masters.check_master(master)
    check_pyspark()
    _check_answer(master)
    with ExitStack() as stack:
        start = _connect if masters.is_connect(master) else _classic
        backend = start(master, dict(settings or {}), stack)
        stores = StoreSettings(
            [*(backend.settings if isinstance(backend, RddBackend) else ()), *(settings or {}).items()]
        )
        stores.use()
        stack.callback(NO_STORES.use)
        yield SparkEngine(backend, on_notice, stores)


def _check_answer(master: str) -> None:
    """Raises KdumpError where no address of the master accepts a connection."""
    addresses = masters.addresses(master)
    for address in addresses:
        with suppress(OSError), socket.create_connection(address, ANSWER_SECONDS):
            return
    if addresses:
        raise KdumpError(f"{master}: the master of Spark does not answer (no connection within {ANSWER_SECONDS} s)")


# ---- Connect


def _connect(master: str, settings: dict[str, str], stack: ExitStack) -> SparkBackend:
    check_connect()

    def start() -> ConnectBackend:
        from pyspark.sql.connect.session import SparkSession

        # The builder gives the session that this process has, of whatever server, and it would be stopped at the end.
        session = SparkSession(connection=master)
        stack.callback(_quietly, session.stop)
        for name, value in settings.items():
            if not session.conf.isModifiable(name):
                raise KdumpError(f"{master}: {name} is a setting of the server, which cannot be changed from here")
            session.conf.set(name, value)
        return ConnectBackend(session)

    return _in_time(start, master)


# ---- a driver of its own


class _Driver(NamedTuple):
    """The Java process of the driver, None where spark-submit has started it; the file that it prints to."""

    gateway: Any
    log: IO[bytes]


def _classic(master: str, settings: dict[str, str], stack: ExitStack) -> SparkBackend:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None:
        log = stack.enter_context(_log_file())
        chosen = _SETTINGS | (_LOCAL_SETTINGS if masters.is_local(master) else {}) | settings
        chosen[_JAVA_OPTIONS] = f"{chosen.get(_JAVA_OPTIONS, '')} {stack.enter_context(_log_settings())}".strip()
        context = _in_time(lambda: _start(master, chosen, log, stack), master)
        return RddBackend(context, log.name)
    if context.master != master:
        raise KdumpError(f"this process has a Spark session already, on {context.master} and not on {master}")
    return RddBackend(context)


def _start(master: str, settings: dict[str, str], log: IO[bytes], stack: ExitStack) -> "SparkContext":
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    configuration = SparkConf(loadDefaults=False)
    configuration.setAll([("spark.master", master), *settings.items()])
    with _python_of_workers(master, settings):
        try:
            gateway = launch_gateway(configuration, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except Exception as error:
            problem = java_problem()
            if problem is not None:
                raise KdumpError(problem) from error
            raise SparkFailure(f"the driver of Spark did not start: {_last_line(log)}") from error
        stack.callback(_end_gateway, gateway)
        context = SparkContext(conf=configuration, gateway=gateway)
        stack.callback(_quietly, context.stop)
    if _GATEWAY in os.environ:
        context.setLogLevel("ERROR")  # it prints to the terminal
    return context


@contextmanager
def _python_of_workers(master: str, settings: Mapping[str, str]) -> Iterator[None]:
    """PySpark takes the Python of the workers from the environment, and its own setting counts in spark-submit only."""
    given = next((settings[name] for name in _PYTHON if name in settings), None)
    if given is None and masters.is_local(master):
        given = sys.executable
    before = os.environ.get("PYSPARK_PYTHON")
    if given is not None:
        os.environ["PYSPARK_PYTHON"] = given
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYSPARK_PYTHON"] = before
        else:
            os.environ.pop("PYSPARK_PYTHON", None)


def _end_gateway(gateway: Any) -> None:
    """End the Java process, which would live as long as this one."""
    from pyspark import SparkContext

    _quietly(gateway.shutdown)
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def _log_file() -> Iterator[IO[bytes]]:
    """The file that Spark prints to; it stays where Spark failed."""
    with tempfile.NamedTemporaryFile(prefix="kdump-spark-", suffix=".log", delete=False) as log:
        try:
            yield log
        except SparkFailure as error:
            raise error.with_log(log.name) from error
        except BaseException:
            os.unlink(log.name)
            raise
        os.unlink(log.name)


@contextmanager
def _log_settings() -> Iterator[str]:
    """The option of Java that says what the driver prints. Settings that the user has for all programs stay unused."""
    with tempfile.NamedTemporaryFile("w", prefix="kdump-spark-", suffix=".properties", encoding="ascii") as settings:
        settings.write(driver_log.SETTINGS)
        settings.flush()
        yield f"-Dlog4j2.configurationFile=file:{settings.name}"


def _last_line(log: IO[bytes]) -> str:
    with open(log.name, encoding="utf-8", errors="replace") as told:
        lines = [line.strip() for line in told if line.strip()]
    return lines[-1] if lines else "it printed nothing"


# ---- both


def _in_time(start: Callable[[], _Started], master: str) -> _Started:
    """What `start` returns, from a thread, so that Ctrl-C and the time limit end the wait.

    Outside the main thread PySpark leaves the signals as they are, too.
    """
    results = list[_Started]()
    errors = list[BaseException]()

    def run() -> None:
        try:
            results.append(start())
        except BaseException as error:  # noqa: BLE001  # raised below
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="kdump-spark-start")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's own, about its packages, are nothing that an operator can change
        thread.start()
        thread.join(START_SECONDS)
    if errors:
        raise sentence_of(errors[0]) from errors[0]
    if not results:
        raise KdumpError(f"{master}: Spark did not start within {START_SECONDS} s")
    return results[0]


def _quietly(call: Callable[[], object]) -> None:
    """Stop something. It may be gone already. An interrupt waits: a second Ctrl-C must not leave a process."""
    before = _ignore_interrupts()
    try:
        call()
    except Exception:  # noqa: BLE001  # it is gone
        pass
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _ignore_interrupts() -> Any:
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGINT, signal.SIG_IGN)
