"""`NamedTuple`, whose classes cost an eighth of the time that those of `typing` cost.

`typing.NamedTuple` compiles source for each class: 0.1 to 0.25 ms. A command loads about a hundred classes, so that
this was a fifth of its start. Here all classes with as many fields share a code object, with other names. A class is
otherwise what `typing` makes: a tuple with `_fields`, `_field_defaults`, `_make`, `_replace` and `_asdict`.
"""

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING or sys.version_info >= (3, 14):  # there the annotations of a class are not evaluated
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter

    _GLOBALS = {"_new": tuple.__new__, "__builtins__": {}}

    @cache
    def _code(count: int) -> CodeType:
        """The code of `__new__` for so many fields."""
        names = "".join(f"_{number}, " for number in range(count))
        code: CodeType = eval(f"lambda _class, {names}: _new(_class, ({names}))", {}).__code__
        return code

    def _make(cls: type, values: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
        return made

    def _replace(self: Any, /, **values: Any) -> Any:
        made = self._make(map(values.pop, self._fields, self))
        if values:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(values)}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _repr(self: Any) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({values})"

    def _getnewargs(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    _METHODS: Mapping[str, Any] = {
        "__slots__": (),
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
        "_make": classmethod(_make),
        "_replace": _replace,
        "_asdict": _asdict,
    }

    class _NamedTupleType(type):
        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if len(bases) != 1:
                raise TypeError(f"{name}: a named tuple has no other base")
            types = namespace.get("__annotations__", {})
            fields = tuple(types)
            defaults = {field: namespace.pop(field) for field in fields if field in namespace}
            if fields[len(fields) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name}: a field without a default comes after one with a default")
            code = _code(len(fields)).replace(co_varnames=("_class", *fields), co_name="__new__")
            new = FunctionType(code, _GLOBALS, "__new__", tuple(defaults.values()))
            new.__annotations__, new.__qualname__ = types, f"{name}.__new__"
            new.__module__ = namespace["__module__"]  # pydoc of Python 3.13 asks for it
            getters = {field: _tuplegetter(number, field) for number, field in enumerate(fields)}
            of_class = {"__new__": new, "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return type.__new__(type, name, (tuple,), {**_METHODS, **of_class, **getters, **namespace})

    _BASE = type.__new__(_NamedTupleType, "NamedTuple", (), {})

    def NamedTuple() -> NoReturn:  # noqa: N802  a class for those who derive from it, as in typing
        raise TypeError("a named tuple is made by a class statement")

    NamedTuple.__mro_entries__ = lambda bases: (_BASE,)
