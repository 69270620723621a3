"""The options of `readStream.format("kdump")`: those of Spark's source of Kafka, and where the stream ends."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from kdump.named_tuple import NamedTuple
from kdump.spark.source_limits import LATEST_LIMIT, STARTING, SourceOptionError, limit_of
from kdump.spark.source_options import (
    KAFKA_OPTIONS,
    OWN_OPTIONS,
    SourceOptions,
    Table,
    check_names,
    named_options,
    parse_common_options,
    positive,
)

END_AT: Final = "endAt"
LOSSES_LOCATION: Final = "lossesLocation"
"""The options that streams alone have."""
_DELAY: Final = "maxTriggerDelay"
_MOST: Final = "maxOffsetsPerTrigger"
_LEAST: Final = "minOffsetsPerTrigger"
_ENDING: Final = {
    "endingOffsets": "ending offset not valid in streaming queries",
    "endingOffsetsByTimestamp": "ending offset not valid in streaming queries",
    "endingTimestamp": "ending timestamp not valid in streaming queries",
}
_UNITS: Final = {
    "": 0.001,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_DURATION: Final = re.compile(r"(-?[0-9]{1,15})\s*([a-z]*)")


class EndAt(StrEnum):
    """Where a stream ends: at the high watermark that the checkpoint says, or at the last valid batch."""

    HIGH_WATERMARK = "high-watermark"
    LOG_END = "log-end"


class StreamOptions(NamedTuple):
    """What a stream is asked for. What it leaves out is written to the folder `losses_location`.

    `most` and `least` are numbers of offsets of a batch; less than `least` wait for `delay_seconds`.
    """

    source: SourceOptions
    end_at: EndAt = EndAt.HIGH_WATERMARK
    most: int | None = None
    least: int | None = None
    delay_seconds: float = 900.0
    losses_location: str | None = None


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """The options of a stream. Raises SourceOptionError."""
    options = named_options(given)
    for name, sentence in _ENDING.items():
        if name.lower() in options:
            raise SourceOptionError(sentence)
    check_names(options, (*OWN_OPTIONS, *KAFKA_OPTIONS, END_AT, LOSSES_LOCATION))
    source = parse_common_options(options)
    if source.table is not Table.RECORDS:
        raise SourceOptionError(f"table = {source.table} is read with spark.read: a stream reads records")
    return StreamOptions(
        source._replace(start=limit_of(options, STARTING, LATEST_LIMIT)),
        _end_at(options.get(END_AT.lower())),
        positive(options, _MOST),
        positive(options, _LEAST),
        _seconds(options.get(_DELAY.lower(), "15m")),
        options.get(LOSSES_LOCATION.lower()) or None,
    )


def _end_at(text: str | None) -> EndAt:
    try:
        return EndAt.HIGH_WATERMARK if text is None else EndAt(text.strip().lower())
    except ValueError:
        raise SourceOptionError(f"{END_AT} is {' or '.join(EndAt)}, not {text!r}") from None


def _seconds(text: str) -> float:
    """A duration as Spark writes it, in milliseconds without a unit (JavaUtils.timeStringAs)."""
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise SourceOptionError(f"{_DELAY} is a time such as 15m, 10s or 500ms, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]
