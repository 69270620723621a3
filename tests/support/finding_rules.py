"""What every finding keeps to, whatever it is about."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator

from kdump.verify.catalogue import CATALOGUE
from kdump.verify.findings import Finding

OUTCOMES = frozenset(("truncates", "deletes", "rebuilds", "refuses", "renames", "ignores"))
"""What a broker can do about a finding in a whole partition."""


def check(finding: Finding) -> None:
    """Its sentence has all that the catalogue's template names, and reads as one."""
    always = {"position", "length", "offset", "unproven", "begins"}
    assert set(_names(CATALOGUE[finding.code].sentence)) <= finding.data.keys() | always
    message = finding.message
    # What a file says is quoted, but for the names of topics; the renderers escape it.
    ours = re.sub(r"'.*'", "", message).replace(finding.data.get("topic") or "\0", "")
    for odd in ("None", "True", "False", "{", "}", "  "):
        assert odd not in ours, message
    assert message
    assert not message.endswith((".", " ", ":"))
    assert ours.isprintable()


def _names(template: str) -> Iterator[str]:
    """The values that a template names, also inside of words that depend on another one."""
    for _, name, spec, _ in string.Formatter().parse(template):
        if name:
            yield name
            yield from _names(spec or "")
