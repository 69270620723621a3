"""The records of `__share_group_state`, from kafka-share-coordinator 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
ShareSnapshotKey 0 0 none
 groupId string 0
 topicId uuid 0
 partition int32 0
ShareSnapshotValue 0 0 0+
 snapshotEpoch int32 0+
 stateEpoch int32 0+
 leaderEpoch int32 0+
 startOffset int64 0+
 deliveryCompleteCount int32 0+ tagged=0+ tag=0 default=-1
 createTimestamp int64 0+
 writeTimestamp int64 0+
 stateBatches []StateBatch 0+
  firstOffset int64 0+
  lastOffset int64 0+
  deliveryState int8 0+
  deliveryCount int16 0+
ShareUpdateKey 1 0 none
 groupId string 0
 topicId uuid 0
 partition int32 0
ShareUpdateValue 1 0 0+
 snapshotEpoch int32 0+
 leaderEpoch int32 0+
 startOffset int64 0+
 deliveryCompleteCount int32 0+ tagged=0+ tag=0 default=-1
 stateBatches []StateBatch 0+
  firstOffset int64 0+
  lastOffset int64 0+
  deliveryState int8 0+
  deliveryCount int16 0+
"""
