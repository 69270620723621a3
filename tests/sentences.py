"""What every finding keeps to, whatever it is about."""

from __future__ import annotations

import string

from kdump.findings import CATALOGUE, Finding

OUTCOMES = frozenset(("truncates", "deletes", "rebuilds", "refuses", "ignores"))
"""What a broker can do about a finding in a whole partition."""


def check(finding: Finding) -> None:
    """Its sentence has all that the catalogue's template names, and reads as one."""
    wanted = {name for _, name, _, _ in string.Formatter().parse(CATALOGUE[finding.code].sentence) if name}
    assert wanted <= finding.data.keys() | {"position", "length", "offset"}
    message = finding.message
    for odd in ("None", "True", "False", "{", "}", "  ", "''"):
        assert odd not in message, message
    assert message
    assert not message.endswith((".", " ", ":"))
    assert message.isprintable()
