"""What Spark's own errors mean, each as one sentence; and kdump's in Spark, as little more than theirs."""

import re
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Final

from kdump import __version__
from kdump.errors import KdumpError
from kdump.spark.driver_log import read_driver_log
from kdump.spark.tasks import python_version

_SHOWN: Final = 300
"""The most characters of a message of Spark that has no sentence here."""
_SOMEWHERE: Final = "a worker"
_ENDED: Final = (
    "Master removed our application",
    "stopped SparkContext",
    "SparkContext was shut down",
    "SparkContext has been shutdown",
)
_NO_JAVA: Final = ("connect to the Java server", "sending or receiving", "Answer from Java side is empty")
"""Py4J's words where the Java process does not answer. Where it has ended, a connection is refused or reset."""
_HOST: Final = re.compile(r"\(TID \d+\) \(([^ )]+)")


class SparkFailure(KdumpError):
    """Spark failed; its log may say more."""

    def with_log(self, path: str) -> "SparkFailure":
        """The failure with what the driver's log says about it: the host, how an executor ended."""
        seen, sentence = read_driver_log(path), str(self)
        if seen.host:
            sentence = sentence.replace(_SOMEWHERE, f"the worker {seen.host}", 1)
        if isinstance(self, NoExecutor) and seen.executor:
            where = f" of the worker {seen.executor_host}" if seen.executor_host else ""
            sentence += f"; the last one{where}: {seen.executor}, and its own log is in the worker's work directory"
        return type(self)(f"{sentence} (Spark's log: {path})")


class NoExecutor(SparkFailure):
    """No executor stays alive."""


class ResultTooLarge(SparkFailure):
    """The results of one job are larger than spark.driver.maxResultSize."""


def sentence_of(error: BaseException) -> KdumpError:
    """The error that stands for one of Spark's."""
    if isinstance(error, KdumpError):
        return error
    text = str(error)
    found = _HOST.search(text)
    where = f"the worker {found[1]}" if found else _SOMEWHERE
    if "maxResultSize" in text:
        return ResultTooLarge(
            "the results are larger than spark.driver.maxResultSize allows;"
            " give more with --spark-conf spark.driver.maxResultSize=4g and spark.driver.memory"
        )
    if "No module named 'kdump" in text:
        return SparkFailure(
            f"the Python of {where} has no kdump {__version__} with Spark; install kdump[spark] there,"
            " or set PYSPARK_PYTHON or --spark-conf spark.pyspark.python to a Python that has it"
        )
    missing = re.search(r"No module named '([^']+)'", text)
    if missing:
        return SparkFailure(f"the Python of {where} has no {missing[1]}; install kdump[spark] there")
    if "PYTHON_VERSION_MISMATCH" in text or "has different version" in text:
        return SparkFailure(
            f"{where} has another version of Python than {python_version()}, which runs here;"
            " set PYSPARK_PYTHON or --spark-conf spark.pyspark.python to the same version on all machines"
        )
    program = re.search(r"Cannot run program \"([^\"]+)\"", text)
    if program:
        return SparkFailure(
            f"{where} cannot start the Python {program[1]};"
            " set PYSPARK_PYTHON or --spark-conf spark.pyspark.python to one that is there"
        )
    if "Python worker exited unexpectedly" in text or "Python worker failed to connect" in text:
        return SparkFailure(f"a Python process on {where} was killed, perhaps because memory ran out")
    if any(words in text for words in _ENDED):
        return NoExecutor(
            "Spark has ended the application: its executors cannot start or end at once, or it was stopped"
        )
    if isinstance(error, ConnectionError) or any(words in text for words in _NO_JAVA):
        return SparkFailure(
            "the driver of Spark, a Java process of this machine, has ended, perhaps because memory ran out;"
            " --spark-conf spark.driver.memory=4g gives it more"
        )
    if "unresponsive" in text:
        return SparkFailure("the master of Spark does not answer")
    return SparkFailure(f"Spark failed: {_first_line(text) or type(error).__name__}")


@contextmanager
def as_sentences() -> Iterator[None]:
    """Raise what stands for an error of Spark in its place."""
    try:
        yield
    except Exception as error:
        raise sentence_of(error) from error


class WithoutFrames(ContextDecorator):
    """Raises a KdumpError that leaves the block, or the function, without the frames below it.

    Spark puts the whole traceback of a Python data source before the sentence, several times, and an error of this kind
    says all that there is to say. (As a generator with contextlib.contextmanager it would get its frames back.)
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, KdumpError):
            raise error.with_traceback(None) from None


def _first_line(text: str) -> str:
    """The line of a message that says most: the last cause, else the first line."""
    causes = [line for line in text.splitlines() if line.lstrip().startswith("Caused by:")]
    line = causes[-1].partition(":")[2] if causes else _first(text)
    line = " ".join(line.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


def _first(text: str) -> str:
    """The first line; where it is Py4J's, which names a method, the one with the exception that follows it."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling") and lines[1].startswith(": "):
        return lines[1].removeprefix(": ")
    return lines[0] if lines else ""
