"""The catalogue: every finding code with its severity, its sentence, why it matters and what recovery does about it.

logs: one log file. companions: the files beside it. partitions: a partition, its files, and a log directory. replicas:
several copies of a partition. groups: the offsets that groups have committed.
"""

from collections.abc import Mapping
from typing import Final

from kdump.verify.catalogue import companions, groups, logs, partitions, replicas
from kdump.verify.catalogue.entry import CatalogueEntry, Severity

__all__ = ["CATALOGUE", "CatalogueEntry", "Severity"]

CATALOGUE: Final[Mapping[str, CatalogueEntry]] = {
    entry.code: entry
    for entry in (*logs.ENTRIES, *companions.ENTRIES, *partitions.ENTRIES, *replicas.ENTRIES, *groups.ENTRIES)
}
