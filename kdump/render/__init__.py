"""Renderers: values in, one output format out.

One module per format, looked up by name and imported on use, so that a format's libraries load only with it. A renderer
gets values (batches, records, gaps, entries of companions, findings, summaries) and writes them to a stream; it counts,
sorts and judges nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, Any

from kdump.render.base import BYTES_MODES, Renderer, RenderOptions

__all__ = ["BYTES_MODES", "FORMATS", "RenderOptions", "Renderer", "renderer"]

FORMATS = {
    "terminal": ("kdump.render.terminal", "TerminalRenderer"),
    "text": ("kdump.render.text", "TextRenderer"),
    "json": ("kdump.render.json", "JsonRenderer"),
    "kafka": ("kdump.render.kafka", "KafkaRenderer"),
}


def renderer(name: str, stream: IO[Any], options: RenderOptions | None = None) -> Renderer:
    """The renderer of one format of `FORMATS`, writing to a binary stream, or a text stream in UTF-8.

    Close it, or use it in a `with`, so that what it still holds is written. Raises KeyError for an unknown name.
    """
    module, class_name = FORMATS[name]
    renderer: type[Renderer] = getattr(import_module(module), class_name)
    return renderer(stream, RenderOptions() if options is None else options)
