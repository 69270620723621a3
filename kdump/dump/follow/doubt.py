"""Something odd in a log that a broker writes: it counts when it looks the same a while later."""

from kdump.named_tuple import NamedTuple


class Doubt(NamedTuple):
    """Something odd, and since when it looks like this."""

    what: object
    since: float


def doubt_about(what: object, before: Doubt | None, now: float) -> Doubt:
    """The doubt of the look before, where it was about the same; else one that begins."""
    return before if before is not None and before.what == what else Doubt(what, now)
