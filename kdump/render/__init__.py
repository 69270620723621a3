"""Output formats: one module per format, and the tables that name them.

To add a format, write a module here with a class that implements the interfaces of its commands (kdump.render.base,
kdump.render.dump_renderer), and add one line to a table.
A module is imported when its format is used, so that its libraries load only then.
"""

from __future__ import annotations

from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, TypeVar

from kdump.exports import exports

if TYPE_CHECKING:
    from kdump.render.base import Renderer, RenderOptions
    from kdump.render.escaping import BYTES_MODES

__all__ = [
    "BYTES_MODES",
    "BYTE_FORMATS",
    "FINDING_FORMATS",
    "FORMATS",
    "PAGE_FORMATS",
    "RECORD_FORMATS",
    "REPORT_FORMATS",
    "STAT_FORMATS",
    "RenderOptions",
    "Renderer",
    "renderer",
]

Interface = TypeVar("Interface", bound="Renderer")

# `--help` imports kdump.render.output, and none of these
_, __getattr__, __dir__ = exports(
    __name__, {"kdump.render.base": "Renderer RenderOptions", "kdump.render.escaping": "BYTES_MODES"}
)

FORMATS = {
    "terminal": ("kdump.render.terminal", "TerminalRenderer"),
    "text": ("kdump.render.text", "TextRenderer"),
    "json": ("kdump.render.json", "JsonRenderer"),
    "kafka": ("kdump.render.kafka", "KafkaRenderer"),
}
"""The module and the class of each format that shows all that a dump finds."""
RECORD_FORMATS = {
    "csv": ("kdump.render.csv", "CsvRenderer"),
    "values": ("kdump.render.values", "ValuesRenderer"),
    "template": ("kdump.render.template", "TemplateRenderer"),
}
"""The same of the formats that show records alone. The csv of stat shows its rows."""
BYTE_FORMATS = {"hex": ("kdump.render.hex", "HexRenderer")}
"""The same of the format that shows the bytes of a log field by field."""
PAGE_FORMATS = {"html": ("kdump.render.html", "HtmlRenderer")}
"""The same of the format that shows a whole run as one page."""
FINDING_FORMATS = tuple(name for name in FORMATS if name != "kafka")
"""The formats of findings and plans: Kafka's dump tool shows files only."""
REPORT_FORMATS = (*FINDING_FORMATS, *PAGE_FORMATS)
"""The same, with that of a page."""
STAT_FORMATS = (*FINDING_FORMATS, "csv", *PAGE_FORMATS)
"""The formats of numbers."""


def renderer(
    name: str, stream: IO[Any], options: RenderOptions | None = None, interface: type[Interface] | None = None
) -> Interface:
    """The renderer of one format of the tables, which writes UTF-8 to a binary or text stream.

    `interface` is that of the command. Close it, or use it in a `with` statement, so that its buffer is written. Raises
    KeyError for an unknown name.
    """
    from kdump.render.base import RenderOptions

    module, class_name = {**FORMATS, **RECORD_FORMATS, **BYTE_FORMATS, **PAGE_FORMATS}[name]
    found: Interface = getattr(import_module(module), class_name)(stream, options or RenderOptions())
    assert interface is None or isinstance(found, interface), f"{name} shows no {interface.__name__}"
    return found
