"""The `.pyi` beside each `__init__.py` that lists public names, for type checkers.

    python tests/support/public_names.py            writes them
    python tests/support/public_names.py --check    says which differ, and ends with 1 when one does

A type checker does not see the names of a table. What it reads instead is made from the same table.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

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
