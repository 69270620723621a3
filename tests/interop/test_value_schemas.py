"""Values with schemas that a broker stored, decoded from its disk with the topic of a registry beside them."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from types import ModuleType

from support.command_runs import run_inside
from support.schema_values import (
    LINE_BYTES,
    LINE_DATA,
    LINE_PATH,
    ORDER_BYTES,
    ORDER_DATA,
    ORDER_GUID,
    REGISTRY,
    Pair,
    registered,
    wire,
)

HERE = Path(__file__).resolve().parent
TOPICS = HERE.parents[1] / "fixtures" / "make" / "Topics.java"
COMPACTED = "_schemas:1:cleanup.policy=compact,segment.bytes=1048576,min.cleanable.dirty.ratio=0.01,segment.ms=500"
VALUES: list[tuple[bytes | None, list[tuple[str, bytes]]]] = [
    (wire(1, ORDER_BYTES), []),
    (wire(3, LINE_PATH + LINE_BYTES), []),
    (wire(4, b'{"a":1}'), []),
    (ORDER_BYTES, [("__value_schema_id", b"\1" + ORDER_GUID.bytes)]),
    (wire(5, b"\2a"), []),
    (None, []),
]


def base64(data: bytes | None) -> str:
    return "-" if data is None else b64encode(data).decode()


def test_values_on_the_disk_of_a_broker(kafka: ModuleType, tmp_path: Path) -> None:
    with kafka.kraft_broker(tmp_path / "broker", settings={"log.cleaner.backoff.ms": 200}) as broker:
        kafka.run_source(kafka.NEWEST, TOPICS, broker.bootstrap, COMPACTED, "orders:1:compression.type=zstd")
        # A version that is replaced: after compaction the last value alone is left.
        replaced: list[Pair] = [registered("orders-value", 1, 1, '"bytes"')]
        lines = [f"_schemas {base64(key)} {base64(value)}" for key, value in replaced + REGISTRY]
        for value, headers in VALUES:
            named = "".join(f" {name} {base64(data)}" for name, data in headers)
            lines.append(f"orders {base64(b'k')} {base64(value)}{named}")
        kafka.run_source(kafka.NEWEST, HERE / "Sent.java", broker.bootstrap, stdin="\n".join(lines).encode())
        for stopped in (False, True):  # beside a running broker, and after it
            ran = run_inside(
                tmp_path, "dump", "--format", "json", "--schemas", "auto", str(broker.partition("orders-0"))
            )
            assert ran.status == 0, ran.problems
            found = [json.loads(line) for line in ran.lines if '"type":"record"' in line]
            decoded = [record["value_decoded"] and record["value_decoded"]["data"] for record in found]
            assert decoded == [ORDER_DATA, LINE_DATA, {"a": 1}, ORDER_DATA, None, None]
            assert found[3]["value_decoded"]["schema_guid"] == str(ORDER_GUID)
            assert "schema 5 was deleted for good" in found[4]["decode_problem"] or stopped
            if not stopped:
                broker.stop()
        table = run_inside(
            tmp_path, "convert", "--schemas", "auto", str(broker.partition("orders-0")), "-o", "out.ndjson"
        )
        assert table.status == 0, table.problems
        rows = [json.loads(line)["value_json"] for line in (tmp_path / "out.ndjson").read_text().splitlines()]
        assert rows == decoded
