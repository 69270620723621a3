"""The groups of a cluster from its log directories: their coordinators, their offsets, their lag."""

from kdump.exports import exports

_MODULES = {
    "kdump.groups.coordinators": "CoordinatorStatistics",
    "kdump.groups.groups": "EndSource GroupFold GroupPartition GroupStatistics PartitionEnd",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
