"""Parsing and building the files and records of Kafka: one module per thing on disk, opened by its byte table.

No I/O.
"""
