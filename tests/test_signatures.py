"""The functions of the library have one convention: what they read, then their options, then keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter

import kdump
from support.cases import each

READ = {"found", "files", "paths", "path", "start"}
"""What the first argument may be called: what discover yields, what log_files yields, paths, one path."""
CALLED = {"on_bytes", "on_damage", "on_error", "on_map", "on_notice", "on_path"}
"""What is called as the work goes on. Damage and errors come among the values wherever these can hold them."""
FUNCTIONS = {
    name: value for name in kdump.__all__ if inspect.isfunction(value := getattr(kdump, name)) and name != "__version__"
}
MORE = {"convert_logs": "output", "table_reader": "table"}
"""What some need beside that."""


def parameters(function: Callable[..., object]) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def text(parameter: Parameter) -> str:
    if isinstance(parameter.annotation, str):
        return parameter.annotation
    return inspect.formatannotation(parameter.annotation)


@each("name", sorted(FUNCTIONS))
def test_what_is_read_comes_first_then_the_options(name: str) -> None:
    first, *others = parameters(FUNCTIONS[name])
    assert first.name in READ
    assert first.default is Parameter.empty
    positional = [one for one in others if one.kind is not Parameter.KEYWORD_ONLY]
    needed = [one.name for one in positional if one.default is Parameter.empty]
    assert needed == [MORE[name]] if name in MORE else needed == []
    optional = [one for one in positional if one.default is not Parameter.empty]
    assert [(one.name, one.default) for one in optional] in ([("options", None)], [])
    for one in others:
        assert one.kind is not Parameter.KEYWORD_ONLY or one.default is not Parameter.empty


@each("name", sorted(FUNCTIONS))
def test_an_options_value_is_optional_and_named_alike(name: str) -> None:
    for one in parameters(FUNCTIONS[name]):
        if "Options" in text(one):
            assert (one.name == "options" or one.name.endswith("_options"), one.default) == (True, None)


def test_keywords_of_one_name_are_one_thing() -> None:
    seen: dict[str, set[str]] = {}
    for function in FUNCTIONS.values():
        for one in parameters(function):
            seen.setdefault(one.name, set()).add(text(one))
    assert {name: sorted(types) for name, types in seen.items() if len(types) > 1 and name != "options"} == {}
    assert {name for name in seen if name.startswith("on_")} == CALLED
    callers = {name for name, function in FUNCTIONS.items() for one in parameters(function) if one.name == "on_damage"}
    assert callers == {"arrow", "table_reader"}
