"""Companions that were rebuilt while a plan was made, so that applying the plan does not rebuild them again."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kdump.broker.rebuild_request import RebuildRequest

if TYPE_CHECKING:
    from kdump.broker.rebuild import SegmentScan

MOST_BYTES: Final = 64 << 20
"""All plans of one run keep so many bytes; what is above is rebuilt when it is applied."""


class RebuildBudget:
    """How many bytes the plans of a run may still keep."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._left = most_bytes

    def take(self, size: int) -> bool:
        """Whether so many bytes are left; then they are taken."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """Bytes that were taken are not kept."""
        self._left += size


class RebuildCache:
    """The files that one request gave, by name; None for a file that does not exist afterwards.

    It is a copy of what the plan says already. So two plans that differ in this alone are equal.
    """

    __slots__ = ("_files", "_request")

    def __init__(self, request: RebuildRequest | None = None, files: Mapping[str, bytes | None] | None = None) -> None:
        self._request = request
        self._files = files or {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RebuildCache)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"RebuildCache({sorted(self._files)})"

    def has(self, request: RebuildRequest) -> bool:
        """Whether the files of this request are kept."""
        return request == self._request

    def rebuild(
        self, request: RebuildRequest, scans: "Mapping[str, SegmentScan] | None" = None
    ) -> Iterable[tuple[str, bytes | None]]:
        """Name and bytes of every file that the request wants: those that are kept, else rebuilt. Raises SourceError.

        The request has the stamps of the directory's files, which applying compares with the files before it asks.
        `scans` are those of segments that were copied (kdump.broker.rebuild).
        """
        if self.has(request):
            return self._files.items()
        from kdump.broker import rebuild  # which a plan that is only printed does not load

        return rebuild.rebuild_companions(request, None, scans)


class RebuildRecorder:
    """Rebuilds files for a plan and keeps them within the budget; without a budget it keeps nothing."""

    def __init__(self, budget: RebuildBudget | None) -> None:
        self._budget = RebuildBudget(0) if budget is None else budget
        self._request: RebuildRequest | None = None
        self._files: dict[str, bytes | None] = {}
        self._size = 0

    def rebuild(self, request: RebuildRequest) -> Iterator[tuple[str, bytes | None]]:
        """Name and bytes of every file that the request wants. Raises SourceError."""
        from kdump.broker import rebuild

        self._drop()
        self._request = request
        for name, data in rebuild.rebuild_companions(request):
            size = len(data or b"")
            if self._request is not None and self._budget.take(size):
                self._files[name] = data
                self._size += size
            else:
                self._drop()
            yield name, data

    def cache_for(self, request: RebuildRequest) -> RebuildCache:
        """What was kept, where this is the request that was rebuilt."""
        if request != self._request:
            self._drop()
        return RebuildCache(self._request, self._files)

    def _drop(self) -> None:
        self._budget.give_back(self._size)
        self._request, self._files, self._size = None, {}, 0
