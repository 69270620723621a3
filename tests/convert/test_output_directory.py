"""A folder of Parquet files over several runs: what goes on, what is refused, and what is never touched."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from kdump.convert.damage_log import DamagedRanges
from kdump.convert.parquet import manifest_file
from kdump.convert.parquet.continuation import continue_after
from kdump.convert.parquet.manifest import MANIFEST, ConversionSettings, ConvertedPartition, LeftOut, manifest_bytes
from kdump.convert.parquet.output_directory import LOCK, OutputDirectory
from kdump.convert.parquet.run import join_parts, write_part
from kdump.errors import KdumpError
from kdump.storage import directory_handle
from support import build
from support.laws import examples
from support.parquet_folders import (
    RUN,
    SETTINGS,
    contents,
    convert,
    convert_to_parquet,
    converted,
    manifest_of,
    offsets_of,
    records,
    refused,
    sliced,
    table_of,
    write_log,
)

STEP = 1 if examples(2) > 2 else 3
"""Every third call meets an error; with KDUMP_EXAMPLES=long each does. tests/crash ends a run at each."""
TRANSACTION: dict[str, Any] = {"transactional": True, "producer_id": 5, "producer_epoch": 0}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "logs" / "t-0", records(0, 10), records(10, 20))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def names_of(entry: ConvertedPartition) -> list[str]:
    return [file.name for file in entry.files]


# ---- the next run


def test_the_next_run_goes_on(log: Path, out: Path) -> None:
    first = converted(log, out)
    assert (first.next_offset, first.last_batch and first.last_batch.last_offset) == (20, 19)
    before = contents(out)
    assert converted(log, out) == first
    assert contents(out) == before
    write_log(log, records(20, 25), more=True)
    write_log(log, records(25, 30), base=25)
    second = converted(log, out)
    assert [(file.first_offset, file.last_offset) for file in second.files] == [(0, 19), (20, 29)]
    assert second.next_offset == 30
    assert offsets_of(out, names_of(second)) == list(range(30))
    assert contents(out).keys() == {MANIFEST, *names_of(second)}
    assert [[Path(source.path).name for source in file.sources] for file in second.files] == [
        ["00000000000000000000.log"],
        ["00000000000000000000.log", "00000000000000000025.log"],
    ]
    assert manifest_of(out).partitions == {second.key: second}


def test_several_partitions(tmp_path: Path, out: Path) -> None:
    for number in range(3):
        write_log(tmp_path / "logs" / f"t-{number}", records(0, 10 + number))
    convert(tmp_path / "logs", out)
    write_log(tmp_path / "logs" / "t-1", records(11, 20), more=True)
    assert [each.next_offset for each in convert(tmp_path / "logs", out)] == [10, 20, 12]  # type: ignore[union-attr]
    table = pq.read_table(out)
    found = {n: sorted(table.filter(pc.field("partition") == n)["offset"].to_pylist()) for n in range(3)}
    assert found == {0: list(range(10)), 1: list(range(20)), 2: list(range(12))}


def test_an_undecided_transaction_makes_what_follows_provisional(log: Path, out: Path) -> None:
    write_log(log, records(20, 23, **TRANSACTION), records(23, 30), more=True)
    first = converted(log, out)
    assert first.next_offset == 20
    assert [(file.first_offset, file.last_offset, file.provisional) for file in first.files] == [
        (0, 19, False),
        (23, 29, True),
    ]
    assert first.files[1].name.endswith("-00000000000000000029.provisional.parquet")
    assert first.left_out == (LeftOut("undecided", 3, 20, 22),)
    assert offsets_of(out, names_of(first)) == [*range(20), *range(23, 30)]
    assert converted(log, out) == first
    write_log(log, build.marker("COMMIT", base_offset=30, producer_id=5), records(31, 33), more=True)
    second = converted(log, out)
    assert second.next_offset == 33
    assert [(file.first_offset, file.last_offset, file.provisional) for file in second.files] == [
        (0, 19, False),
        (20, 32, False),
    ]
    assert second.left_out == ()
    assert contents(out).keys() == {MANIFEST, *names_of(second)}
    assert offsets_of(out, names_of(second)) == [*range(30), 31, 32]


def test_aborted_records_are_counted_once(log: Path, out: Path) -> None:
    def transaction(first: int, producer: int, end: str | None) -> list[bytes]:
        data = records(first, first + 3, transactional=True, producer_id=producer, producer_epoch=0)
        marker = [build.marker(end, base_offset=first + 3, producer_id=producer)] if end else []
        return [data, *marker]

    write_log(log, *transaction(20, 5, "ABORT"), *transaction(24, 6, None), *transaction(27, 5, "ABORT"), more=True)
    first = converted(log, out)
    assert first.next_offset == 24
    aborted = [LeftOut("aborted", 3, 20, 22), LeftOut("aborted", 3, 27, 29), LeftOut("undecided", 3, 24, 26)]
    assert list(first.left_out) == aborted
    assert converted(log, out) == first
    write_log(log, build.marker("ABORT", base_offset=31, producer_id=6), records(32, 34), more=True)
    second = converted(log, out)
    assert list(second.left_out) == [LeftOut("aborted", 3, 20, 22), LeftOut("aborted", 6, 24, 29)]
    assert converted(log, out) == second
    assert offsets_of(out, names_of(second)) == [*range(20), 32, 33]


def test_damage_is_in_the_manifest_once(log: Path, out: Path) -> None:
    damaged = bytearray(records(20, 25))
    damaged[-1] ^= 1
    write_log(log, bytes(damaged), records(25, 30), more=True)
    found = DamagedRanges()
    first = converted(log, out, damage=found)
    assert [each.code for each in first.findings] == ["batch/crc"]
    assert list(first.findings) == found.kept
    assert first.left_out == (LeftOut("damaged", None, 20, 24),)
    write_log(log, records(30, 40), b"torn", more=True)
    second = converted(log, out)
    assert [each.code for each in second.findings] == ["batch/crc", "tail/torn"]
    assert second.left_out == (LeftOut("damaged", None, 20, 24), LeftOut("damaged", None, 40, None))
    assert second.next_offset == 40
    assert offsets_of(out, names_of(second)) == [*range(20), *range(25, 40)]


def test_what_the_slices_do_not_have(log: Path, out: Path) -> None:
    superseded = LeftOut("superseded", 4, 2, 5)
    assert converted(log, out, left_out=[superseded]).left_out == (superseded,)
    assert converted(log, out, left_out=[superseded]).left_out == (superseded,)


def test_a_range_of_offsets_ends_and_goes_on(log: Path, out: Path) -> None:
    def run(first: int | None, stop: int | None) -> ConvertedPartition | KdumpError:
        (partition,) = sliced(log)
        with OutputDirectory(str(out), SETTINGS, run=RUN) as output:
            return convert_to_parquet(partition._replace(offset=(first, stop), first_asked=first), output)

    entry = run(3, 7)
    assert isinstance(entry, ConvertedPartition)
    assert (entry.first_offset, entry.next_offset) == (3, 7)
    assert entry.last_batch is not None
    assert entry.last_batch.last_offset == 9
    entry = run(3, 15)
    assert isinstance(entry, ConvertedPartition)
    assert [(file.first_offset, file.last_offset) for file in entry.files] == [(3, 6), (7, 14)]
    assert run(3, 5) == entry
    assert "converted from offset 3 on" in str(run(0, 15))
    assert "converted from offset 3 on" in str(run(None, None))


# ---- the log is another one


def test_a_log_that_was_cut_is_refused(log: Path, out: Path) -> None:
    converted(log, out)
    before = contents(out)
    write_log(log, records(0, 10))
    assert "the log ends before it: it was truncated; --rewrite t-0 converts it again" in refused(log, out)
    assert contents(out) == before
    entry = converted(log, out, rewrite=True)
    assert (entry.next_offset, offsets_of(out)) == (10, list(range(10)))
    assert contents(out).keys() == {MANIFEST, *names_of(entry)}


def test_a_log_that_diverged_is_refused(log: Path, out: Path) -> None:
    converted(log, out)
    before = contents(out)
    write_log(log, records(0, 10), records(10, 20, codec="gzip"), records(20, 30))
    assert "the batch up to offset 19 is not the one that was converted" in refused(log, out)
    assert contents(out) == before
    assert converted(log, out, rewrite=True).next_offset == 30
    assert offsets_of(out) == list(range(30))


def test_a_rewrite_with_the_same_names(log: Path, out: Path) -> None:
    (file,) = converted(log, out).files
    write_log(log, records(0, 10), records(10, 20, codec="gzip"))
    (again,) = converted(log, out, rewrite=True).files
    assert again.name == file.name


def test_a_log_whose_begin_was_deleted(log: Path, out: Path) -> None:
    write_log(log, records(20, 30), base=20)
    (log / f"{0:020d}.log").rename(log.parent / "kept")
    converted(log, out)
    (log / f"{20:020d}.log").unlink()
    write_log(log, records(30, 40), base=30)
    assert "it was converted up to offset 29, and the log begins at 30 now" in refused(log, out)


def test_below_the_cleaners_checkpoint_the_offset_is_enough(log: Path, out: Path) -> None:
    converted(log, out)
    kept = build.batch([build.Record(offset=3)], base_offset=0, last_offset_delta=9)
    write_log(log, kept, build.empty_batch(10, 19))
    write_log(log, records(20, 30), base=20)
    assert "is not the one that was converted" in refused(log, out)
    assert "is not the one that was converted" in refused(log, out, cleaner_offset=19)
    entry = converted(log, out, cleaner_offset=20)
    assert offsets_of(out, names_of(entry)) == list(range(30))
    # The batch is gone as a whole, then the log ends before it.
    write_log(log, kept)
    assert converted(log, out, cleaner_offset=30).next_offset == 30
    (log / f"{20:020d}.log").unlink()
    assert "it was truncated" in refused(log, out, cleaner_offset=30)


# ---- refusals


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"columns": ("value",)}, "columns is key, value, headers, topic, partition"),
        ({"isolation": "all"}, "isolation is read-committed there and all here"),
        ({"others": (("replica", "all"),)}, "others is empty there"),
        ({"partition_folders": True}, "partition_folders is False there and True here"),
    ],
)
def test_other_settings_are_refused(log: Path, out: Path, how: dict[str, Any], why: str) -> None:
    converted(log, out)
    before = contents(out)
    with pytest.raises(KdumpError, match="made with other settings: ") as caught:
        convert(log, out, SETTINGS._replace(**how))
    assert why in str(caught.value)
    assert contents(out) == before


def test_a_folder_of_another_is_refused(log: Path, out: Path) -> None:
    out.mkdir()
    (out / "data.parquet").write_bytes(b"mine")
    with pytest.raises(KdumpError, match=r"it is not empty and has no _manifest.jsonl, but has data.parquet"):
        convert(log, out)
    assert contents(out) == {"data.parquet": b"mine"}
    assert not (out / LOCK).exists()


@pytest.mark.parametrize("data", [b"", b"{}\n", b"\x00" * 100])
def test_a_damaged_manifest_is_refused(log: Path, out: Path, data: bytes) -> None:
    out.mkdir()
    (out / MANIFEST).write_bytes(data)
    with pytest.raises(KdumpError, match=f"{MANIFEST}: the manifest cannot be read"):
        convert(log, out)
    assert contents(out) == {MANIFEST: data}


def test_a_manifest_that_is_too_large(log: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converted(log, out)
    monkeypatch.setattr(manifest_file, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(KdumpError, match="the manifest is larger than 10 bytes"):
        convert(log, out)


def test_a_manifest_that_is_no_file(log: Path, out: Path, tmp_path: Path) -> None:
    converted(log, out)
    (out / MANIFEST).rename(tmp_path / "m")
    (out / MANIFEST).symlink_to(tmp_path / "m")
    with pytest.raises(KdumpError, match="a symbolic link, which is not followed here"):
        convert(log, out)
    (out / MANIFEST).unlink()
    (out / MANIFEST).mkdir()
    with pytest.raises(KdumpError, match="not a regular file"):
        convert(log, out)


def test_two_runs_at_once(log: Path, out: Path) -> None:
    with OutputDirectory(str(out), SETTINGS):
        assert (out / LOCK).exists()
        with pytest.raises(KdumpError, match=f"{out}: another kdump process is working here"):
            OutputDirectory(str(out), SETTINGS)
    assert not (out / LOCK).exists()
    assert isinstance(converted(log, out), ConvertedPartition)


def test_two_runs_at_once_where_directories_have_no_locks(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    real = fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with OutputDirectory(str(out), SETTINGS), pytest.raises(KdumpError, match="another kdump process is working here"):
        OutputDirectory(str(out), SETTINGS)


def test_an_output_inside_the_input_is_refused(log: Path, tmp_path: Path) -> None:
    logs = log.parent
    link = tmp_path / "link"
    link.symlink_to(log)
    for out, inputs in [(logs / "out", logs), (logs, logs), (log / "out", logs), (link / "out", logs), (log, log)]:
        before = contents(logs)
        with pytest.raises(KdumpError, match=r"the output (is an input itself|lies inside the input)"):
            OutputDirectory(str(out), SETTINGS, [str(inputs)])
        assert contents(logs) == before
        assert out in (log, logs) or not out.exists()


def test_an_output_inside_what_a_pattern_named(log: Path, out: Path) -> None:
    """The paths of a run may be patterns: then the topic-partitions say it."""
    with OutputDirectory(str(out), SETTINGS) as output:
        (partition,) = sliced(log)
        with pytest.raises(KdumpError, match="lies inside the input"):
            output.entry_of(partition._replace(path=str(out.parent)))


def test_an_output_beside_topic_partitions_is_refused(log: Path) -> None:
    (log.parent / "meta.properties").write_bytes(b"version=1\n")
    with pytest.raises(
        KdumpError, match="is a log directory, and a broker takes everything in it for topic-partitions"
    ):
        convert(log, log.parent / "out")
    assert not (log.parent / "out").exists()


def test_a_lock_file_alone_makes_no_log_directory(log: Path, tmp_path: Path) -> None:
    """Other programs have a file of this name, too."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".lock").touch()
    convert(log, tmp_path / "work" / "out")
    (log.parent / ".lock").touch()
    with pytest.raises(KdumpError, match="is a log directory"):
        convert(log, log.parent / "out")


def test_an_output_that_cannot_be_one(log: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    for out, why in [
        (tmp_path / "file", "not a directory"),
        (tmp_path / "file" / "out", "not a directory"),
    ]:
        with pytest.raises(KdumpError, match=f"{out}: {why}"):
            convert(log, out)


def test_a_second_log_without_a_name(tmp_path: Path, out: Path) -> None:
    first = write_log(tmp_path / "a", records(0, 5))
    second = write_log(tmp_path / "b", records(0, 5))
    entry = converted(first, out)
    assert entry.topic_partition is None
    assert names_of(entry) == [f"log-{0:020d}-{4:020d}.parquet"]
    assert table_of(out)["topic"].null_count == 5
    assert "a log without a topic and a partition" in refused(second, out)
    assert converted(first, out) == entry


# ---- other files


def test_files_of_others_are_never_touched(log: Path, out: Path) -> None:
    converted(log, out)
    other = pa.table({"a": [1]})
    pq.write_table(other, out / "other.parquet")
    pq.write_table(other.replace_schema_metadata({"kdump.run": "another"}), out / "t-9-copied.parquet")
    (out / "broken.parquet").write_bytes(b"PAR1 is no Parquet")
    (out / "empty.parquet").write_bytes(b"")
    (out / "folder.parquet").mkdir()
    (out / "link.parquet").symlink_to(out / "other.parquet")
    (out / "_delta_log").mkdir()
    (out / "_kdump-another-1.tmp").write_bytes(b"x")
    before = contents(out)
    write_log(log, records(20, 30), more=True)
    entry = converted(log, out)
    after = contents(out)
    assert {name: data for name, data in after.items() if name in before and name != MANIFEST} == {
        name: data for name, data in before.items() if name != MANIFEST
    }
    assert after.keys() - before.keys() == {names_of(entry)[1]}
    # One that has a name that a run needs.
    write_log(log, records(30, 40), more=True)
    (out / f"t-0-{30:020d}-{39:020d}.parquet").write_bytes(b"mine")
    before = contents(out)
    assert "another process made this file; it is kept" in refused(log, out)
    assert contents(out) == before


def test_what_a_killed_run_left_is_removed(log: Path, out: Path) -> None:
    entry = converted(log, out)
    left = pa.table({"a": [1]}).replace_schema_metadata({"kdump.run": RUN})
    pq.write_table(left, out / "t-5-left.parquet")
    (out / f"_kdump-{RUN}-1-2-3.tmp").write_bytes(b"half")
    (out / f"{MANIFEST}.tmp").write_bytes(b"half")
    (out / LOCK).write_bytes(b"")
    assert converted(log, out) == entry
    assert contents(out).keys() - {f"{MANIFEST}.tmp"} == {MANIFEST, *names_of(entry)}


def test_what_a_killed_run_left_in_partition_folders_is_removed(log: Path, out: Path) -> None:
    how = SETTINGS._replace(partition_folders=True)
    entry = converted(log, out, how)
    left = pa.table({"a": [1]}).replace_schema_metadata({"kdump.run": RUN})
    pq.write_table(left, out / "topic=t" / "partition=0" / "left.parquet")
    (out / "topic=t" / "other").mkdir()
    pq.write_table(left, out / "topic=t" / "other" / "foreign.parquet")
    assert converted(log, out, how) == entry
    assert contents(out).keys() == {MANIFEST, *names_of(entry), "topic=t/other/foreign.parquet"}


# ---- errors in the middle


@pytest.mark.parametrize(
    ("at", "error"),
    [("write", errno.ENOSPC), ("mkdir", errno.ENOSPC), ("rename", errno.EIO), ("fsync", errno.EIO)],
)
def test_an_error_leaves_what_was_there(
    log: Path, out: Path, at: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a call of a run, once: the folder has what it had, or what it should have; the next run mends the rest."""
    how = SETTINGS._replace(partition_folders=True)
    converted(log, out, how)
    before = contents(out)
    write_log(log, records(20, 30), more=True)
    write_log(log.parent / "u-0", records(0, 5))
    wanted_out = out.parent / "wanted"
    shutil.copytree(out, wanted_out)
    assert all(isinstance(each, ConvertedPartition) for each in convert(log.parent, wanted_out, how))
    wanted = contents(wanted_out)
    real, calls, number = getattr(os, at), 0, 0

    def fails(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(error, os.strerror(error))
        return real(*arguments, **more)

    while True:
        number += STEP
        calls = 0
        shutil.rmtree(out)
        restore(out, before)
        with monkeypatch.context() as patched:
            patched.setattr(os, at, fails)
            try:
                results = convert(log.parent, out, how)
            except KdumpError as refusal:
                results = [refusal]
        assert all(isinstance(each, ConvertedPartition) or os.strerror(error).lower() in str(each) for each in results)
        manifest = manifest_of(out)
        assert manifest.file_names() <= contents(out).keys()
        for entry in manifest.partitions.values():
            assert offsets_of(out, names_of(entry)) == list(range(entry.next_offset))
        if calls < number:
            break
        assert any(isinstance(each, KdumpError) for each in results), number
        convert(log.parent, out, how)
        assert contents(out) == wanted
    assert number > 2


def restore(out: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)


def test_a_file_that_vanishes(log: Path, out: Path) -> None:
    converted(log, out)
    before = contents(out)
    write_log(log, records(20, 30), more=True)
    write_log(log, records(30, 40), base=30)
    (partition,) = sliced(log)
    (log / f"{30:020d}.log").unlink()
    with OutputDirectory(str(out), SETTINGS) as output:
        assert "no such file" in str(convert_to_parquet(partition, output))
    assert contents(out) == before


def test_a_folder_that_vanishes(log: Path, out: Path) -> None:
    (partition,) = sliced(log)
    with OutputDirectory(str(out), SETTINGS) as output:
        shutil.rmtree(out)
        assert f"{out}: no such file or directory" in str(convert_to_parquet(partition, output))


def test_another_process_writes_the_files(log: Path, out: Path) -> None:
    """What it needs, and what it gives back, can be pickled."""
    import pickle

    (partition,) = sliced(log)
    with OutputDirectory(str(out), SETTINGS, run=RUN) as output:
        task = pickle.loads(pickle.dumps((output.staging, output.settings, partition)))
        lost, written = (pickle.loads(pickle.dumps(write_part(*task))) for _ in range(2))
        assert manifest_of(out).partitions == {}
        assert not set(contents(out)) & {each.file.name for each in written.files}
        assert {each.temporary for each in (*lost.files, *written.files)} == contents(out).keys() - {MANIFEST, LOCK}
        start = continue_after(output.entry_of(partition), partition)
        entry = output.commit(join_parts(partition, start, [written], ()))
    assert contents(out).keys() == {MANIFEST, *names_of(entry)}
    assert offsets_of(out, names_of(entry)) == list(range(20))


def test_settings_that_are_no_settings(out: Path) -> None:
    with pytest.raises(ValueError):
        OutputDirectory(str(out), ConversionSettings(()))
    assert not out.exists()


def test_the_manifest_is_what_the_run_says(log: Path, out: Path) -> None:
    with OutputDirectory(str(out), SETTINGS, run=RUN) as output:
        for each in sliced(log):
            convert_to_parquet(each, output)
        assert manifest_of(out) == output.manifest
    assert (out / MANIFEST).read_bytes() == manifest_bytes(output.manifest)
    assert directory_handle.DirectoryHandle(str(out), read_only=True).names() == sorted(contents(out))
