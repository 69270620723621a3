"""The options of the data source: those of Spark's source of Kafka with their grammar and refusals, and its own."""

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Final
from urllib.parse import unquote

from kdump.format.naming import INTERNAL_TOPICS, TopicPartition
from kdump.log.isolation import Isolation
from kdump.named_tuple import NamedTuple
from kdump.spark.source_limits import (
    EARLIEST_LIMIT,
    ENDING,
    LATEST_LIMIT,
    STARTING,
    STRATEGY,
    OffsetRangeLimit,
    SourceOptionError,
    assigned_partitions,
    check_batch_limits,
    limit_of,
    partition_offsets,
)
from kdump.spark.store_settings import NO_STORES, StoreSettings, is_store_setting, path_of


class Table(StrEnum):
    """What a read gives: the records, or what is known about them."""

    RECORDS = "records"
    LOSSES = "losses"
    BATCHES = "batches"
    FINDINGS = "findings"
    SEGMENTS = "segments"
    PRODUCERS = "producers"
    TRANSACTIONS = "transactions"
    GROUPS = "groups"
    COMPARISONS = "comparisons"


class TopicSelection(NamedTuple):
    """Which topic-partitions are read: one of three, or all where none is set.

    `pattern` searches: it need not match the whole name. It never takes an internal topic.
    """

    assign: frozenset[TopicPartition] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None

    def takes(self, of: TopicPartition | None, *, is_named: bool) -> bool:
        """Whether a partition is read. `is_named`: its directory, or a file in it, is itself one of the paths."""
        if self.assign is not None:
            return of in self.assign
        if self.subscribe is not None:
            return of is not None and of.topic in self.subscribe
        if self.pattern is not None:
            return of is not None and of.topic not in INTERNAL_TOPICS and re.search(self.pattern, of.topic) is not None
        return is_named or of is None or of.topic not in INTERNAL_TOPICS

    def check_topics(self, there: Iterable[str]) -> None:
        """Refuse a topic that was named and is not there. Raises SourceOptionError.

        A partition that is not there is left out, as in Spark's source.
        """
        topics = {of.topic for of in self.assign} if self.assign is not None else set(self.subscribe or ())
        known = sorted(set(there))
        if missing := sorted(topics.difference(known)):
            some = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise SourceOptionError(
                f"no topic {', '.join(missing)} under the paths"
                + (f": there are {some}" if known else ", and no other topic either")
            )


class SourceOptions(NamedTuple):
    """What a read is asked for."""

    paths: tuple[str, ...]
    selection: TopicSelection = TopicSelection()
    start: OffsetRangeLimit = EARLIEST_LIMIT
    end: OffsetRangeLimit = LATEST_LIMIT
    isolation: Isolation = "read-uncommitted"
    fail_on_data_loss: bool = True
    include_headers: bool = False
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    table: Table = Table.RECORDS
    stores: StoreSettings = NO_STORES
    stable_offsets: tuple[tuple[TopicPartition, int], ...] = ()


LAST_STABLE: Final = "lastStableOffsets"
OWN_OPTIONS: Final = ("path", "paths", "table", LAST_STABLE)
KAFKA_OPTIONS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    *STARTING,
    *ENDING,
    STRATEGY,
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
"""Options of Spark's source of Kafka. Those that are about a broker are taken and have no effect."""
_OF_TABLE: Final = "option."
TABLE_WITHOUT_OPTIONS: Final = "Spark 4.3 hands the options of a table (create table … using kdump) to no read or write"
_STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
ISOLATION: Final = "kafka.isolation.level"
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_NOT_OF_TABLES: Final = (
    *STARTING,
    *ENDING,
    STRATEGY,
    "includeHeaders",
    "maxRecordsPerPartition",
    ISOLATION,
    LAST_STABLE,
)


def named_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options by their names in lower case, without what Spark adds to those of a table of its catalog."""
    options = {name.lower(): value for name, value in given.items()}
    if options.get("provider", "").lower() != "kdump":
        return options
    # Properties of the table have come with the options, and each option once more with the prefix. Path is a URI.
    written = {name.removeprefix(_OF_TABLE): value for name, value in options.items() if name.startswith(_OF_TABLE)}
    if "path" in options:
        written.setdefault("path", _path_of_uri(options["path"]))
    return written


def _path_of_uri(text: str) -> str:
    return unquote(text.removeprefix("file:")) if text.startswith("file:/") else text


def parse_batch_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of a read of what is there. Raises SourceOptionError."""
    options = named_options(given)
    check_names(options, (*OWN_OPTIONS, *KAFKA_OPTIONS))
    parsed = parse_common_options(options)
    for name in _OF_STREAMS:
        if name.lower() in options:
            warnings.warn(f"{name} option ignored in batch queries", stacklevel=2)
    if parsed.table not in (Table.RECORDS, Table.LOSSES):  # a read of the same records has these losses
        for name in _NOT_OF_TABLES:
            if name.lower() in options:
                raise SourceOptionError(f"{name} cannot be combined with table = {parsed.table}: it is about records")
        return parsed
    start, end = limit_of(options, STARTING, EARLIEST_LIMIT), limit_of(options, ENDING, LATEST_LIMIT)
    check_batch_limits(start, end)
    stable = tuple(partition_offsets(options.get(LAST_STABLE.lower(), "{}")).items())
    if stable and parsed.isolation != "read-committed":
        raise SourceOptionError(f"{LAST_STABLE} needs {ISOLATION} = read_committed")
    return parsed._replace(start=start, end=end, stable_offsets=stable)


def parse_common_options(options: Mapping[str, str]) -> SourceOptions:
    """The options that a read of what is there and a stream share; their names are in lower case.

    Raises SourceOptionError.
    """
    _refuse_consumer_options(options)
    return SourceOptions(
        tuple(map(path_of, _paths(options))),
        _selection(options),
        isolation=_isolation(options.get(ISOLATION)),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", default=True),
        include_headers=_boolean(options, "includeHeaders", default=False),
        min_partitions=positive(options, "minPartitions"),
        max_records_per_partition=positive(options, "maxRecordsPerPartition"),
        table=_table(options.get("table")),
        stores=StoreSettings(options.items()),
    )


def check_names(options: Iterable[str], known: Iterable[str]) -> None:
    """Refuse an option that is neither among `known` nor one of Kafka's consumer. Raises SourceOptionError."""
    written = {name.lower(): name for name in known}
    for name in options:
        if name in written or name.startswith("kafka.") or is_store_setting(name):
            continue
        near = get_close_matches(name, written, n=1)
        hint = f"; did you mean {written[near[0]]}?" if near else ""
        raise SourceOptionError(f"the source kdump has no option {name!r}{hint}")


def _paths(options: Mapping[str, str]) -> tuple[str, ...]:
    """Spark gives several paths of `load` as JSON in `paths`."""
    if "paths" in options:
        try:
            several = json.loads(options["paths"])
        except ValueError:
            several = None
        if not isinstance(several, list) or not several or not all(isinstance(each, str) for each in several):
            raise SourceOptionError(f"paths is a JSON array of paths, not {options['paths']!r}")
        return (*several, *((options["path"],) if "path" in options else ()))
    if not options.get("path"):
        raise SourceOptionError(
            f'the source kdump needs a path: load("/var/lib/kafka"), or option("path", …); {TABLE_WITHOUT_OPTIONS}: use'
            " create temporary view … using kdump options (path '…')"
        )
    return (options["path"],)


def _selection(options: Mapping[str, str]) -> TopicSelection:
    given = [name for name in _STRATEGIES if name in options]
    if len(given) > 1:
        raise SourceOptionError(
            "Only one of the following options can be specified for Kafka source: "
            f"{', '.join(_STRATEGIES)}. See the docs for more details."
        )
    if not given:
        return TopicSelection()
    text = options[given[0]]
    if given[0] == "assign":
        if not text.strip().startswith("{"):
            raise SourceOptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{text}'")
        return TopicSelection(assign=assigned_partitions(text))
    if given[0] == "subscribe":
        topics = tuple(topic.strip() for topic in text.split(",") if topic.strip())
        if not topics:
            raise SourceOptionError(f"No topics to subscribe to as specified value for option 'subscribe' is '{text}'")
        return TopicSelection(subscribe=topics)
    if not text.strip():
        raise SourceOptionError(
            f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'"
        )
    try:
        re.compile(text)
    except re.error as error:
        raise SourceOptionError(f"subscribePattern: {text!r} is not a regular expression: {error}") from None
    return TopicSelection(pattern=text)


_AUTO_OFFSET_RESET: Final = (
    "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingoffsets' to 'earliest'"
    " or 'latest' to specify where to start."
)
_DESERIALIZER: Final = (
    "Kafka option '{0}.deserializer' is not supported as {0}s are deserialized as byte arrays with"
    " ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the {0}s."
)
_REFUSED: Final = {
    "kafka.auto.offset.reset": _AUTO_OFFSET_RESET,
    "kafka.key.deserializer": _DESERIALIZER.format("key"),
    "kafka.value.deserializer": _DESERIALIZER.format("value"),
    "kafka.enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "kafka.interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}


def _refuse_consumer_options(options: Mapping[str, str]) -> None:
    for name, sentence in _REFUSED.items():
        if name in options:
            raise SourceOptionError(sentence)
    least, most = (positive(options, name) for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"))
    if least is not None and most is not None and least > most:
        raise SourceOptionError(
            f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
        )


def _isolation(text: str | None) -> Isolation:
    match text:
        case None | "read_uncommitted":
            return "read-uncommitted"
        case "read_committed":
            return "read-committed"
    raise SourceOptionError(f"{ISOLATION} is read_uncommitted or read_committed, not {text!r}")


def _boolean(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise SourceOptionError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def positive(options: Mapping[str, str], name: str) -> int | None:
    """A number above 0; None without the option. The names are in lower case. Raises SourceOptionError."""
    text = options.get(name.lower())
    if text is None:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None:
        raise SourceOptionError(f"{name} is a whole number, not {text!r}")
    if int(text) <= 0:
        raise SourceOptionError(f"{name} must be positive")
    return int(text)


def _table(text: str | None) -> Table:
    try:
        return Table.RECORDS if text is None else Table(text.lower())
    except ValueError:
        near = get_close_matches(text or "", [each.value for each in Table], n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; the tables are {', '.join(Table)}"
        raise SourceOptionError(f"the source kdump has no table {text!r}{hint}") from None
