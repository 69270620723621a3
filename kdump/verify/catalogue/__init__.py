"""The catalogue: every finding code with its severity, its sentence, why it matters and what recovery does about it.

logs: one log file. companions: the files beside it. partitions: a partition, its files, and a log directory. replicas:
several copies of a partition. internal_topics: the offsets that groups have committed, and records that a dump decodes.
"""

from collections.abc import Mapping
from typing import Final

from kdump.log.severity import Severity
from kdump.verify.catalogue import companions, internal_topics, logs, partitions, replicas
from kdump.verify.catalogue.entry import CatalogueEntry

__all__ = ["CATALOGUE", "CatalogueEntry", "Severity"]

CATALOGUE: Final[Mapping[str, CatalogueEntry]] = {
    entry.code: entry
    for module in (logs, companions, partitions, replicas, internal_topics)
    for entry in module.ENTRIES
}
