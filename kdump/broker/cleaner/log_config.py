"""The settings of a topic, and of the broker's log cleaner, that decide what a broker deletes and compacts.

A topic's configuration is not in its directory. What nobody names has the value that Kafka 4.3 has for it, and a report
says which settings these are.
"""

from typing import Final

from kdump.broker.cleaner.measured_log import MeasuredPartition
from kdump.broker.defaults import SEGMENT_INDEX_BYTES
from kdump.format import naming
from kdump.format.java import MAX_INT, MAX_LONG
from kdump.named_tuple import NamedTuple

POLICIES: Final = ("delete", "compact")
DAY_MS: Final = 86_400_000
OFFSET_MAP_ENTRY_BYTES: Final = 24
"""A slot of SkimpyOffsetMap: the MD5 of the key, and an offset."""


class TopicSettings(NamedTuple):
    """The settings of a topic. The defaults are those of Kafka 4.3 (LogConfig).

    `retention_ms` and `retention_bytes` are −1 for no limit. `cleanup_policy` holds words of POLICIES. `given` are the
    names of the settings that an option named. `stored` are those that the metadata of the cluster has
    (kdump.broker.cleaner.stored_settings): pairs of a name and topic, broker or all-brokers.
    """

    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset(("delete",))
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = SEGMENT_INDEX_BYTES
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    delete_retention_ms: int = DAY_MS
    given: frozenset[str] = frozenset()
    stored: tuple[tuple[str, str], ...] = ()

    @property
    def known(self) -> frozenset[str]:
        """The settings that an option named, or that are stored."""
        return self.given | {name for name, _ in self.stored}

    @property
    def deletes(self) -> bool:
        """Whether old segments go by size and time."""
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        """Whether the log cleaner compacts the topic."""
        return "compact" in self.cleanup_policy

    @property
    def assumed(self) -> tuple[str, ...]:
        """The settings that nobody named, so that Kafka's default stands for them."""
        return tuple(name for name in SETTING_NAMES if name not in self.known)


SETTING_NAMES: Final = tuple(name for name in TopicSettings._fields if name not in ("given", "stored"))


def topic_settings(
    base: TopicSettings | None = None, /, **values: int | float | frozenset[str] | None
) -> TopicSettings:
    """The settings with these values; those that are None keep that of `base`, or the default.

    Raises ValueError for a name that is not a setting and for a value that a broker refuses (LogConfig).
    """
    base = TopicSettings() if base is None else base
    named = {name: value for name, value in values.items() if value is not None}
    unknown = named.keys() - set(SETTING_NAMES)
    if unknown:
        raise ValueError(f"not a setting: {', '.join(sorted(unknown))}")
    found = base._replace(**named, given=base.given | named.keys())  # type: ignore[arg-type]
    if min(found.retention_ms, found.retention_bytes) < -1:
        raise ValueError("retention.ms and retention.bytes are -1 or more")
    if not found.cleanup_policy <= set(POLICIES):
        raise ValueError(f"not a cleanup policy: {', '.join(sorted(found.cleanup_policy - set(POLICIES)))}")
    if not 0 <= found.min_cleanable_dirty_ratio <= 1:
        raise ValueError("min.cleanable.dirty.ratio is between 0 and 1")
    if min(found.min_compaction_lag_ms, found.delete_retention_ms) < 0 or found.max_compaction_lag_ms < 1:
        raise ValueError("a lag and delete.retention.ms are not negative, max.compaction.lag.ms is at least 1")
    return found


def parse_cleanup_policy(text: str) -> frozenset[str]:
    """The words of a cleanup.policy, as in "compact,delete". Upper case counts as lower case. Raises ValueError."""
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    if not words <= set(POLICIES):
        raise ValueError(f"not a cleanup policy: {', '.join(sorted(words - set(POLICIES)))}")
    return words


class CleanerSettings(NamedTuple):
    """The settings of a broker's log cleaner (CleanerConfig of Kafka 4.3): log.cleaner.dedupe.buffer.size,
    log.cleaner.threads and log.cleaner.io.buffer.load.factor.
    """

    dedupe_buffer_bytes: int = 128 << 20
    threads: int = 1
    load_factor: float = 0.9

    @property
    def offset_map_keys(self) -> int:
        """How many different keys the offset map of one cleaner thread takes (Cleaner.buildOffsetMapForSegment)."""
        memory = min(self.dedupe_buffer_bytes // self.threads, MAX_INT)
        return int(memory // OFFSET_MAP_ENTRY_BYTES * self.load_factor)


_COMPACT: Final = frozenset(("compact",))
_INTERNAL_SEGMENT_BYTES: Final = 100 << 20
_INTERNAL: Final = {
    naming.CONSUMER_OFFSETS: TopicSettings(cleanup_policy=_COMPACT, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.TRANSACTION_LOG: TopicSettings(cleanup_policy=_COMPACT, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.SHARE_GROUP_STATE: TopicSettings(retention_ms=-1, segment_bytes=_INTERNAL_SEGMENT_BYTES),
    naming.REMOTE_LOG_METADATA: TopicSettings(retention_ms=-1),
}
"""What a broker gives the topics that it creates for itself (GroupCoordinatorService, TransactionStateManager,
ShareCoordinatorService, TopicBasedRemoteLogMetadataManagerConfig).
"""


def settings_for(of: MeasuredPartition, settings: TopicSettings) -> TopicSettings:
    """The settings for one partition: those that are known, and for the others what fits it best.

    Topics that a broker creates have what it gives them. Where the log cleaner has compacted a partition, its policy is
    compact. The rest are the defaults of Kafka.
    """
    own = _INTERNAL.get(of.topic or "")
    if own is not None:
        values = {name: getattr(own, name) for name in SETTING_NAMES if name not in settings.known}
        return settings._replace(**values)
    compacted = of.totals.compacted or bool(of.cleaner_checkpoint)
    if compacted and "cleanup_policy" not in settings.known:
        return settings._replace(cleanup_policy=_COMPACT)
    return settings
