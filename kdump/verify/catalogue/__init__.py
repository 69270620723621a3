"""Everything that can be wrong, by code: in one log file, in the files beside it, in a partition and in a log directory."""

from collections.abc import Mapping
from typing import Final

from kdump.verify.catalogue import companions, logs, partitions
from kdump.verify.catalogue.entry import CatalogueEntry, Severity

__all__ = ["CATALOGUE", "CatalogueEntry", "Severity"]

CATALOGUE: Final[Mapping[str, CatalogueEntry]] = {
    entry.code: entry for entry in (*logs.ENTRIES, *companions.ENTRIES, *partitions.ENTRIES)
}
