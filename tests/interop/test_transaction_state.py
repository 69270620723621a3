"""Keys and values of __transaction_state, real and damaged, read by kdump and by Kafka's own classes.

KDUMP_STATE_CASES and KDUMP_STATE_SEED choose how many damaged ones, and which.
"""

from __future__ import annotations

import os
import random
from base64 import b64encode
from collections import Counter
from pathlib import Path
from types import ModuleType

from kdump.format.internal_topics.transaction_state import UnknownRecord, decode_key, decode_value
from kdump.storage.records import open_batch, records
from kdump.storage.source import FileSource
from kdump.storage.walk import BatchChunk, Walk

STATES = Path(__file__).with_name("TransactionStates.java")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CASES = int(os.environ.get("KDUMP_STATE_CASES", "4000"))
SEED = os.environ.get("KDUMP_STATE_SEED", "0")
PIECES = (b"", b"\0", b"\1", b"\2", b"\xff", b"\x7f", b"\x80", b"\0\1", b"\xff\xff", b"\xff\xff\xff\xff\x0f", b"\0" * 8)


def real() -> list[tuple[str, bytes]]:
    found: set[tuple[str, bytes]] = set()
    for path in sorted(FIXTURES.glob("*/__transaction_state-*/*.log")):
        with FileSource(str(path)) as source:
            for item in Walk(source, everything=True):
                if not isinstance(item, BatchChunk):
                    continue
                for batch in item.rows():
                    for record in records(batch, open_batch(batch, item.body(batch), 1 << 20)):
                        found |= {("key", record.key or b""), ("value", record.value or b"")}
    return sorted(found)


def damaged(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.randrange(1, 4)):
        at, size = rng.randrange(len(data) + 1), rng.choice((0, 0, 1, 1, 2, 4, 8))
        piece = rng.choice((*PIECES, rng.randbytes(rng.randrange(4))))
        data = data[:at] + piece + data[at + size :]
    return data


def hexadecimal(text: str) -> str:
    return text.encode("utf-16-be").hex()


def ours(kind: str, data: bytes) -> str:
    try:
        if kind == "key":
            return hexadecimal(decode_key(data).transactional_id)
        found = decode_value(data)
    except UnknownRecord:
        return "unknown"
    except ValueError:
        return "refused"
    assert found is not None
    partitions = "null"
    if found.transaction_partitions is not None:
        partitions = "".join(
            f"{hexadecimal(topic)}[{','.join(map(str, numbers))}]" for topic, numbers in found.transaction_partitions
        )
    return " ".join(map(str, found._replace(transaction_partitions=partitions)))  # type: ignore[arg-type]


def test_states(kafka: ModuleType) -> None:
    known = real()
    rng = random.Random(f"states:{SEED}")
    cases = list(known)
    for _ in range(CASES):
        kind, data = rng.choice(known)
        cases.append((kind, damaged(rng, data)))
    lines = "".join(f"{kind} {b64encode(data).decode()}\n" for kind, data in cases)
    theirs = kafka.run_source(kafka.NEWEST, STATES, stdin=lines.encode()).stdout.decode().splitlines()
    assert len(theirs) == len(cases)
    wrong, outcomes = [], Counter[str]()
    for (kind, data), answer in zip(cases, theirs, strict=True):
        mine = ours(kind, data)
        outcomes[answer if answer in ("unknown", "refused") else "read"] += 1
        if mine != answer:
            wrong.append(f"{kind} {data.hex()}\n  kdump: {mine}\n  Kafka: {answer}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(cases)} differ", *wrong[:10]])
    assert all(outcomes[what] > CASES / 100 for what in ("read", "unknown", "refused"))
