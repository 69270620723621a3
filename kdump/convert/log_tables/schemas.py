"""The schemas of the tables about logs, by name; those of their records are kdump.convert.tables.RECORDS."""

from typing import Final

import pyarrow as pa

from kdump.convert.tables import BATCHES, COMPARISONS, FINDINGS, GROUPS, OF_A_PARTITION, PRODUCERS, TRANSACTIONS
from kdump.stat.rows import table_columns

SEGMENTS: Final = pa.schema(
    [
        *OF_A_PARTITION,
        *((column.name, pa.bool_() if column.unit == "flag" else pa.int64()) for column in table_columns()),
    ]
)
"""What the rows of kdump stat have of a segment: the columns that kdump.stat.rows marks for it."""
TABLES: Final = {
    "batches": BATCHES,
    "segments": SEGMENTS,
    "producers": PRODUCERS,
    "transactions": TRANSACTIONS,
    "findings": FINDINGS,
    "groups": GROUPS,
    "comparisons": COMPARISONS,
}
