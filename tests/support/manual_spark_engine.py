"""kdump-spark(7): the commands on Spark, with a recipe for each way to have a cluster.

`RECIPES` are run by tests/interop/test_spark_recipes.py, with its own addresses and directories in their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from support.manual_mdoc import literal_lines

INTRO: Final = (
    (
        "kdump verify, stat, recover and convert take --master URL, or the environment variable KDUMP_MASTER. The "
        "work is cut as in processes of one machine, the workers of Spark do it, and the report is the same line for "
        "line. It needs PySpark 4.2 or later and Java 17 or later on the machine where the command runs, and kdump "
        "of the same version in the Python of every worker: a worker with another build, "
        "which a digest of the sources tells apart, refuses its tasks. The "
        "option --jobs counts processes of one machine; given beside KDUMP_MASTER it goes before it."
    ),
    (
        "Every worker has to reach the same paths as the command: a file system that all of them mount, or an object "
        "store. A path that a worker does not have is an error that names the host, and the exit status is 3. "
        "Companions of large partitions, the checkpoints of a log directory and its listing are read where the "
        "command runs."
    ),
    (
        "kdump recover plans on the workers. What changes files runs in the process of the command, which holds the "
        "locks, and only on paths that this machine has."
    ),
)
INSTALL: Final = ("pip install 'kdump[spark]'",)
TASKS: Final = (
    (
        "A task of Spark reads 128 to 512 MiB of logs, as many small partitions as that takes, or ranges of a large "
        "one; where there is work for hours a task grows with it, to partitions of 4 GiB. Tasks run in waves of four "
        "for each slot, three waves at a time, and reports are printed as waves end. Only numbers, findings and the "
        "names of files travel to the driver, and not more at once than a quarter of spark.driver.maxResultSize."
    ),
    (
        "A task of kdump does not fail on damage. Where Spark loses a worker, it runs the task again elsewhere "
        "(spark.task.maxFailures, 4 by default), and the report is the same. Ctrl-C cancels the jobs, stops the "
        "session, and prints the summary so far."
    ),
    (
        "What Spark prints goes to a file in the temporary directory, which is deleted when all went well. Where "
        "Spark failed, the error names it."
    ),
)


class ClusterRecipe(NamedTuple):
    """A way to have a cluster: its heading, what it needs, and the commands."""

    name: str
    text: str
    commands: tuple[str, ...]


RECIPES: Final = (
    ClusterRecipe(
        "One machine",
        (
            "All cores of this machine, without a cluster. kdump --jobs does the same with less; this is to try a "
            "setting, and for a machine where Spark runs anyway."
        ),
        ("kdump verify --master 'local[*]' /data/kafka",),
    ),
    ClusterRecipe(
        "A standalone cluster whose workers have kdump",
        (
            "Install kdump[spark] with the same version of Python on every machine, at the same path. "
            "PYSPARK_PYTHON, or the setting spark.pyspark.python, says where; without it a worker runs the python3 "
            "of its PATH. Every setting of Spark can follow --spark-conf."
        ),
        (
            "kdump verify --master spark://master:7077 \\",
            "    --spark-conf spark.pyspark.python=/opt/kdump/bin/python \\",
            "    --spark-conf spark.executor.memory=1g /mnt/brokers/",
        ),
    ),
    ClusterRecipe(
        "A packed environment",
        (
            "Workers without kdump: venv-pack packs an environment that has it, and Spark unpacks it on each worker. "
            "The archive does not hold the interpreter that the environment was made with: that has to be on the "
            "workers, at the same path. On YARN the same setting is spark.yarn.dist.archives; on Kubernetes make an "
            "image with kdump installed."
        ),
        (
            "python3 -m venv environment",
            "environment/bin/pip install 'kdump[spark]' venv-pack",
            "environment/bin/venv-pack -p environment -o kdump.tar.gz",
            "environment/bin/kdump verify --master spark://master:7077 \\",
            "    --spark-conf spark.archives=kdump.tar.gz#packed \\",
            "    --spark-conf spark.pyspark.python=./packed/bin/python /mnt/brokers/",
        ),
    ),
    ClusterRecipe(
        "spark-submit",
        (
            "Where jobs have to go through spark-submit, give it a program of two lines. What kdump gets as --master "
            "has to be what spark-submit gets."
        ),
        (
            "echo 'from kdump.cli import main' > kdump_main.py",
            "echo 'main()' >> kdump_main.py",
            "spark-submit --master spark://master:7077 \\",
            "    --archives kdump.tar.gz#packed \\",
            "    --conf spark.pyspark.python=./packed/bin/python \\",
            "    --conf spark.pyspark.driver.python=environment/bin/python \\",
            "    kdump_main.py verify --master spark://master:7077 /mnt/brokers/",
        ),
    ),
    ClusterRecipe(
        "Spark Connect",
        (
            "A server of Spark Connect has the driver; the command needs no Java. Its workers, not this machine, "
            "need kdump, and settings of the cluster are the server's. The client needs the packages of "
            "pyspark[connect]."
        ),
        (
            "pip install 'kdump[spark]' 'pyspark[connect]'",
            "kdump verify --master sc://server:15002 /mnt/brokers/",
        ),
    ),
)
PROGRAM: Final = (
    (
        "In a Spark program, kdump.spark.session.spark_engine gives the engine that the functions of kdump take. It "
        "uses the session of the program, and leaves it as it is:"
    ),
    (
        "import kdump",
        "from kdump.spark.session import spark_engine",
        "",
        "with spark_engine('local[2]') as engine:",
        "    found = kdump.discover(['/data/kafka'])",
        "    for report in kdump.verify_logs(found, engine=engine):",
        "        print(report.path, len(report.findings))",
    ),
)


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual import paragraphs, prose

    yield from paragraphs("COMMANDS ON A CLUSTER", INTRO)
    yield from literal_lines(INSTALL)
    for text in TASKS:
        yield ".Pp"
        yield from prose(text)
    for recipe in RECIPES:
        yield f".Ss {recipe.name}"
        yield from prose(recipe.text)
        yield from literal_lines(recipe.commands)
    yield ".Ss From a program"
    yield from prose(PROGRAM[0])
    yield from literal_lines(PROGRAM[1])
