"""Named damages of whole topic-partition directories: what crashes, disks, copies, older tools and hands leave there.

Each is a function `(directory, rng) -> Where` in `DAMAGES`: it always changes the directory, the same random source
always changes it in the same way, and it says which file it changed, and where. Where the directory has not what a
damage is about, it raises NotApplicable and leaves it alone. `damage.py` does what happens to the bytes of one log.

"Resealed" means that a field was changed and the checksum made right again.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from support import build, damage
from support.damage import NotApplicable
from support.oracle import Batch


class Where(NamedTuple):
    """The file that was changed, or made, or taken away, and the first byte of it that is another."""

    file: str
    position: int


Maker = Callable[[Path, random.Random], Where]
DAMAGES: dict[str, Maker] = {}

LOG_START = "00000000000000000000"


def _named(name: str) -> Callable[[Maker], Maker]:
    def register(function: Maker) -> Maker:
        DAMAGES[name] = function
        return function

    return register


def apply(name: str, directory: Path, rng: random.Random) -> Where:
    """Do a damage to a directory. Raises NotApplicable."""
    return DAMAGES[name](directory, rng)


# -------------------------------------------------------------------------------------------------------------------
# files


def base_offset(path: Path) -> int:
    return int(path.name.partition(".")[0])


def files(directory: Path, suffix: str) -> list[Path]:
    """The files of one kind whose names are offsets, by base offset."""
    named = [path for path in directory.glob(f"*.{suffix}") if path.is_file() and path.stem.isdigit()]
    return sorted(
        (path for path in named if base_offset(path) < 2**62), key=lambda path: (base_offset(path), path.name)
    )


def logs(directory: Path) -> list[Path]:
    """The segments, by base offset."""
    return files(directory, "log")


def _pick(rng: random.Random, paths: Sequence[Path], what: str) -> Path:
    if not paths:
        raise NotApplicable(f"no {what}")
    return rng.choice(paths)


def _first_difference(old: bytes, new: bytes) -> int:
    """Where two byte strings begin to differ."""
    both = min(len(old), len(new))
    return next((at for at in range(both) if old[at] != new[at]), both)


def _write(path: Path, new: bytes) -> Where:
    old = path.read_bytes() if path.exists() else None
    if old == new:
        raise NotApplicable(f"{path.name} is as it would be left")
    path.write_bytes(new)
    return Where(path.name, _first_difference(old or b"", new))


@cache
def _batches(data: bytes) -> list[Batch]:
    return damage.batches(data)


def _with_batches(directory: Path, at_least: int = 1, *, magic: int | None = None) -> list[Path]:
    def fits(path: Path) -> bool:
        found = [batch for batch in _batches(path.read_bytes()) if magic is None or batch.magic == magic]
        return len(found) >= at_least

    return [path for path in logs(directory) if fits(path)]


# ------------------------------------------------------------------------------------------------------ bytes of one
# segment


def _in_a_log(
    directory: Path,
    rng: random.Random,
    change: Callable[[bytes, list[Batch], random.Random], bytes],
    *,
    at_least: int = 1,
    magic: int | None = None,
) -> Where:
    """One segment changed; `change` gets its bytes and its batches (of that magic)."""
    path = _pick(rng, _with_batches(directory, at_least, magic=magic), "log with such batches")
    data = path.read_bytes()
    found = [batch for batch in _batches(data) if magic is None or batch.magic == magic]
    for _ in range(20):
        new = change(data, found, rng)
        if new != data:
            return _write(path, new)
    raise NotApplicable(f"{path.name} is as it would be left")


def _log_damage(name: str, change: Callable[[bytes, list[Batch], random.Random], bytes], **how: int) -> None:
    DAMAGES[name] = lambda directory, rng: _in_a_log(directory, rng, change, **how)


def _flip_between(start: int, end: int | None) -> Callable[[bytes, list[Batch], random.Random], bytes]:
    """One bit of a batch turned over, between two of its bytes."""

    def change(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
        batch = rng.choice(found)
        stop = batch.size if end is None else end
        return damage._flip(data, rng, batch.position + start, batch.position + stop) if start < stop else data

    return change


def _field_of(
    code: str, at: int, values: Callable[[Batch, random.Random], int]
) -> Callable[[bytes, list[Batch], random.Random], bytes]:
    """One field of a batch changed, and its checksum made right."""

    def change(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
        batch = rng.choice(found)
        return damage._field(data, batch, code, at, values(batch, rng))

    return change


def _truncate(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    batch = rng.choice(found)
    return data[: batch.position + rng.randrange(min(batch.size - 1, 30), batch.size)]


def _truncate_in_header(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    return data[: rng.choice(found).position + rng.randrange(1, 18)]


def _zeroed_end(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    batch = rng.choice(found)
    start = batch.position + rng.randrange(0, batch.size - 8)
    return data[:start] + bytes(len(data) - start)


def _zeroed_page(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    page = 512 if len(data) < 16384 else 4096
    start = rng.randrange(0, len(data), page)
    return data[:start] + bytes(min(page, len(data) - start)) + data[start + page :]


def _resealed_payload(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    batch = rng.choice(found)
    start = 61 if batch.magic == 2 else 30
    if batch.size <= start + 1:
        return data
    at = batch.position + rng.randrange(start, batch.size)
    return build.reseal(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :], batch.position)


def _moved(data: bytes, found: list[Batch], rng: random.Random, by: Sequence[int]) -> bytes:
    """The offset of a batch changed; no checksum covers it (that of magic 0 and 1 begins after it, too)."""
    batch = rng.choice(found[1:])
    (offset,) = struct.unpack_from(">q", data, batch.position)
    new = max(0, offset + rng.choice(by))
    return damage._field(data, batch, ">q", 0, new, seal=False)


def _offset_back(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    before = rng.choice(found[:-1])
    batch = found[found.index(before) + 1]
    return damage._field(data, batch, ">q", 0, struct.unpack_from(">q", data, before.position)[0], seal=False)


def _repeated(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    batch = rng.choice(found)
    end = batch.position + batch.size
    return data[:end] + data[batch.position : end] + data[end:]


def _removed(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    batch = rng.choice(found[:-1])
    return data[: batch.position] + data[batch.position + batch.size :]


def _swapped(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    number = rng.randrange(len(found) - 1)
    one, two = found[number], found[number + 1]
    first, second = (data[each.position : each.position + each.size] for each in (one, two))
    return data[: one.position] + second + first + data[two.position + two.size :]


def _rotated(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
    """A run of batches moved to the front: more than a neighbour goes back."""
    number = rng.randrange(1, len(found))
    middle, start = found[number].position, found[0].position
    end = found[-1].position + found[-1].size
    return data[:start] + data[middle:end] + data[start:middle] + data[end:]


def _one_bit(batch: Batch, rng: random.Random) -> int:
    return batch.attributes ^ 1 << rng.choice((3, 4, 5, 6, 8))


_log_damage("truncate", _truncate)
_log_damage("truncate-in-header", _truncate_in_header)
_log_damage("zeroed-end", _zeroed_end)
_log_damage("zeroed-page", _zeroed_page)
_log_damage("flip-offset", _flip_between(0, 8))
_log_damage("flip-length", _flip_between(8, 12))
_log_damage("flip-leader-epoch", _flip_between(12, 16), magic=2)
_log_damage("flip-magic", _flip_between(16, 17))
_log_damage("flip-crc", _flip_between(17, 21), magic=2)
_log_damage("flip-header", _flip_between(21, 61), magic=2)
_log_damage("flip-payload", _flip_between(61, None), magic=2)
_log_damage("flip-message", _flip_between(12, None))
_log_damage("short-tail", lambda data, found, rng: data + rng.randbytes(rng.randint(1, 17)))
_log_damage("zero-tail", lambda data, found, rng: data + bytes(rng.choice((1, 17, 18, 500, 4096))))
_log_damage("garbage-tail", lambda data, found, rng: data + rng.randbytes(rng.randint(18, 400)))
_log_damage("empty-log", lambda data, found, rng: b"")
_log_damage("resealed-count", _field_of(">i", 57, lambda batch, rng: rng.choice((-1, 0, 1, 2, 10**6))), magic=2)
_log_damage("resealed-payload", _resealed_payload)
_log_damage("resealed-sequence", _field_of(">i", 53, lambda batch, rng: rng.choice((-1, 0, 7, 2**31 - 1))), magic=2)
_log_damage("resealed-producer", _field_of(">q", 43, lambda batch, rng: rng.choice((-1, 0, 1, 99, 2**62))), magic=2)
_log_damage(
    "resealed-producer-epoch", _field_of(">h", 51, lambda batch, rng: rng.choice((-1, 0, 3, 2**15 - 1))), magic=2
)
_log_damage(
    "resealed-max-timestamp", _field_of(">q", 35, lambda batch, rng: rng.choice((-1, 0, 10**12, 2**62))), magic=2
)
_log_damage("resealed-attributes", _field_of(">H", 21, _one_bit), magic=2)
_log_damage("resealed-control", _field_of(">H", 21, lambda batch, rng: batch.attributes | 0x20), magic=2)
_log_damage("resealed-not-transactional", _field_of(">H", 21, lambda batch, rng: batch.attributes & ~0x10), magic=2)
_log_damage(
    "resealed-last-offset-delta",
    _field_of(
        ">i",
        23,
        lambda batch, rng: rng.choice((0, batch.last_offset_delta + 1, batch.last_offset_delta + 1000, -1, 2**31 - 1)),
    ),
    magic=2,
)
_log_damage("offset-back", _offset_back, at_least=2)
_log_damage("offset-moved-back", partial(_moved, by=(-1, -2, -7, -40)), at_least=2)
_log_damage("offset-ahead", partial(_moved, by=(1, 3, 40, 100_000)), at_least=2)
_log_damage("swapped-batches", _swapped, at_least=2)
_log_damage("rotated-batches", _rotated, at_least=2)
_log_damage("repeated-batch", _repeated)
_log_damage("removed-batch", _removed, at_least=2)


@_named("bad-marker")
def _bad_marker(directory: Path, rng: random.Random) -> Where:
    """A marker of a real transaction whose record cannot be parsed, resealed."""

    def change(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
        markers = [batch for batch in found if batch.control and batch.count == 1]
        if not markers:
            raise NotApplicable("no marker")
        batch = rng.choice(markers)
        # The body of the record: attributes, timestamp delta, offset delta, key length, 2 bytes of version, 2 of type …
        body = bytearray(data[batch.position : batch.position + batch.size])
        body[rng.randrange(61, len(body))] = rng.choice((0, 1, 5, 0x7F, 0x80, 0xFF))
        return build.reseal(data[: batch.position] + bytes(body) + data[batch.position + batch.size :], batch.position)

    return _in_a_log(directory, rng, change, magic=2)


@_named("offset-below-base")
def _offset_below_base(directory: Path, rng: random.Random) -> Where:
    """A batch with an offset of an earlier segment."""
    path = _pick(rng, [path for path in _with_batches(directory) if base_offset(path) > 5], "log above offset 5")
    data = path.read_bytes()
    batch = rng.choice(_batches(data))
    return _write(path, damage._field(data, batch, ">q", 0, rng.choice((0, base_offset(path) - 5)), seal=False))


@_named("offset-overflow")
def _offset_overflow(directory: Path, rng: random.Random) -> Where:
    """A batch in the middle whose offset the segment cannot hold."""

    def change(data: bytes, found: list[Batch], rng: random.Random) -> bytes:
        (offset,) = struct.unpack_from(">q", data, (batch := rng.choice(found[:-1])).position)
        return damage._field(data, batch, ">q", 0, offset + 2**31 + rng.randrange(1000), seal=False)

    return _in_a_log(directory, rng, change, at_least=2)


@_named("overflow-tail")
def _overflow_tail(directory: Path, rng: random.Random) -> Where:
    """Everything from one batch of the newest segment on lies 2^31 further (KAFKA-6264)."""
    path = (logs(directory) or [directory])[-1]
    data = path.read_bytes() if path.is_file() else b""
    found = _batches(data)
    if len(found) < 2:
        raise NotApplicable("fewer than two batches at the end")
    start = rng.randrange(1, len(found))
    for batch in found[start:]:
        (offset,) = struct.unpack_from(">q", data, batch.position)
        data = damage._field(data, batch, ">q", 0, offset + 2**31, seal=False)
    return _write(path, data)


# -----------------------------------------------------------------------------------------------------------------
# segments


def _companions(path: Path) -> list[Path]:
    return [other for other in path.parent.glob(path.name.partition(".")[0] + ".*") if other != path]


@_named("renamed-segment")
def _renamed_segment(directory: Path, rng: random.Random) -> Where:
    """A segment with the name of an offset above its first batch."""
    path = _pick(rng, _with_batches(directory), "log")
    stem = f"{base_offset(path) + rng.choice((1, 2, 1000)):020d}"
    if (directory / f"{stem}.log").exists():
        raise NotApplicable("there is such a segment")
    for other in [path, *_companions(path)]:
        other.rename(directory / (stem + other.name[other.name.index(".") :]))
    return Where(f"{stem}.log", 0)


@_named("missing-segment")
def _missing_segment(directory: Path, rng: random.Random) -> Where:
    path = _pick(rng, logs(directory), "log")
    for other in [path, *_companions(path)]:
        other.unlink()
    return Where(path.name, 0)


@_named("missing-log")
def _missing_log(directory: Path, rng: random.Random) -> Where:
    path = _pick(rng, logs(directory), "log")
    path.unlink()
    return Where(path.name, 0)


@_named("empty-segment-ahead")
def _empty_segment_ahead(directory: Path, rng: random.Random) -> Where:
    if not logs(directory):
        raise NotApplicable("no log")
    ahead = directory / f"{base_offset(logs(directory)[-1]) + rng.choice((1000, 10**6, 2**40)):020d}.log"
    ahead.touch()
    ahead.with_suffix(".index").touch()
    return Where(ahead.name, 0)


# ---------------------------------------------------------------------------------------------------------------
# companions


def _companion_damage(suffix: str, entry_bytes: int) -> None:
    """What happens to the files of one kind beside the logs."""

    def on(name: str, change: Callable[[bytes, Path, random.Random], bytes]) -> None:
        def make(directory: Path, rng: random.Random) -> Where:
            path = _pick(rng, files(directory, suffix), suffix)
            return _write(path, change(path.read_bytes(), path, rng))

        DAMAGES[f"{suffix}-{name}"] = make

    def deleted(directory: Path, rng: random.Random) -> Where:
        path = _pick(rng, files(directory, suffix), suffix)
        path.unlink()
        return Where(path.name, 0)

    def renamed(directory: Path, rng: random.Random) -> Where:
        path = _pick(rng, files(directory, suffix), suffix)
        new = path.with_name(f"{base_offset(path) + rng.choice((1, 3, 10**6)):020d}.{suffix}")
        if new.exists():
            raise NotApplicable("there is such a file")
        path.rename(new)
        return Where(path.name, 0)

    def stale(directory: Path, rng: random.Random) -> Where:
        paths = files(directory, suffix)
        path = _pick(rng, paths, suffix)
        other = _pick(rng, [each for each in paths if each != path], f"second {suffix}")
        return _write(path, other.read_bytes())

    DAMAGES[f"{suffix}-deleted"] = deleted
    DAMAGES[f"{suffix}-renamed"] = renamed
    DAMAGES[f"{suffix}-stale"] = stale
    on("emptied", lambda data, path, rng: b"")
    on("cut", lambda data, path, rng: data[: rng.randrange(len(data))] if data else data)
    on("extended", lambda data, path, rng: data + rng.randbytes(rng.choice((1, entry_bytes, 3 * entry_bytes))))
    on("padded", lambda data, path, rng: data + bytes(entry_bytes * rng.choice((1, 100))))
    on("zeroed", lambda data, path, rng: bytes(len(data)))
    on("garbage", lambda data, path, rng: rng.randbytes(len(data) or 2 * entry_bytes))
    on("flip", lambda data, path, rng: damage._flip(data, rng, 0, len(data)) if data else data)


_companion_damage("index", 8)
_companion_damage("timeindex", 12)
_companion_damage("txnindex", 34)
_companion_damage("snapshot", 46)


@_named("txnindex-version")
def _txnindex_version(directory: Path, rng: random.Random) -> Where:
    """The first byte of an entry above zero."""
    path = _pick(rng, [path for path in files(directory, "txnindex") if path.stat().st_size >= 34], "txnindex")
    data = bytearray(path.read_bytes())
    data[34 * rng.randrange(len(data) // 34)] = rng.choice((1, 2, 127))
    return _write(path, bytes(data))


@_named("txnindex-below-base")
def _txnindex_below_base(directory: Path, rng: random.Random) -> Where:
    """An entry for a marker that lies before the segment."""
    path = _pick(rng, [path for path in logs(directory) if base_offset(path) > 0], "log above offset 0")
    return _write(path.with_suffix(".txnindex"), build.transaction_index((1, 0, base_offset(path) - 1, 0)))


# --------------------------------------------------------------------------------------------- leader epochs, partition
# metadata


def _text_damage(name: str, file: str, change: Callable[[bytes, random.Random], bytes | None]) -> None:
    """A text file changed, or, with None, taken away; there has to be one."""

    def make(directory: Path, rng: random.Random) -> Where:
        path = directory / file
        if not path.exists():
            raise NotApplicable(f"no {file}")
        new = change(path.read_bytes(), rng)
        if new is not None:
            return _write(path, new)
        path.unlink()
        return Where(file, 0)

    DAMAGES[name] = make


def _epoch_lines(data: bytes) -> list[str]:
    return data.decode("latin-1").splitlines()[2:]


_epochs = partial(_text_damage, file="leader-epoch-checkpoint")
_metadata = partial(_text_damage, file="partition.metadata")
_epochs("epochs-deleted", change=lambda data, rng: None)
_epochs("epochs-empty", change=lambda data, rng: b"")
_epochs("epochs-none", change=lambda data, rng: build.checkpoint())
_epochs("epochs-no-newline", change=lambda data, rng: data.rstrip(b"\n"))
_epochs("epochs-far-epoch", change=lambda data, rng: build.checkpoint(*_epoch_lines(data), "900 10000000"))
_epochs("epochs-far-epoch-alone", change=lambda data, rng: build.checkpoint(f"900 {rng.choice((0, 1, 10, 10**7))}"))
_epochs("epochs-disordered", change=lambda data, rng: build.checkpoint("3 20", *_epoch_lines(data), "1 5"))
_epochs("epochs-garbage", change=lambda data, rng: rng.randbytes(40))
_epochs(
    "epochs-bad-version",
    change=lambda data, rng: build.checkpoint(*_epoch_lines(data), version=rng.choice((1, -1, "x"))),
)
_epochs(
    "epochs-bad-count",
    change=lambda data, rng: (
        build.checkpoint(*_epoch_lines(data), count=rng.choice((77, 0)))
        if _epoch_lines(data)
        else build.checkpoint(count=77)
    ),
)
_epochs("epochs-blank-lines", change=lambda data, rng: data + b"\n\n")
_epochs("epochs-negative", change=lambda data, rng: build.checkpoint(*_epoch_lines(data), rng.choice(("-1 5", "5 -1"))))
_metadata("partition-metadata-missing", change=lambda data, rng: None)
_metadata("partition-metadata-empty", change=lambda data, rng: b"")
_metadata("partition-metadata-garbage", change=lambda data, rng: rng.randbytes(40))
_metadata("partition-metadata-cut", change=lambda data, rng: data[: len(data) - rng.randrange(1, 30)])
_metadata("partition-metadata-zero-id", change=lambda data, rng: b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


# ----------------------------------------------------------------------------------------------------------------
# leftovers


def _copied(directory: Path, rng: random.Random, mark: str, suffixes: Sequence[str]) -> Path:
    """Files of one segment, once more with a mark after their names."""
    path = _pick(rng, _with_batches(directory), "log")
    for suffix in suffixes:
        other = path.with_suffix(suffix)
        if other.exists():
            (directory / (other.name + mark)).write_bytes(other.read_bytes())
    return directory / (path.name + mark)


_ALL = (".log", ".index", ".timeindex", ".txnindex")


@_named("leftover-deleted")
def _leftover_deleted(directory: Path, rng: random.Random) -> Where:
    return Where(_copied(directory, rng, ".deleted", (*_ALL, ".snapshot")).name, 0)


@_named("leftover-cleaned")
def _leftover_cleaned(directory: Path, rng: random.Random) -> Where:
    return Where(_copied(directory, rng, ".cleaned", _ALL).name, 0)


@_named("leftover-swap")
def _leftover_swap(directory: Path, rng: random.Random) -> Where:
    return Where(_copied(directory, rng, ".swap", rng.choice((_ALL, (".log",)))).name, 0)


@_named("leftover-swap-cut")
def _leftover_swap_cut(directory: Path, rng: random.Random) -> Where:
    swap = _copied(directory, rng, ".swap", _ALL)
    data = swap.read_bytes()
    swap.write_bytes(data[: rng.randrange(1, len(data))])
    return Where(swap.name, 0)


@_named("leftover-swap-merged")
def _leftover_swap_merged(directory: Path, rng: random.Random) -> Where:
    """Two segments as one, as the cleaner leaves it when it stops between its steps."""
    paths = _with_batches(directory)
    if len(paths) < 2:
        raise NotApplicable("fewer than two segments")
    number = rng.randrange(len(paths) - 1)
    first, second = paths[number : number + 2]
    (directory / f"{first.name}.swap").write_bytes(first.read_bytes() + second.read_bytes())
    return Where(f"{first.name}.swap", 0)


@_named("leftover-swap-and-cleaned")
def _leftover_swap_and_cleaned(directory: Path, rng: random.Random) -> Where:
    swap = _copied(directory, rng, ".swap", _ALL)
    cleaned = _pick(rng, logs(directory), "log")
    (directory / f"{cleaned.name}.cleaned").write_bytes(b"")
    return Where(swap.name, 0)


@_named("leftover-swap-indexes-only")
def _leftover_swap_indexes_only(directory: Path, rng: random.Random) -> Where:
    log = _pick(rng, _with_batches(directory), "log")
    (directory / f"{log.stem}.index.swap").write_bytes(rng.randbytes(16))
    (directory / f"{log.stem}.timeindex.swap").write_bytes(rng.randbytes(24))
    return Where(f"{log.stem}.index.swap", 0)


# ---------------------------------------------------------------------------------------------------------------- odd
# names


def _odd(name: str, file: str, content: bytes | None = b"") -> None:
    """A file that does not belong there; with None, a directory."""

    def make(directory: Path, rng: random.Random) -> Where:
        path = directory / file
        if path.exists():
            raise NotApplicable("there is such a file")
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
        return Where(file, 0)

    DAMAGES[name] = make


_odd("odd-letters-log", "letters.log")
_odd("odd-letters-index", "letters.index")
_odd("odd-letters-snapshot", "letters.snapshot")
_odd("odd-letters-swap", "letters.log.swap")
_odd("odd-letters-cleaned", "letters.log.cleaned")
_odd("odd-letters-deleted", "letters.log.deleted")
_odd("odd-huge-log", "99999999999999999999.log")
_odd("odd-bare-index", ".index")
_odd("odd-short-log", "5.log", build.batch([build.record(b"k", b"v")], base_offset=5))
_odd("odd-negative-log", "-1.log", build.batch([build.record(b"k", b"v")]))
_odd("odd-plus-log", "+7.log")
_odd("odd-backup", f"{LOG_START}.log.bak", b"backup")
_odd("odd-no-dot", LOG_START, b"nothing")
_odd("odd-hidden", ".hidden", b"nothing")
_odd("odd-tmp-epochs", "leader-epoch-checkpoint.tmp", b"0\n1\n0 0\n")
_odd("odd-directory", "backup.log", None)
