"""The options of `kdump dump` that say which records are shown, and the values that they become."""

import binascii
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any, Final

import click

from kdump.cli import complain, options
from kdump.cli.param_type import ParamType
from kdump.errors import KdumpError
from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple

if TYPE_CHECKING:
    from kdump.dump.filters import BytesPattern, HeaderPattern, ProducerPattern, RecordPredicates
    from kdump.dump.log_end import FromEnd

_MAX_LONG: Final = (1 << 63) - 1
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIVE: Final = re.compile(r"(end)?(?:-(\d{1,12})(ms|s|m|h|d))?")
_PATTERNS: Final = "TEXT, TEXT* for a prefix, /REGEX/, exact:, prefix:, re:, hex:, base64:, or null"


class PatternParam(ParamType["BytesPattern"]):
    """What bytes have to be: text, or a form of _PATTERNS."""

    name = "pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "BytesPattern":
        try:
            return parse_pattern(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HeaderParam(ParamType["HeaderPattern"]):
    """The name of a header; `=` and a pattern for its value may follow."""

    name = "header"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "HeaderPattern":
        from kdump.dump.filters import HeaderPattern

        name, equals, pattern = str(value).partition("=")
        try:
            return HeaderPattern(_bytes_of(name), parse_pattern(pattern) if equals else None)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ProducerParam(ParamType["ProducerPattern"]):
    """A producer id; a colon and an epoch may follow."""

    name = "producer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "ProducerPattern":
        from kdump.dump.filters import ProducerPattern

        match = re.fullmatch(r"([0-9]{1,19})(?::([0-9]{1,5}))?", str(value))
        if match is None or int(match[1]) > _MAX_LONG or int(match[2] or 0) > 0x7FFF:
            self.fail(
                f"{value!r} is not a producer; write its id, as in 4001, or id and epoch, as in 4001:2", param, ctx
            )
        return ProducerPattern(int(match[1]), int(match[2]) if match[2] else None)


class OffsetsFromEndParam(options.OffsetRangeParam):
    """A range of offsets A:B, half open, either side of which may be left out. -N is N before the log end offset."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        match = re.fullmatch(r"(-?\d{1,19})?:(-?\d{1,19})?", str(value))
        if isinstance(value, tuple) or match is None or "-" not in str(value):
            return super().convert(value, param, ctx)
        # 0 before the end is a bound, too: negative numbers begin at -1
        first, stop = (
            (None if not side else ~int(side[1:]) if side[0] == "-" else int(side)) for side in match.groups()
        )
        return first, stop


class TimeZoneParam(ParamType[tzinfo]):
    """A time zone by its name in the IANA database."""

    name = "zone"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tzinfo:
        if value in ("UTC", "Z"):
            return UTC
        from zoneinfo import ZoneInfo  # which reads the paths of the database

        try:
            return ZoneInfo(str(value))
        except (KeyError, ValueError, OSError):
            self.fail(f"{value!r} is not a time zone; write UTC, or a name as in Europe/Berlin", param, ctx)


def parse_pattern(text: str) -> "BytesPattern":
    """A pattern of _PATTERNS. Raises ValueError."""
    from kdump.dump.filters import BytesPattern, PatternKind, compile_regex

    if text == "null":
        return BytesPattern(PatternKind.NULL)
    form, colon, rest = text.partition(":")
    if colon and form in _FORMS:
        kind, parse = PatternKind[_FORMS[form][0]], _FORMS[form][1]
        data = parse(rest)
    elif len(text) > 1 and text.startswith("/") and text.endswith("/"):
        kind, data = PatternKind.REGEX, _bytes_of(text[1:-1])
    elif "*" in text[:-1]:
        raise ValueError(
            f"{text!r} has a * before its end, where it has no meaning: {_glob_regex(text)} finds what the glob"
            f" would, exact:{text} the text with the *"
        )
    elif text.endswith("*"):
        kind, data = PatternKind.PREFIX, _bytes_of(text[:-1])
    else:
        kind, data = PatternKind.EXACT, _bytes_of(text)
    if kind is PatternKind.REGEX:
        try:
            compile_regex(data)
        except ValueError as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return BytesPattern(kind, data)


def _glob_regex(text: str) -> str:
    """The form re: of a glob with stars."""
    words = [re.escape(word) for word in text.split("*")]
    parts = [word for word in words if word]
    first, last = "^" if words[0] else "", r"\Z" if words[-1] else ""
    return f"re:{'(?s)' if len(parts) > 1 else ''}{first}{'.*'.join(parts)}{last}"


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{text!r} is not hexadecimal; write two digits a byte, as in hex:00ff") from None


def _from_base64(text: str) -> bytes:
    import base64  # rarely needed

    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r} is not base64") from None


_FORMS: Final[dict[str, tuple[str, Callable[[str], bytes]]]] = {
    "exact": ("EXACT", _bytes_of),
    "prefix": ("PREFIX", _bytes_of),
    "re": ("REGEX", _bytes_of),
    "hex": ("EXACT", _from_hex),
    "base64": ("EXACT", _from_base64),
}


_OPTIONS: Final = (
    click.option(
        "--key",
        "keys",
        type=PatternParam(),
        multiple=True,
        metavar="PATTERN",
        help=f"Show only records with this key: {_PATTERNS}. If given several times, one has to match.",
    ),
    click.option(
        "--value",
        "values",
        type=PatternParam(),
        multiple=True,
        metavar="PATTERN",
        help="Show only records with this value, a PATTERN as for --key. May be given several times.",
    ),
    click.option(
        "--header",
        "headers",
        type=HeaderParam(),
        multiple=True,
        metavar="NAME[=PATTERN]",
        help="Show only records that have this header, with a value as for --key. May be given several times.",
    ),
    click.option(
        "--tombstones", is_flag=True, help="Show only records without a value. Control records are not tombstones."
    ),
    click.option("--control", is_flag=True, help="Show only control batches and their records."),
    click.option(
        "--producer",
        "producers",
        type=ProducerParam(),
        multiple=True,
        metavar="ID[:EPOCH]",
        help="Show only records of this producer, and of this epoch. May be given several times.",
    ),
    click.option(
        "--transactional-id",
        "transactional_ids",
        multiple=True,
        metavar="ID",
        help="Show only records of the producers that had this transactional id, as the partitions of"
        " __transaction_state in the same log directory say. May be given several times.",
    ),
    click.option(
        "--time",
        "time_range",
        default=None,
        metavar="A:B",
        help="Show only records with timestamps from A up to, but not including, B: milliseconds since the epoch, ISO"
        " 8601, -1h for one hour before now, or end-1h for one hour before the newest record of the log; ms, s, m, h"
        " and d are units. A date alone is that day, as in 2026-11-21.",
    ),
    click.option(
        "--time-zone",
        type=TimeZoneParam(),
        default="UTC",
        show_default=True,
        metavar="ZONE",
        help="The time zone of times in --time that do not name one, as in Europe/Berlin.",
    ),
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="NAME",
        help="Show only logs of this topic; a glob matches several. May be given several times. A single name is"
        " also the topic of log files whose directory does not name one.",
    ),
    click.option(
        "--partition",
        "partitions",
        type=click.IntRange(0),
        multiple=True,
        metavar="N",
        help="Show only partition N of each topic. May be given several times.",
    ),
    click.option(
        "--last",
        type=click.IntRange(1),
        metavar="N",
        help="Show only the last N records of each log, of those that match. Control records count only with"
        " --control. Segments before them are not read.",
    ),
    click.option("--count", "counts", is_flag=True, help="Show only how many records match."),
)


def record_filters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which records are shown."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_NAMES: Final = {
    "keys": "--key",
    "values": "--value",
    "headers": "--header",
    "tombstones": "--tombstones",
    "control": "--control",
    "producers": "--producer",
    "transactional_ids": "--transactional-id",
    "time_range": "--time",
}
_OF_BATCHES: Final = ("--control", "--producer", "--transactional-id")


def check(chosen: dict[str, Any]) -> None:
    """Refuse options that make no sense together."""
    used = [name for field, name in _NAMES.items() if chosen[field]]
    if used and chosen["format_name"] in ("kafka", "fetch"):
        raise click.UsageError(
            f"{used[0]} cannot be combined with --format {chosen['format_name']}, which shows whole batches"
        )
    opens = [name for name in used if name not in _OF_BATCHES]
    if chosen["batches"] and opens:
        raise click.UsageError(f"{opens[0]} is about records, which --batches does not read; --records shows only them")
    if chosen["tombstones"] and chosen["control"]:
        raise click.UsageError("--tombstones and --control cannot be combined: a control record is not a tombstone")
    if chosen["tombstones"] and chosen["values"]:
        raise click.UsageError("--tombstones and --value cannot be combined: a tombstone has no value")
    if chosen["transactional_ids"]:
        if chosen["producers"]:
            raise click.UsageError("--producer and --transactional-id cannot be combined: both name producers")
        if "-" in chosen["paths"]:
            raise click.UsageError("--transactional-id needs a log directory, which standard input is not")
    _check_ends(chosen)
    if not chosen["counts"]:
        return
    for name in ("batches", "records", "at", "count"):
        if chosen[name] is not None and chosen[name] is not False:
            option = "-n" if name == "count" else f"--{name}"
            raise click.UsageError(f"--count and {option} cannot be combined: it shows nothing but a number")
    if chosen["format_name"] not in ("terminal", "text", "json"):
        raise click.UsageError("--count needs --format text or json: the other formats hold records")


def _check_ends(chosen: dict[str, Any]) -> None:
    """Refuse what cannot be combined with bounds that count back from the end of a log."""
    if chosen["last"] is not None:
        for name, option in (("count", "-n"), ("counts", "--count"), ("batches", "--batches")):
            if chosen[name] is not None and chosen[name] is not False:
                raise click.UsageError(f"--last and {option} cannot be combined")
    wanted = from_end(chosen)
    if wanted is None:
        return
    others = {"--format kafka": chosen["format_name"] == "kafka", "--at": chosen["at"] is not None}
    for option, is_given in {
        **others,
        "--metadata-image": chosen["metadata_image"],
        "--follow": chosen["follow"],
    }.items():
        if is_given:
            raise click.UsageError(f"--last, and bounds before the end of the log, cannot be combined with {option}")


def predicates(chosen: dict[str, Any], on_damage: "Callable[[Severity], object]") -> "RecordPredicates | None":
    """What the options ask of a record; None for all. Raises KdumpError where a transactional id is not known."""
    if not any(chosen[field] for field in _NAMES):
        return None
    from kdump.dump.filters import RecordPredicates  # a dump of everything does without

    return RecordPredicates(
        keys=chosen["keys"],
        values=chosen["values"],
        headers=chosen["headers"],
        producers=(*chosen["producers"], *_producers_of(chosen, on_damage)),
        time=_time_range(chosen["time_range"], chosen["time_zone"]),
        tombstones=chosen["tombstones"],
        control=True if chosen["control"] else None,
    )


def _producers_of(chosen: dict[str, Any], on_damage: "Callable[[Severity], object]") -> "Iterator[ProducerPattern]":
    """The producers of the transactional ids. Damage where they are looked up may hide one."""
    wanted = chosen["transactional_ids"]
    if not wanted:
        return
    from kdump.dump.filters import ProducerPattern
    from kdump.dump.transactional_ids import find_producers, log_directories

    found = find_producers(wanted, log_directories(chosen["paths"]), chosen["max_batch_bytes"])
    for problem in found.problems:
        complain(problem)
        on_damage(Severity.ERROR)
    for transactional_id, producer_ids in found.producer_ids.items():
        if not producer_ids:
            where = f"{len(found.partitions)} of its partitions were read"
            raise KdumpError(
                f"--transactional-id {transactional_id}: no record of __transaction_state names its producer; {where}"
            )
        yield from map(ProducerPattern, sorted(producer_ids))


def topic(chosen: dict[str, Any]) -> str | None:
    """That of log files whose directory names none."""
    if len(chosen["topics"]) == 1 and not re.search(r"[*?\[]", chosen["topics"][0]):
        return str(chosen["topics"][0])
    return None


class _BeforeEnd(NamedTuple):
    """A time before the newest record of a log."""

    distance_ms: int


def from_end(chosen: dict[str, Any]) -> "FromEnd | None":
    """What counts back from the end of each log; None where nothing does."""
    times = _times(chosen["time_range"], chosen["time_zone"])
    distances = tuple(each.distance_ms if isinstance(each, _BeforeEnd) else None for each in times)
    offsets = tuple(~each if each is not None and each < 0 else None for each in chosen["offsets"] or (None, None))
    if chosen["last"] is None and not any(each is not None for each in (*distances, *offsets)):
        return None
    from kdump.dump.log_end import FromEnd

    return FromEnd((offsets[0], offsets[1]), (distances[0], distances[1]), chosen["last"])


def offsets(chosen: dict[str, Any]) -> tuple[int | None, int | None]:
    """The bounds of offsets that do not count back."""
    first, stop = (None if each is not None and each < 0 else each for each in chosen["offsets"] or (None, None))
    return first, stop


def _time_range(text: str | None, zone: tzinfo) -> tuple[int | None, int | None]:
    first, stop = (None if isinstance(each, _BeforeEnd) else each for each in _times(text, zone))
    return first, stop


def _times(text: str | None, zone: tzinfo) -> "tuple[int | _BeforeEnd | None, int | _BeforeEnd | None]":
    if text is None:
        return None, None
    now_ms = time.time_ns() // 1_000_000

    def moment(bound: str) -> int | _BeforeEnd:
        relative = _RELATIVE.fullmatch(bound)
        if relative is None:
            return options.milliseconds(bound, zone)
        distance_ms = int(relative[2]) * _UNITS_MS[relative[3]] if relative[2] else 0
        return _BeforeEnd(distance_ms) if relative[1] else now_ms - distance_ms

    found = options.split_range(text, moment)
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not a range of times; write A:B, A: or :B, as in 2026-11-21:2026-11-22T18:30 or -1h:, or a"
            " day, as in 2026-11-21",
            param_hint="'--time'",
        )
    return found
