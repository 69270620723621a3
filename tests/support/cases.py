"""Cases of a test that are too many and too small for tests of their own: starting and reporting each costs more than
it does."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import pytest

Item = TypeVar("Item")

CASES: Final = int(os.environ.get("KDUMP_CASES", "0"))
"""Of each test with parameters only so many cases are run, from all over its list; 0 for all."""


def share(cases: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the cases, the first and the last among them."""
    if len(cases) <= count:
        return list(cases)
    return [cases[index * (len(cases) - 1) // max(count - 1, 1)] for index in range(count)]


class Named(NamedTuple):
    """What one case gives to the parameters, and its name."""

    values: Sequence[Any]
    id: str


def _named(value: Any, parameters: int, name: Callable[[Any], object] | str) -> Named:
    """Of a value as `parametrize` takes it: alone, several, or a `pytest.param` with an id."""
    if isinstance(value, type(pytest.param())):
        assert not value.marks, "a case with marks: take pytest.mark.parametrize"
        return Named(value.values, str(value.id or value.values))
    return Named([value] if parameters == 1 else value, name if isinstance(name, str) else str(name(value)))


def each(
    names: str | Sequence[str], values: Iterable[Any], ids: Callable[[Any], object] | Sequence[str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """What `pytest.mark.parametrize` does, in one test that tries every case and names those that fail.

    The test must not depend on a fixture of its own for each case, as `tmp_path` is, and no case of it may skip.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = [_named(value, len(wanted), ids if callable(ids) else ids[number]) for number, value in enumerate(values)]
    assert cases, "a test without cases"

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(**fixtures: Any) -> None:
            failed: dict[str, BaseException] = {}
            for case in share(cases, CASES) if CASES else cases:
                try:
                    test(**dict(zip(wanted, case.values, strict=True)), **fixtures)
                except pytest.skip.Exception as skipped:
                    raise AssertionError(f"{case.id} is skipped: take pytest.mark.parametrize") from skipped
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
                    failed[case.id] = error
            if failed:
                first = next(iter(failed.values()))
                first.add_note(f"{len(failed)} of {len(cases)} cases fail, this one first: {', '.join(failed)}")
                raise first

        parameters = inspect.signature(test).parameters
        assert not {"tmp_path", "kdump"} & {*parameters}, "a directory for each case: take pytest.mark.parametrize"
        kept = [parameter for name, parameter in parameters.items() if name not in wanted]
        all_cases.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        return all_cases

    return decorated
