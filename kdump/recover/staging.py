"""What a run writes before anything changes: the new files, and copies of the bytes that are cut off."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kdump.format import naming
from kdump.kernel.crc import crc32c
from kdump.recover import phases
from kdump.recover.journal import Step
from kdump.recover.plan import FileContent, Plan
from kdump.recover.step_order import After, is_kept, steps
from kdump.storage.directory_handle import (
    NO_LINKS,
    DirectoryHandle,
    FileAttributes,
    OnBytes,
    append_range,
    attributes_of,
    clone_file,
    write_all,
)
from kdump.storage.pieces import Piece
from kdump.storage.undo_folders import UndoFolder
from kdump.storage.zeros import append_with_holes, crc_of_range
from kdump.writer.companions import check_snapshots, write_rebuilt

if TYPE_CHECKING:
    from kdump.broker.rebuild import SegmentScan

Make = Callable[[Plan], Iterable[tuple[str, bytes | None]]]
"""Builds the files that a plan leaves to kdump.broker.rebuild."""

_NEWS: Final = ("put", "replace")
_NO_TIMES: Final[Mapping[str, int]] = MappingProxyType({})


class _WholeChecksum:
    """The CRC-32C of a file that is read in pieces, whose positions rise."""

    def __init__(self) -> None:
        self.crc = self.position = 0

    def add(self, data: bytes) -> None:
        """Add the bytes at `position`."""
        self.crc = crc32c(data, self.crc)
        self.position += len(data)

    def pass_over(self, descriptor: int, position: int) -> None:
        """Read and add the bytes before `position`. Raises EOFError where the file is shorter."""
        self.crc = crc_of_range(descriptor, self.position, position, self.crc)
        self.position = position


class FileWriter:
    """Writes the contents of a plan into `target`, which is the directory itself or its copy.

    `read_checksums` has the CRC-32C of each file that was read whole for its new content.
    """

    def __init__(
        self,
        handle: DirectoryHandle,
        target: DirectoryHandle,
        plan: Plan,
        on_bytes: OnBytes | None,
        make: Make | None,
        times: Mapping[str, int] = _NO_TIMES,
    ) -> None:
        self.handle, self.target, self.plan = handle, target, plan
        self._on_bytes, self._make, self._times = on_bytes, make, times
        logs = sorted(name for name in plan.files if name.endswith(".log"))
        self._last_log = logs[-1:]
        filled = (log for log in plan.segments if log.pieces)
        self._sources = {naming.segment_file_name(log.base_offset, ""): log.pieces[0].name for log in filled}
        self._attributes: dict[str, FileAttributes] = {}
        self._scans: dict[str, SegmentScan] = {}
        self.read_checksums: dict[str, int] = {}

    def _attributes_of(self, name: str, content: FileContent | None) -> FileAttributes | None:
        """What the new file takes over: the attributes of the log that it comes from, or that it lies beside."""
        pieces = [piece.name for piece in content.pieces[:1]] if content is not None else []
        stem = name.rpartition(".")[0]
        beside = [self._sources.get(stem, ""), f"{stem}.log"]
        for model in (*pieces, *beside, *self._last_log, name):
            if model in self.plan.files or is_kept(Piece(model, 0, 0)):
                if model not in self._attributes:
                    with self.handle.open(model) as descriptor:
                        self._attributes[model] = attributes_of(descriptor)
                return self._attributes[model]
        return None

    def scan_copies(self, rebuilt: Collection[str]) -> None:
        """Walk over the valid segments that are written from now on as they are copied, for the files to rebuild."""
        plan, request = self.plan, self.plan.rebuild_request()
        if self._make is not None or not rebuilt or plan.rebuild_cache.has(request):
            return
        from kdump.broker.rebuild import IndexLimits, SegmentScan

        limits = IndexLimits(request.index_interval_bytes, request.segment_index_bytes)
        for log in plan.segments:
            name = naming.segment_file_name(log.base_offset, ".log")
            content = plan.after.get(name)
            copied = content is not None and content.pieces == log.pieces
            if log.valid and log.pieces and log.base_offset >= 0 and copied:
                self._scans[name] = SegmentScan(log.base_offset, log.size, limits)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """A descriptor of a file of the directory, or of one of another copy that gives bytes."""
        if name not in self.plan.sources:
            with self.handle.open(name) as source:
                yield source
            return
        directory, last = os.path.split(name)
        with DirectoryHandle(directory, read_only=True) as other, other.open(last) as source:
            yield source

    def write_content(self, name: str, content: FileContent, to: str, *, holes: bool = False) -> int:
        """Write a file, with `holes` runs of zeros as holes; the CRC-32C of its bytes."""
        phases.enter(phases.Phase.COPY, self.handle.path_of(name))
        if content.data is not None:
            return self._write_data(name, content.data, to)
        if len(content.pieces) == 1 and is_kept(content.pieces[0]):
            return self._link_kept(content.pieces[0].name, to)
        attributes = self._attributes_of(name, content)
        if attributes is not None and name in self._times:
            attributes = attributes._replace(mtime_ns=self._times[name])
        with self.target.create(to, attributes) as target:
            crc = 0
            old = _WholeChecksum()
            for piece in content.pieces:
                with self._open(piece.name) as source:
                    if holes:
                        crc = append_with_holes(source, piece.start, piece.stop, target, 0)
                        self._count(piece.stop - piece.start)
                        continue
                    if piece.name == name:
                        old.pass_over(source, piece.start)
                    takers = [old.add] if piece.name == name else []
                    if (scan := self._scans.get(name)) is not None:
                        takers.append(scan.add)
                    crc = append_range(source, piece.start, piece.stop, target, crc, self._on_bytes, takers)
        if old.position:
            with self.handle.open(name) as source:
                old.pass_over(source, os.fstat(source).st_size)
            self.read_checksums[name] = old.crc
        return crc

    def _link_kept(self, kept: str, to: str) -> int:
        """Give a file that a run keeps a second name, or copy it; the CRC-32C of its bytes."""
        self.target.remove(to)
        try:
            self.target.link(kept, to)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.clone(kept, to)
        return self.target.checksum(to)

    def _write_data(self, name: str, data: bytes, to: str) -> int:
        with self.target.create(to, self._attributes_of(name, None)) as target:
            write_all(target, data)
        self._count(len(data))
        return crc32c(data)

    def _count(self, size: int) -> None:
        if self._on_bytes is not None:
            self._on_bytes(size)

    def clone(self, name: str, to: str) -> None:
        """Copy a file; it shares its blocks with the copy where the file system can do that."""
        phases.enter(phases.Phase.COPY, self.handle.path_of(name))
        with self.handle.open(name) as source, self.target.create(to, attributes_of(source)) as copied:
            clone_file(source, copied, self._on_bytes)

    def write_rebuilt(self, names: Collection[str], to: Callable[[str], str]) -> dict[str, int | None]:
        """Write the files that are rebuilt; their CRC-32C, None for a file that does not exist afterwards.

        Raises KdumpError where one does not come, or a checksum inside is wrong.
        """
        plan, make = self.plan, self._make
        rebuilt: Iterable[tuple[str, bytes | None]] = ()
        if make is not None:
            rebuilt = make(plan)
        elif names:
            rebuilt = plan.rebuild_cache.rebuild(plan.rebuild_request(), self._scans)
        found = write_rebuilt(self.target, rebuilt, names, lambda name, data: self._write_data(name, data, to(name)))
        if make is None:
            check_snapshots(self.target, {name: to(name) for name, crc in found.items() if crc is not None})
        return found


def stage(
    handle: DirectoryHandle,
    folder: UndoFolder,
    plan: Plan,
    after: After,
    on_bytes: OnBytes | None = None,
    make: Make | None = None,
    times: Mapping[str, int] = _NO_TIMES,
) -> tuple[Step, ...]:
    """Write what is new, copy what is cut off, and give the steps with all that they need to know."""
    links = {name: status.st_nlink for name in plan.files if (status := handle.stat(name)) is not None}
    because = {os.path.basename(action.path): action.because for action in plan.actions if action.because is not None}
    todo = steps(after, plan.files, links, because, times)
    writer = FileWriter(handle, handle, plan, on_bytes, make, times)
    news = {step.name: content for step in todo if step.do in _NEWS and (content := after[step.name]) is not None}
    for step in todo:
        if step.do == "append" and (content := after[step.name]) is not None:
            news[step.name] = FileContent(content.pieces[1:])
    rebuilt = [name for name, content in news.items() if content.is_rebuilt]
    writer.scan_copies(rebuilt)
    checksums: dict[str, int | None] = {}
    for name, content in news.items():
        if not content.is_rebuilt:
            checksums[name] = writer.write_content(name, content, folder.file_name("new", name))
    checksums |= writer.write_rebuilt(rebuilt, lambda name: folder.file_name("new", name))
    missing = {name for name, checksum in checksums.items() if checksum is None}
    taken = [
        step._replace(do="take") if step.name in missing and step.do == "replace" else step
        for step in todo
        if not (step.name in missing and step.do == "put")
    ]
    return tuple(_complete_step(step, writer, folder, checksums) for step in taken)


def _complete_step(step: Step, writer: FileWriter, folder: UndoFolder, checksums: Mapping[str, int | None]) -> Step:
    """A step with the checksums and stamps that only the staging knows. The bytes that it cuts off are copied."""
    handle = writer.handle
    if step.do == "sync" or (step.before is None and step.do not in _NEWS):
        return step
    if step.do == "cut":
        assert step.before is not None
        assert step.position is not None
        tail = FileContent((Piece(step.name, step.position, step.before.size),))
        checksum = writer.write_content(step.name, tail, folder.file_name("cut", step.name), holes=True)
        return step._replace(crc32c=checksum, after=step.before._replace(size=step.position))
    if step.do == "append" and step.before is not None:
        kept = handle.stamp(folder.file_name("new", step.name))
        length = 0 if kept is None else kept.size
        whole = step.before._replace(size=step.before.size + length)
        return step._replace(crc32c=checksums[step.name], length=length, after=whole)
    if step.do in ("take", "replace", "rename"):
        known = writer.read_checksums.get(step.name)
        step = step._replace(crc32c=handle.checksum(step.name) if known is None else known)
    if step.do in _NEWS:
        step = step._replace(after=handle.stamp(folder.file_name("new", step.name)), after_crc32c=checksums[step.name])
    return step
