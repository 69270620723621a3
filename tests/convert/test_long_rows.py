"""A line that is written in pieces is the line; and it is never in memory as a whole."""

from __future__ import annotations

import io
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kdump.convert.single_file import long_rows
from kdump.convert.single_file.writers import CsvWriter, NdjsonWriter
from support import build
from support.laws import examples
from support.plain_rows import batches, csv_lines, json_lines

MB = 1_000_000
MEASURED = """
import sys
from kdump.cli import run
status = run(sys.argv[1:])
peak = int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) << 10
print(status, peak, file=sys.stderr)
"""
PROGRAM_BYTES = 128 << 20
"""What the program takes with pyarrow."""


@pytest.mark.laws
@settings(max_examples=examples(60), deadline=None)
@given(batches(), st.integers(0, 5), st.sampled_from([6, 9, 12]))
def test_pieces_are_the_line(batch: pa.RecordBatch, least: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_rows, "LONG_BYTES", least)
        patch.setattr(long_rows, "_PIECE_BYTES", piece)
        for writer, expected in (
            (NdjsonWriter, json_lines(batch)),
            (partial(CsvWriter, has_names=False), csv_lines(batch)),
        ):
            out = io.BytesIO()
            with writer(out, batch.schema) as to:
                to.write(batch)
            assert out.getvalue().decode() == expected


@pytest.mark.parametrize("value", [b'{"a": ["\xc3\xa4\\u0001", 1]}', b'{"a": \xff}'])
def test_json_text_in_pieces(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("value_json", pa.string())])
    column = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes(4) + len(value).to_bytes(4, "little")), pa.py_buffer(value)]
    )
    batch = pa.RecordBatch.from_arrays([column], schema=schema)

    def written() -> bytes:
        out = io.BytesIO()
        with NdjsonWriter(out, schema, ["value_json"]) as to:
            to.write(batch)
        return out.getvalue()

    whole = written()
    monkeypatch.setattr(long_rows, "LONG_BYTES", 3)
    monkeypatch.setattr(long_rows, "_PIECE_BYTES", 6)
    assert written() == whole


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("target", "where"), [("ndjson", "value"), ("csv", "header")])
def test_a_record_is_in_memory_three_times_at_most(target: str, where: str, tmp_path: Path) -> None:
    """A record of zeros, each of which takes six bytes as JSON."""
    size = 32 * MB
    record = build.Record(b"k", bytes(size)) if where == "value" else build.Record(b"k", b"v", ((b"h", bytes(size)),))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(build.batch([record], codec="zstd"))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, "convert", "--jobs", "1", "t-0", "-o", f"o.{target}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    status, used = map(int, done.stderr.split()[-2:])
    assert status == 0
    assert used < PROGRAM_BYTES + 3 * size
