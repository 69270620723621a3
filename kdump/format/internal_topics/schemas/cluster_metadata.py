"""The records of `__cluster_metadata`, from kafka-metadata 4.3.1.

tests/support/message_tables.py makes this file.
"""

MESSAGES = """
AbortTransactionRecord 25 0 0+
 reason string 0+ nullable=0+ tagged=0+ tag=0 default=null
AccessControlEntryRecord 18 0 0+
 id uuid 0+
 resourceType int8 0+
 resourceName string 0+
 patternType int8 0+
 principal string 0+
 host string 0+
 operation int8 0+
 permissionType int8 0+
BeginTransactionRecord 23 0 0+
 name string 0+ nullable=0+ tagged=0+ tag=0 default=null
BrokerRegistrationChangeRecord 17 0-3 0+
 brokerId int32 0+
 brokerEpoch int64 0+
 fenced int8 0+ tagged=0+ tag=0
 inControlledShutdown int8 1+ tagged=1+ tag=1
 logDirs []uuid 2+ tagged=2+ tag=2
 cordonedLogDirs []uuid 3+ nullable=3+ tagged=3+ tag=3 default=null
ClearElrRecord 28 0 0+
 topicName string 0+
ClientQuotaRecord 14 0 0+
 entity []EntityData 0+
  entityType string 0+
  entityName string 0+ nullable=0+
 key string 0+
 value float64 0+
 remove bool 0+
ConfigRecord 4 0 0+
 resourceType int8 0+
 resourceName string 0+
 name string 0+
 value string 0+ nullable=0+
DelegationTokenRecord 10 0 0+
 owner string 0+
 requester string 0+
 renewers []string 0+
 issueTimestamp int64 0+
 maxTimestamp int64 0+
 expirationTimestamp int64 0+
 tokenId string 0+
EndTransactionRecord 24 0 0+
FeatureLevelRecord 12 0 0+
 name string 0+
 featureLevel int16 0+
FenceBrokerRecord 7 0 0+
 id int32 0+
 epoch int64 0+
NoOpRecord 20 0 0+
PartitionChangeRecord 5 0-2 0+
 partitionId int32 0+ default=-1
 topicId uuid 0+
 isr []int32 0+ nullable=0+ tagged=0+ tag=0 default=null
 leader int32 0+ tagged=0+ tag=1 default=-2
 replicas []int32 0+ nullable=0+ tagged=0+ tag=2 default=null
 removingReplicas []int32 0+ nullable=0+ tagged=0+ tag=3 default=null
 addingReplicas []int32 0+ nullable=0+ tagged=0+ tag=4 default=null
 leaderRecoveryState int8 0+ tagged=0+ tag=5 default=-1
 directories []uuid 1+ nullable=1+ tagged=1+ tag=8 default=null
 eligibleLeaderReplicas []int32 2+ nullable=2+ tagged=2+ tag=6 default=null
 lastKnownElr []int32 2+ nullable=2+ tagged=2+ tag=7 default=null
PartitionRecord 3 0-2 0+
 partitionId int32 0+ default=-1
 topicId uuid 0+
 replicas []int32 0+
 isr []int32 0+
 removingReplicas []int32 0+
 addingReplicas []int32 0+
 leader int32 0+ default=-1
 leaderRecoveryState int8 0+ tagged=0+ tag=0 default=0
 leaderEpoch int32 0+ default=-1
 partitionEpoch int32 0+ default=-1
 directories []uuid 1+
 eligibleLeaderReplicas []int32 2+ nullable=2+ tagged=2+ tag=1 default=null
 lastKnownElr []int32 2+ nullable=2+ tagged=2+ tag=2 default=null
ProducerIdsRecord 15 0 0+
 brokerId int32 0+
 brokerEpoch int64 0+ default=-1
 nextProducerId int64 0+
RegisterBrokerRecord 0 0-4 0+
 brokerId int32 0+
 isMigratingZkBroker bool 2+ default=false
 incarnationId uuid 0+
 brokerEpoch int64 0+
 endPoints []BrokerEndpoint 0+
  name string 0+
  host string 0+
  port uint16 0+
  securityProtocol int16 0+
 features []BrokerFeature 0+
  name string 0+
  minSupportedVersion int16 0+
  maxSupportedVersion int16 0+
 rack string 0+ nullable=0+
 fenced bool 0+ default=true
 inControlledShutdown bool 1+ default=false
 logDirs []uuid 3+ tagged=3+ tag=0
 cordonedLogDirs []uuid 4+ nullable=4+ tagged=4+ tag=1 default=null
RegisterControllerRecord 27 0 0+
 controllerId int32 0+
 incarnationId uuid 0+
 zkMigrationReady bool 0+
 endPoints []ControllerEndpoint 0+
  name string 0+
  host string 0+
  port uint16 0+
  securityProtocol int16 0+
 features []ControllerFeature 0+
  name string 0+
  minSupportedVersion int16 0+
  maxSupportedVersion int16 0+
RemoveAccessControlEntryRecord 19 0 0+
 id uuid 0+
RemoveDelegationTokenRecord 26 0 0+
 tokenId string 0+
RemoveTopicRecord 9 0 0+
 topicId uuid 0+
RemoveUserScramCredentialRecord 22 0 0+
 name string 0+
 mechanism int8 0+
TopicRecord 2 0 0+
 name string 0+
 topicId uuid 0+
UnfenceBrokerRecord 8 0 0+
 id int32 0+
 epoch int64 0+
UnregisterBrokerRecord 1 0 0+
 brokerId int32 0+
 brokerEpoch int64 0+
UserScramCredentialRecord 11 0 0+
 name string 0+
 mechanism int8 0+
 salt bytes 0+
 storedKey bytes 0+
 serverKey bytes 0+
 iterations int32 0+
ZkMigrationStateRecord 21 0 0+
 zkMigrationState int8 0+
"""
