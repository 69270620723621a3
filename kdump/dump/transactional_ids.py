"""Which producers wrote for a transactional id: what the partitions of `__transaction_state` say that lie beside."""

from collections.abc import Iterable, Sequence

from kdump.broker.coordinator_loader import CoordinatorLoader
from kdump.broker.transaction_state_manager import TransactionStateManager
from kdump.dump.events import SHOWN_BATCH_BYTES
from kdump.errors import SourceError
from kdump.format import naming
from kdump.format.internal_topics.decoders import decoder_of
from kdump.format.naming import TRANSACTION_LOG
from kdump.named_tuple import NamedTuple
from kdump.storage.discovery import NamedPath, discover, named_paths
from kdump.storage.file_store import absolute, parent_of
from kdump.storage.listing import list_directory
from kdump.storage.live import is_written
from kdump.storage.partition import Partition


class FoundProducers(NamedTuple):
    """The producer ids of each transactional id, the partitions that were read, and why some may be missing."""

    producer_ids: dict[str, set[int]]
    partitions: list[str]
    problems: list[str]


def log_directories(paths: Sequence[str]) -> list[str]:
    """The directories at or above the paths in which log directories lie, by names: find_producers lists them."""
    found: dict[str, None] = {}
    for item in named_paths(paths):
        if not isinstance(item, NamedPath):
            continue
        path = absolute(item.path)
        if not item.is_directory:
            if naming.topic_partition_of_file(path) is not None:
                found[parent_of(parent_of(path))] = None
        else:
            found[parent_of(path) if _is_partition(path) else path] = None
    return list(found)


def _is_partition(path: str) -> bool:
    """Whether a directory is that of a topic-partition. A log directory can have such a name."""
    if naming.topic_partition_of(path) is None:
        return False
    try:
        found = list_directory(path)
    except SourceError:
        return False  # the dump says it
    return not found.is_log_directory and not found.directories


def find_producers(
    transactional_ids: Iterable[str], directories: Iterable[str], max_batch_bytes: int = SHOWN_BATCH_BYTES
) -> FoundProducers:
    """The producers of these transactional ids, by all partitions of `__transaction_state` in the log directories."""
    wanted = dict.fromkeys(transactional_ids)
    found = FoundProducers({each: set() for each in wanted}, [], [])
    decoder = decoder_of(TRANSACTION_LOG)
    assert decoder is not None
    for item in discover(list(directories)):
        if isinstance(item, SourceError):
            found.problems.append(str(item))
        if not isinstance(item, Partition) or item.topic_partition is None or item.state:
            continue
        if item.topic_partition.topic != TRANSACTION_LOG:
            continue
        found.partitions.append(item.path)
        shard = TransactionStateManager()
        summary = CoordinatorLoader(shard, decoder, max_batch_bytes, live=is_written(item)).load(item)
        found.problems.extend(map(str, summary.errors))
        if summary.damaged or summary.undecoded or summary.unknown:
            found.problems.append(
                f"{item.path}: damaged stretches: {summary.damaged}; records that cannot be decoded:"
                f" {summary.undecoded + summary.unknown}; they may name other producers of a transactional id"
            )
        for each in wanted:
            found.producer_ids[each] |= shard.producer_ids.get(each, set())
    return found
