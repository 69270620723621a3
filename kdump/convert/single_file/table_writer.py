"""What all outputs have in common that take record batches and write one stream of bytes."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import IO, TYPE_CHECKING, Protocol, Self

import pyarrow as pa

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ByteSink(Protocol):
    """What takes all bytes of an output, as a binary file does."""

    def write(self, data: "Buffer", /) -> int:
        """Take all bytes."""


class TableWriter(ABC):
    """Writes record batches of a schema to a binary file, which stays open.

    As a context manager it is closed at the end of the block, but not after an exception: what is not complete must
    not look as if it were. Raises what the file raises.
    """

    def __init__(self, file: ByteSink, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a record batch. Raises ValueError for another schema."""

    @abstractmethod
    def close(self) -> None:
        """Write what stands after the last row. Nothing can be written after that."""

    @abstractmethod
    def resume(self, file: IO[bytes]) -> None:
        """Go on where the file ends: it is the one that was given, and rows after that place were removed."""

    def _check(self, batch: pa.RecordBatch) -> None:
        if not batch.schema.equals(self._schema):
            raise ValueError("a record batch of another schema")
