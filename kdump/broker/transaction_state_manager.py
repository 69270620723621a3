"""The producer ids of each transactional id, which the records of `__transaction_state` name.

The topic is compacted: what is left are the last state of each transactional id, and older ones that the log cleaner
has not removed yet. A transactional id keeps its producer id until the producer epoch is used up (KIP-360, KIP-890).

Source: TransactionStateManager of Kafka 4.3.
"""

from typing import Final

from kdump.format.internal_topics.decoded import DecodedRecord

_PRODUCER_IDS: Final = ("producerId", "previousProducerId", "nextProducerId")


class TransactionStateManager:
    """The transactional ids of one partition of `__transaction_state`."""

    def __init__(self) -> None:
        self.producer_ids: dict[str, set[int]] = {}

    def replay(self, record_offset: int, producer_id: int, decoded: DecodedRecord) -> str | None:
        """Apply a record. Returns its transactional id, None for a record without one."""
        transactional_id = None if decoded.key is None else decoded.key.fields.get("transactionalId")
        if transactional_id is None:
            return None
        known = self.producer_ids.setdefault(str(transactional_id), set())
        if decoded.problem is None and decoded.value is not None:
            found = (decoded.value.fields.get(name) for name in _PRODUCER_IDS)
            known.update(each for each in found if isinstance(each, int) and each >= 0)
        return str(transactional_id)

    def replay_end_transaction_marker(self, producer_id: int, *, commits: bool) -> None:
        """Nothing: no transaction writes to this topic."""
