"""What is to be done after a recovery: each partition has a step, and a run names one, the most urgent of all.

So nobody starts a broker for one partition while another one needs something first.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Optional


class Urgency(IntEnum):
    """How urgent a step is."""

    START = 0
    PUT_BACK = 1
    REPAIR = 2
    REFUSED = 3
    REPLICA = 4


class RecoveryStep(NamedTuple):
    """The step of a partition, or of the root of a log directory.

    For REPLICA, `path` is the partition from which committed offsets are missing, and `otherwise` is the step where no
    other replica has them.
    """

    urgency: Urgency
    words: str
    path: str = ""
    otherwise: Optional["RecoveryStep"] = None


START_BROKER: Final = RecoveryStep(Urgency.START, "start the broker")
PUT_BACK: Final = RecoveryStep(Urgency.PUT_BACK, "put it back in place")
PUT_COPY_BACK: Final = RecoveryStep(Urgency.PUT_BACK, "put the copy in place of the original")
_NAMED: Final = 3
"""So many paths are named; the others are counted."""


def refused(what: str) -> RecoveryStep:
    """The step where a broker does not start: `what` is the code and the path of a finding."""
    return RecoveryStep(Urgency.REFUSED, f"a broker does not start yet: see {what}")


def from_replica(path: str, otherwise: RecoveryStep | None = None) -> RecoveryStep:
    """The step where committed offsets are missing from a partition."""
    return RecoveryStep(Urgency.REPLICA, "", path, otherwise)


def next_of(steps: Iterable[RecoveryStep], command: str | None = None) -> str | None:
    """The words of the most urgent step, the first of several; `command` is the step without any.

    Another replica comes before every repair, and before a start of the broker.
    """
    found = list(dict.fromkeys(steps))
    replicas = [step for step in found if step.urgency is Urgency.REPLICA]
    rest = [step for step in found if step.urgency is not Urgency.REPLICA]
    rest += (step.otherwise for step in replicas if step.otherwise is not None)
    most = max(rest, key=lambda step: step.urgency, default=None)
    words = command if most is None else most.words
    if not replicas:
        return words
    first = replica_words([step.path for step in replicas])
    return f"{first}; if none has: {words}" if words else first


def replica_words(paths: Sequence[str]) -> str:
    """What to do with partitions from which committed offsets are missing."""
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    named = ", ".join(paths[:_NAMED])
    return (
        f"if another replica has the missing committed offsets, move {named}{more} aside before the broker starts, and"
        " it fetches the partition again"
    )
