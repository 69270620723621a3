"""Where work runs: in this process, or in several on this machine."""

from kdump.exports import exports

_MODULES = {
    "kdump.engine.processes": "Processes",
    "kdump.engine.protocol": "Engine Serial",
}
__all__, __getattr__, __dir__ = exports(__name__, _MODULES)
