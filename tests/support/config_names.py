"""Makes kdump/broker/metadata_image/config_names.py from Kafka's classes: `python tests/support/config_names.py`.

Needs Java and the jars of the newest release (fixtures/make/kafka.py).
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `interop` is found

from interop.conftest import load_kafka

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "kdump" / "broker" / "metadata_image" / "config_names.py"
PROGRAM = ROOT / "tests" / "interop" / "ConfigNames.java"


def module_text(release: str, lines: list[str]) -> str:
    """The module, from what the program prints."""
    rows = [line.split() for line in lines]
    kinds = {kind: [row[1] for row in rows if row[0] == kind] for kind in ("broker", "topic", "group")}
    text = f'''"""The configurations that are not sensitive, and the releases of metadata.version: Kafka {release}.

tests/support/config_names.py makes this file. A name that is not here is sensitive, as in Kafka.
"""

from typing import Final

'''
    for kind, names in kinds.items():
        body = textwrap.fill(" ".join(names), 118, break_long_words=False, break_on_hyphens=False)
        text += f'_{kind.upper()} = """\n{body}\n"""\n{kind.upper()}: Final = frozenset(_{kind.upper()}.split())\n\n'
    releases = "".join(f'    {row[1]}: "{row[2]}",\n' for row in rows if row[0] == "version")
    return f"{text}METADATA_VERSIONS: Final = {{\n{releases}}}\n"


def main() -> None:
    """Write the module."""
    kafka = load_kafka()
    printed = kafka.run_source(kafka.NEWEST, PROGRAM).stdout.decode()
    TARGET.write_text(module_text(kafka.NEWEST, printed.splitlines()), encoding="utf-8")


if __name__ == "__main__":
    main()
