"""The copies of topic-partitions, pair by pair: whether they mean the same."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator

from kdump.convert.log_tables.rows import TableRow
from kdump.engine.protocol import Engine
from kdump.errors import SourceError
from kdump.format.naming import TopicPartition, as_utf8
from kdump.named_tuple import NamedTuple
from kdump.replicas.compare import CompareOptions, PartitionComparison, compare_logs
from kdump.replicas.fingerprint.fingerprint_file import CopyFingerprint, fingerprinted_copies
from kdump.storage.discovery import discover, named_fingerprints


class Copies(NamedTuple):
    """Where copies are: the paths of logs, and the copies in the fingerprint files among the paths."""

    paths: tuple[str, ...]
    fingerprints: tuple[CopyFingerprint, ...]


def copies_at(paths: Iterable[str]) -> Copies:
    """What is at the paths. Raises SourceError for a fingerprint that cannot be read, and for some with other keys."""
    names, others = named_fingerprints(paths)
    return Copies(others, tuple(fingerprinted_copies(names)))


def comparison_rows(
    copies: Copies,
    max_batch_bytes: int,
    engine: Engine | None,
    on_error: Callable[[SourceError], object],
    only: Collection[TopicPartition] | None = None,
) -> Iterator[TableRow]:
    """A row for each pair of copies of a topic-partition; `only` those of some fingerprints are taken."""
    printed = [each for each in copies.fingerprints if only is None or each.topic_partition in only]
    found = discover(copies.paths) if copies.paths else ()
    for compared in compare_logs(found, CompareOptions(max_batch_bytes), engine=engine, fingerprints=printed):
        if isinstance(compared, PartitionComparison):
            yield from _rows(compared)
        else:
            on_error(compared)


def _rows(compared: PartitionComparison) -> Iterator[TableRow]:
    of, stale = compared.topic_partition, compared.stale
    evidence = _text([each._asdict() for each in compared.evidence])
    for pair in compared.pairs:
        yield {
            "topic": as_utf8(of.topic),
            "partition": of.partition,
            "topic_id": compared.topic_id,
            "left": as_utf8(pair.left),
            "right": as_utf8(pair.right),
            "verdict": str(pair.verdict),
            "end_offset": pair.end_offset,
            "left_reach": pair.reach[0],
            "right_reach": pair.reach[1],
            "batches": pair.batches,
            "records": pair.records,
            "keys": pair.keys,
            "undecided_keys": pair.undecided_keys,
            "because": ",".join(pair.because),
            "differs": _text(pair.fields()["differs"]),
            "stale": None if stale is None else as_utf8(stale),
            "evidence": evidence,
        }


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
