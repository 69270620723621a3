"""kdump and the reader of Kafka's own clients on the same bytes: real, built and damaged. `kafka_readings` says what
has to agree.

KDUMP_INTEROP_CASES and KDUMP_INTEROP_SEED choose how many mutated segments, and which.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from fuzz import corpus
from interop import kafka_readings
from support import build, damage
from support.laws import of_the_day

KAFKA_READER = Path(__file__).with_name("KafkaReader.java")
CASES = int(os.environ.get("KDUMP_INTEROP_CASES", "6000"))
SEED = os.environ.get("KDUMP_INTEROP_SEED", "0")

Segments = dict[str, tuple[bytes, int | None]]


def real() -> Segments:
    return {name: (data, base) for name, data, base in corpus.fixtures()}


def built() -> Segments:
    found: Segments = {}
    for magic in (0, 1, 2):
        for codec in build.CODECS if magic == 2 else build.CODECS[:4]:
            for number in range(25):
                name = f"built-{magic}-{codec}-{number}"
                found[name] = corpus.built(random.Random(name), magics=(magic,), codecs=(codec,), most=8)
    return found


def damaged() -> Segments:
    """Every named damage on segments of every magic."""
    found: Segments = {}
    for name in sorted(damage.DAMAGES):
        for number in range(12):
            rng = random.Random(f"damaged:{name}:{number}")
            data, base = corpus.built(rng)
            try:
                found[f"damaged-{name}-{number}"] = damage.DAMAGES[name](data, rng), base
            except damage.NotApplicable:
                continue
    return found


def mutated() -> Segments:
    return {
        f"mutated-{SEED}-{number}": corpus.mutated(random.Random(f"judge:{SEED}:{number}"))
        for number in of_the_day(range(CASES), 2)
    }


@pytest.mark.parametrize("segments", [real, built, damaged, mutated], ids=lambda function: function.__name__)
def test_kafka_and_kdump_agree(segments: Callable[[], Segments], kafka: ModuleType, tmp_path: Path) -> None:
    cases = segments()
    readings = []
    lines = []
    for number, (data, base) in enumerate(cases.values()):
        path = tmp_path / f"{number}.log"
        path.write_bytes(data)
        readings.append(kafka_readings.read_by_kdump(data, base))
        lines.append("\t".join([str(path), *map(str, readings[-1].starts)]))
    done = kafka.run_source(kafka.NEWEST, KAFKA_READER, stdin="\n".join(lines).encode() + b"\n", flags=("-Xmx512m",))
    verdicts = list(kafka_readings.parse(done.stdout.decode().splitlines()))
    assert len(verdicts) == len(cases)
    wrong = [
        f"{name}: {problem}"
        for (name, (data, _)), mine, theirs in zip(cases.items(), readings, verdicts, strict=True)
        for problem in kafka_readings.disagreements(mine, theirs, len(data))
    ]
    assert not wrong, "\n".join([f"{len(wrong)} disagreements", *wrong[:30]])
