"""The columns of a table that say which topic-partition its rows are about."""

import pyarrow as pa

from kdump.format.naming import TopicPartition, as_utf8
from kdump.named_tuple import NamedTuple


class Origin(NamedTuple):
    """A topic-partition; None where no name says it."""

    topic_partition: TopicPartition | None

    @property
    def topic(self) -> str | None:
        return self.topic_partition and as_utf8(self.topic_partition.topic)

    @property
    def partition(self) -> int | None:
        return None if self.topic_partition is None else self.topic_partition.partition

    def columns(self, path: str, rows: int) -> dict[str, pa.Array]:
        """The columns path, topic and partition of so many rows."""
        return {
            "path": pa.repeat(pa.scalar(as_utf8(path), pa.string()), rows),
            "topic": pa.repeat(pa.scalar(self.topic, pa.string()), rows),
            "partition": pa.repeat(pa.scalar(self.partition, pa.int32()), rows),
        }
