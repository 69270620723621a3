"""What is to be done after a recovery: each partition has a step, and a run names one, the most urgent of all.

So nobody starts a broker for one partition while another one needs something first.
"""

import os
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, Optional

from kdump.format.naming import PARTITION_METADATA
from kdump.named_tuple import NamedTuple
from kdump.verify.findings import Finding, Severity
from kdump.verify.next_step import shell_command


class Urgency(IntEnum):
    """How urgent a step is."""

    START = 0
    PUT_BACK = 1
    UNREPAIRED = 2
    REPAIR = 3
    REFUSED = 4
    STRAY = 5
    REPLICA = 6


class RecoveryStep(NamedTuple):
    """The step of a partition, or of the root of a log directory.

    For REPLICA, `path` is the partition from which committed offsets are missing, and `otherwise` is the step where no
    other replica has them.
    """

    urgency: Urgency
    words: str
    path: str = ""
    otherwise: Optional["RecoveryStep"] = None

    def above(self, limit: int) -> Optional["RecoveryStep"]:
        """The step, and the one that it has otherwise, as far as they are more urgent than that."""
        step = self if self.otherwise is None else self._replace(otherwise=self.otherwise.above(limit))
        return step if step.urgency > limit else None


START_BROKER: Final = RecoveryStep(Urgency.START, "start the broker")
PUT_BACK: Final = RecoveryStep(Urgency.PUT_BACK, "put it back in place")
PUT_COPY_BACK: Final = RecoveryStep(Urgency.PUT_BACK, "put the copy in place of the original")
GONE: Final = frozenset(("segment/missing", "checkpoint/beyond"))
"""The errors that say that records are missing: nothing brings them back, and a broker serves the rest."""
UNREPAIRED: Final = GONE | {"offset/base", "batch/limit", "metadata/missing", "metadata/topic-id"}
"""The errors of which no strategy repairs anything."""
_NAMED: Final = 3
"""So many paths are named; the others are counted."""


def refused(what: str) -> RecoveryStep:
    """The step where a broker does not start: `what` is the code and the path of a finding."""
    return RecoveryStep(Urgency.REFUSED, f"a broker does not start yet: see {what}")


def of_findings(found: Iterable[Finding]) -> RecoveryStep | None:
    """The step where a finding stays with which a broker renames a directory, or does not start."""
    stays = [finding for finding in found if finding.broker in ("renames", "refuses")]
    first = max(stays, key=lambda finding: (finding.broker == "renames", finding.severity), default=None)
    if first is None:
        return None
    return _stray(first) if first.broker == "renames" else refused(f"{first.code} of {first.path}")


def _stray(finding: Finding) -> RecoveryStep:
    """The step where a broker renames the directory of a partition."""
    path, topic = finding.path, finding.data.get("topic")
    if finding.code != "metadata/missing":
        words = f"a broker would rename {os.path.dirname(path)} to NAME-stray: see {finding.code} of {path}"
        is_right = finding.severity < Severity.ERROR
        return RecoveryStep(Urgency.STRAY, f"{words}; if that is right, start it" if is_right else words)
    if finding.data.get("topic_id"):
        write = shell_command(["kdump", "recover", path])
    else:
        file = shell_command([os.path.join(path, PARTITION_METADATA)])
        id_of = shell_command(["kafka-topics.sh", "--describe", "--topic", str(topic)])
        write = rf"printf 'version: 0\ntopic_id: ID\n' > {file}, with the ID that {id_of} says"
    words = f"a broker would rename {path} to NAME-stray and begin an empty partition; before that: {write}"
    return RecoveryStep(Urgency.STRAY, words)


def of_unrepaired(found: Iterable[Finding]) -> RecoveryStep | None:
    """The step where no strategy repairs an error; None where errors say at most that records are missing."""
    errors = (one for one in found if one.severity is Severity.ERROR and one.code not in GONE)
    first = next(errors, None)
    if first is None:
        return None
    served = ", which a broker serves as it is" if first.broker == "ignores" else ""
    explain = shell_command(["kdump", "verify", "--explain", first.code])
    return RecoveryStep(
        Urgency.UNREPAIRED, f"no strategy repairs {first.code} of {first.path}{served}; {explain} says what it means"
    )


def lacks_records(found: Iterable[Finding], committed: bool | None) -> bool:
    """Whether another replica may have records that are missing: committed ones, or ones of which that is not known."""
    is_open = committed is None and any(one.severity is Severity.ERROR and one.code in GONE for one in found)
    return committed is True or is_open


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
