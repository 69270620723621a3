"""What the tests here share: the trouble that a process meets at a call that changes something."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture
def run_worker(shim: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a program of this folder with the trouble, and shows and returns what it says."""

    def run(worker: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", HERE / worker, *arguments],
            env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": os.pathsep.join((str(HERE.parent), str(HERE)))},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with capsys.disabled():
            print(f"\n{' '.join(arguments)}: {done.stdout}", end="")
        return done.stdout

    return run
