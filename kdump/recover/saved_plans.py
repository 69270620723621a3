"""Plans to and from plain values, so that a plan can be saved, read again and applied only where it still holds.

A saved plan is the lines that `kdump recover --format json` prints: a line of type `plan` with the options and the
paths, the lines of every partition, a line of type `summary`. Loading gives no plan that could be applied: the
directories are planned again with the same options, and `check` compares.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Final

from kdump.errors import KdumpError
from kdump.format.java import MAX_LONG
from kdump.named_tuple import NamedTuple
from kdump.recover.plan import FILL, SAVED_WALK, STRATEGIES, TRUNCATE, UNDECIDED, WALKS, Plan, RecoverOptions
from kdump.recover.plan_lines import RESULT_FIELDS, file_fields, plain, plan_lines
from kdump.storage.stamps import read_stamps

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, JsonObject, JsonValue
    from kdump.verify.report import Report

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "strategy": (*STRATEGIES, FILL),
    "walk": (*WALKS, SAVED_WALK),
    "undecided": UNDECIDED,
}
_TYPES: Final = ("action", "not_covered", "partition")
_NOT_COMPARED: Final = frozenset({*RESULT_FIELDS, "next", "message", "identity", "later_broker", "later_refusals"})
"""Fields that a plan does not depend on: what became of it, what another release does, the wording of this version.
Schema 2 had `next` and no `identity`."""
_NOT_IN_SCHEMA_1: Final = frozenset({"lost", "start", "newest"})
"""Fields that kdump 0.1 did not have, or with another meaning. Neither does it report the same findings that stay."""
SCHEMA: Final = 3


class SavedPlan(NamedTuple):
    """A plan that was saved: its options, the paths it was made for, and its lines. `name` is that of its file.

    `schema` is that of its lines.
    """

    name: str
    options: RecoverOptions
    paths: tuple[str, ...]
    lines: "tuple[JsonObject, ...]"
    schema: int = SCHEMA

    def check(self, found: "Iterable[Plan | Report]") -> "list[Plan | Report]":
        """The plans that were made now, where they are the saved ones.

        Raises KdumpError, which names the first difference, where they are not.
        """
        plans = list(found)
        # Where a broker runs, for one, there is no plan.
        errors = [error for plan in plans if not isinstance(plan, Plan) for error in plan.errors]
        lines = [
            _compared(line, self.schema)
            for plan in plans
            if isinstance(plan, Plan)
            for line in plan_lines(plan)
            if _is_compared(line, self.schema)
        ]
        saved = {str(line["path"]): line for line in self.lines if line["type"] == "partition"}
        for line in lines:
            if line["type"] == "partition" and (before := saved.get(str(line["path"]))) is not None:
                self._check_files(before, line)
        for before, now in zip_longest(self.lines, lines):
            if before != now and _with_absolute_paths(before) != _with_absolute_paths(now):
                path = _path((before or now or {}).get("path"), self.name)
                for error in errors if now is None or before is None or before["path"] != now["path"] else ():
                    raise KdumpError(f"{error}; nothing in {self.name} was applied")
                raise KdumpError(
                    f"{path}: what would be done now is not what {self.name} says ({_difference(before, now)}):"
                    " make the plan again"
                )
        return plans

    def _check_files(self, before: "JsonObject", now: "JsonObject") -> None:
        path = _path(before["path"], self.name)
        try:
            saved, found = _files(before), _files(now)
            if saved and not found:  # a plan with nothing to do has no stamps
                found = _files(_plain_line({"files": file_fields(read_stamps(path))}))
        except (TypeError, KeyError):
            raise KdumpError(f"{self.name}: the plan does not say which files of {path} it saw") from None
        for name in sorted(saved.keys() | found.keys()):
            if saved.get(name) != found.get(name):
                what = "has changed" if name in saved and name in found else "is gone" if name in saved else "is new"
                raise KdumpError(f"{path}: {name} {what} since {self.name} was made: make the plan again")


def to_lines(options: RecoverOptions, paths: Sequence[str], plans: Iterable[Plan]) -> "list[JsonObject]":
    """Plans as plain values, one a line. `paths` are those that were given to discover, `options` those of the plans.

    Write each with json.dumps on a line of its own, and `kdump recover --plan` reads the file.
    """
    lines = [_plain_line({"type": "plan", **options.fields(), "paths": paths})]
    for plan in plans:
        lines += plan_lines(plan)
    return [*lines, {"type": "summary", "command": "recover", "applied": False, "interrupted": False, "schema": SCHEMA}]


def from_lines(lines: "Sequence[Mapping[str, JsonValue]]", name: str = "the plan") -> SavedPlan:
    """The saved plan in these lines, which messages call `name`. Raises KdumpError where it is not whole."""
    if not lines or lines[0].get("type") != "plan" or lines[-1].get("type") != "summary":
        raise KdumpError(
            f"{name}: not a whole plan, which begins with a line of type plan and ends with a line of type summary:"
            " save the output of kdump recover --format json"
        )
    if lines[-1].get("interrupted") or lines[-1].get("applied"):
        raise KdumpError(f"{name}: this plan was {'already applied' if lines[-1].get('applied') else 'interrupted'}")
    paths = lines[0].get("paths")
    if not isinstance(paths, list) or not paths:
        raise KdumpError(f"{name}: the plan does not name its paths")
    schema = lines[-1].get("schema", 1)  # kdump 0.1 wrote none
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise KdumpError(f"{name}: a plan of schema {schema!r}, this kdump reads 1 to {SCHEMA}: make the plan again")
    options = _options(lines[0], name)
    if schema == 1 and options.walk == "checkpoint":
        options = options._replace(walk=SAVED_WALK)
    compared = tuple(_compared(line, schema) for line in lines if _is_compared(line, schema))
    for line in lines:
        if line.get("type") in _TYPES:
            _path(line.get("path"), name)
    return SavedPlan(name, options, tuple(_path(path, name) for path in paths), compared, schema)


def read(stream: IO[bytes]) -> SavedPlan:
    """The saved plan in a file of JSON lines. Raises KdumpError where the file is not a whole plan."""
    import json  # which a recovery without a saved plan does not load

    name = str(getattr(stream, "name", "<stdin>"))
    lines: list[JsonObject] = []
    for number, text in enumerate(stream, 1):
        try:
            line = json.loads(text)
            lines.append({"type": line["type"], **line})
        except (ValueError, TypeError, KeyError, RecursionError):
            raise KdumpError(f"{name}: line {number} is not a line of a plan") from None
    return from_lines(lines, name)


def _plain_line(fields: "Fields") -> "JsonObject":
    return {name: plain(value) for name, value in fields.items()}


def _is_compared(line: "Mapping[str, JsonValue]", schema: int) -> bool:
    kind = line.get("type")
    if schema == 1 and line.get("empty") and kind == "partition" and line.get("topic") is None:
        return False  # the root of a log directory with nothing but findings
    return kind in _TYPES and not (schema == 1 and kind == "not_covered")


def _compared(line: "Mapping[str, JsonValue]", schema: int) -> "JsonObject":
    left_out = _NOT_COMPARED | _NOT_IN_SCHEMA_1 if schema == 1 else _NOT_COMPARED
    if line.get("strategy") == TRUNCATE:
        left_out |= {"undecided"}  # sentences about what the actions leave; earlier versions had none
    if line.get("empty"):
        left_out |= {"segments"}  # `files` says what is there; earlier versions listed none
    return {name: value for name, value in line.items() if name not in left_out}


def _with_absolute_paths(line: "JsonObject | None") -> "JsonObject | None":
    """The line as plans of 0.1.0 have those about the root of a log directory."""
    paths = {name: line.get(name) for name in ("path", "target")} if line is not None else {}
    return line and {**line, **{name: os.path.abspath(path) for name, path in paths.items() if isinstance(path, str)}}


def _options(line: "Mapping[str, JsonValue]", name: str) -> RecoverOptions:
    options = RecoverOptions()
    found: dict[str, JsonValue] = {}
    for field, default in options._asdict().items():
        value = line.get(field)
        if field == "fill_from":
            paths = value if isinstance(value, list) and found["strategy"] == FILL else []
            options = options._replace(fill_from=tuple(_path(each, name) for each in paths))
            continue
        allowed = int if default is None else type(default)
        fits = type(value) is allowed and value in _CHOICES.get(field, (value,))
        if not fits or (isinstance(value, int) and not 0 <= value <= MAX_LONG):
            raise KdumpError(f"{name}: the plan has no valid {field}")
        found[field] = value
    return RecoverOptions._make([*found.values(), options.fill_from])


def _path(value: "JsonValue", name: str) -> str:
    """A path from a line."""
    from base64 import b64decode

    try:
        if isinstance(value, dict):
            return b64decode(str(value["base64"]), validate=True).decode("utf-8", "surrogateescape")
        if isinstance(value, str) and b"\0" not in os.fsencode(value):
            return value
    except (ValueError, KeyError):
        pass
    raise KdumpError(f"{name}: the plan has a path that is not valid")


def _files(line: "JsonObject") -> "dict[str, JsonValue]":
    """The files of a partition by their names. Raises TypeError and KeyError where the line does not list them."""
    found: dict[str, JsonValue] = {}
    files = line["files"]
    if not isinstance(files, list):
        raise TypeError
    for file in files:
        if not isinstance(file, dict):
            raise TypeError
        found[str(file["name"])] = file
    return found


def _difference(before: "JsonObject | None", now: "JsonObject | None") -> str:
    import json

    if before is None or now is None:
        line, which = (now, "not in it") if before is None else (before, "only in it")
        return f"{line and line.get('action', line['type'])}, {which}"
    names = [name for name in now if before.get(name) != now[name]]
    return ", ".join(f"{name} is {json.dumps(now[name])}, not {json.dumps(before.get(name))}" for name in names[:2])
