"""Compares two fingerprint files of many topic-partitions, each with what a whole log has."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import kdump
from kdump.replicas.compare import compare_logs
from kdump.replicas.fingerprint.fingerprint_file import fingerprint_logs, read_fingerprint
from kdump.replicas.fingerprint.fingerprint_format import head_of, index_of


def main(directory: str, count: str) -> int:
    """The processor time of the comparison alone."""
    with TemporaryDirectory(prefix="kdump-bench-") as folder:
        paths = [str(Path(folder, f"{number}.fingerprint")) for number in (1, 2)]
        for path in paths:
            _write(path, directory, int(count))
        started = time.process_time()
        copies = [copy for path in paths for copy in read_fingerprint(path).copies]
        agree = sum(each.verdict.name == "AGREE" for each in compare_logs((), fingerprints=copies))  # type: ignore[union-attr]
        print(json.dumps({"agree": agree, "seconds": time.process_time() - started}))
    return 0


def _write(path: str, directory: str, count: int) -> None:
    """A file in which each topic-partition has the section of the copy in a directory."""
    one = io.BytesIO()
    list(fingerprint_logs(kdump.discover([directory]), one))
    Path(path).write_bytes(one.getvalue())
    file = read_fingerprint(path)
    entry = file.copies[0].entry
    section = one.getvalue()[entry.position : entry.position + entry.size]
    position, entries = len(head_of(file.head)), []
    with open(path, "wb") as out:
        out.write(head_of(file.head))
        for number in range(count):
            topic_partition = entry.topic_partition._replace(partition=number)
            entries.append(entry._replace(topic_partition=topic_partition, position=position))
            out.write(section)
            position += len(section)
        out.write(index_of(entries, position))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
