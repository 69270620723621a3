"""The records of `__transaction_state`, from kafka-transaction-coordinator 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
TransactionLogKey 0 0 none
 transactionalId string 0
TransactionLogValue 0 0-1 1+
 producerId int64 0+
 previousProducerId int64 1+ tagged=1+ tag=0 default=-1
 nextProducerId int64 1+ tagged=1+ tag=1 default=-1
 producerEpoch int16 0+
 nextProducerEpoch int16 1+ tagged=1+ tag=3 default=-1
 transactionTimeoutMs int32 0+
 transactionStatus int8 0+
 transactionPartitions []PartitionsSchema 0+ nullable=0+
  topic string 0+
  partitionIds []int32 0+
 transactionLastUpdateTimestampMs int64 0+
 transactionStartTimestampMs int64 0+
 clientTransactionVersion int16 1+ tagged=1+ tag=2 default=0
"""
