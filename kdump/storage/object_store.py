"""Files of object stores, read through fsspec: s3://, gs://, hdfs://, memory:// and whatever else is installed.

An object is read in ranges of BLOCK_BYTES. Its version is pinned when it is opened: an object that is replaced while it
is read is an error, and never a mixture of two. fsspec and the libraries below it take credentials, region and endpoint
from their own configuration. Those of S3, Google and Azure repeat requests that fail for a while, with pauses; for
others it is done here, and nowhere twice.

A directory that is named is listed once with all that is below it, which takes one request for 1,000 objects.
"""

import errno
import os
import random
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from typing import Any, Final, NoReturn, TypeVar

from kdump.errors import SourceError
from kdump.format.naming import topic_partition_of
from kdump.storage.source import InputFile, reason_of

BLOCK_BYTES: Final = 8 << 20
"""What one request reads. Measured against a server on the same machine and one 20 ms away: docs in the manual."""
_FIRST_BYTES: Final = 256 << 10
"""What a reader asks for that may need no more: at its start, and where it goes on elsewhere."""
_STEP_FACTOR: Final = 8
"""So many times as much, up to a block, is asked for next where a reader goes on from where a request ended."""
KEPT_BYTES: Final = 2 * BLOCK_BYTES
"""What a reader keeps of an object that is not kept for others."""
_GAP_BYTES: Final = 1 << 20
_LISTING_THREADS: Final = 16
"""So many directories are listed at once."""
_WALKING_THREADS: Final = 64
"""The same of a store that lists directory by directory: each costs a round trip, and little else."""
_MOST_ENTRIES: Final = 1 << 20
"""Above so many entries, about 1 KiB each, only the newest listings are kept, those that threads make at once."""
LISTING_SECONDS: Final = 300
"""So long a listing answers what is asked of the directories in it."""
_PACKAGES: Final = {
    "s3": "kdump[cloud]",
    "s3a": "kdump[cloud]",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "hdfs": "pyarrow",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
}
_Found = TypeVar("_Found")
_WITHOUT_LISTINGS: Final = ("http", "https")
_WITHOUT_CACHES: Final = {"hdfs", "viewfs"}
"""Protocols whose file systems keep nothing that was read; those of hdfs-native take no arguments about that."""


@cache
def object_store() -> "ObjectStore":
    """The one object store of this process, which knows them all by the protocols of their URLs."""
    return ObjectStore()


ObjectInfo = Mapping[str, Any]
"""What fsspec says of an object, under names that differ from store to store."""
SystemArguments = Mapping[str, Any]
"""What a file system of fsspec is made with; the names differ from store to store."""


class ObjectEntry:
    """An entry of a listing, as os.DirEntry."""

    __slots__ = ("_status", "name", "path")

    def __init__(self, path: str, status: os.stat_result) -> None:
        self.path, self.name, self._status = path, path.rpartition("/")[2], status

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISDIR(self._status.st_mode)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return stat.S_ISREG(self._status.st_mode)

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._status


class _Tree:
    """All that was found below a directory, by directory and name."""

    def __init__(self, root: str, *, is_whole: bool) -> None:
        """`is_whole`: also the directories below are listed."""
        self.root = root
        self.directories: dict[str, dict[str, ObjectEntry]] = {root: {}}
        self.is_whole = is_whole
        self.until = time.monotonic() + LISTING_SECONDS
        self.entries = 0

    def add(self, root: str, names: list[str], status: os.stat_result) -> None:
        """Add what lies at these names below the root, and the directories on the way."""
        self.entries += 1
        here = root
        for name in names[:-1]:
            below = f"{here}/{name}"
            if below not in self.directories:
                self.directories[below] = {}
            inside = self.directories[here]
            if name not in inside or not inside[name].is_dir():
                inside[name] = ObjectEntry(below, directory_status(below))
            here = below
        path = f"{here}/{names[-1]}"
        if stat.S_ISDIR(status.st_mode):
            if self.is_whole:
                self.directories.setdefault(path, {})
        elif path in self.directories:
            return  # an object with the name of a directory
        self.directories[here][names[-1]] = ObjectEntry(path, status)


class ObjectStore:
    """The files at URLs. See FileStore.

    Its file systems are opened in the process that uses them: what fsspec holds is of no use after a fork.
    """

    is_local = False

    def __init__(self) -> None:
        self._process = os.getpid()
        self._systems: dict[tuple[str, str], Any] = {}
        self._of_parents: list[object] = []  # closing them here would wait for threads that this process has not
        self._trees: dict[str, _Tree] = {}
        self._kept: list[_KeptBlocks] = []
        self._arguments: Mapping[str, SystemArguments] = {}
        self._refusals: Mapping[str, str] = {}
        self.retries = Retries()
        self._named: dict[str, None] = {}
        """The directories that were named, which are listed whole."""

    def __reduce__(self) -> Any:
        return object_store, ()

    def configure(self, arguments: Mapping[str, SystemArguments], refusals: Mapping[str, str] | None = None) -> None:
        """Open the file systems of these protocols with these arguments, beside what fsspec is configured with.

        `refusals` says of protocols why none is opened.
        """
        self._refusals = refusals or {}
        if arguments != self._arguments:
            self._arguments, self._systems, self._trees, self._named = arguments, {}, {}, {}

    # ---- paths

    def absolute(self, path: str) -> str:
        protocol, _, rest = path.partition("://")
        return f"{protocol}://{rest.rstrip('/') or rest[:1]}"

    real = absolute

    def parent(self, path: str) -> str:
        above = path.rpartition("/")[0]
        return path if above.endswith(":/") else above

    # ---- listings

    def status(self, path: str) -> os.stat_result:
        path = self.absolute(path)
        tree = self._tree_with(path)
        if tree is not None and path in tree.directories:
            return directory_status(path)
        above, _, name = path.rpartition("/")
        if (tree := self._tree_with(above)) is not None:
            entry = tree.directories.get(above, {}).get(name)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory")
            return entry.stat()
        with _failures_of(path):
            system, place = self._system(path)
        info = self.retries.ask(system, partial(system.info, place))
        with _failures_of(path):
            found = status_of_info(path, info)
        if not stat.S_ISDIR(found.st_mode):
            self._named.pop(path, None)
        return found

    def exists(self, path: str) -> bool:
        try:
            with _failures_of(path):
                system, place = self._system(path)
            return bool(self.retries.ask(system, partial(system.exists, place)))
        except OSError:
            return True  # what reads it says why it cannot

    def entries(self, path: str) -> AbstractContextManager[Iterator[ObjectEntry]]:
        return nullcontext(iter(self._inside(path).values()))

    def names(self, path: str) -> list[str]:
        return list(self._inside(path))

    def _inside(self, path: str) -> dict[str, ObjectEntry]:
        path = self.absolute(path)
        tree = self._tree_with(path)
        if tree is None and path in self._named:
            self._list_named(path)
            tree = self._trees[path]
        elif tree is None:
            tree = self._trees[path] = self._list(path, recursive=False)
        found = tree.directories.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return found

    def refresh(self, path: str) -> None:
        path = self.absolute(path)
        within = [root for root in self._trees if root == path or root.startswith(f"{path}/")]
        for root in within:
            del self._trees[root]
        if within or self._tree_with(path) is None:
            self._named.pop(path, None)
            self._named[path] = None

    def forget(self, path: str) -> None:
        """List a directory again when it is asked for."""
        self._trees.pop(self.absolute(path), None)

    def _list_named(self, path: str) -> None:
        """List a directory that was named with all that is below it, and some that are named after it.

        Raises OSError where this one cannot be listed.
        """
        with _failures_of(path):
            self._system(path)  # threads would make several of one
        named = list(self._named)
        start = named.index(path)
        later = [each for each in named[start + 1 : start + _LISTING_THREADS] if self._tree_with(each) is None]
        for found in _by_threads(self._listed, [path, *later]):
            for tree in found:
                self._trees[tree.root] = tree
        self._drop_old()
        if path not in self._trees:
            self._trees[path] = self._list(path, recursive=True)

    def _listed(self, path: str) -> "list[_Tree]":
        try:
            return [self._list(path, recursive=True)]
        except OSError:
            return []  # its turn comes

    def _drop_old(self) -> None:
        """Forget the oldest listings above what is kept: a fleet has more than a driver can hold."""
        total = 0
        for number, (root, tree) in enumerate(reversed(list(self._trees.items()))):
            total += tree.entries
            if total > _MOST_ENTRIES and number >= _LISTING_THREADS:
                del self._trees[root]

    def matches(self, pattern: str) -> list[str]:
        with _failures_of(pattern):
            system, place = self._system(pattern)
        root = pattern.removesuffix(place.lstrip("/"))
        return [root + name.lstrip("/") for name in self.retries.ask(system, partial(system.glob, place))]

    def _tree_with(self, directory: str) -> "_Tree | None":
        """The listing that a directory would be in."""
        for root in list(self._trees):
            tree = self._trees[root]
            if tree.until < time.monotonic():
                del self._trees[root]
            elif directory in tree.directories or (tree.is_whole and directory.startswith(f"{root}/")):
                return tree
        return None

    def _list(self, path: str, *, recursive: bool) -> _Tree:
        tree = _Tree(path, is_whole=recursive)
        with _failures_of(path):
            system, place = self._system(path)
        place, lister = place.rstrip("/"), _Lister(system, self.retries)
        found = lister.below(place) if recursive else lister.inside(place)
        with _failures_of(path):
            for info in found:
                names = info["name"][len(place) :].strip("/").split("/")
                if all(names):  # the directory itself, and names that no directory can have, are left out
                    tree.add(path, names, status_of_info(f"{path}/{'/'.join(names)}", info))
        return tree

    # ---- reading

    def open(self, path: str) -> "ObjectFile":
        try:
            with _failures_of(path):
                system, place = self._system(path)
            return ObjectFile(path, system, place, self.retries, self._kept[-1] if self._kept else None)
        except OSError as error:
            raise SourceError(f"{path}: {reason_of(error)}") from None

    @contextmanager
    def keep(self, most_bytes: int) -> Iterator[None]:
        """Keep what is read of objects that are opened in the meantime, for those that open them again.

        Of more than `most_bytes` what was read first is forgotten.
        """
        own = _KeptBlocks(most_bytes)
        self._kept.append(own)
        try:
            yield
        finally:
            self._kept.remove(own)  # generators do not end in any order

    def keep_more(self, most_bytes: int) -> None:
        """Keep as much as that from now on, where what is read is kept."""
        if self._kept:
            self._kept[-1].most_bytes = max(self._kept[-1].most_bytes, most_bytes)

    def write(self, path: str, data: bytes) -> None:
        """Write a whole object. Raises OSError."""
        with _failures_of(path):
            system, place = self._system(path)
            system.pipe_file(place, data)

    def _system(self, path: str) -> tuple[Any, str]:
        """The file system of fsspec for a URL, and the path in it."""
        protocol, _, rest = path.partition("://")
        if protocol in _WITHOUT_LISTINGS:
            raise OSError(errno.EINVAL, f"{protocol}:// cannot list directories; name the object store itself")
        if protocol in self._refusals:
            raise OSError(errno.EINVAL, self._refusals[protocol])
        if (process := os.getpid()) != self._process:
            self._of_parents.append(self._systems)
            self._systems, self._process = {}, process
        key = protocol, rest.partition("/")[0]
        system = self._systems.get(key)
        if system is None:
            system = self._systems[key] = _new_system(protocol, path, self._arguments.get(protocol, {}))
        return system, str(system._strip_protocol(path))


def _new_system(protocol: str, path: str, arguments: SystemArguments) -> Any:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        _not_installed(protocol, "fsspec")
    if not path.partition("://")[2].startswith("/"):  # it names its host, and another one is an error
        arguments = {name: value for name, value in arguments.items() if name not in ("host", "port")}
    try:
        caches = {} if protocol in _WITHOUT_CACHES else {"use_listings_cache": False}
        return url_to_fs(path, **caches, **arguments)[0]
    except ImportError as error:
        _not_installed(protocol, str(error))


def _protocols_of(system: Any) -> set[str]:
    return {system.protocol} if isinstance(system.protocol, str) else {*system.protocol}


def _not_installed(protocol: str, what: str) -> NoReturn:
    package = _PACKAGES.get(protocol, "kdump[cloud]")
    raise OSError(errno.EINVAL, f"{protocol}:// cannot be read ({what}): pip install '{package}'") from None


class _Lister:
    """Lists directories of a file system by several threads. Raises OSError."""

    def __init__(self, system: Any, retries: "Retries") -> None:
        self._system, self._retries = system, retries

    def inside(self, place: str) -> list[ObjectInfo]:
        """What is in a directory."""
        return list(self._retries.ask(self._system, partial(self._system.ls, place, detail=True)))

    def below(self, place: str) -> list[ObjectInfo]:
        """All that is below a directory.

        A store that lists flat takes one request for 1,000 objects. Where nothing but directories lies there that are
        not the partitions of topics, such as those of brokers, each is listed by itself.
        """
        from fsspec import AbstractFileSystem

        if type(self._system).find is AbstractFileSystem.find:
            return self._walked(place)
        if topic_partition_of(place) is not None:
            return self._flat(place)
        try:
            first = self.inside(place)
        except FileNotFoundError:
            return []
        below = [str(info["name"]) for info in first if info["type"] == "directory"]
        topics = {None if (of := topic_partition_of(name)) is None else of.topic for name in below}
        if len(below) < max(len(first), 2) or len(topics) > 1 or (None not in topics and self._has_files(below[0])):
            return self._flat(place)
        return [*first, *(info for found in _by_threads(self._flat, below) for info in found)]

    def _has_files(self, place: str) -> bool:
        """Whether files lie in a directory, as in broker-1 if it is a topic-partition and not a broker's."""
        return any(info["type"] != "directory" for info in self.inside(place))

    def _flat(self, place: str) -> list[ObjectInfo]:
        find = partial(self._system.find, place, withdirs=True, detail=True)
        return list(self._retries.ask(self._system, find).values())

    def _walked(self, place: str) -> list[ObjectInfo]:
        """The same from a store that lists directory by directory: level by level."""
        found, level = list[ObjectInfo](), [place]
        while level:
            below = [info for listed in _by_threads(self.inside, level, _WALKING_THREADS) for info in listed]
            # A store may list the directory itself.
            inside = {place, *level}
            below = [info for info in below if str(info["name"]).rstrip("/") not in inside]
            found += below
            level = [str(info["name"]).rstrip("/") for info in below if info["type"] == "directory"]
        return found


def _by_threads(
    call: Callable[[str], list[_Found]], places: Sequence[str], threads: int = _LISTING_THREADS
) -> Iterator[list[_Found]]:
    """What a call gives of each place, in order. Raises what it raises."""
    if len(places) < 2:
        yield from map(call, places)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(threads, len(places)), "kdump-listing") as pool:
        yield from pool.map(call, places)


# ---- statuses


def directory_status(path: str) -> os.stat_result:
    """The status of a directory, of which an object store knows nothing but its name."""
    return _status(stat.S_IFDIR | 0o555, path, 0, 0)


def status_of_info(path: str, info: ObjectInfo) -> os.stat_result:
    """The status that os.stat would return. The inode is a hash that another version of an object does not have."""
    if info["type"] == "directory" or str(info["name"]).endswith("/"):
        return directory_status(path)
    if info["type"] not in ("file", "link"):
        raise OSError(errno.EINVAL, f"not a file but {info['type']}")
    modified = _modified_ns(info)
    version = info.get("ETag") or info.get("etag") or info.get("generation") or modified
    return _status(stat.S_IFREG | 0o444, f"{version} {path}", int(info["size"] or 0), modified)


def _status(mode: int, identity: str, size: int, modified_ns: int) -> os.stat_result:
    from hashlib import blake2b

    inode = int.from_bytes(blake2b(identity.encode("utf-8", "surrogateescape"), digest_size=7).digest())
    seconds = modified_ns // 1_000_000_000
    times = {"st_atime_ns": modified_ns, "st_mtime_ns": modified_ns, "st_ctime_ns": modified_ns}
    return os.stat_result(
        (mode, inode, 0, 1, 0, 0, size, seconds, seconds, seconds), {**times, "st_blocks": -(-size // 512)}
    )


def _modified_ns(info: ObjectInfo) -> int:
    """When an object was written, in whole seconds: a listing and an object can differ in the digits after them."""
    for name in ("LastModified", "mtime", "last_modified", "updated", "modified", "created"):
        at = info.get(name)
        if at is not None:
            break
    else:
        at = info.get("modification_time", info.get("modificationTime"))  # of HDFS, in milliseconds
        return 0 if at is None else int(at) // 1000 * 1_000_000_000
    if isinstance(at, str):
        from datetime import datetime

        at = datetime.fromisoformat(at)
    return int(at if isinstance(at, int | float) else at.timestamp()) * 1_000_000_000


# ---- an object


class _KeptObject:
    """What is kept of an object: blocks by the positions at which they begin, and the request that is under way."""

    __slots__ = ("ahead", "blocks")

    def __init__(self) -> None:
        self.blocks: dict[int, bytes] = {}
        self.ahead: _Request | None = None


class _KeptBlocks:
    """Blocks of objects by the versions of these."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self._bytes = most_bytes, 0
        self._of: dict[tuple[Any, ...], _KeptObject] = {}
        self._order: list[tuple[dict[int, bytes], int]] = []

    def of(self, version: tuple[Any, ...]) -> _KeptObject:
        """What is kept of an object; `add` adds to it."""
        return self._of.setdefault(version, _KeptObject())

    def add(self, of: _KeptObject, position: int, block: bytes) -> None:
        """Add a block to those of an object."""
        of.blocks[position] = block
        self._order.append((of.blocks, position))
        self._bytes += len(block)
        while self._bytes > self.most_bytes and len(self._order) > 1:
            oldest, at = self._order.pop(0)
            self._bytes -= len(oldest.pop(at))


class ObjectFile(InputFile):
    """An object that was opened for reading, at the version that it had then.

    A reader that goes through it has the next block read by a thread while it looks at this one. Each has at most two
    requests under way and keeps two blocks, so it takes up to 32 MiB.
    """

    def __init__(self, path: str, system: Any, place: str, retries: "Retries", kept: _KeptBlocks | None = None) -> None:
        """Raises OSError."""
        self.name = path
        self._system, self._place = system, place
        self._ask = partial(retries.ask, system)
        caches = {} if _protocols_of(system) & _WITHOUT_CACHES else {"block_size": BLOCK_BYTES, "cache_type": "none"}
        self._file = self._ask(partial(system.open, place, "rb", **caches))
        self._is_pinned = hasattr(self._file, "read_kw")  # s3fs sends If-Match
        status = status_of_info(path, getattr(self._file, "details", None) or self._ask(partial(system.info, place)))
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "a directory")
        self.size = status.st_size
        self.stamp = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        self._is_kept = kept is not None
        self._kept = kept or _KeptBlocks(KEPT_BYTES)
        self._own = self._kept.of((path, *self.stamp))
        self._stop, self._step = self.size, _FIRST_BYTES
        self._has_stop = False
        self._end = -1  # where the last request ends
        self._asked: _Request | None = None
        self._lock = threading.Lock()
        self._is_shared = self._file is getattr(system, "store", {}).get(place)

    @property
    def reader(self) -> "ObjectFile":
        return self

    def read_until(self, stop: int) -> None:
        self._stop, self._step, self._has_stop = min(stop, self.size), BLOCK_BYTES, True

    def readinto(self, position: int, buffer: memoryview) -> int:
        filled, size = 0, max(0, min(len(buffer), self.size - position))
        while filled < size:
            start, block = self._block(position + filled, size - filled)
            at = position + filled - start
            part = block[at : at + size - filled]
            buffer[filled : filled + len(part)] = part
            filled += len(part)
        return filled

    def _block(self, position: int, need: int) -> tuple[int, bytes]:
        """Bytes from the object that hold a position, and where they begin. Raises SourceError."""
        for start, block in list(self._own.blocks.items()):  # several threads may read it
            if start <= position < start + len(block):
                if start + len(block) == self._end and position - start > len(block) // 2:
                    self._read_ahead()
                return start, block
        ahead = self._own.ahead
        if ahead is not None and ahead.start <= position < ahead.stop:
            block = self._take(ahead)
            return ahead.start, block
        start, stop = self._range_for(position, need)
        self._end = stop
        if self._is_pinned and self._has_stop:
            self._read_ahead()
        block = self._fetch(start, stop)
        self._kept.add(self._own, start, block)
        return start, block

    def _range_for(self, position: int, need: int) -> tuple[int, int]:
        """What to ask for where a position is needed."""
        if self._end >= 0 and not self._has_stop:
            goes_on = 0 <= position - self._end <= _GAP_BYTES
            self._step = min(_STEP_FACTOR * self._step, BLOCK_BYTES) if goes_on else _FIRST_BYTES
        limit = self._stop if position < self._stop else position + need
        start = position
        if self._is_kept:  # a walk over headers jumps to the next one, and who reads the records needs what is between
            before = max(
                (at + len(block) for at, block in list(self._own.blocks.items()) if at < position), default=position
            )
            start = before if position - before <= _GAP_BYTES else position
        end = min(max(position + self._step, position + min(need, BLOCK_BYTES)), limit, self._known_after(position))
        return start, end

    def _known_after(self, position: int) -> int:
        """Where what was read, or is about to be, begins after a position."""
        ahead = self._own.ahead
        starts = [*self._own.blocks, *(() if ahead is None else (ahead.start,))]
        return min((start for start in starts if start > position), default=self.size)

    # ---- ahead

    def _read_ahead(self) -> None:
        """Have the block after the last one read, unless the reader may end before or another one is under way."""
        start, ahead = self._end, self._own.ahead
        if self._step < BLOCK_BYTES or start >= self._stop or start in self._own.blocks:
            return
        if ahead is not None and (ahead.start == start or not ahead.is_done):
            return
        self._own.ahead = None
        self._own.ahead = self._asked = _Request(
            self._fetch, start, min(start + BLOCK_BYTES, self._stop, self._known_after(start))
        )

    def _take(self, ahead: "_Request") -> bytes:
        """The block that was read ahead, when it has come. Raises SourceError."""
        self._own.ahead, self._end = None, ahead.stop
        if self._is_pinned:  # the last request tells of an unpinned one whether it was replaced
            self._read_ahead()
        block = ahead.block()
        self._kept.add(self._own, ahead.start, block)
        return block

    def _fetch(self, start: int, stop: int) -> bytes:
        try:
            if self._is_pinned:  # each request by itself
                return _whole(lambda *part: self._ask(partial(self._file._fetch_range, *part)), start, stop)
            with self._lock:
                data = _whole(lambda *part: self._ask(partial(self._read, *part)), start, stop)
                if stop == self.size:
                    self._check_version()
                return data
        except FileNotFoundError:
            why = "the object was deleted since it was opened"
        except OSError as error:
            why = reason_of(error)
        raise SourceError(f"{self.name}: reading at byte {start}: {why}")

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return bytes(self._file.read(stop - start))

    def _status_now(self) -> os.stat_result:
        return status_of_info(self.name, self._ask(partial(self._system.info, self._place)))

    def _check_version(self) -> None:
        """Raises OSError where the object is another one than at the start, for stores that do not check it."""
        now = self._status_now()
        if now.st_ino != self.stamp[1]:
            raise OSError(errno.EBUSY, _REPLACED)

    def data_from(self, position: int) -> int:
        return position

    def size_now(self) -> int:
        try:
            with self._lock:
                return self._status_now().st_size
        except OSError:
            return self.size  # it is gone, or cannot be asked: what is read of it says so

    def close(self) -> None:
        if self._own.ahead is self._asked:  # nobody else can read what is closed
            self._own.ahead = None
        self._kept, self._own, self._asked = _KeptBlocks(0), _KeptObject(), None
        # What is in memory belongs to its store.
        if not self._is_shared:
            with self._lock:  # a request may be under way
                self._file.close()


class _Request:
    """A range of an object that a thread reads."""

    def __init__(self, fetch: Callable[[int, int], bytes], start: int, stop: int) -> None:
        from concurrent.futures import Future

        self.start, self.stop = start, stop
        self._answer: Future[bytes] = Future()
        # An exit does not wait for it.
        threading.Thread(target=self._run, args=(fetch,), name="kdump-read-ahead", daemon=True).start()

    def _run(self, fetch: Callable[[int, int], bytes]) -> None:
        try:
            self._answer.set_result(fetch(self.start, self.stop))
        except BaseException as error:  # noqa: BLE001  # raised where the block is needed
            self._answer.set_exception(error)

    @property
    def is_done(self) -> bool:
        return self._answer.done()

    def block(self) -> bytes:
        """What was read, when it has come. Raises SourceError."""
        return self._answer.result()


def _whole(read: Callable[[int, int], bytes], start: int, stop: int) -> bytes:
    """A range from a store that may give less at once, or less at all."""
    data = read(start, stop)
    while len(data) < stop - start and (more := read(start + len(data), stop)):
        data += more
    return data


# ---- errors

_REPLACED: Final = "the object was replaced since it was opened"


@contextmanager
def _failures_of(path: str) -> Iterator[None]:
    """Raises what libraries raise as OSError, with a reason in words."""
    try:
        yield
    except (KeyError, AttributeError, TypeError, AssertionError):
        raise  # a mistake of a program
    except OSError as error:
        raise _error_of(error) from None
    except ImportError as error:
        raise OSError(errno.EINVAL, _first_line(error)) from None
    except Exception as error:  # noqa: BLE001  # botocore, aiohttp and others have exceptions of their own
        raise OSError(errno.EIO, _first_line(error)) from None


def _error_of(error: OSError) -> OSError:
    words = _first_line(error.strerror or error)
    if type(error).__name__ == "FileExpired":
        return OSError(errno.EBUSY, _REPLACED)
    if isinstance(error, FileNotFoundError):
        return OSError(errno.ENOENT, words if "bucket does not exist" in words else "no such file or directory")
    if isinstance(error, PermissionError):
        return OSError(errno.EPERM, f"access denied: {words}")
    if isinstance(error, TimeoutError):
        return OSError(errno.ETIMEDOUT, f"no answer in time: {words}" if str(error) else "no answer in time")
    return OSError(error.errno or errno.EIO, words or os.strerror(error.errno or errno.EIO))


def _first_line(error: object) -> str:
    lines = str(error).splitlines()
    return lines[0].strip(" .") if lines else type(error).__name__


# ---- errors that pass

_MOST_TRIES: Final = 5
_MOST_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.5
_REPEATED: Final = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}
"""Protocols whose libraries try again by themselves, five times or more: botocore and s3fs, gcsfs, the SDK of Azure."""
_PASSING_STATUSES: Final = {408, 429, 500, 502, 503, 504}
_PASSING_ERRNOS: Final = {
    errno.EAGAIN,
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.EPIPE,
    errno.ETIMEDOUT,
}
_PASSING_TYPES: Final = {
    "ConnectionError",
    "Timeout",
    "ChunkedEncodingError",
    "IncompleteRead",
    "ClientConnectionError",
}
"""Of requests, http and aiohttp, and the one of Python itself."""
_PASSING_WORDS: Final = ("slowdown", "slow down", "reduce your request rate", "throttl", "too many requests")


class Retries:
    """Asks a store again where it fails for a while: with growing pauses, five times at most, and for 30 s in all."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock, self._sleep = clock, sleep

    def ask(self, system: Any, call: Callable[[], _Found]) -> _Found:
        """What a call gives, which asks the store of a file system. Raises OSError, with a reason in words."""
        tries = 1 if _protocols_of(system) & _REPEATED else _MOST_TRIES
        until, pause = self._clock() + _MOST_SECONDS, _FIRST_PAUSE
        while True:
            tries -= 1
            try:
                return call()
            except Exception as error:  # libraries have exceptions of their own
                if not tries or not _passes(error) or self._clock() + pause > until:
                    with _failures_of(""):
                        raise
            self._sleep(pause * random.uniform(0.5, 1))
            pause *= 2


def _passes(error: Exception) -> bool:
    """Whether an error of a store is one that may be gone in a moment."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return False
    answer = getattr(error, "response", None)
    for status in (getattr(each, name, None) for each in (error, answer) for name in ("status_code", "status", "code")):
        if isinstance(status, int):
            return status in _PASSING_STATUSES
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    names = {each.__name__ for each in type(error).__mro__}
    words = str(error).lower()
    return (
        isinstance(error, TimeoutError) or bool(names & _PASSING_TYPES) or any(map(words.__contains__, _PASSING_WORDS))
    )
