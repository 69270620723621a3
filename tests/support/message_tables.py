"""The tables of messages in kdump/format/internal_topics/schemas/, made from the definitions in Kafka's released jars.

    python tests/support/message_tables.py            writes the tables
    python tests/support/message_tables.py --check    says which differ, and ends with 1 when one does

A definition is a JSON file beside the classes that Kafka generates from it. A table has a line for each message and
each field: names, types, versions, tags, defaults. Descriptions are left out.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # so that `interop` is found

from interop.conftest import load_kafka

TABLES = Path(__file__).resolve().parents[2] / "kdump" / "format" / "internal_topics" / "schemas"


class Table(NamedTuple):
    """A module of tables: the jar with its definitions, which of them, and what it is about."""

    jar: str
    names: str
    about: str


MODULES = {
    "consumer_offsets": Table("kafka-group-coordinator", r".*", "The records of `__consumer_offsets`"),
    "transaction_state": Table("kafka-transaction-coordinator", r".*", "The records of `__transaction_state`"),
    "cluster_metadata": Table("kafka-metadata", r".*", "The records of `__cluster_metadata`"),
    "share_group_state": Table("kafka-share-coordinator", r".*", "The records of `__share_group_state`"),
    "remote_log_metadata": Table("kafka-storage", r"Remote.*", "The records of `__remote_log_metadata`"),
    "consumer_protocol": Table(
        "kafka-clients",
        r"ConsumerProtocol.*",
        "Subscriptions and assignments of consumers, which the metadata of a classic group holds",
    ),
}


def definitions(jar: Path, names: str) -> Iterator[dict[str, Any]]:
    """The definitions in a jar whose names match, by name."""
    with zipfile.ZipFile(jar) as archive:
        for path in sorted(archive.namelist()):
            if path.endswith(".json") and re.fullmatch(names, Path(path).stem):
                text = archive.read(path).decode()
                yield json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def rows(definition: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a message."""
    known = {"apiKey", "type", "name", "validVersions", "flexibleVersions", "fields", "commonStructs"}
    strange = set(definition) - known
    if strange:
        raise ValueError(f"{definition['name']}: {', '.join(sorted(strange))} not known")
    number = definition.get("apiKey", "-")
    yield f"{definition['name']} {number} {definition['validVersions']} {definition['flexibleVersions']}"
    yield from _fields(definition["fields"], 1)
    for struct in definition.get("commonStructs", ()):
        yield f" struct {struct['name']}"
        yield from _fields(struct["fields"], 2)


_IGNORED = {"about", "ignorable", "entityType", "mapKey", "zeroCopy"}
"""What does not change how a field is read."""


def _fields(fields: list[dict[str, Any]], depth: int) -> Iterator[str]:
    for field in fields:
        strange = set(field) - _IGNORED - {
            "name", "type", "versions", "nullableVersions", "taggedVersions", "tag", "default", "fields",
        }  # fmt: skip
        if strange:
            raise ValueError(f"{field['name']}: {', '.join(sorted(strange))} not known")
        name = field["name"][0].lower() + field["name"][1:]
        # As in Kafka's FieldSpec: a field without versions has those in which it is tagged.
        words = [name, field["type"], field.get("versions") or field["taggedVersions"]]
        if "nullableVersions" in field:
            words.append(f"nullable={field['nullableVersions']}")
        if "taggedVersions" in field:
            words.append(f"tagged={field['taggedVersions']}")
            words.append(f"tag={field['tag']}")
        default = field.get("default")
        if default is not None:
            words.append(f"default={str(default).lower() if isinstance(default, bool) else default}")
        yield " " * depth + " ".join(words)
        yield from _fields(field.get("fields", []), depth + 1)


def table(kafka: ModuleType, module: str) -> str:
    """The text of a module."""
    of = MODULES[module]
    release = kafka.NEWEST
    jar = next(
        Path(path) for path in kafka.classpath(release).split(":") if Path(path).name == f"{of.jar}-{release}.jar"
    )
    lines = [line for each in definitions(jar, of.names) for line in rows(each)]
    text = "\n".join(lines)
    return (
        f'"""{of.about}, from {of.jar} {release}.\n\ntests/support/message_tables.py makes this file.\n"""\n\n'
        f'MESSAGES = """\n{text}\n"""\n'
    )


def main() -> int:
    kafka = load_kafka()
    check = "--check" in sys.argv[1:]
    different = 0
    for module in MODULES:
        path, text = TABLES / f"{module}.py", table(kafka, module)
        if path.exists() and path.read_text() == text:
            continue
        different += 1
        if check:
            print(f"{path.name} differs from the definitions")
        else:
            path.write_text(text)
    return int(check and different > 0)


if __name__ == "__main__":
    sys.exit(main())
