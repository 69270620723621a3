"""Puts a page together: the template, its styles and scripts, the data, and the policy that allows these alone."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from kdump.errors import KdumpError
from kdump.render.html.script_data import script_json, script_string, shown

if TYPE_CHECKING:
    from jinja2 import Environment

    from kdump.format.json_types import Fields

INSTALL: Final = "pip install 'kdump[html]'"
_DATA: Final = "\0"
"""Where the data is in a page; no text in it has such a character."""
_SCRIPTS: Final = ("base.js", "grid.js", "map.js", "charts.js", "page.js")
_CHARTS: Final = ("uPlot.iife.min.js", "uPlot.min.css")


def _source(*name: str) -> str:
    return files("kdump.render.html").joinpath(*name).read_text("utf-8")


def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise KdumpError(f"--format html: jinja2 is not installed: {INSTALL}") from None
    return Environment(
        loader=PackageLoader("kdump.render.html"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def check_libraries() -> None:
    """Raise KdumpError where the library that a page needs is not installed."""
    _environment()


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """The content security policy of a page: what runs and what styles it are these texts, and nothing is loaded."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def page(values: Fields, data: Fields, *, charts: bool = False) -> Iterator[str]:
    """The page: `values` are those of the template, `data` those of the scripts. With `charts` the library for them."""
    from markupsafe import Markup  # which jinja2 brings

    environment = _environment()
    scripts = ['"use strict";\n(() => {\n' + "".join(_source("templates", name) for name in _SCRIPTS) + "})();\n"]
    styles = [_source("templates", "page.css")]
    if charts:
        scripts.insert(0, _source("vendor", _CHARTS[0]))
        styles.insert(0, _source("vendor", _CHARTS[1]))
    text = environment.get_template("page.html.j2").render(
        **values,
        policy=policy(scripts, styles),
        styles=list(map(Markup, styles)),
        scripts=list(map(Markup, scripts)),
        data=Markup(_DATA),
    )
    before, _, after = text.partition(_DATA)
    yield before
    for number, (name, value) in enumerate(data.items()):  # nothing in it is markup
        yield f"{',' if number else '{'}{script_string(name)}:"
        yield script_json(value)
    yield f"}}{after}"
