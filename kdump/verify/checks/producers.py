"""The checks `producer/*`, `txn/state`, `txn/marker-epoch`, `txn/epochs`, `txn/marker-empty`,
`txn/coordinator-epoch` and `txn/empty`.

The kernel applies them while it replays the batches of producers (kdump.kernel.producers). Here they become findings.
"""

from collections.abc import Iterable, Iterator, Mapping

from kdump.kernel.producer_results import ProducerProblem, ProducerTally
from kdump.verify.findings import Finding, FindingValue, Severity, make_finding


def explain(path: str, problems: Iterable[ProducerProblem]) -> Iterator[Finding]:
    """Yield a finding for each problem of `Producers.take`."""
    for one in problems:
        data: dict[str, FindingValue] = {"producer_id": one.producer_id, "epoch": one.epoch}
        match one.problem:
            case "producer/sequence":
                data |= {"sequence": one.sequence, "previous": one.previous_sequence}
            case "producer/epoch":
                data |= {"previous": one.previous_epoch, "marker": one.marker}
            case "txn/state" | "txn/marker-empty":
                data |= {"first": one.txn_first}
            case "txn/epochs":
                data |= {"first": one.txn_first, "previous": one.previous_epoch}
            case _:
                data |= {"previous": one.previous_epoch}
        yield make_finding(one.problem, path, one.position, one.size, offset=one.offset, severity=None, **data)


def tallies(path: str, counted: Mapping[str, ProducerTally], *, compacted: bool) -> Iterator[Finding]:
    """Yield one finding for a segment and code that is only counted: producer/gap, txn/empty, txn/coordinator-epoch.

    In a compacted log gaps in sequences are legal, and markers stay after the records of their transaction are gone.
    """
    if (gap := counted.get("gap")) is not None:
        yield make_finding(
            "producer/gap",
            path,
            gap.position,
            gap.size,
            offset=gap.offset,
            severity=Severity.INFO if compacted else None,
            count=gap.count,
            producer_id=gap.producer_id,
            epoch=gap.epoch,
            sequence=gap.value,
            previous=gap.previous,
        )
    if (empty := counted.get("empty")) is not None and not compacted:
        yield make_finding("txn/empty", path, empty.position, empty.size, offset=empty.offset, count=empty.count)
    if (coordinator := counted.get("coordinator")) is not None:
        yield make_finding(
            "txn/coordinator-epoch",
            path,
            coordinator.position,
            coordinator.size,
            offset=coordinator.offset,
            count=coordinator.count,
            producer_id=coordinator.producer_id,
            epoch=coordinator.value,
            previous=coordinator.previous,
        )
