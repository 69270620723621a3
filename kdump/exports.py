"""The public names of a package: a table says which module has each, and a name is imported on first use.

The table in the package's `__init__.py` is the one list of its names: `__all__`, the `.pyi` beside it and the
documentation come from it. Importing the package imports none of the modules.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def exports(
    package: str, modules: dict[str, str]
) -> "tuple[list[str], Callable[[str], object], Callable[[], list[str]]]":
    """`__all__`, `__getattr__` and `__dir__` of a package, from the names of each module, separated by spaces."""
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> object:
        import sys
        from importlib import import_module

        if name not in homes:
            if not name.startswith("__") and name in sys.modules["kdump"].__all__:
                raise AttributeError(f"{package}.{name} is kdump.{name}", name=name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        import sys

        return sorted({*vars(sys.modules[package]), *homes})

    return sorted(homes), get, names
