"""Files and directories: finding logs, reading files, the layout of a partition, one log file in byte order."""

from kdump.exports import exports

_MODULES = {
    "kdump.storage.misplaced": "MisplacedFile",
    "kdump.storage.partition": "Segment",
    "kdump.storage.pieces": "Piece",
    "kdump.storage.read_policy": "ReadPolicy",
    "kdump.storage.records": "BatchPieces DecodedBatch",
    "kdump.storage.source": "FileSource InputFile Source",
    "kdump.storage.value_schemas.chosen_schemas": "SchemaDecoders",
    "kdump.storage.walk": "ForeignBatch Gap SearchLimit ShrunkFile Tail TailContent",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
