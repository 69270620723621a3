"""How the package is built: names that stand once, functions and modules that can be read at one sitting, rooms that
import one way."""

from __future__ import annotations

import ast
import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.cases import each

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kdump"
MODULES = sorted(PACKAGE.rglob("*.py"))
KERNEL = sorted((PACKAGE / "kernel").glob("*.p[yx][xd]"))
TABLES = {"verify/catalogue/companions.py", "verify/catalogue/logs.py", "verify/catalogue/partitions.py"}
FUNCTION_LINES, MODULE_LINES, KERNEL_LINES, COLUMNS = 60, 900, 900, 120


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """It stays to the end of the run: to collect nothing meanwhile, and to pass it over afterwards, saves seconds."""
    gc.disable()
    try:
        return ast.parse(text_of(path))
    finally:
        gc.freeze()
        gc.enable()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """The statements in a node, and in these: nine tenths of a tree are expressions, which have none."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, name, ()):
            yield inner
            yield from statements(inner)


def classes() -> Iterator[tuple[str, str]]:
    for path in MODULES:
        for name in re.findall(r"^ *class (\w+)[(:]", text_of(path), re.MULTILINE):
            yield name, name_of(path)
    for path in KERNEL:
        for name in re.findall(r"^(?:cdef )?class (\w+)", text_of(path), re.MULTILINE):
            yield name, f"kernel/{path.stem}"  # a .pxd declares what the .pyx of the same name defines


def test_each_class_name_stands_once_in_a_room() -> None:
    homes = defaultdict(set)
    for name, home in classes():
        homes[home.partition("/")[0], name.lstrip("_")].add(home)
    assert {name: sorted(found) for name, found in homes.items() if len(found) > 1} == {}


@each("path", MODULES, ids=name_of)
def test_a_module_can_be_read_at_one_sitting(path: Path) -> None:
    text = text_of(path)
    tree = tree_of(path)
    assert ast.get_docstring(tree) is not None
    if name_of(path) not in TABLES:
        assert text.count("\n") <= MODULE_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in statements(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    }
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES} == {}


@each("path", [*MODULES, *PACKAGE.rglob("*.pyi"), *KERNEL], ids=name_of)
def test_columns(path: Path) -> None:
    lines = text_of(path).splitlines()
    assert [number for number, line in enumerate(lines, 1) if len(line) > COLUMNS] == []


@each("path", KERNEL, ids=name_of)
def test_the_kernel_can_be_read_and_imports_nothing_of_the_other_rooms(path: Path) -> None:
    text = text_of(path)
    assert text.count("\n") <= KERNEL_LINES
    imported = re.findall(r"^\s*(?:from|c?import)\s+(kdump[\w.]*)", text, re.MULTILINE)
    assert {name for name in imported if not name.startswith("kdump.kernel")} == set()
    # What nothing here uses and C compilers would compile: a quarter of what the build takes.
    unused = "# cython: binding=False, auto_pickle=False, emit_code_comments=False\n"
    assert path.suffix == ".pxd" or unused in text


ANYTHING = re.compile(r"\b(?:dict|Mapping|MutableMapping)\[str, (?:Any|object)\]")


def annotations(body: list[ast.stmt]) -> Iterator[str]:
    """What other modules can see: the annotations of parameters and results, fields and variables, after the name."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.If):
            yield from annotations(node.body)
        elif isinstance(node, ast.AnnAssign):
            alias = node.value is not None and "TypeAlias" in ast.unparse(node.annotation)
            yield f"{ast.unparse(node.target)}: {ast.unparse(node.value if alias and node.value else node.annotation)}"
        elif isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") or node.name.startswith("__")):
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg) and argument.annotation is not None:
                    yield f"{argument.arg}: {ast.unparse(argument.annotation)}"
            if node.returns is not None:
                yield f"{node.name}: {ast.unparse(node.returns)}"


@each("path", [*MODULES, *PACKAGE.rglob("*.pyi")], ids=name_of)
def test_state_that_crosses_a_module_has_a_type(path: Path) -> None:
    """No public function takes or returns a mapping of anything, and no field or variable of a module is one.

    What click passes to a command is one: in the room cli, the parameter `chosen` may have that type, nothing else.
    """
    found = [one for one in annotations(tree_of(path).body) if ANYTHING.search(one)]
    if path.parent.name == "cli":
        found = [one for one in found if one != "chosen: dict[str, Any]"]
    assert found == []


def test_a_mapping_of_anything_is_noticed() -> None:
    code = """
def one(fields: Mapping[str, Any], *, given: "dict[str, object] | None", **rest: int) -> list[dict[str, Any]]: ...
def _private(fields: dict[str, Any]) -> None: ...
class Line(NamedTuple):
    fields: Mapping[str, Any]
    def counts(self) -> Mapping[str, int]: ...
Some: TypeAlias = Mapping[str, object]
"""
    found = [one.partition(":")[0] for one in annotations(ast.parse(code).body) if ANYTHING.search(one)]
    assert found == ["fields", "given", "one", "fields", "Some"]
