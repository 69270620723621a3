"""How the package is built: names that stand once, functions and modules that can be read at one sitting, rooms that
import one way."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kdump"
MODULES = sorted(PACKAGE.rglob("*.py"))
KERNEL = sorted((PACKAGE / "kernel").glob("*.p[yx][xd]"))
TABLES = {"verify/catalogue/companions.py", "verify/catalogue/logs.py", "verify/catalogue/partitions.py"}
FUNCTION_LINES, MODULE_LINES, KERNEL_LINES, COLUMNS = 60, 500, 900, 120


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def classes() -> Iterator[tuple[str, str]]:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node.name, name_of(path)
    for path in KERNEL:
        for name in re.findall(r"^(?:cdef )?class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield name, path.stem  # a .pxd declares what the .pyx of the same name defines


def test_each_class_name_stands_once() -> None:
    homes = defaultdict(set)
    for name, home in classes():
        homes[name.lstrip("_")].add(home)
    assert {name: sorted(found) for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_can_be_read_at_one_sitting(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree) is not None
    if name_of(path) not in TABLES:
        assert text.count("\n") <= MODULE_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    }
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES} == {}


@pytest.mark.parametrize("path", [*MODULES, *PACKAGE.rglob("*.pyi"), *KERNEL], ids=name_of)
def test_columns(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS] == []


@pytest.mark.parametrize("path", KERNEL, ids=name_of)
def test_the_kernel_can_be_read_and_imports_nothing_of_the_other_rooms(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= KERNEL_LINES
    imported = re.findall(r"^\s*(?:from|c?import)\s+(kdump[\w.]*)", text, re.MULTILINE)
    assert {name for name in imported if not name.startswith("kdump.kernel")} == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_state_that_crosses_a_module_has_a_type(path: Path) -> None:
    """No public function takes or returns a dict of anything. What click passes to a command is one."""
    if path.parent.name == "cli":
        return
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            annotations = [argument.annotation for argument in (*node.args.args, *node.args.kwonlyargs)]
            said = [ast.unparse(one) for one in (*annotations, node.returns) if one is not None]
            found += [f"{node.name}: {one}" for one in said if re.search(r"\bdict\[str, Any\]", one)]
    assert found == []
