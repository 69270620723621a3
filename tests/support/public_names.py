"""The public names of the library: the `.pyi` beside each `__init__.py` that lists some, and what man/kdump.3 says.

    python tests/support/public_names.py            writes them
    python tests/support/public_names.py --check    says which differ, and ends with 1 when one does

A type checker does not see the names of a table. What it reads instead is made from the same table.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import kdump

ROOT = Path(__file__).resolve().parents[2]


def homes_of(package: str) -> Mapping[str, str]:
    """The module of each public name of a package."""
    modules: Mapping[str, str] = import_module(package)._MODULES
    return {name: module for module, names in modules.items() for name in names.split()}


def public_names() -> Mapping[str, str]:
    """The module of each public name, by the name that users write: kdump.stat.Histogram."""
    packages = ["kdump", *(f"kdump.{room}" for room in kdump._ROOMS)]
    return {f"{package}.{name}": module for package in packages for name, module in homes_of(package).items()}


class Description(NamedTuple):
    """A public name as the manual has it: what it is, how it is written, and the contract of its docstring."""

    kind: str
    call: str
    contract: str


def described(package: str) -> Sequence[Description]:
    """The public names of a package, by the alphabet."""
    return [
        _described(name, module) for name, module in sorted(homes_of(package).items(), key=lambda of: of[0].lower())
    ]


def _described(name: str, module: str) -> Description:
    if module.startswith("kdump.spark"):  # which needs PySpark
        return Description("Values", name, "")
    value: Any = getattr(import_module(module), name)
    if inspect.isfunction(value):
        return Description("Functions", f"{name}({', '.join(_arguments(value))})", _contract(value))
    if isinstance(value, type) and issubclass(value, Exception):
        return Description("Errors", name, _contract(value))
    return Description("Options" if name.endswith("Options") else "Values", name, _contract(value))


def _arguments(function: Any) -> list[str]:
    found, keywords = [], False
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not keywords:
            keywords = True
            found.append("*")
        star = "**" if one.kind is one.VAR_KEYWORD else ""
        value = one.default
        default = f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
        found.append(f"{star}{one.name}" + ("" if value is one.empty else f"={default}"))
    return found


def _contract(value: Any) -> str:
    """The first paragraph of the docstring; nothing where there is none of its own."""
    own = vars(value).get("__doc__") if isinstance(value, type) else getattr(value, "__doc__", None)
    if not isinstance(own, str) or (not isinstance(value, type) and not inspect.isfunction(value)):
        return ""
    text = inspect.cleandoc(own).partition("\n\n")[0]
    return "" if re.match(r"\w+\(", text) else " ".join(text.replace("`", "").split())


def stub_of(package: str) -> str:
    """The text of the `.pyi` of a package, in the order that ruff wants."""
    homes = sorted(
        homes_of(package).items(), key=lambda of: (of[1], not of[0].isupper(), of[0][0].islower(), of[0].lower())
    )
    lines = [f"from {module} import {name} as {name}\n" for name, module in homes]
    if package != "kdump":
        return "".join(lines)
    shadowing = {room: "  # noqa: A004" if hasattr(builtins, room) else "" for room in kdump._ROOMS}
    rooms = [f"from kdump import {room} as {room}{comment}\n" for room, comment in shadowing.items()]
    return "".join([*rooms, *lines]) + "\n__version__: str\n__all__: list[str]\n"


def stubs() -> Mapping[Path, str]:
    """The text of each `.pyi`."""
    rooms = {ROOT / "kdump" / room / "__init__.pyi": stub_of(f"kdump.{room}") for room in kdump._ROOMS}
    return {ROOT / "kdump" / "__init__.pyi": stub_of("kdump"), **rooms}


def differing() -> Mapping[Path, str]:
    """The texts of those whose file is another one."""
    return {
        path: text for path, text in stubs().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main() -> int:
    found, check = differing(), "--check" in sys.argv
    for path, text in found.items():
        if not check:
            path.write_text(text, encoding="utf-8")
    print(" ".join(str(path.relative_to(ROOT)) for path in found) or "nothing", "differs" if check else "written")
    return 1 if found and check else 0


if __name__ == "__main__":
    sys.exit(main())
