"""The compiled kernel: checksums, the walk over batches and messages, their records, producers, index entries.

One call per chunk or per batch, never per record.
"""

try:
    import kdump.kernel.crc  # noqa: F401  # which most of the others need
except ModuleNotFoundError as error:
    if error.name != "kdump.kernel.crc":
        raise
    raise ImportError(
        f"{__path__[0]} is a source folder of kdump without its compiled kernel: install kdump (pip install .), "
        "and start Python in another directory, or with -P",
        name="kdump.kernel",
    ) from None

from kdump.exports import exports

_MODULES = {
    "kdump.kernel.estimate": "Estimate",
    "kdump.kernel.scanner": "ByteReader",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
