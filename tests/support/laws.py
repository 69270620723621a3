"""How many examples the laws try: "quick", the default, half of those that they name, the same ones in every
run; KDUMP_EXAMPLES=few, a fifth; KDUMP_EXAMPLES=long, twenty times as many, others in every run."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

_FACTORS: Final = {"few": 0.2, "quick": 0.5, "long": 20}
_PROFILE: Final = os.environ.get("KDUMP_EXAMPLES", "quick")

for _name in _FACTORS:
    # How long an example takes says more of the machine than of the law.
    settings.register_profile(
        _name,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=_name != "long",
        print_blob=_name == "long",
    )
settings.load_profile(_PROFILE)


def examples(count: int) -> int:
    """The number of examples of a law that names `count`."""
    return max(1, int(count * _FACTORS[_PROFILE]))
