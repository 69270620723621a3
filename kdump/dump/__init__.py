"""Dump: files as a stream of values: batches, records, index entries, snapshots, checkpoints, fetch results."""
