"""Small Arrow arrays of known values.

`pa.array`, `pa.scalar` and a number as an argument of a compute function import pandas where it is installed: 0.3 s and
36 MiB at each start. These do not.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa


def string_array(texts: Sequence[str]) -> pa.StringArray:
    """The texts in their order."""
    encoded = [text.encode() for text in texts]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def repeat_int32(value: int, count: int) -> pa.Int32Array:
    """A value of 32 bits, `count` times."""
    return pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(array("i", [value]) * count)])


def repeat_int64(value: int, count: int) -> pa.Int64Array:
    """A value of 64 bits, `count` times."""
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array("q", [value]) * count)])
