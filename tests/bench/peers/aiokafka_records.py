"""Every record of Kafka segments through aiokafka's compiled reader: CRC, decompression, key and value of each record.

`python -m tests.bench.peers.aiokafka_records FILE…` prints one JSON line: {"batches", "records", "bytes"}.
"""

from __future__ import annotations

import json
import sys

from aiokafka.record import memory_records  # type: ignore[import-not-found]

from ..segments import runs


def main(paths: list[str]) -> int:
    """Read all files."""
    if memory_records.MemoryRecords.__module__ == memory_records.__name__:
        print("aiokafka came without its compiled reader", file=sys.stderr)
        return 1
    batches = records = size = touched = 0
    for path in paths:
        for buffer, ranges in runs(path):
            end = ranges[-1][1]
            chunk = memory_records.MemoryRecords(bytes(buffer[:end]))
            while (batch := chunk.next_batch()) is not None:
                if not batch.validate_crc():
                    print(f"{path}: wrong CRC", file=sys.stderr)
                    return 1
                batches += 1
                for record in batch:
                    touched += len(record.key or b"") + len(record.value or b"")
                    records += 1
            size += end
    print(json.dumps({"batches": batches, "records": records, "bytes": size}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
