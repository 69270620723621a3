"""The metadata of a KRaft cluster as Kafka's image classes hold it, replayed from `__cluster_metadata` (KIP-500)."""
