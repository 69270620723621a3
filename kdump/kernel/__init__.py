"""The compiled part: checksums (crc), the records of one batch (records), the walk over batches (scan). One call per chunk or per batch."""
