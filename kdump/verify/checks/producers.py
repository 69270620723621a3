"""What the replay of a segment's batches found out about producers and transactions (kdump.kernel.producers), as findings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kdump.kernel.results import ProducerProblem, ProducerTally
from kdump.verify.findings import Finding, Severity, found


def explain(path: str, problems: Iterable[ProducerProblem]) -> Iterator[Finding]:
    """A finding for each problem of `Producers.take`."""
    for one in problems:
        data: dict[str, Any] = {"producer_id": one.producer_id, "epoch": one.epoch}
        match one.problem:
            case "producer/sequence":
                data |= {"sequence": one.sequence, "previous": one.previous_sequence}
            case "producer/epoch":
                data |= {"previous": one.previous_epoch, "marker": one.marker}
            case "txn/state":
                data |= {"first": one.txn_first}
            case _:
                data |= {"previous": one.previous_epoch}
        yield found(one.problem, path, one.position, one.size, offset=one.offset, **data)


def tallies(path: str, counted: Mapping[str, ProducerTally], *, compacted: bool) -> Iterator[Finding]:
    """One finding a segment for what is counted: sequences that leave something out, markers that end nothing, coordinator epochs that go back.

    Where a cleaner went, sequences leave out what it removed, and the records of transactions are gone before their markers.
    """
    if (gap := counted.get("gap")) is not None:
        yield found(
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
        yield found("txn/empty", path, empty.position, empty.size, offset=empty.offset, count=empty.count)
    if (coordinator := counted.get("coordinator")) is not None:
        yield found(
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
