"""Budgets as ratios: kdump against a C loop, bare library loops and other readers, on the same bytes in one run."""
