"""Bytes ⇄ values: one module per thing on disk, each opened by its byte table. No I/O, no Arrow, no command line."""
