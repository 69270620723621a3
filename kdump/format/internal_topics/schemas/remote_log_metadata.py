"""The records of `__remote_log_metadata`, from kafka-storage 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
RemoteLogSegmentMetadataRecord 0 0 0+
 remoteLogSegmentId RemoteLogSegmentIdEntry 0+
  topicIdPartition TopicIdPartitionEntry 0+
   name string 0+
   id uuid 0+
   partition int32 0+
  id uuid 0+
 startOffset int64 0+
 endOffset int64 0+
 brokerId int32 0+
 maxTimestampMs int64 0+
 eventTimestampMs int64 0+
 segmentLeaderEpochs []SegmentLeaderEpochEntry 0+
  leaderEpoch int32 0+
  offset int64 0+
 segmentSizeInBytes int32 0+
 customMetadata bytes 0+ nullable=0+ default=null
 remoteLogSegmentState int8 0+
 txnIndexEmpty bool 0+ tagged=0+ tag=0
RemoteLogSegmentMetadataSnapshotRecord 3 0 0+
 segmentId uuid 0+
 startOffset int64 0+
 endOffset int64 0+
 brokerId int32 0+
 maxTimestampMs int64 0+
 eventTimestampMs int64 0+
 segmentLeaderEpochs []SegmentLeaderEpochEntry 0+
  leaderEpoch int32 0+
  offset int64 0+
 segmentSizeInBytes int32 0+
 customMetadata bytes 0+ nullable=0+ default=null
 remoteLogSegmentState int8 0+
 txnIndexEmpty bool 0+ tagged=0+ tag=0
RemoteLogSegmentMetadataUpdateRecord 1 0 0+
 remoteLogSegmentId RemoteLogSegmentIdEntry 0+
  topicIdPartition TopicIdPartitionEntry 0+
   name string 0+
   id uuid 0+
   partition int32 0+
  id uuid 0+
 brokerId int32 0+
 eventTimestampMs int64 0+
 customMetadata bytes 0+ nullable=0+ default=null
 remoteLogSegmentState int8 0+
RemotePartitionDeleteMetadataRecord 2 0 0+
 topicIdPartition TopicIdPartitionEntry 0+
  name string 0+
  id uuid 0+
  partition int32 0+
 brokerId int32 0+
 eventTimestampMs int64 0+
 remotePartitionDeleteState int8 0+
"""
