"""What the replay of a segment's batches found out about producers and transactions (kdump.kernel.producers), as findings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kdump.verify.findings import Finding, Severity, found

Row = tuple[str, int, int, int, int, int, int, int, int, int, bool]
Tally = tuple[int, int, int, int, int, int, int, int]


def explain(path: str, rows: Iterable[Row]) -> Iterator[Finding]:
    """A finding for each row of `Producers.take`."""
    for (
        problem,
        position,
        size,
        offset,
        producer_id,
        epoch,
        sequence,
        previous,
        previous_epoch,
        first,
        marker,
    ) in rows:
        data: dict[str, Any] = {"producer_id": producer_id, "epoch": epoch}
        match problem:
            case "producer/sequence":
                data |= {"sequence": sequence, "previous": previous}
            case "producer/epoch":
                data |= {"previous": previous_epoch, "marker": marker}
            case "txn/state":
                data |= {"first": first}
            case _:
                data |= {"previous": previous_epoch}
        yield found(problem, path, position, size, offset=offset, **data)


def tallies(path: str, counted: Mapping[str, Tally], *, compacted: bool) -> Iterator[Finding]:
    """One finding a segment for what is counted: sequences that leave something out, markers that end nothing, coordinator epochs that go back.

    Where a cleaner went, sequences leave out what it removed, and the records of transactions are gone before their markers.
    """
    if (gap := counted.get("gap")) is not None:
        count, position, size, offset, producer_id, epoch, sequence, previous = gap
        yield found(
            "producer/gap",
            path,
            position,
            size,
            offset=offset,
            severity=Severity.INFO if compacted else None,
            count=count,
            producer_id=producer_id,
            epoch=epoch,
            sequence=sequence,
            previous=previous,
        )
    if (empty := counted.get("empty")) is not None and not compacted:
        count, position, size, offset, *_ = empty
        yield found("txn/empty", path, position, size, offset=offset, count=count)
    if (coordinator := counted.get("coordinator")) is not None:
        count, position, size, offset, producer_id, _, epoch, previous = coordinator
        yield found(
            "txn/coordinator-epoch",
            path,
            position,
            size,
            offset=offset,
            count=count,
            producer_id=producer_id,
            epoch=epoch,
            previous=previous,
        )
