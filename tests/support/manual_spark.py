"""The page kdump-spark(7): a section for each thing that kdump does on Spark.

Each section is a module of its own with `section()`, which yields lines of mdoc; a module that is not there leaves its
section out. The order here is that of the page.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib import import_module
from typing import Final

NAME: Final = "kdump-spark.7"
ABOUT: Final = "kdump on Spark: the same commands on a cluster, and segments as a data source"
SECTIONS: Final = ("engine", "source", "stream", "writer", "pipelines", "scale")
"""The modules support.manual_spark_… ."""


def sections() -> Iterator[str]:
    """The sections of the page that are there."""
    for name in SECTIONS:
        module = f"support.manual_spark_{name}"
        if importlib.util.find_spec(module) is not None:
            yield from import_module(module).section()
