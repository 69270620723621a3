"""How serious damage is, or any other defect that is reported."""

from enum import IntEnum


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
