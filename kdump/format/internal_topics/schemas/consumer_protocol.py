"""Subscriptions and assignments of consumers, which the metadata of a classic group holds, from kafka-clients 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
ConsumerProtocolAssignment - 0-3 none
 assignedPartitions []TopicPartition 0+
  topic string 0+
  partitions []int32 0+
 userData bytes 0+ nullable=0+ default=null
ConsumerProtocolSubscription - 0-3 none
 topics []string 0+
 userData bytes 0+ nullable=0+ default=null
 ownedPartitions []TopicPartition 1+
  topic string 1+
  partitions []int32 1+
 generationId int32 2+ default=-1
 rackId string 3+ nullable=3+ default=null
"""
