"""The type of an entry of the catalogue, and the severities."""

from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """How serious a finding is.

    INFO: legal, and worth knowing. WARNING: an invariant is broken, but the data can be read.
    ERROR: the data cannot be read, or a broker would truncate it or refuse to start.
    """

    INFO = 0
    WARNING = 1
    ERROR = 2

    @property
    def word(self) -> str:
        """The name as options, output and JSON have it."""
        return self.name.lower()


class CatalogueEntry(NamedTuple):
    """What the catalogue says about a code.

    `sentence` is a template over the data, position, length and offset of a finding. `recover` says what a broker's
    recovery or kdump recover does about it, `source` where Kafka defines the rule.
    """

    code: str
    severity: Severity
    title: str
    sentence: str
    why: str
    recover: str
    source: str
