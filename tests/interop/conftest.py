"""Kafka's own classes, as Maven Central delivers them; without Java or Maven the tests here skip and say so."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

MAKE = Path(__file__).resolve().parents[2] / "fixtures" / "make"


def load_kafka() -> ModuleType:
    """The module that starts Kafka's classes and programs (fixtures/make/kafka.py)."""
    known = sys.modules.get("kafka_releases")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location("kafka_releases", MAKE / "kafka.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{MAKE / 'kafka.py'} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kafka_releases"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def kafka() -> ModuleType:
    """`fixtures/make/kafka.py`, with the class path of its newest release at hand."""
    module = load_kafka()
    if not module.have_java():
        pytest.skip("java and mvn are not both on the PATH")
    try:
        module.classpath(module.NEWEST)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        pytest.skip(f"Maven cannot deliver Kafka {module.NEWEST}: {error}")
    return module
