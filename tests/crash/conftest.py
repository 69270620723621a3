"""What the tests here share: the trouble that a process meets at a call that changes something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that comes between a process and the C library (shim.c), compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    flags = ("-O1", "-Wall", "-Werror", "-Wno-array-parameter", "-shared", "-fPIC")
    subprocess.run([compiler, *flags, "-o", library, HERE / "shim.c", "-ldl"], check=True)
    return library
