"""The records of `__consumer_offsets`, from kafka-group-coordinator 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
ConsumerGroupCurrentMemberAssignmentKey 8 0 none
 groupId string 0
 memberId string 0
ConsumerGroupCurrentMemberAssignmentValue 8 0 0+
 memberEpoch int32 0+
 previousMemberEpoch int32 0+
 state int8 0+
 assignedPartitions []TopicPartitions 0+
 partitionsPendingRevocation []TopicPartitions 0+
 struct TopicPartitions
  topicId uuid 0+
  partitions []int32 0+
  assignmentEpochs []int32 0+ nullable=0+ tagged=0+ tag=0
ConsumerGroupMemberMetadataKey 5 0 none
 groupId string 0
 memberId string 0
ConsumerGroupMemberMetadataValue 5 0 0+
 instanceId string 0+ nullable=0+
 rackId string 0+ nullable=0+
 clientId string 0+
 clientHost string 0+
 subscribedTopicNames []string 0+
 subscribedTopicRegex string 0+ nullable=0+
 rebalanceTimeoutMs int32 0+ default=-1
 serverAssignor string 0+ nullable=0+
 classicMemberMetadata ClassicMemberMetadata 0+ nullable=0+ tagged=0+ tag=0
  sessionTimeoutMs int32 0+
  supportedProtocols []ClassicProtocol 0+
   name string 0+
   metadata bytes 0+
ConsumerGroupMetadataKey 3 0 none
 groupId string 0
ConsumerGroupMetadataValue 3 0 0+
 epoch int32 0+
 metadataHash int64 0+ tagged=0+ tag=0 default=0
ConsumerGroupPartitionMetadataKey 4 0 none
 groupId string 0
ConsumerGroupPartitionMetadataValue 4 0 0+
 topics []TopicMetadata 0+
  topicId uuid 0+
  topicName string 0+
  numPartitions int32 0+
  partitionMetadata []PartitionMetadata 0+
   partition int32 0+
   racks []string 0+
ConsumerGroupRegularExpressionKey 16 0 none
 groupId string 0
 regularExpression string 0
ConsumerGroupRegularExpressionValue 16 0 0+
 topics []string 0+
 version int64 0+
 timestamp int64 0+
ConsumerGroupTargetAssignmentMemberKey 7 0 none
 groupId string 0
 memberId string 0
ConsumerGroupTargetAssignmentMemberValue 7 0 0+
 topicPartitions []TopicPartition 0+
  topicId uuid 0+
  partitions []int32 0+
ConsumerGroupTargetAssignmentMetadataKey 6 0 none
 groupId string 0
ConsumerGroupTargetAssignmentMetadataValue 6 0 0+
 assignmentEpoch int32 0+
 assignmentTimestamp int64 0+ tagged=0+ tag=0 default=0
GroupMetadataKey 2 0 none
 group string 0
GroupMetadataValue 2 0-4 4+
 protocolType string 0+
 generation int32 0+
 protocol string 0+ nullable=0+
 leader string 0+ nullable=0+
 currentStateTimestamp int64 2+ default=-1
 members []MemberMetadata 0+
 struct MemberMetadata
  memberId string 0+
  groupInstanceId string 3+ nullable=3+ default=null
  clientId string 0+
  clientHost string 0+
  rebalanceTimeout int32 1+ default=-1
  sessionTimeout int32 0+
  subscription bytes 0+
  assignment bytes 0+
LegacyOffsetCommitKey 0 0 none
 group string 0
 topic string 0
 partition int32 0
LegacyOffsetCommitValue 0 0 none
 offset int64 0
 metadata string 0
 commitTimestamp int64 0
OffsetCommitKey 1 0 none
 group string 0
 topic string 0
 partition int32 0
OffsetCommitValue 1 0-4 4+
 offset int64 0+
 leaderEpoch int32 3+ default=-1
 metadata string 0+
 commitTimestamp int64 0+
 expireTimestamp int64 1 default=-1
 topicId uuid 4+ tagged=4+ tag=0
ShareGroupCurrentMemberAssignmentKey 14 0 none
 groupId string 0
 memberId string 0
ShareGroupCurrentMemberAssignmentValue 14 0 0+
 memberEpoch int32 0+
 previousMemberEpoch int32 0+
 state int8 0+
 assignedPartitions []TopicPartitions 0+
 struct TopicPartitions
  topicId uuid 0+
  partitions []int32 0+
ShareGroupMemberMetadataKey 10 0 none
 groupId string 0
 memberId string 0
ShareGroupMemberMetadataValue 10 0 0+
 rackId string 0+ nullable=0+
 clientId string 0+
 clientHost string 0+
 subscribedTopicNames []string 0+
ShareGroupMetadataKey 11 0 none
 groupId string 0
ShareGroupMetadataValue 11 0 0+
 epoch int32 0+
 metadataHash int64 0+
ShareGroupStatePartitionMetadataKey 15 0 none
 groupId string 0
ShareGroupStatePartitionMetadataValue 15 0 0+
 initializingTopics []TopicPartitionsInfo 0+
 initializedTopics []TopicPartitionsInfo 0+
 deletingTopics []TopicInfo 0+
 struct TopicPartitionsInfo
  topicId uuid 0+
  topicName string 0+
  partitions []int32 0+
 struct TopicInfo
  topicId uuid 0+
  topicName string 0+
ShareGroupTargetAssignmentMemberKey 13 0 none
 groupId string 0
 memberId string 0
ShareGroupTargetAssignmentMemberValue 13 0 0+
 topicPartitions []TopicPartition 0+
  topicId uuid 0+
  partitions []int32 0+
ShareGroupTargetAssignmentMetadataKey 12 0 none
 groupId string 0
ShareGroupTargetAssignmentMetadataValue 12 0 0+
 assignmentEpoch int32 0+
 assignmentTimestamp int64 0+ tagged=0+ tag=0 default=0
StreamsGroupCurrentMemberAssignmentKey 22 0 none
 groupId string 0
 memberId string 0
StreamsGroupCurrentMemberAssignmentValue 22 0 0+
 memberEpoch int32 0+
 previousMemberEpoch int32 0+
 state int8 0+
 activeTasks []TaskIds 0+
 standbyTasks []TaskIds 0+
 warmupTasks []TaskIds 0+
 activeTasksPendingRevocation []TaskIds 0+
 standbyTasksPendingRevocation []TaskIds 0+
 warmupTasksPendingRevocation []TaskIds 0+
 struct TaskIds
  subtopologyId string 0+
  partitions []int32 0+
  assignmentEpochs []int32 0+ nullable=0+ tagged=0+ tag=0
StreamsGroupMemberMetadataKey 19 0 none
 groupId string 0
 memberId string 0
StreamsGroupMemberMetadataValue 19 0 0+
 instanceId string 0+ nullable=0+
 rackId string 0+ nullable=0+
 clientId string 0+
 clientHost string 0+
 rebalanceTimeoutMs int32 0+ default=-1
 topologyEpoch int32 0+
 processId string 0+
 userEndpoint Endpoint 0+ nullable=0+ default=null
 clientTags []KeyValue 0+
 struct Endpoint
  host string 0+
  port uint16 0+
 struct KeyValue
  key string 0+
  value string 0+
StreamsGroupMetadataKey 17 0 none
 groupId string 0
StreamsGroupMetadataValue 17 0 0+
 epoch int32 0+
 metadataHash int64 0+
 validatedTopologyEpoch int32 0+ tagged=0+ tag=0 default=-1
 lastAssignmentConfigs []LastAssignmentConfig 0+ nullable=0+ tagged=0+ tag=1
 struct LastAssignmentConfig
  key string 0+
  value string 0+
StreamsGroupTargetAssignmentMemberKey 21 0 none
 groupId string 0
 memberId string 0
StreamsGroupTargetAssignmentMemberValue 21 0 0+
 activeTasks []TaskIds 0+
 standbyTasks []TaskIds 0+
 warmupTasks []TaskIds 0+
 struct TaskIds
  subtopologyId string 0+
  partitions []int32 0+
StreamsGroupTargetAssignmentMetadataKey 20 0 none
 groupId string 0
StreamsGroupTargetAssignmentMetadataValue 20 0 0+
 assignmentEpoch int32 0+
 assignmentTimestamp int64 0+ tagged=0+ tag=0 default=0
StreamsGroupTopologyKey 23 0 none
 groupId string 0
StreamsGroupTopologyValue 23 0 0+
 epoch int32 0+
 subtopologies []Subtopology 0+
  subtopologyId string 0+
  sourceTopics []string 0+
  sourceTopicRegex []string 0+
  stateChangelogTopics []TopicInfo 0+
  repartitionSinkTopics []string 0+
  repartitionSourceTopics []TopicInfo 0+
  copartitionGroups []CopartitionGroup 0+
   sourceTopics []int16 0+
   sourceTopicRegex []int16 0+
   repartitionSourceTopics []int16 0+
 struct TopicConfig
  key string 0+
  value string 0+
 struct TopicInfo
  name string 0+
  partitions int32 0+
  replicationFactor int16 0+
  topicConfigs []TopicConfig 0+
"""
