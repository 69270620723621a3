"""The programs that are compared, each built or found on first use."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from .datasets import Data
from .measure import Command, UnavailableError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KAFKA = "4.3.1"
FRANZ_GO = "v1.22.2"
AIOKAFKA = "0.14.0"
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
# What the tool's shell wrapper passes to the JVM.
JVM_FLAGS = (
    "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "-Dcom.sun.management.jmxremote",
    "-Dcom.sun.management.jmxremote.authenticate=false", "-Dcom.sun.management.jmxremote.ssl=false",
)  # fmt: skip
_BUILD_LIMIT_S = 900


class Tools:
    """Commands over a data set; every method raises UnavailableError when its program cannot be had."""

    def __init__(self, root: Path, kdump: Path) -> None:
        """`root`: where what is built here is kept. `kdump`: the executable."""
        self._root = root
        self._kdump = kdump
        root.mkdir(parents=True, exist_ok=True)

    def kdump(self, *arguments: str, status: int = 0) -> Command:
        """The tool under test with any arguments; `status` is the exit status that is right."""
        if not os.access(self._kdump, os.X_OK):
            raise UnavailableError(f"no kdump at {self._kdump}")
        return Command((str(self._kdump), *arguments), status=status)

    def verify(self, data: Data, *options: str, path: str | None = None) -> Command:
        """`kdump verify` over the files of `data`, or over `path`; it must count what the generator wrote."""
        expect = {"batches": data.batches, "bytes": data.bytes}
        if "--deep" in options:
            expect["records"] = data.records
        paths = (path,) if path is not None else data.files
        return Command(self.kdump("verify", "--format", "json", *options, *paths).argv, expect=expect)

    def python(self, *arguments: str) -> Command:
        """The interpreter that runs kdump."""
        return Command((sys.executable, *arguments))

    def module(self, name: str, *arguments: str) -> Command:
        """A module of the bench with the interpreter that lies beside kdump, whose package counts and not the source
        folder."""
        begin = "import sys, runpy; sys.path.append(sys.argv.pop(1)); name = sys.argv[1]; del sys.argv[1]; "
        run = 'runpy.run_module(name, run_name="__main__", alter_sys=True)'
        python = self._kdump.with_name("python")
        return Command((str(python), "-P", "-c", begin + run, str(ROOT), name, *arguments))

    def kdump_imports(self, *arguments: str) -> Command:
        """kdump under `-X importtime`, which names every import on standard error."""
        script = self.kdump().argv[0]
        if Path(script).read_bytes()[:2] != b"#!":
            raise UnavailableError(f"{script} is no Python script")
        return self.python("-X", "importtime", script, *arguments)

    def floor(self, data: Data) -> Command:
        """The C loop: read and CRC-32C."""
        return Command(self.crcloop_argv(*data.files), expect={"bytes": data.bytes})

    def crcloop_argv(self, *files: str) -> tuple[str, ...]:
        """The C loop over any files."""
        return (str(self._crcloop), *files)

    def bare(self, data: Data, codec: str) -> Command:
        """The bare decompress loop."""
        expect = {"batches": data.batches, "bytes": data.bytes, "decoded_bytes": data.decoded_bytes}
        return Command((sys.executable, "-m", "tests.bench.bare", codec, *data.files), expect=expect)

    def append(self, data: Data, how: str, size: int) -> Command:
        """Batches like those of `data`, so many bytes of them, into a new log or a bare file."""
        argv = self.module("tests.bench.log_append", how, data.files[0], str(size)).argv
        return Command(argv, expect={}, timed=True)

    def recover_damaged(self, data: Data, strategy: str) -> Command:
        """A recovery of a copy of a damaged log."""
        argv = self.module("tests.bench.damaged_recovery", strategy, str(data.directory)).argv
        return Command(argv, expect={"recovered": 1}, timed=True)

    def read(self, data: Data, count: int) -> Command:
        """So many records of the log, at random."""
        argv = self.module("tests.bench.log_read", str(data.directory), str(count)).argv
        return Command(argv, expect={"records": count})

    def on_two(self, data: Data, how: str) -> Command:
        """A verify with two slots of Spark, or two processes; the second job counts."""
        argv = self.module("tests.bench.spark_verify", how, str(data.directory)).argv
        return Command(argv, expect={"batches": data.batches}, timed=True)

    def arrow(self, data: Data, how: str) -> Command:
        """All records as columns of Arrow, or what is made of these; nothing of them for `import`."""
        if how == "orjson":
            self._need_orjson()
        argv = self.module("tests.bench.arrow_rows", how, *data.files).argv
        return Command(argv, expect={"records": 0 if how == "import" else data.records})

    def orjson(self, data: Data) -> Command:
        """orjson over the same records."""
        self._need_orjson()
        return Command((sys.executable, "-m", "tests.bench.orjson_lines", *data.files))

    @staticmethod
    def _need_orjson() -> None:
        if find_spec("orjson") is None:
            raise UnavailableError("orjson is not installed")

    def dump_tool(self, files: Sequence[str], *options: str) -> Command:
        """Kafka's dump tool."""
        java = ("java", *JVM_FLAGS, "-cp", self._kafka_classpath, DUMP_TOOL, "--files", ",".join(files), *options)
        return Command((self._program("java"), *java[1:]))

    def loader(self, data: Data) -> Command:
        """The log loader of a broker, as after an unclean stop with everything to recover."""
        java = self._program("java")
        return Command(
            (java, *JVM_FLAGS[1:], "-cp", f"{self._loader}:{self._kafka_classpath}", "Loader", str(self.scratch(data)))
        )

    def scratch(self, data: Data) -> Path:
        """A copy of the directory to be written to; the logs, which do not change, are the same files."""
        scale = data.directory.parent.parent.name
        target = self._root / "scratch" / scale / data.name / data.directory.name
        if not target.exists():
            shutil.copytree(data.directory, target, copy_function=_linked)
        return target

    @cached_property
    def _loader(self) -> Path:
        target = self._root / f"loader-{KAFKA}"
        source = ROOT / "tests" / "interop" / "Loader.java"
        self._build([self._program("javac"), "-d", str(target), "-cp", self._kafka_classpath, str(source)])
        return target

    def aiokafka(self, data: Data) -> Command:
        """aiokafka's compiled reader."""
        return self._reader((str(self._aiokafka_python), "-m", "tests.bench.peers.aiokafka_records"), data)

    def franz(self, data: Data) -> Command:
        """franz-go on one processor."""
        return self._reader((str(self._franz),), data, {"GOMAXPROCS": "1"})

    def _reader(self, argv: tuple[str, ...], data: Data, environment: dict[str, str] | None = None) -> Command:
        expect = {"batches": data.batches, "records": data.records, "bytes": data.bytes}
        return Command((*argv, *data.files), environment or {}, expect)

    @cached_property
    def _crcloop(self) -> Path:
        flags = {"x86_64": ["-msse4.2"], "aarch64": ["-march=armv8-a+crc"]}.get(platform.machine(), [])
        program = self._root / "crcloop"
        self._build([self._program("cc"), "-O3", *flags, "-o", str(program), str(HERE / "crcloop.c")])
        return program

    @cached_property
    def _aiokafka_python(self) -> Path:
        home = self._root / f"aiokafka-{AIOKAFKA}"
        python = home / "bin" / "python"
        if not (home / "complete").exists():
            venv.create(home, clear=True, with_pip=True)
            self._build([str(python), "-m", "pip", "install", "--quiet", f"aiokafka[lz4,snappy,zstd]=={AIOKAFKA}"])
            (home / "complete").touch()
        return python

    @cached_property
    def _franz(self) -> Path:
        program = self._root / f"franz-{FRANZ_GO}"
        if not program.exists():
            go = self._program("go")
            with TemporaryDirectory(prefix="kdump-bench-franz-") as source:
                shutil.copy(HERE / "peers" / "franz.go", Path(source, "main.go"))
                self._build([go, "mod", "init", "franz"], source)
                self._build([go, "get", f"github.com/twmb/franz-go/pkg/kgo@{FRANZ_GO}"], source)
                self._build([go, "build", "-o", str(program), "."], source)
        return program

    @cached_property
    def _kafka_classpath(self) -> str:
        if str(ROOT) not in sys.path:
            sys.path.append(str(ROOT))
        from fixtures.make.kafka import classpath, have_java

        if not have_java():
            raise UnavailableError("java or mvn is not installed")
        try:
            return classpath(KAFKA)
        except subprocess.SubprocessError as error:
            raise UnavailableError(f"no class path of Kafka {KAFKA}: {error}") from error

    def _program(self, name: str) -> str:
        found = shutil.which(name)
        if found is None:
            raise UnavailableError(f"{name} is not installed")
        return found

    def _build(self, argv: Sequence[str], directory: str | None = None) -> None:
        try:
            subprocess.run(argv, cwd=directory, check=True, capture_output=True, text=True, timeout=_BUILD_LIMIT_S)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or ["no output"]
            raise UnavailableError(f"{Path(argv[0]).name} failed: {said[-1]}") from error
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{Path(argv[0]).name} took more than {_BUILD_LIMIT_S} s") from error


def _linked(source: str, target: str) -> str:
    if not source.endswith(".log"):
        return str(shutil.copy2(source, target))
    os.link(source, target)
    return target
