"""Stat: log files as numbers. Batches, records, producers, transactions, keys, disk use, of each segment and in sum."""
