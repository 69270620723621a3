"""The fold of transactions: any cutting of a log gives the same, and what a plain decision batch by batch gives."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kdump.kernel import transactions as kernel
from kdump.kernel.producers import DATA, GAP
from kdump.kernel.transactions import Transactions
from kdump.log.transactions import Transaction, last_stable_offset, open_transactions, take_ended
from support import plain_transactions as plain
from support.laws import examples

OUTCOMES = {kernel.COMMITTED: "committed", kernel.ABORTED: "aborted", kernel.UNDECIDED: "undecided"}
KEPT = {"decided": True, "listed": True}


def take(fold: Transactions, steps: Sequence[plain.Step]) -> Transactions:
    """Give a fold some steps, those of a scan at once: the places where batches may be missing come before."""
    events = b""
    file = -1
    for step in steps:
        if step.file != file:
            fold.add(events)
            fold.begin(step.file)
            events, file = b"", step.file
        if step.kind == GAP and step.lost:
            fold.lose(step.position)
        else:
            events += step.event()
    fold.add(events)
    return fold


def added(parts: list[Transactions], rng: random.Random) -> Transactions:
    """The sum of neighbours, added in any order."""
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at].extend(parts.pop(at + 1))
    return parts[0]


def cut(steps: list[plain.Step], rng: random.Random, *, gaps: bool) -> Transactions:
    """The fold of a log that is read in parts."""
    cuts = sorted(rng.randrange(len(steps) + 1) for _ in range(rng.randrange(5)))
    ranges = zip([0, *cuts], [*cuts, len(steps)], strict=True)
    first = Transactions(anchored=True, gaps=gaps, **KEPT)
    return added([first, *(take(Transactions(gaps=gaps, **KEPT), steps[a:b]) for a, b in ranges)], rng)


def check(fold: Transactions, steps: list[plain.Step], *, gaps: bool) -> None:
    """Compare all that a fold says with the plain decision."""
    wanted = plain.transactions(steps, gaps=gaps)
    assert fold.seal() == any(step.kind == DATA for step in steps)
    assert last_stable_offset(fold, "stop") == plain.stable(wanted, ("open", "undecided"))
    assert last_stable_offset(fold, "skip") == plain.stable(wanted, ("open",))
    assert fold.open_count == sum(each.outcome == "open" for each in wanted)
    assert [*take_ended(fold), *open_transactions(fold)] == [Transaction(*each) for each in wanted]
    for number, step in enumerate(steps):
        if step.kind == DATA:
            fold.begin(step.file)
            outcome = plain.outcome_at(steps, plain.end_of(steps, number, gaps=gaps))
            found = OUTCOMES[fold.of(step.producer, step.position)]
            assert found == ("undecided" if outcome == "open" else outcome)


@pytest.mark.daily(4)
@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(300)))
@pytest.mark.parametrize("gaps", [True, False])
def test_any_cutting_is_the_plain_decision(seed: int, gaps: bool) -> None:
    rng = random.Random(seed)
    steps = plain.random_steps(rng)
    check(take(Transactions(anchored=True, gaps=gaps, **KEPT), steps), steps, gaps=gaps)
    check(cut(steps, rng, gaps=gaps), steps, gaps=gaps)


def test_what_is_open_before() -> None:
    fold = Transactions(anchored=True)
    fold.resume({7: 50, 8: 40})
    assert last_stable_offset(fold, "stop") == last_stable_offset(fold, "skip") == 40
    fold.lose(3)
    fold.begin(0)
    assert last_stable_offset(fold, "stop") == 40
    assert last_stable_offset(fold, "skip") is None


def test_many_producers_leave_no_rows() -> None:
    fold = Transactions(anchored=True)
    for producer in range(10_000):
        data = plain.Step(DATA, producer, 0, 0, 2 * producer, 2 * producer, 1, False)
        fold.add(data.event() + data._replace(kind=plain.COMMIT, position=2 * producer + 1).event())
    assert (fold.open_count, len(fold.packed()) // 10_000) == (0, 0)


def test_events_that_are_cut() -> None:
    with pytest.raises(ValueError, match="the events are cut"):
        Transactions().add(b"1234567")
    with pytest.raises(ValueError, match="too many files"):
        Transactions().begin(1 << 20)


@pytest.mark.laws
@pytest.mark.parametrize("seed", range(examples(100)))
def test_what_is_known_before_the_end_of_the_log_stays(seed: int) -> None:
    """Once no transaction is open that began before a batch, the outcome of it is known; others may be forgotten."""
    rng = random.Random(seed)
    steps = [step for step in plain.random_steps(rng) if not step.lost]
    whole = take(Transactions(anchored=True, **KEPT), steps)
    whole.seal()
    fold, known = Transactions(anchored=True, **KEPT), 0
    for count, step in enumerate(steps, 1):
        fold.begin(step.file)
        fold.add(step.event())
        while known < count and not fold.is_open_before(steps[known].file, steps[known].position + 1):
            each = steps[known]
            fold.begin(each.file)
            whole.begin(each.file)
            fold.forget(each.position)
            fold.seal()
            if each.kind == DATA:
                assert fold.of(each.producer, each.position) == whole.of(each.producer, each.position)
            known += 1
    assert known or not steps or fold.open_count
