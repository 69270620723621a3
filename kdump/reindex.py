"""The plan of a reindex: companions are made anew from the logs, and no log is touched."""

import os

from kdump.findings import Severity
from kdump.format.naming import number_of
from kdump.load_state import name_of
from kdump.mend import COMPANIONS
from kdump.plan import Options, Plan
from kdump.report import Report

__all__ = ["reindex"]


def reindex(report: Report, options: Options) -> Plan:
    """What is to be done with the companions of the topic-partition directory that the report, with its proofs, is of. Raises SourceError."""
    raise NotImplementedError
