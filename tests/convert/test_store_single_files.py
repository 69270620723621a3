"""A log of an object store is read once for an output that is one file, whose bytes are those of a log on a disk."""

from __future__ import annotations

import io
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

import kdump
from kdump.convert.convert import convert_logs
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.records import outcomes_ahead
from kdump.convert.results import ConvertFindings
from kdump.convert.single_file.tasks import TablePartition
from kdump.engine.protocol import Serial
from kdump.errors import KdumpError
from kdump.storage.object_store import object_store
from support import build
from support.attempts import Attempts
from support.laws import QUICK, examples, sampled
from support.object_stores import Unsteady, copy, unsteady_store
from support.store_logs import MIB, any_log, fetch, log, put

NAMES = {"out.ndjson": Target.NDJSON, "out.csv": Target.CSV, "out.arrow": Target.ARROW, "out.arrows": Target.ARROW}


@pytest.fixture
def store() -> Iterator[str]:
    with unsteady_store() as place:
        yield place


def run(path: str, out: Path | str, engine: Any = None, stdout: Any = None, **how: Any) -> list[Any]:
    object_store.cache_clear()
    Unsteady.calls.clear()
    how.setdefault("target", NAMES.get(Path(out).name))
    return list(convert_logs(kdump.discover(path), out, ConvertOptions(**how), engine=engine, stdout=stdout))


def said(path: str, out: Path | str, **how: Any) -> tuple[list[str], bytes | None]:
    """What a conversion says, without the path of what was read, and the bytes of its output."""
    found: list[str] = []
    stream = io.BytesIO()
    try:
        for each in run(path, out, stdout=stream, **how):
            values = each.findings if isinstance(each, ConvertFindings) else [each]
            found += [repr(value).replace(path, "ROOT") for value in values]
    except KdumpError as error:
        found.append(f"raised {error}".replace(path, "ROOT"))
    found = [each.replace(str(Path(out).parent), "OUT") for each in found]
    if out == "-":
        return found, stream.getvalue()
    return found, Path(out).read_bytes() if Path(out).exists() else None


# ---- bytes


@pytest.mark.daily(2)
@pytest.mark.parametrize("transaction", [0, 5])
@pytest.mark.parametrize("name", NAMES)
def test_a_healthy_log_is_fetched_once(store: str, tmp_path: Path, name: str, transaction: int) -> None:
    batches = log(20, transaction=transaction, outcomes="COMMIT ABORT COMMIT", ends=False)
    size = put("t-0", batches, 3 * MIB)
    size += put("u-0", log(3), MIB)
    other = {"isolation": "read-uncommitted", "overwrite": True}
    for how in ({"dry_run": True}, {}, other, {"until_stable": True, "overwrite": True}):
        run(store, tmp_path / name, **how)
        assert Unsteady.calls["bytes"] <= 1.02 * size, how


@pytest.mark.parametrize("transaction", [0, 5])
def test_standard_output_costs_what_is_not_kept_twice(
    store: str, monkeypatch: pytest.MonkeyPatch, transaction: int
) -> None:
    """Rows in a pipe cannot be taken back: a log is read before they are written, and kept up to 64 MiB."""
    size = put("t-0", log(50, transaction=transaction), 3 * MIB)
    assert len(said(store, "-", target=Target.NDJSON)[1] or b"") > size / 2
    assert Unsteady.calls["bytes"] <= 1.02 * size
    monkeypatch.setattr("kdump.storage.file_store.MARKERS_AHEAD_BYTES", 16 * MIB)
    run(store, "-", target=Target.NDJSON, stdout=io.BytesIO())
    assert Unsteady.calls["bytes"] <= 2.05 * size


# ---- a store and a disk


@pytest.mark.laws
def test_a_store_and_a_disk_give_the_same(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over damages of logs that brokers wrote, and of generated ones; of several partitions some are healthy."""
    monkeypatch.setattr(outcomes_ahead, "_STEP_BYTES", 300)
    seeds, settled = sampled(range(examples(200)), 3), list[object]()
    settle = TablePartition.settle
    monkeypatch.setattr(TablePartition, "settle", lambda *args: settled.append(args) or settle(*args))
    for seed in seeds:
        rng = random.Random(f"single file of a store {seed}")
        place = tmp_path / str(seed)
        for number in range(rng.choice((1, 3))):
            directory = place / "logs" / f"t{number}-0"
            any_log(directory, rng, damaged=0.6)
        how: dict[str, Any] = {"isolation": rng.choice(("read-committed", "read-committed", "read-uncommitted", "all"))}
        how["until_stable"] = how["isolation"] == "read-committed" and rng.random() < 0.5
        how["strict"], how["dry_run"] = rng.random() < 0.2, rng.random() < 0.1
        how["engine"] = rng.choice((Serial(), Attempts()))
        name = rng.choice((*NAMES, "-"))
        if name == "-":
            how["target"] = rng.choice((Target.NDJSON, Target.ARROW))
        if NAMES.get(name) is Target.ARROW:
            how["codec"] = rng.choice((None, "lz4", "zstd"))
        Unsteady.reset()
        copy(Unsteady(), place / "logs", "/bucket")
        if not Unsteady.store:
            continue  # a store has no empty directories
        there, here = (place / side / name if name != "-" else "-" for side in ("there", "here"))
        for out in (there, here):
            Path(out).parent.mkdir(exist_ok=True)
        found = said(store, there, **how)
        assert found == said(str(place / "logs"), here, **how), (seed, name, how)
        shutil.rmtree(place)
    assert QUICK or 0.1 * len(seeds) < len(settled) < 2 * len(seeds)


@pytest.mark.daily(3)
@pytest.mark.parametrize("codec", [None, "lz4", "zstd"])
@pytest.mark.parametrize("name", ["out.arrow", "out.arrows"])
@pytest.mark.parametrize("bad", [0, 1, 2])
def test_rows_of_arrow_are_removed_again(store: str, tmp_path: Path, name: str, codec: str | None, bad: int) -> None:
    """From an output that has many record batches before, or none."""
    columns = (*kdump.convert.tables.DEFAULT_COLUMNS, "codec")
    batches = log(2, batch=1000)
    for number in range(3):
        put(f"t{number}-0", [*batches, *batches[:9]] if number == bad else batches[number:], MIB)
    logs = tmp_path / "logs"
    fetch(logs)
    there, here = tmp_path / name, tmp_path / f"here-{name}"
    how = {"columns": columns, "codec": codec, "target": Target.ARROW}
    run(store, there, **how)
    run(str(logs), here, **how)
    assert there.read_bytes() == here.read_bytes()
    opened = pa.ipc.open_file(there) if name == "out.arrow" else pa.ipc.open_stream(there)
    assert opened.read_all().num_rows == 3 * len(batches) - 3 + bad


@pytest.mark.parametrize("name", [*NAMES, "-"])
def test_a_partition_that_cannot_be_read_is_left_out(store: str, tmp_path: Path, name: str) -> None:
    """As one on a disk whose headers cannot be read: the others are converted."""
    for number in range(3):
        put(f"t{number}-0", log(1), MIB)
    rows = said(store, "-", target=Target.NDJSON)[1]
    assert rows is not None

    real = Unsteady._open

    def opened(system: Any, path: str, *rest: Any, **how: Any) -> Any:
        if "t1-0" in path and path.endswith(".log"):
            raise PermissionError("denied")
        return real(system, path, *rest, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Unsteady, "_open", opened)
        found, data = said(store, tmp_path / name if name != "-" else "-", target=NAMES.get(name, Target.NDJSON))
    assert sum("denied" in each for each in found) == 1
    assert sum("PartitionConversion" in each for each in found) == 2
    if name in ("-", "out.ndjson"):
        assert data is not None
        assert data.count(b"\n") == rows.count(b"\n") * 2 / 3


@pytest.mark.parametrize("before", [0, 5])
@pytest.mark.parametrize("empty", [False, True])
def test_a_log_that_ends_where_a_segment_begins(store: str, tmp_path: Path, before: int, empty: bool) -> None:
    """The first undecided batch is the first one of a file: nothing of that is read, as of a disk."""
    plain = [build.batch([build.record(b"k", b"v")], base_offset=number) for number in range(before)]
    how: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    ends = [build.batch([build.record(b"k", b"v")], base_offset=before + n, base_sequence=n, **how) for n in range(3)]
    for base, batches in ((0, plain), (before, ends), *(((before + 3, list[bytes]()),) if empty else ())):
        if batches or base > before:
            Unsteady().pipe_file(f"/bucket/t-0/{base:020}.log", b"".join(batches))
    logs = tmp_path / "logs"
    fetch(logs)
    for target in (Target.NDJSON, Target.PARQUET, Target.LOG):
        there, here = (tmp_path / f"{side}-{target}" for side in ("there", "here"))
        asked = {"target": target, "until_stable": True, "isolation": "read-committed", "dry_run": True}
        assert said(store, there, **asked) == said(str(logs), here, **asked)
