from kdump.groups.coordinators import CoordinatorStatistics as CoordinatorStatistics
from kdump.groups.groups import EndSource as EndSource
from kdump.groups.groups import GroupFold as GroupFold
from kdump.groups.groups import GroupPartition as GroupPartition
from kdump.groups.groups import GroupStatistics as GroupStatistics
from kdump.groups.groups import PartitionEnd as PartitionEnd
