"""Parsing and building the files and records of Kafka: one module per thing on disk, opened by its byte table.

No I/O.
"""

from kdump.exports import exports

_MODULES = {
    "kdump.format.batch": "Batch",
    "kdump.format.index": "OffsetIndexEntry TimeIndexEntry",
    "kdump.format.internal_topics.decoded": "DecodedMessage DecodedRecord RecordDecoder",
    "kdump.format.internal_topics.decoders": "decoder_of",
    "kdump.format.naming": "Kind",
    "kdump.format.value_schemas.schemas": "NamedSchema SchemaProblem SchemaSet ValueSchema",
    "kdump.format.value_schemas.value_decoder": (
        "DecodedValue DecodedValues FunctionDecoder FunctionDecoders SchemaDecoder ValueDecoder ValueDecoders"
    ),
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
