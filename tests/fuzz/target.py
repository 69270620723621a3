"""Coverage-guided fuzzing with atheris: `python tests/fuzz/target.py --seeds DIRECTORY`, then `python
tests/fuzz/target.py DIRECTORY -max_total_time=60`.

The first byte of an input chooses what is known about the segment, the rest are its bytes. The oracle is instrumented
as well as the package: its branches are those of the compiled kernel, which has no counters of its own.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["kdump", "oracle"]):
    from fuzz import corpus
    from fuzz.check import LIMIT_BYTES, Case, check
    from support import oracle  # noqa: F401  # instrumented before anything else imports it

MOST_BYTES = 4096
_BASES = (0, None, 0, 7)
_LIMITS = (LIMIT_BYTES, LIMIT_BYTES, LIMIT_BYTES, 100)
_WINDOWS = (512 << 10, 1)


def one_input(data: bytes) -> None:
    """Raises where kdump and the oracle do not agree on the input."""
    if not data:
        return
    choice, segment = data[0], data[1 : MOST_BYTES + 1]
    if choice & 1:
        segment = corpus.resealed(segment)
    base, limit = _BASES[choice >> 1 & 3], _LIMITS[choice >> 3 & 3]
    cuts = (len(segment) // 2,) if choice & 0x20 else ()
    check(Case(segment, base, not choice & 0x40, limit, cuts, _WINDOWS[choice >> 7]))


def write_seeds(directory: Path) -> int:
    """Built segments and pieces of the fixtures, as inputs."""
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random("seeds")
    pieces = [data for data, _ in corpus.small_pieces() if len(data) < MOST_BYTES]
    pieces += [corpus.built(rng, most=3)[0] for _ in range(300)]
    for number, data in enumerate(pieces):
        (directory / f"seed-{number:04}").write_bytes(bytes([number % 2 | 2]) + data)
    return len(pieces)


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--seeds":
        print(f"{write_seeds(Path(sys.argv[2]))} seeds")
        return
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
