"""What imports what: the layers, and how little a start costs."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import resource
import shutil
import subprocess
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import kdump
from kdump import cli
from kdump.format.batch import Batch
from kdump.kernel import records as kernel
from kdump.kernel.results import BatchDiagnosis
from kdump.kernel.scan import BATCH_COLUMNS, SUSPECTS
from support import build, public_names
from support.cases import each

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("fsspec", "numpy", "pandas", "pyarrow", "pyspark", "rich")
FACTOR = 5
MOST_MODULES = 77
"""Of kdump, for a verify of one small file."""


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": ""},
    )


def test_layers() -> None:
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kept = re.search(r"Contracts: (\d+) kept, 0 broken", done.stdout)
    assert kept is not None
    assert int(kept[1]) >= 3


LOADED = """
import json, sys
from kdump.cli import run
status = run(sys.argv[1:])
print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded(*arguments: str) -> set[str]:
    """The top-level modules that are there after a run of the command."""
    return set(json.loads(child("-c", LOADED, *arguments).stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def log() -> str:
    return str(next((ROOT / "fixtures" / "codecs" / "none-0").glob("*.log")))


def test_help_loads_nothing_heavy() -> None:
    commands = [[name, "--help"] for name in cli.COMMANDS]
    for arguments in (["--help"], *commands, ["verify", "--explain", "batch/crc"]):
        assert not loaded(*arguments) & set(HEAVY), arguments


def test_work_loads_nothing_heavy(log: str) -> None:
    for arguments in (
        ["verify", log],
        ["verify", "--deep", "--format", "json", log],
        ["dump", "--format", "json", log],
        ["dump", "--format", "kafka", log],
        ["dump", "--at", "0", log],
        ["recover", str(Path(log).parent)],
        ["stat", "--by", "group", *(str(ROOT / "fixtures" / name) for name in ("leader", "follower"))],
    ):
        assert not loaded(*arguments) & set(HEAVY), arguments
    # the codecs come with the first batch that needs them
    assert not loaded("verify", log) & {"lz4", "zstandard", "snappy", "cramjam", "isal"}


@pytest.mark.daily(2)
@pytest.mark.parametrize("form", ["parquet", "arrow", "ndjson", "csv"])
def test_a_conversion_imports_no_pandas(form: str, tmp_path: Path) -> None:
    """pyarrow imports it, where it is installed, for a Python value that becomes an array or a scalar."""
    logs = str(ROOT / "fixtures" / "transactions")  # it ends with open transactions: provisional rows
    assert "pandas" not in loaded("convert", logs, "--to", form, "-o", str(tmp_path / "out"))


def test_only_the_terminal_loads_rich(log: str) -> None:
    assert "rich" in loaded("dump", "--format", "terminal", log)


def test_help_of_recover_does_not_verify() -> None:
    """What recovers is imported when there is something to recover."""
    done = child("-X", "importtime", "-m", "kdump", "recover", "--help")
    assert not {"kdump.recover.planner", "kdump.verify.verify", "kdump.kernel.scan", "multiprocessing"} & {
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines()
    }


def test_a_plan_of_a_valid_partition_imports_no_strategy(log: str) -> None:
    """Nor what applies plans: most partitions have nothing to do."""
    done = child("-X", "importtime", "-m", "kdump", "recover", str(Path(log).parent))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kdump.recover.planner" in imported
    assert not {"kdump.recover.truncate", "kdump.recover.apply", "kdump.broker.log_loader"} & imported


def test_a_verify_of_a_valid_log_imports_few_modules(log: str) -> None:
    """Each costs half a millisecond: what explains damage, predicts a start or reads Kafka 0.7 comes when it is due."""
    done = child("-X", "importtime", "-m", "kdump", "verify", log)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    rare = """
        broker.log_manager broker.result kernel.scan07 log.header_pass log.log_slice storage.undo_folders storage.walk07
        verify.checks.checkpoints verify.log_directory verify.valid_segments
    """
    assert not {f"kdump.{name}" for name in rare.split()} & imported
    assert len({name for name in imported if name.startswith("kdump")}) <= MOST_MODULES


def test_a_dump_of_a_valid_log_imports_nothing_about_damage(log: str) -> None:
    """Nor the renderer of JSON and the time zones, which other options need."""
    done = child("-X", "importtime", "-m", "kdump", "dump", log)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not {"kdump.verify.catalogue", "kdump.verify.checks", "kdump.render.json", "json", "zoneinfo"} & imported


def test_start_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the ratio of processor times; a busy machine is no defect, so only a gross one fails."""

    def seconds(*arguments: str) -> float:
        took = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            child(*arguments)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        return min(took)

    nothing, command = seconds("-c", "pass"), seconds("-m", "kdump", "--help")
    with capsys.disabled():
        print(
            f"\nkdump --help: {command * 1000:.0f} ms, {command / nothing:.1f} times python -c pass "
            f"({nothing * 1000:.0f} ms); at most {FACTOR} is wanted"
        )
    assert command < 3 * FACTOR * nothing


@each("package", ["kdump", *(f"kdump.{room}" for room in kdump._ROOMS if room != "kernel")])
def test_import_costs_nothing(package: str) -> None:
    """But that of the kernel, which sees whether it was compiled."""
    code = f"import sys; before = set(sys.modules); import {package}; print(*sorted(set(sys.modules) - before))"
    loaded = {name for name in child("-c", code).stdout.split() if not re.match(r"_?typing|collections", name)}
    assert loaded == {"kdump", "kdump.exports", package}


def test_public_names() -> None:
    for name in public_names.public_names():
        package, _, own = name.rpartition(".")
        if package != "kdump.spark":  # needs PySpark
            assert getattr(import_module(package), own) is not None
    with pytest.raises(AttributeError, match="module 'kdump' has no attribute 'nothing'"):
        _ = kdump.nothing
    with pytest.raises(AttributeError, match=r"module 'kdump\.stat' has no attribute 'nothing'"):
        _ = kdump.stat.nothing


def test_the_names_at_the_top_are_few_and_say_what_they_are() -> None:
    assert len(kdump.__all__) <= 48
    generic = {"Run", "Row", "Kind", "Choice", "Target", "Lost", "Piece", "Volume", "Action", "Damage", "Policy"}
    assert not generic & set(kdump.__all__)


def test_each_public_name_stands_in_one_place() -> None:
    names = [name.rpartition(".")[2] for name in public_names.public_names()]
    assert sorted(name for name, times in Counter(names).items() if times > 1) == []


def test_rooms_come_with_the_package() -> None:
    code = "import kdump; print(kdump.stat.Histogram.__name__, kdump.verify.Severity.__name__, 'stat' in dir(kdump))"
    assert child("-c", code).stdout == "Histogram Severity True\n"


@each(
    ("name", "home"),
    [
        ("EpochRun", "broker.EpochRun"),
        ("Row", "stat.Row"),
        ("Target", "convert.Target"),
        ("growth", "stat.report_growth"),
    ],
)
def test_a_name_that_moved_says_where_it_is(name: str, home: str) -> None:
    said = f"^kdump.{name} is kdump.{home}$"
    assert not hasattr(kdump, name)
    with pytest.raises(AttributeError, match=said):
        getattr(kdump, name)
    with pytest.raises(ImportError, match=said):
        exec(f"from kdump import {name}")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from kdump import nothing")


def test_a_room_says_what_stands_at_the_top() -> None:
    with pytest.raises(AttributeError, match=r"^kdump\.verify\.VerifyOptions is kdump\.VerifyOptions$"):
        _ = kdump.verify.VerifyOptions
    assert not hasattr(kdump.stat, "__version__")


def test_the_manual_has_every_public_name() -> None:
    page = (ROOT / "man" / "kdump.3").read_text(encoding="utf-8")
    parts = dict(re.findall(r'^\.\\" generated: names of (\S+)\n(.*?)^\.\\" end$', page, re.MULTILINE | re.DOTALL))
    named = {
        (package, name)
        for package, part in parts.items()
        for name in re.findall(r'^\.It Cm "(\w+)', part, re.MULTILINE)
    }
    assert named == {tuple(name.rpartition(".")[::2]) for name in public_names.public_names()}


def test_no_public_name_is_that_of_a_module_beside_it() -> None:
    """Importing a module sets that attribute of its package."""
    for package in ["kdump", *(f"kdump.{room}" for room in kdump._ROOMS)]:
        modules = {module.name for module in pkgutil.iter_modules(import_module(package).__path__)}
        assert not modules & set(import_module(package).__all__)


def test_help_shows_the_public_names() -> None:
    for package in ("kdump", "kdump.stat"):
        shown = child("-c", f"import kdump.stat; help({package})").stdout
        assert {name for name in public_names.homes_of(package) if name not in shown} == set()


def test_columns_of_a_batch_are_its_fields() -> None:
    assert BATCH_COLUMNS == Batch._fields + BatchDiagnosis._fields
    assert len(SUSPECTS) == len(set(SUSPECTS)) < 30


def test_columns_of_a_record_are_what_records_are_made_of() -> None:
    items = [
        build.record(b"key", b"value", headers=[(b"h", None), (b"", b"x")], timestamp=5),
        build.record(None, b"", timestamp=7),
    ]
    body = b"".join(
        build.encode_record(item, offset_delta=number, timestamp_delta=item.timestamp or 0)
        for number, item in enumerate(items)
    )
    rows, headers, status, _ = kernel.decode(body, 2, 100, 0)
    assert status == 0
    cells = memoryview(rows).cast("q").tolist()
    width = len(kernel.RECORD_COLUMNS)
    first, second = (dict(zip(kernel.RECORD_COLUMNS, cells[at : at + width], strict=True)) for at in (0, width))
    assert (first["offset"], first["timestamp"], second["offset"], second["timestamp"]) == (100, 5, 101, 7)
    assert body[first["key_at"] :][: first["key_size"]] == b"key"
    assert body[first["value_at"] :][: first["value_size"]] == b"value"
    assert (second["key_size"], second["value_size"]) == (-1, 0)
    assert (first["header_count"], second["header_count"]) == (2, 0)
    assert first["at"] + first["size"] == second["at"]
    assert second["at"] + second["size"] == len(body)
    assert first["magic"] == second["magic"] == 2
    row = dict(
        zip(kernel.HEADER_COLUMNS, memoryview(headers).cast("q").tolist()[: len(kernel.HEADER_COLUMNS)], strict=True)
    )
    assert body[row["key_at"] :][: row["key_size"]] == b"h"
    assert row["value_size"] == -1
    assert len(headers) == 2 * 8 * len(kernel.HEADER_COLUMNS)


# pyspark_kdump is a package of its own, which only PySpark imports.
MODULES = sorted(path for path in (ROOT / "kdump").rglob("*.py") if "pyspark_kdump" not in path.parts)


@each("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_imports_alone(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if name != "kdump.__main__":
        assert import_module(name).__name__ == name


def test_a_source_folder_without_its_kernel_says_so(tmp_path: Path) -> None:
    """Python finds the folder kdump/ of a checkout first when it starts there."""
    ignored = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(ROOT / "kdump", tmp_path / "kdump", ignore=ignored)
    for arguments in (["-c", "import kdump; kdump.Log"], ["-m", "kdump", "verify", "x"]):
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )
        assert done.returncode
        last = done.stderr.splitlines()[-1]
        assert f"{tmp_path}/kdump/kernel is a source folder of kdump without its compiled kernel" in last
        assert "pip install ." in last
        assert "ModuleNotFoundError" not in last
    assert done.stderr.count("\n") == 1


def test_what_only_a_type_checker_has_is_not_imported() -> None:
    """typing_extensions is there in most environments, and no dependency."""
    home = Path(kdump.__file__).parent
    found = [path.name for path in home.rglob("*.py") if "\nfrom typing_extensions" in path.read_text()]
    assert not found
