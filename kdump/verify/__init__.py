"""Verify: findings, the checks that make them, and the report of a partition or a log directory."""
