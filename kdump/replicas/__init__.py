"""Several copies of one topic-partition as one log: what each has, where they differ, and what is taken from which."""

from kdump.exports import exports

_MODULES = {
    "kdump.replicas.merge": "MissingRecords ReplicaUse ReplicasRefused",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
