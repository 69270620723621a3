"""Every class that a user of the library meets has a public name: what exported functions and methods take and return,
and what the attributes of exported classes are."""

from __future__ import annotations

import ast
import collections.abc
import functools
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kdump
import user_program
from support import build
from support.public_names import ROOT, differing, public_names, stubs

# What one function of kdump hands to another: the classes of these stay inside.
INSIDE = {
    "DumpOptions.committed_read": "UncommittedRead",
    "Partition.directory_files": "DirectoryFiles",
    "Partition.listing": "Listing",
    "Plan.files": "Stamp",
    "Plan.sources": "Stamp",
    "Plan.rebuild_cache": "RebuildCache",
    "Plan.rebuild_request": "RebuildRequest",
    "Plan.segments": "PlannedSegment",
    "Report.context": "CheckpointContext",
    "RecordDecoder.tables": "MessageTables",
    "RecordStatistics.of": "RecordCollector",
    "Report.directory_files": "DirectoryFiles",
    "Report.views": "SegmentView",
    "SegmentStatistics.keys": "KeyStatistics",
    "verify_logs": "ScanOptions",
}
# Only kdump itself builds these: what their constructors take is no user's business.
RESULTS = {"BatchRun", "FetchDataInfo", "Records", "Report", "SegmentStatistics"}
SPECIAL = {"__init__", "__call__", "__enter__", "__iter__", "__next__"}


def modules() -> Iterator[ModuleType]:
    """All modules; without PySpark those that need none of it, and then no public name may need another one."""
    for module in pkgutil.walk_packages(kdump.__path__, "kdump."):
        if module.name == "kdump.__main__":
            continue
        try:
            yield import_module(module.name)
        except ModuleNotFoundError as missing:
            if module.name.split(".")[1] != "spark" or (missing.name or "").split(".")[0] != "pyspark":
                raise


@functools.cache
def names() -> dict[str, object]:
    """The names that annotations use, also those that a module imports for type checkers only."""
    known: dict[str, object] = {**vars(collections.abc), **vars(typing)}
    for module in modules():
        known |= {name: value for name, value in vars(module).items() if not isinstance(value, ModuleType)}
    return known


def classes_in(hint: Any) -> Iterator[type]:
    """The classes of kdump in a type."""
    arguments = typing.get_args(hint)
    if isinstance(hint, list):
        arguments = tuple(hint)
    elif isinstance(hint, type) and hint.__module__.startswith("kdump"):
        yield hint
    for argument in arguments:
        yield from classes_in(argument)


def hints(value: Callable[..., object] | type) -> dict[str, Any]:
    return typing.get_type_hints(value, globalns={**names(), **vars(import_module(value.__module__))})


def types_of(name: str, value: object) -> Iterator[tuple[str, type]]:
    """Where a public function or class names classes of kdump, and which."""
    if inspect.isfunction(value):
        for hint in hints(value).values():
            for found in classes_in(hint):
                yield name, found
    elif isinstance(value, type):
        for attribute, hint in hints(value).items():
            if not attribute.startswith("_"):
                for found in classes_in(hint):
                    yield f"{name}.{attribute}", found
        for base in value.__mro__:
            if base.__module__.startswith("kdump"):
                for attribute, member in vars(base).items():
                    yield from types_of_member(name, attribute, member)
    else:
        for found in classes_in(value):
            yield name, found


def types_of_member(name: str, attribute: str, member: Any) -> Iterator[tuple[str, type]]:
    if attribute.startswith("_") and (attribute not in SPECIAL or (attribute == "__init__" and name in RESULTS)):
        return
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, classmethod | staticmethod):
        member = member.__func__
    elif isinstance(member, functools.cached_property):
        member = member.func
    if inspect.isfunction(member):
        yield from types_of(f"{name}.{attribute}", member)


@functools.cache
def hidden() -> dict[str, set[str]]:
    """The classes without a public name, by where they are met."""
    public = {}
    for name in public_names():
        package, _, own = name.rpartition(".")
        if package != "kdump.spark":  # Spark alone uses it
            public[own] = getattr(import_module(package), own)
    found: dict[str, set[str]] = {}
    for name, value in public.items():
        for where, one in types_of(name, value):
            if public.get(one.__name__) is not one:
                found.setdefault(where, set()).add(one.__name__)
    return found


def test_every_class_that_a_user_meets_has_a_public_name() -> None:
    assert {where: classes for where, classes in hidden().items() if classes != {INSIDE.get(where)}} == {}


@pytest.mark.parametrize("where", INSIDE)
def test_what_stays_inside_is_still_there(where: str) -> None:
    assert hidden().get(where) == {INSIDE[where]}


def test_public_names_are_typed() -> None:
    assert not differing(), "run python tests/support/public_names.py"
    for path, text in stubs().items():
        tree = ast.parse(text)
        seen = [one.asname for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names]
        package = ".".join(path.parent.relative_to(ROOT).parts)
        assert set(import_module(package).__all__) - {"__version__"} <= set(seen)
        assert set(seen) <= set(dir(import_module(package)))
    assert (Path(kdump.__file__).parent / "py.typed").exists()


def test_types_are_found_in_every_place() -> None:
    found = set(types_of("Log", kdump.Log)) | set(types_of("verify_logs", kdump.verify_logs))
    found |= set(types_of("Refusal", kdump.broker.Refusal)) | set(types_of("Policy", kdump.writer.Policy))
    assert {
        ("Log.read", kdump.log.FetchDataInfo),
        ("Log.delete", kdump.log.SegmentDescription),
        ("verify_logs", kdump.Report),
        ("Refusal.reason", kdump.broker.RefusalReason),
        ("Policy", kdump.log.SegmentDescription),
    } <= found


def test_a_program_of_a_user(tmp_path: Path) -> None:
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.parent.mkdir()
    data = [build.batch([build.record(b"k", b"v", timestamp=1000)], base_offset=offset) for offset in range(3)]
    log.write_bytes(data[0] + data[1][:-1] + b"?" + data[2])
    assert list(user_program.errors(log)) == ["batch/crc"]
    assert list(user_program.damage(log)) == ["batch/crc"]
    assert list(user_program.given_up(log.parent)) == [1]
    assert [run.run for run in user_program.undone(log.parent)] == ["first"]
    assert user_program.batches(log) == 3  # without deep no checksum is compared
    assert user_program.converted(log, tmp_path / "out.csv") == 2
    assert list(user_program.names_that_are_not_there()) == [
        "kdump.EpochRun is kdump.broker.EpochRun",
        "module 'kdump.stat' has no attribute 'nothing'",
    ]
