"""What the compiled kernel makes of damaged records of internal topics: what their decoders make of them."""

from __future__ import annotations

import random
from functools import cache

from fuzz.check import Difference
from kdump.render import BYTES_MODES
from support.internal_records import DecodedForms, InternalRecord, damaged, groups_of_consumers, random_records

_RECORDS = 30  # of a case


@cache
def _whole() -> list[InternalRecord]:
    rng = random.Random("records")
    return random_records(rng) + groups_of_consumers(rng)


@cache
def _forms(number: int) -> DecodedForms:
    return DecodedForms(("text", "json")[number % 2], BYTES_MODES[number // 2])


def check_decoded(seed: int, number: int) -> None:
    """Raises Difference where the two are not the same."""
    rng = random.Random(f"{seed}:{number}:decoded")
    for _ in range(_RECORDS):
        record, form = damaged(rng, rng.choice(_whole())), _forms(rng.randrange(2 * len(BYTES_MODES)))
        found = form.compiled(record)
        if found is not None and found != form.plain(record):
            raise Difference(f"{record} in {form.style}, {form.mode}: {found!r}")
