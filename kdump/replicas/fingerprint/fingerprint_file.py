"""Fingerprint files: written in one go, read section by section."""

import base64
import hashlib
import os
import socket
import time
from collections.abc import Iterable, Iterator
from itertools import combinations
from threading import local
from typing import IO, Final

from kdump.engine.protocol import Engine, Serial
from kdump.errors import SourceError, reason
from kdump.format.naming import TopicPartition
from kdump.kernel.crc import crc32c
from kdump.named_tuple import NamedTuple
from kdump.replicas.comparison import fork_of
from kdump.replicas.fingerprint.copy_sketch import AsOf, FingerprintOptions, HashKey
from kdump.replicas.fingerprint.copy_tasks import CopyTask, sketch_copies
from kdump.replicas.fingerprint.fingerprint_format import (
    CHANGED,
    HEAD_BYTES,
    KEY_ID_BYTES,
    MOST_SECTION_BYTES,
    TRAILER_BYTES,
    CopySketch,
    FingerprintHead,
    IndexEntry,
    front_size_of,
    head_of,
    index_of,
    parse_head,
    parse_index,
    parse_section,
    parse_trailer,
    section_of,
)
from kdump.replicas.fingerprint.share_file import (
    CopyName,
    ShareMemory,
)
from kdump.replicas.fingerprint.sketch_pair import NO_STATE, SketchedCopy, compare_sketches
from kdump.replicas.log_survey import UNREADABLE
from kdump.storage.copies import by_directory, topic_id_of
from kdump.storage.file_store import absolute, is_url, open_source
from kdump.storage.partition import LogDirectory, Partition, carried, with_read_policy
from kdump.storage.read_policy import ReadPolicy
from kdump.storage.source import InputFile, reader_of

_UNREAD: Final = "cannot be read, or changed whenever it was read; the fingerprint says so"
_NO_ID: Final = bytes(16)
_SHORTEST_KEY: Final = 16
_LONGEST_KEY: Final = 1 << 16
_HEAD_READ: Final = HEAD_BYTES + 1000
_OPEN_FILES: Final = 4
"""Of three brokers, and one more; what is read ahead of each takes up to 16 MiB."""


def read_hash_key(path: str | os.PathLike[str]) -> HashKey:
    """The key that a file says: all its bytes. Raises SourceError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LONGEST_KEY + 1)
    except OSError as error:
        raise SourceError(f"{path}: {reason(error)}") from None
    if not _SHORTEST_KEY <= len(data) <= _LONGEST_KEY:
        raise SourceError(f"{path}: a key file has {_SHORTEST_KEY} to {_LONGEST_KEY} bytes: this has {len(data)}")
    key = hashlib.blake2b(data, digest_size=16, person=b"kdump records").digest()
    return HashKey(key, hashlib.blake2b(data, digest_size=KEY_ID_BYTES, person=b"kdump key id").digest())


class CopyFingerprint(NamedTuple):
    """A copy of a topic-partition in a fingerprint file: where it was, and where its section is."""

    file: str
    host: str
    entry: IndexEntry
    stamp: tuple[int, int, int, int] | None = None
    """That of the file in an object store."""

    @property
    def path(self) -> str:
        """The host and the directory of the copy."""
        return f"{self.host}:{self.entry.directory}"

    @property
    def topic_partition(self) -> TopicPartition:
        """What it is a copy of."""
        return self.entry.topic_partition

    @property
    def topic_id(self) -> str | None:
        """The topic id, None where it is not known."""
        return (
            None
            if self.entry.topic_id == _NO_ID
            else base64.urlsafe_b64encode(self.entry.topic_id).decode().rstrip("=")
        )


class _Reading(local):
    """What sections are read into: new memory for each takes longer than to read it. And the files they are read of.

    The sections of a topic-partition are at about the same place of each file, and the next ones after them.
    """

    def __init__(self) -> None:
        self.section = memoryview(bytearray(MOST_SECTION_BYTES))
        self._process, self._files = os.getpid(), dict[tuple[str, object], InputFile]()

    def file_of(self, copy: CopyFingerprint, *, reopen: bool = False) -> InputFile:
        """The file of a copy, opened; `reopen`: not as it was opened before. Raises SourceError."""
        if self._process != os.getpid():  # what belongs to a file system of another process is of no use
            self._process, self._files = os.getpid(), {}
        key = copy.file, copy.stamp
        found = self._files.pop(key, None)
        if found is not None and reopen:
            found.close()
            found = None
        found = found or open_source(copy.file)
        if copy.stamp is not None and found.stamp != copy.stamp:
            found.close()
            raise SourceError(f"{copy.file}: the object was replaced since it was opened")
        self._files[key] = found  # the newest is the last
        if len(self._files) > _OPEN_FILES:
            self._files.pop(next(iter(self._files))).close()
        return found


_reading = _Reading()


def load_copy(copy: CopyFingerprint) -> CopySketch:
    """Read the section of a copy. Raises SourceError."""
    return _load(copy, copy.entry.size, copy.entry.crc, is_front=False)


def load_front(copy: CopyFingerprint) -> CopySketch:
    """The same without cuts, later keys and cells, which are most of it. Raises SourceError."""
    return _load(copy, copy.entry.front_size, copy.entry.front_crc, is_front=True)


def _load(copy: CopyFingerprint, size: int, crc: int, *, is_front: bool) -> CopySketch:
    data = _section(copy, size, _reading.file_of(copy))
    if not _is_whole(data, size, crc) and copy.stamp is None:  # another file can have its name by now
        data = _section(copy, size, _reading.file_of(copy, reopen=True))
    try:
        if not _is_whole(data, size, crc):
            raise ValueError
        return parse_section(data, is_front=is_front)
    except ValueError as error:
        topic, partition = copy.topic_partition
        name = f"{copy.file}: the section of {topic}-{partition} at byte {copy.entry.position}"
        raise SourceError(": ".join(filter(None, (f"{name} is damaged", str(error))))) from None


def _is_whole(data: memoryview, size: int, crc: int) -> bool:
    return len(data) == size and crc32c(data) == crc


def _section(copy: CopyFingerprint, size: int, source: InputFile) -> memoryview:
    """The first bytes of a section, fewer where the file has them not; until the next call. Raises SourceError."""
    size = max(0, min(size, source.size - copy.entry.position))
    return _reading.section[: source.readinto(copy.entry.position, _reading.section[:size]) if size else 0]


class FingerprintFile(NamedTuple):
    """A fingerprint file that was opened."""

    path: str
    head: FingerprintHead
    copies: tuple[CopyFingerprint, ...]
    bytes: int


def read_fingerprint(path: str | os.PathLike[str]) -> FingerprintFile:
    """Read head and index of a fingerprint file. Raises SourceError."""
    path = os.fspath(path)
    with open_source(path) as source:
        read, size, stamp = reader_of(source), source.size, source.stamp if is_url(path) else None
        head = parse_head(path, read(0, _HEAD_READ))
        trailer = read(max(0, size - TRAILER_BYTES), TRAILER_BYTES)
        position, length, count = parse_trailer(path, trailer, size)
        index = read(position, length)
    entries = parse_index(path, index, trailer, count)
    return FingerprintFile(path, head, tuple(CopyFingerprint(path, head.host, each, stamp) for each in entries), size)


def fingerprinted_copies(paths: Iterable[str], key: HashKey | None = None) -> list[CopyFingerprint]:
    """The copies in some fingerprint files. Raises SourceError, also where the hashes of these have not one key.

    `key`: the one that they must have.
    """
    files = [read_fingerprint(path) for path in paths]
    wanted = None if key is None else key.key_id
    for file in files:
        if wanted is not None and file.head.key_id != wanted:
            what = "no key file" if file.head.key_id == _NO_ID else "another key file"
            raise SourceError(f"{file.path}: this fingerprint was taken with {what}: compare what has one key")
        wanted = file.head.key_id
    return [copy for file in files for copy in file.copies]


# ---- writing


class FingerprintSummary(NamedTuple):
    """What was written: the file and its size, the copies, and those of them that cannot be compared.

    `read_whole`: those of which all is read every time. `unread_bytes`: of segments that have not changed since, and
    were not read. `oldest_read_ms`: when such segments were read, the oldest of them; None where all were read.
    """

    path: str
    partitions: int = 0
    not_comparable: int = 0
    bytes: int = 0
    read_whole: int = 0
    unread_bytes: int = 0
    oldest_read_ms: int | None = None

    def plus(self, found: "FingerprintedCopy | SourceError") -> "FingerprintSummary":
        """With one more copy; the same for an error."""
        if isinstance(found, SourceError):
            return self
        read = [each for each in (self.oldest_read_ms, found.oldest_read_ms) if each is not None]
        return self._replace(
            partitions=self.partitions + 1,
            not_comparable=self.not_comparable + (found.problem is not None),
            read_whole=self.read_whole + found.is_read_whole,
            unread_bytes=self.unread_bytes + found.unread_bytes,
            oldest_read_ms=min(read, default=None),
        )


def take_fingerprint(
    path: str,
    found: Iterable[Partition | LogDirectory | SourceError],
    file: IO[bytes],
    options: FingerprintOptions,
    *,
    engine: Engine,
    fingerprints: Iterable[CopyFingerprint] = (),
    memory: ShareMemory | None = None,
) -> Iterator[FingerprintSummary | SourceError | str]:
    """Write a fingerprint, the file that will be at `path`; gives what cannot be read, then what it has.

    `memory`: with it, segments that have not changed are not read. What of it is of no use is text. See
    fingerprint_logs. Raises SourceError, also where there is no copy.
    """
    summary = FingerprintSummary(path)
    if memory is not None and memory.index.problem is not None:
        yield memory.index.problem
    for each in _write_copies(found, file, options, engine, fingerprints, memory):
        several: list[SourceError | str] = [each] if isinstance(each, SourceError) else [*each.errors(), *each.notices]
        yield from several
        summary = summary.plus(each)
    if not summary.partitions:
        raise SourceError("nothing to take a fingerprint of: no topic-partition at these paths")
    yield summary._replace(bytes=file.tell())


def check_fingerprint(path: str) -> Iterator[FingerprintSummary | SourceError]:
    """Read all of a fingerprint file; gives what is damaged, then what it has. Raises SourceError."""
    file = read_fingerprint(path)
    summary = FingerprintSummary(path, bytes=file.bytes)
    for each in file.copies:
        try:
            copy = load_copy(each)
            summary = summary.plus(FingerprintedCopy(each.path, copy.problem, oldest_read_ms=copy.oldest_read_ms))
        except SourceError as error:
            yield error
    yield summary


class FingerprintedCopy(NamedTuple):
    """A copy of which the fingerprint was taken. `problem`: why it cannot be compared.

    `unread_bytes`, `oldest_read_ms`: as FingerprintSummary has them. `is_read_whole`: it is read whole every time.
    `notices`: why segments were read again.
    """

    path: str
    problem: str | None
    unread_bytes: int = 0
    oldest_read_ms: int | None = None
    is_read_whole: bool = False
    notices: tuple[str, ...] = ()

    def errors(self) -> list[SourceError]:
        """That it could not be read."""
        unread = self.problem in (UNREADABLE, CHANGED)
        return [SourceError(f"{self.path}: {_UNREAD}")] if unread else []


class Ends(NamedTuple):
    """The offsets of the copies of each topic-partition that are looked at: those that all have in common."""

    ends: dict[tuple[TopicPartition, str | None], AsOf]

    def of(self, copy: Partition) -> AsOf | None:
        """That of a copy; None where no other one is known."""
        assert copy.topic_partition is not None
        topic_id = topic_id_of(copy)
        return self.ends.get((copy.topic_partition, topic_id)) or self.ends.get((copy.topic_partition, None))


def common_ends(copies: Iterable[CopyFingerprint]) -> Ends:
    """Up to which offset the copies of each topic-partition have one history. Raises SourceError."""
    several = dict[tuple[TopicPartition, str | None], list[SketchedCopy]]()
    for copy in copies:
        one = SketchedCopy(copy.path, load_copy(copy))
        several.setdefault((copy.topic_partition, copy.topic_id), []).append(one)
    return Ends({each: _common_offsets(sketches) for each, sketches in several.items()})


def _common_offsets(copies: list[SketchedCopy]) -> AsOf:
    ends, compacted = [each.sketch.log_end_offset for each in copies], any(each.compacted for each in copies)
    has_state = compacted
    for one, other in combinations(copies, 2):
        fork = fork_of(one.epochs, other.epochs)
        ends += [] if fork is None else [fork]
        has_state = has_state or NO_STATE in compare_sketches(one, other).because
    start = max(each.start_offset for each in copies)
    return AsOf(min(start, *ends), min(ends), has_state, compacted)


def fingerprint_logs(
    found: Iterable[Partition | LogDirectory | SourceError],
    file: IO[bytes],
    options: FingerprintOptions | None = None,
    *,
    engine: Engine | None = None,
    fingerprints: Iterable[CopyFingerprint] = (),
) -> Iterator[FingerprintedCopy | SourceError]:
    """Write a fingerprint file of the copies, in the order of topic, partition and directory; yields each, then errors.

    `fingerprints`: those of all copies of these topic-partitions; only what they have in common is then looked at.
    A directory that a broker moved away is no copy.
    """
    yield from _write_copies(found, file, options or FingerprintOptions(), engine or Serial(), fingerprints, None)


def _write_copies(
    found: Iterable[Partition | LogDirectory | SourceError],
    file: IO[bytes],
    options: FingerprintOptions,
    engine: Engine,
    fingerprints: Iterable[CopyFingerprint],
    memory: ShareMemory | None,
) -> Iterator[FingerprintedCopy | SourceError]:
    ends, partitions, errors = common_ends(fingerprints), list[Partition](), list[SourceError]()
    for item in found:
        if isinstance(item, SourceError):
            errors.append(item)
        elif isinstance(item, Partition) and item.topic_partition is not None and not item.state and item.segments:
            partitions.append(carried(item))
    policy = ReadPolicy(options.io_limit, options.keep_cache).shared_by(engine.slots)
    tasks = [
        _task(with_read_policy(each, policy), name, ends.of(each), memory)
        for each in by_directory(partitions)
        if (name := each.topic_partition) is not None
    ]
    tasks.sort(key=lambda task: (task.name.topic_partition, task.name.directory))
    head = head_of(FingerprintHead(socket.gethostname(), int(time.time() * 1000), options.hash_key.key_id))
    file.write(head)
    position, entries = len(head), list[IndexEntry]()
    for task, copy in sketch_copies(tasks, options, engine):
        data, of = section_of(copy.sketch), task.name
        front = data[: front_size_of(data)]
        crcs = crc32c(data), len(front), crc32c(front)
        entries.append(IndexEntry(of.topic_partition, of.topic_id, of.directory, position, len(data), *crcs))
        file.write(data)
        position += len(data)
        if memory is not None:
            memory.keep(copy.shares)
        problem, oldest = copy.sketch.problem, copy.sketch.oldest_read_ms
        yield FingerprintedCopy(task.copy.path, problem, copy.unread_bytes, oldest, copy.is_read_whole, copy.notices)
    file.write(index_of(entries, position))
    yield from errors


def _task(copy: Partition, of: TopicPartition, as_of: AsOf | None, memory: ShareMemory | None) -> CopyTask:
    name = CopyName(of, _id_bytes(topic_id_of(copy)), absolute(copy.path))
    place = None if memory is None else memory.index.places.get(name)
    return CopyTask(copy, name, as_of, sum(each.log.size for each in copy.segments), memory is not None, place)


def _id_bytes(topic_id: str | None) -> bytes:
    return _NO_ID if topic_id is None else base64.urlsafe_b64decode(f"{topic_id}==")
