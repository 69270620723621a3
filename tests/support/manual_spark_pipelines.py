"""The section of kdump-spark(7) with pipelines: programs that tests/interop/test_spark_pipelines.py runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence

from interop import spark_pipelines

RECIPES = {
    "to_parquet": "The disks of a dead cluster as Parquet, one history over the replicas. kdump convert --master "
    "does the same faster, as its workers write the files themselves; tables of Delta Lake and Iceberg adopt these "
    "without rewriting them (README). Spark guesses the type of topic from the names of the folders: where a topic is "
    "called 2024, set spark.sql.sources.partitionColumnTypeInference.enabled to false before reading them.",
    "to_a_cluster": "To a new cluster, in which the topic exists with as many partitions. Keys, values, headers, "
    "partitions and the order in them are kept. Offsets are new, and so are timestamps: Spark's sink has no column for "
    "them.",
    "newest_of_each_partition": "SQL over a directory.",
    "unfinished_transactions": "Transactions without a marker, as a table.",
    "largest_producers": "The producers that wrote most, as a table.",
    "new_findings": "A scrub of many brokers that says what is new since the last one. folder is a new directory for "
    "the findings of this run, last the one of the run before, None in the first. "
    "identity is the same in every run; the copies of a partition share it, so that path tells them apart.",
}


def program_of(name: str) -> list[str]:
    """The lines of a recipe, without the types of its arguments."""
    recipe = getattr(spark_pipelines, name)
    lines = inspect.getsource(recipe).splitlines()
    body = next(number for number, line in enumerate(lines) if line.endswith(":")) + 1
    return [f"def {name}({', '.join(inspect.signature(recipe).parameters)}):", *lines[body:]]


def section_with_options(
    about: tuple[str, Sequence[str]], options: tuple[str, Mapping[str, str]], recipe: tuple[str, str]
) -> Iterator[str]:
    """The lines of another section: its title and texts; what its options are, and these; a text, and its recipe."""
    from support.manual import command_lines, paragraphs, prose, table

    yield from paragraphs(*about)
    yield ".Pp"
    yield from prose(options[0])
    yield from table(options[1], "option")
    yield ".Pp"
    yield from prose(recipe[0])
    yield from command_lines(program_of(recipe[1]))


def section() -> Iterator[str]:
    """The lines of the section."""
    from support.manual import command_lines, paragraphs, prose

    yield from paragraphs(
        "PIPELINES",
        [
            (
                "In all of them spark is the session, and disks is a list of log directories, or of directories above "
                "them, that the driver and all workers see."
            )
        ],
    )
    for name, text in RECIPES.items():
        yield ".Pp"
        yield from prose(text)
        yield from command_lines(program_of(name))
