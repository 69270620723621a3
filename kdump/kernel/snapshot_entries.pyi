from typing_extensions import Buffer

def unexpired(entries: Buffer, now_ms: int, longest_ms: int) -> bytes:
    """Return the entries of a snapshot without expired producers (ProducerStateManager.isProducerExpired).

    A producer without an open transaction expires `longest_ms` after its timestamp.
    """

def backwards(entries: Buffer, start: int) -> bytes:
    """Return the entries with those from the byte `start` on in reverse order."""

def hash_ordered(entries: Buffer) -> bytes:
    """Return the entries, given in order of first appearance, in the order of a snapshot.

    See kdump.format.producer_snapshot.hash_order.
    """
