"""The settings of topics that the metadata of their cluster has: `__cluster_metadata-0` of the same log directory.

A broker takes the value of the topic, else its own dynamic one, else that of all brokers, else that of its properties
file, which the metadata do not have. Source: LogConfig, DynamicLogConfig and ServerTopicConfigSynonyms of Kafka 4.3.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kdump.broker.cleaner.log_config import TopicSettings, parse_cleanup_policy, topic_settings
from kdump.errors import KdumpError, SourceError
from kdump.format import naming
from kdump.format.java import parse_integer
from kdump.named_tuple import NamedTuple
from kdump.storage.file_store import exists

if TYPE_CHECKING:
    from kdump.broker.metadata_image.metadata_image import MetadataImage

TOPIC: Final = "topic"
BROKER: Final = "broker"
ALL_BROKERS: Final = "all-brokers"


class _Name(NamedTuple):
    """What a setting is called in the configuration of a topic, and in that of a broker."""

    of_topic: str
    of_broker: str


_NAMES: Final[Mapping[str, _Name]] = {
    "retention_ms": _Name("retention.ms", "log.retention.ms"),
    "retention_bytes": _Name("retention.bytes", "log.retention.bytes"),
    "cleanup_policy": _Name("cleanup.policy", "log.cleanup.policy"),
    "segment_bytes": _Name("segment.bytes", "log.segment.bytes"),
    "segment_index_bytes": _Name("segment.index.bytes", "log.index.size.max.bytes"),
    "min_cleanable_dirty_ratio": _Name("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    "min_compaction_lag_ms": _Name("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    "max_compaction_lag_ms": _Name("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    "delete_retention_ms": _Name("delete.retention.ms", "log.cleaner.delete.retention.ms"),
}
_INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
"""Has precedence over segment.bytes (LogConfig.segmentSize)."""


class _Cluster(NamedTuple):
    """The metadata of a log directory, and the id of its broker as a configuration names it."""

    image: "MetadataImage"
    broker: str | None


class StoredSettings:
    """Reads the metadata of each log directory once. What stopped it is in `problems`, until `take_problems`."""

    def __init__(self) -> None:
        self._clusters: dict[str, _Cluster | None] = {}
        self._problems: list[KdumpError] = []

    def take_problems(self) -> Sequence[KdumpError]:
        """Why the metadata of a log directory could not be used, once for each."""
        found, self._problems = self._problems, []
        return found

    def complete(self, settings: TopicSettings, directory: str, topic: str | None) -> TopicSettings:
        """The settings of a topic in a log directory with the stored values of those that no option names."""
        cluster = None if topic is None else self._cluster(directory)
        return settings if cluster is None or topic is None else _completed(settings, cluster, topic)

    def has_metadata(self, directory: str) -> bool:
        """Whether the metadata are at hand, so that a topic has what they do not store from its brokers."""
        return self._cluster(directory) is not None

    def _cluster(self, directory: str) -> _Cluster | None:
        if directory not in self._clusters:
            self._clusters[directory] = self._read(directory)
        return self._clusters[directory]

    def _read(self, directory: str) -> _Cluster | None:
        if not exists(os.path.join(directory, f"{naming.METADATA_TOPIC}-0")):
            return None
        # most log directories have none
        from kdump.broker.metadata_image.image_reader import read_image
        from kdump.broker.metadata_image.metadata_log import find_metadata_log

        try:
            found = read_image(find_metadata_log(directory))
        except KdumpError as error:
            self._problems.append(SourceError(f"{error}; the settings of the topics are assumed"))
            return None
        if not found.is_complete:
            reason = f"the image ends with offset {found.offset}, so the settings of the topics are assumed"
            self._problems.append(SourceError(f"{found.log.path}: {reason}"))
            return None
        meta = found.log.meta
        node = None if meta is None or meta.node_id is None else str(meta.node_id)
        return _Cluster(found.image, node)


def settings_in(image: "MetadataImage", broker: int | None, topic: str) -> TopicSettings:
    """The settings of a topic that the metadata of a cluster store, on a broker where one is named."""
    return _completed(TopicSettings(), _Cluster(image, None if broker is None else str(broker)), topic)


def _completed(settings: TopicSettings, cluster: _Cluster, topic: str) -> TopicSettings:
    configurations = cluster.image.configurations
    own, everyone = configurations.of("topic", topic), configurations.of("broker", "")
    broker = {} if cluster.broker is None else configurations.of("broker", cluster.broker)
    stored = dict(settings.stored)
    for name, names in _NAMES.items():
        if name in settings.given:
            continue
        texts = [(TOPIC, own.get(names.of_topic)), (BROKER, broker.get(names.of_broker))]
        texts.append((ALL_BROKERS, everyone.get(names.of_broker)))
        if name == "segment_bytes":
            texts.insert(0, (TOPIC, own.get(_INTERNAL_SEGMENT_BYTES)))
        for source, text in texts:
            if text is not None:
                found = _valid(settings, name, text)
                if found is not None:
                    settings, stored[name] = found, source
                break
    return settings._replace(stored=tuple(sorted(stored.items())))


def _valid(settings: TopicSettings, name: str, text: str) -> TopicSettings | None:
    """The settings with this value; None for one that no broker takes."""
    try:
        value = _PARSERS.get(name, _long)(text)
        if value is None or (name.startswith("segment") and isinstance(value, int) and value < 1):
            return None
        found = topic_settings(settings, **{name: value})
    except ValueError:
        return None
    return found._replace(given=settings.given)


def _long(text: str) -> int | None:
    return parse_integer(text, 64)


_PARSERS: Final[Mapping[str, Callable[[str], int | float | frozenset[str] | None]]] = {
    "cleanup_policy": parse_cleanup_policy,
    "min_cleanable_dirty_ratio": float,
}
