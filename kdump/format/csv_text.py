"""Fields of CSV (RFC 4180): the one rule of quoting, for every table of kdump."""

from __future__ import annotations

from typing import Final

LINE_END: Final = "\r\n"


def csv_text(text: str) -> str:
    r"""Text as one field: in quotes where it has a quote, a comma, `\r` or `\n`, and where it is empty.

    An empty field without quotes is null.
    """
    if text and not any(sign in text for sign in '",\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'
