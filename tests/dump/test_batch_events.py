"""What a dump says of whole batches."""

from pathlib import Path

import pytest

from kdump.dump.dump import DumpOptions, dump_logs
from kdump.dump.events import BatchEvent
from kdump.storage import discovery
from support import build

RECORDS = [build.record(b"k", b"v" * 100)]


@pytest.mark.parametrize(
    ("crc", "max_bytes", "damage", "crc_ok"),
    [
        (None, 1 << 20, None, True),
        (0, 1 << 20, "batch/crc", False),
        (1, 1 << 20, "batch/crc", False),
        (None, 100, "batch/limit", None),
        (0, 100, "batch/limit", None),
    ],
)
def test_whether_the_crc_is_right(
    crc: int | None, max_bytes: int, damage: str | None, crc_ok: bool | None, tmp_path: Path
) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build.batch(RECORDS, crc=crc))
    options = DumpOptions(max_batch_bytes=max_bytes)
    events = dump_logs(discovery.log_files([str(path)]), options)
    ((found, known),) = [(event.damage, event.crc_ok) for event in events if isinstance(event, BatchEvent)]
    assert (found, known) == (damage, crc_ok)
