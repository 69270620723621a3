"""An entry of the catalogue."""

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """How bad: INFO is legal and worth knowing, WARNING breaks an invariant but reads, ERROR cannot be read or a broker would cut it or refuse to start."""

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class CatalogueEntry(NamedTuple):
    """What the catalogue says of a code. `sentence` is a template over the finding's data, position, length and offset."""

    code: str
    severity: Severity
    title: str
    sentence: str
    why: str
    recover: str
    source: str
