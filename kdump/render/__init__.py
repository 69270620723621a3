"""Renderers: values in, one output format out.

One module per format, looked up by name and imported on use, so that a format's libraries load only with it. A renderer
gets values (batches, records, gaps, entries of companions, findings, summaries) and writes them to a stream; it counts,
sorts and judges nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, Any

from kdump.render.base import BYTES_MODES, Options, Renderer

__all__ = ["BYTES_MODES", "FORMATS", "Options", "Renderer", "renderer"]

FORMATS = {
    "terminal": "kdump.render.terminal",
    "text": "kdump.render.text",
    "json": "kdump.render.json",
    "kafka": "kdump.render.kafka",
}


def renderer(name: str, stream: IO[Any], options: Options | None = None) -> Renderer:
    """The renderer of one format of `FORMATS`, writing to a binary stream, or a text stream in UTF-8.

    Close it, or use it in a `with`, so that what it still holds is written. Raises KeyError for an unknown name.
    """
    module = import_module(FORMATS[name])
    made: Renderer = module.Renderer(stream, Options() if options is None else options)
    return made
