"""What `kdump dump` shows of any bytes at all: lines that can be read, whatever the file holds."""

from __future__ import annotations

import io
import json
import re

from fuzz.check import Case, Difference, log_file
from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import DumpFailure
from kdump.dump.kafka_tool.dump_log_segments import tool_events
from kdump.render import RenderOptions, renderer

# Control characters but the line end, and what turns the direction of text.
_UNSAFE = re.compile(r"[\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
EVERYTHING = {
    "json": RenderOptions(),
    "text": RenderOptions(),
    "kafka": RenderOptions(print_data_log=True),
    "terminal": RenderOptions(color=False, width=120),
    "hex": RenderOptions(),
}


def lines(case: Case, name: str, *, runs: bool = False) -> bytes:
    """One log in one format, damaged batches with what can be had of them; `runs`: batches at once where it goes."""
    stream = io.BytesIO()
    wanted = DumpOptions(force=True, max_batch_bytes=case.max_batch_bytes, runs=runs, fields=name == "hex")
    events = dump_logs([log_file(case)], wanted)
    if name == "kafka":
        events = tool_events(events, records=True, max_bytes=None)
    with renderer(name, stream, EVERYTHING[name]) as to:
        reported = list(to.show(events))
    # What Kafka's tool says of offsets, and where it would end, is no failure.
    failed = [item for item in reported if isinstance(item, DumpFailure)]
    if failed:
        raise Difference(f"{name}: {failed}")
    return stream.getvalue()


def check_shown(case: Case, name: str) -> None:
    """Raises Difference where a line is none."""
    data = lines(case, name)
    text = data.decode("utf-8")
    if name == "json":
        if lines(case, name, runs=True) != data:
            raise Difference("batches at once are other lines")
        for line in text.splitlines():
            if "type" not in json.loads(line):
                raise Difference(f"no line of JSON: {line}")
    if name != "kafka" and (unsafe := _UNSAFE.search(text)):
        raise Difference(f"{name}: {unsafe[0]!r} at {unsafe.start()} reaches the output")
