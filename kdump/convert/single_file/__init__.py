"""Outputs that are one stream of bytes: Arrow IPC, NDJSON and CSV."""
