"""Plans that were saved: the JSON lines of `kdump recover`, read again and held against what is there now."""

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from kdump.errors import KdumpError
from kdump.recover.plan import STRATEGIES, Plan, RecoverOptions
from kdump.render import renderer
from kdump.render.recovery import BECAME

if TYPE_CHECKING:
    from kdump.verify.report import Report

WALKS = ("checkpoint", "newest", "all")
UNDECIDED = ("keep", "drop")
_CHOICES = {"strategy": STRATEGIES, "walk": WALKS, "undecided": UNDECIDED}
_OF_A_PLAN = ("action", "not_covered", "partition")

Line = dict[str, Any]


class SavedPlan(NamedTuple):
    """A plan as it was saved: what was asked for, and the lines that came of it."""

    name: str
    options: RecoverOptions
    paths: tuple[str, ...]
    lines: tuple[Line, ...]


def read(stream: IO[bytes]) -> SavedPlan:
    """A saved plan. Raises KdumpError where something else stands there, or its end is missing."""
    name = str(getattr(stream, "name", "<stdin>"))
    lines: list[Line] = []
    for number, text in enumerate(stream, 1):
        try:
            line = json.loads(text)
            lines.append({"type": line["type"], **line})
        except (ValueError, TypeError, KeyError, RecursionError):
            raise KdumpError(f"{name}: line {number} is no line of a plan") from None
    if not lines or lines[0]["type"] != "plan" or lines[-1]["type"] != "summary":
        raise KdumpError(
            f"{name}: this is no whole plan, which begins with a line of type plan and ends with a summary: save the output of kdump recover --format json"
        )
    if lines[-1].get("interrupted") or lines[-1].get("applied"):
        raise KdumpError(f"{name}: this plan was {'applied already' if lines[-1].get('applied') else 'interrupted'}")
    paths = lines[0].get("paths")
    if not isinstance(paths, list) or not paths:
        raise KdumpError(f"{name}: the plan does not say what paths it is about")
    return SavedPlan(
        name, _options(lines[0], name), tuple(_text(path, name) for path in paths), tuple(map(_planned, _some(lines)))
    )


def _options(line: Line, name: str) -> RecoverOptions:
    plain = RecoverOptions()
    found: dict[str, Any] = {}
    for field, default in plain._asdict().items():
        value = line.get(field)
        allowed = (int,) if default is None else (type(default),)
        if type(value) not in allowed or value not in _CHOICES.get(field, (value,)):
            raise KdumpError(f"{name}: the plan does not say a {field} that there is")
        found[field] = value
    return RecoverOptions(**found)


def _text(value: Any, name: str) -> str:
    """A path as JSON has it."""
    import base64

    try:
        if isinstance(value, dict):
            return base64.b64decode(value["base64"], validate=True).decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            return value
    except (ValueError, TypeError, KeyError):
        pass
    raise KdumpError(f"{name}: the plan has a path that is none")


def _some(lines: Iterable[Line]) -> Iterator[Line]:
    return (line for line in lines if line["type"] in _OF_A_PLAN)


def _planned(line: Line) -> Line:
    """A line without what is not of the plan."""
    return {field: value for field, value in line.items() if field not in BECAME}


def check(saved: SavedPlan, found: "Iterable[Plan | Report]") -> "list[Plan | Report]":
    """What was found, once all of it is what was saved. Raises KdumpError, naming the first thing that differs, where it is not."""
    told = list(found)
    now = [line for plan in told if isinstance(plan, Plan) for line in _lines(plan)]
    then = {str(line["path"]): line for line in saved.lines if line["type"] == "partition"}
    for line in now:
        if line["type"] == "partition" and (before := then.get(str(line["path"]))) is not None:
            _same_files(saved, before, line)
    for before, after in zip_longest(saved.lines, now):
        if before != after:
            path = _text((before or after or {}).get("path"), saved.name)
            raise KdumpError(
                f"{path}: what would be done now is not what {saved.name} says ({_difference(before, after)}): make the plan again"
            )
    return told


def _lines(plan: Plan) -> list[Line]:
    """The lines of a plan, as they would be saved."""
    from kdump.recover.recover import RecoveryResult

    stream = BytesIO()
    with renderer("json", stream) as out:
        out.recovery(RecoveryResult(plan))
    return [_planned(json.loads(line)) for line in stream.getvalue().splitlines()]


def _same_files(saved: SavedPlan, before: Line, after: Line) -> None:
    path = _text(before["path"], saved.name)
    try:
        then = {str(file["name"]): file for file in before["files"]}
    except (TypeError, KeyError):
        raise KdumpError(f"{saved.name}: the plan does not say what files of {path} it saw") from None
    now = {str(file["name"]): file for file in after["files"]}
    for name in sorted(then.keys() | now.keys()):
        if then.get(name) != now.get(name):
            what = "has changed" if name in then and name in now else "is gone" if name in then else "is new"
            raise KdumpError(f"{path}: {name} {what} since {saved.name} was made: make the plan again")


def _difference(before: Line | None, after: Line | None) -> str:
    if before is None or after is None:
        line, which = (after, "not in it") if before is None else (before, "only in it")
        return f"{line and line.get('action', line['type'])}, {which}"
    names = [name for name in after if before.get(name) != after[name]]
    return ", ".join(f"{name} is {json.dumps(after[name])}, not {json.dumps(before.get(name))}" for name in names[:2])
