"""A back end of Spark without Spark: jobs run here, as the bytes that workers would get."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from kdump.errors import KdumpError
from kdump.spark.tasks import run_group


class InlineBackend:
    """Runs the groups of a job one after another. `jobs` has the number of groups of each, `descriptions` its text."""

    def __init__(
        self,
        slots: int = 2,
        most_result_bytes: int = 0,
        *,
        run: Callable[[bytes], bytes] = run_group,
        names_host: bool = False,
    ) -> None:
        self.slots, self.most_result_bytes, self.names_host = slots, most_result_bytes, names_host
        self.jobs: list[int] = []
        self.descriptions: list[str] = []
        self.answered = 0
        self.cancelled = threading.Event()
        self._run = run

    def run(self, groups: Sequence[bytes], description: str) -> list[bytes]:
        self.jobs.append(len(groups))
        self.descriptions.append(description)
        answers = [self._run(group) for group in groups]
        if self.most_result_bytes and sum(map(len, answers)) > self.most_result_bytes:
            raise RuntimeError("Total size of serialized results is bigger than spark.driver.maxResultSize")
        self.answered += len(answers)
        return answers

    def cancel(self) -> None:
        self.cancelled.set()

    def has_workers(self) -> bool:
        return True

    def why_it_waits(self) -> str:
        return "; Spark's log: nothing"


def values(item: Any) -> Any:
    """A report, statistics or a plan as values that compare."""
    if isinstance(item, KdumpError):
        return type(item), str(item)
    if hasattr(item, "__slots__") and not isinstance(item, tuple):
        return {name: values(getattr(item, name)) for name in item.__slots__}
    return [values(one) for one in item] if isinstance(item, list) else item
