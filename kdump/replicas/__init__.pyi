from kdump.replicas.merge import MissingRecords as MissingRecords
from kdump.replicas.merge import ReplicasRefused as ReplicasRefused
from kdump.replicas.merge import ReplicaUse as ReplicaUse
