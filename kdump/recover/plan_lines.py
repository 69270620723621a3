"""The lines that a recovery prints and saves: their fields, and the fields as plain values for JSON.

A line has a type (`plan`, `action`, `not_covered`, `partition`, `run`), a path and fields. Renderers print them;
kdump.recover.saved_plans saves them and compares them.
"""

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from kdump.format.naming import TopicPartition
from kdump.named_tuple import NamedTuple
from kdump.recover.plan import FILL, Action, Lost, Plan, RecoveryResult, SalvagePreview
from kdump.verify.findings import Finding, Severity, finding_fields

if TYPE_CHECKING:
    from kdump.format.json_types import Fields, FieldValue, JsonObject, JsonValue
    from kdump.recover.undo import RunResult
    from kdump.storage.stamps import Stamp

CountsByCode: TypeAlias = Counter[tuple[str, Severity]]


class FindingTotals(NamedTuple):
    """How many findings there are: by severity, the worst first, and by code."""

    by_severity: Mapping[str, int]
    by_code: Mapping[str, int]


def counts_of(findings: Iterable[Finding]) -> CountsByCode:
    """How many findings there are of each code and severity."""
    return Counter((finding.code, finding.severity) for finding in findings)


def finding_totals(counts: Mapping[tuple[str, Severity], int]) -> FindingTotals:
    """The totals of counts by code and severity."""
    by_code: dict[str, int] = {}
    by_severity = {severity.word: 0 for severity in sorted(Severity, reverse=True)}
    for (code, severity), count in sorted(counts.items()):
        by_severity[severity.word] += count
        if count:
            by_code[code] = by_code.get(code, 0) + count
    return FindingTotals(by_severity, by_code)


# ---- the fields of each line


def action_fields(action: Action, topic_partition: TopicPartition | None) -> "Fields":
    """The fields of an `action` line."""
    return {
        "action": action.action,
        **_topic_partition(topic_partition),
        "from": action.start,
        "to": action.stop,
        "target": action.target,
        "because": action.because,
        "bytes": action.bytes,
        "batches": action.batches,
        "records": action.records,
        "first_offset": action.first_offset,
        "last_offset": action.last_offset,
    }


def lost_fields(lost: Lost) -> "Fields":
    """The field `lost`, in its two parts."""
    return {"given_up": lost.given_up, "damaged": lost.damaged, "committed": lost.committed}


def partition_fields(result: RecoveryResult) -> "Fields":
    """The fields of a `partition` line: those of the plan, then those of its result, from `applied` on."""
    return {**_plan_fields(result.plan), **{name: value(result) for name, value in _RESULT.items()}}


def _refusals(refusals: Iterable[tuple[str, str]]) -> "list[Fields]":
    return [{"exception": exception, "name": name} for exception, name in refusals]


def _plan_fields(plan: Plan) -> "Fields":
    return {
        **_topic_partition(plan.topic_partition),
        "strategy": plan.options.strategy,
        "empty": plan.is_empty,
        "log_start_offset": plan.log_start_offset,
        "log_end_offset": plan.log_end_offset,
        "high_watermark": plan.high_watermark,
        "recovery_point": plan.recovery_point,
        "refusals": _refusals(plan.refusals),
        "later_refusals": _refusals(plan.later_refusals),
        "segments": [{"base_offset": log.base_offset, "size": log.size} for log in plan.segments],
        "bytes_needed": plan.bytes_needed,
        "start": plan.start,
        "newest": plan.newest,
        "lost": lost_fields(plan.lost),
        "files": file_fields(plan.files),
        "undecided": plan.undecided,
        "clashes": plan.conflicts,
        "alone": plan.alone,
        **({"filled": plan.filled} if plan.options.strategy == FILL else {}),
    }


def file_fields(files: "Mapping[str, Stamp]") -> "list[Fields]":
    """The field `files`: one object a file, because a name that is not UTF-8 cannot be a key."""
    return [{"name": name, **stamp._asdict()} for name, stamp in sorted(files.items())]


_RESULT: Final[Mapping[str, "Callable[[RecoveryResult], FieldValue]"]] = {
    "applied": lambda result: result.applied,
    "undo": lambda result: result.run,
    "left": lambda result: finding_totals(counts_of(result.left)) if result.applied else None,
    "ready": lambda result: result.is_ready,
    "salvage": lambda result: _salvage_fields(result.plan.salvage),
    "error": lambda result: None if result.error is None else str(result.error),
}


def _salvage_fields(preview: SalvagePreview | None) -> "Fields | None":
    return None if preview is None else {**preview._asdict(), "lost": lost_fields(preview.lost)}


RESULT_FIELDS: Final = frozenset(_RESULT)
"""The fields of a `partition` line that do not belong to its plan."""


def run_fields(done: "RunResult") -> "Fields":
    """The fields of a `run` line: a run that was to be undone or finished."""
    return {
        "run": done.run.run,
        "strategy": done.run.strategy or None,
        "began_ms": done.run.time_ms,
        "state": done.run.state,
        "error": None if done.error is None else str(done.error),
    }


def _topic_partition(topic_partition: TopicPartition | None) -> "Fields":
    if topic_partition is None:
        return {"topic": None, "partition": None}
    return {"topic": topic_partition.topic, "partition": topic_partition.partition}


# ---- as plain values


def plan_lines(plan: Plan) -> "Iterator[JsonObject]":
    """The lines of a plan as plain values: its actions, the findings that it does not cover, the partition."""
    for action in plan.actions:
        yield _line("action", action.path, action_fields(action, plan.topic_partition))
    for finding in plan.not_covered:
        yield _line("not_covered", finding.path, finding_fields(finding))
    yield _line("partition", plan.path, _plan_fields(plan))


def _line(kind: str, path: str, fields: "Fields") -> "JsonObject":
    return {"type": kind, "path": _bytes(os.fsencode(path)), **{name: plain(value) for name, value in fields.items()}}


def plain(value: object) -> "JsonValue":
    """A value as JSON holds it: bytes, and names, that are not UTF-8 become an object with their base64."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return value if value - value == 0 else None  # JSON has no NaN and no infinity
        case str():
            return value if value.isascii() else _bytes(value.encode("utf-8", "surrogateescape"))
        case bytes() | bytearray() | memoryview():
            return _bytes(bytes(value))
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case os.PathLike():
            return _bytes(os.fsencode(value))
        case Iterable():
            return [plain(item) for item in value]
        case _:
            raise TypeError(f"no plain value for {type(value).__name__}")


def _bytes(data: bytes) -> "JsonValue":
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode("ascii")}
