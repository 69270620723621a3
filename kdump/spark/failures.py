"""What Spark's own errors mean, each as one sentence."""

import re
from typing import Final

from kdump import __version__
from kdump.errors import KdumpError
from kdump.spark.tasks import python_version

_SHOWN: Final = 300
"""The most characters of a message of Spark that has no sentence here."""
_HOST: Final = re.compile(r"\(TID \d+\) \(([^ )]+)")


class SparkFailure(KdumpError):
    """Spark failed; its log may say more."""


class ResultTooLarge(SparkFailure):
    """The results of one job are larger than spark.driver.maxResultSize."""


def sentence_of(error: BaseException) -> KdumpError:
    """The error that stands for one of Spark's."""
    if isinstance(error, KdumpError):
        return error
    text = str(error)
    found = _HOST.search(text)
    where = f"the worker {found[1]}" if found else "a worker"
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
        return SparkFailure(f"a Python process of {where} was killed, perhaps because memory ran out")
    if "unresponsive" in text or "Master removed our application" in text:
        return SparkFailure("the master of Spark does not answer, or has removed this application")
    return SparkFailure(f"Spark failed: {_first_line(text) or type(error).__name__}")


def _first_line(text: str) -> str:
    """The line of a message that says most: the last cause, else the first line."""
    causes = [line for line in text.splitlines() if line.lstrip().startswith("Caused by:")]
    line = causes[-1].partition(":")[2] if causes else next((one for one in text.splitlines() if one.strip()), "")
    line = " ".join(line.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"
