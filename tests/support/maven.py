"""Jars from Maven Central, each without its dependencies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TIMEOUT_S = 300


def jar_of(coordinate: str) -> Path:
    """The path of a jar, GROUP:ARTIFACT:VERSION; skips the test where Maven cannot deliver it."""
    group, artifact, version = coordinate.split(":")
    folder = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / artifact / version
    path = folder / f"{artifact}-{version}.jar"
    if not path.exists():
        fetch = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={coordinate}", "-Dtransitive=false"]
        try:
            subprocess.run(fetch, check=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            pytest.skip(f"Maven cannot deliver {coordinate}: {error}")
    return path
