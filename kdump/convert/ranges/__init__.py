"""Ranges of offsets of a topic-partition that are read alone: what is known of its log without reading it, where it is
cut, and the log of one range, proved and filled from all copies.
"""
