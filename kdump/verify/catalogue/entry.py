"""The type of an entry of the catalogue."""

from kdump.log.severity import Severity
from kdump.named_tuple import NamedTuple


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
