"""Compiles Protobuf schemas in a process of its own, which has bounds of time and memory."""

import os
import subprocess
import sys
import tempfile
from typing import Final

from kdump.errors import reason
from kdump.format.value_schemas.schemas import SchemaProblem, ValueSchema

TIME_LIMIT_S: Final = 20
_MEMORY_BYTES: Final = 2 << 30
_MOST_FAILURES: Final = 8
"""So many time-outs end all compilation: each one costs the whole time limit."""
_LARGEST_RESULT: Final = 16 << 20
_OWN_FILE: Final = "kdump-value-schema.proto"
_LONGEST_NAME: Final = 200
_WITHOUT_REFERENCE: Final = {
    "confluent/meta.proto": (
        'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";'
        " message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }"
        + "".join(
            f" extend google.protobuf.{of}Options {{ Meta {name}_meta = 1088; }}"
            for of, name in {
                "File": "file", "Message": "message", "Field": "field", "Enum": "enum", "EnumValue": "enum_value",
            }.items()
        )
    ),
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type;'
        " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
}  # fmt: skip
"""Files that schemas import without a reference: a registry has them itself, as it has those of google/protobuf."""
_PROGRAM: Final = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({TIME_LIMIT_S}, {TIME_LIMIT_S}))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
import grpc_tools
from grpc_tools import protoc
types = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
sys.exit(protoc.main(["protoc", *sys.argv[1:], "-I" + types, "{_OWN_FILE}"]))
"""


class Protoc:
    """Gives the FileDescriptorSet of a schema (kdump.format.value_schemas.schemas.ProtobufCompiler)."""

    def __init__(self, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._time_limit_s = time_limit_s
        self._failures = 0

    def __call__(self, schema: ValueSchema) -> bytes:
        """Compile the schema with the files that it imports. Raises SchemaProblem."""
        if self._failures == _MOST_FAILURES:
            raise SchemaProblem("not compiled: too many schemas were not compiled in time")
        names = [_checked(each.name) for each in schema.references]
        try:
            with tempfile.TemporaryDirectory(prefix="kdump-") as folder:
                texts = (of.text for of in schema.references)
                known = [each for each in _WITHOUT_REFERENCE.items() if each[0] not in names]
                for name, text in [(_OWN_FILE, schema.text), *zip(names, texts, strict=True), *known]:
                    path = os.path.join(folder, name)
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    with open(path, "x", encoding="utf-8", errors="replace") as file:
                        file.write(text)
                return self._compiled(folder)
        except FileExistsError:
            raise SchemaProblem("it imports two files of one name") from None
        except OSError as error:
            raise SchemaProblem(f"it could not be compiled: {reason(error)}") from None

    def _compiled(self, folder: str) -> bytes:
        result = os.path.join(folder, "kdump-descriptors")
        arguments = ["--include_imports", f"--descriptor_set_out={result}", f"-I{folder}"]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", _PROGRAM, *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self._time_limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._failures += 1
            raise SchemaProblem(f"it was not compiled within {self._time_limit_s:g} seconds") from None
        if done.returncode != 0:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SchemaProblem(f"protoc: {_message([line.removeprefix(f'{folder}/') for line in lines])}")
        if os.path.getsize(result) > _LARGEST_RESULT:
            raise SchemaProblem(f"compiled, it is larger than {_LARGEST_RESULT} bytes")
        with open(result, "rb") as file:
            return file.read()


def _message(lines: list[str]) -> str:
    """The first line of protoc about the schema; the last one of an interpreter that failed."""
    errors = [line for line in lines if ".proto:" in line]
    return (errors or lines[-1:] or ["it ended without a message"])[0][:300].removeprefix(f"{_OWN_FILE}:")


def _checked(name: str) -> str:
    """The path of an imported file, which has to stay below the folder of the compiler. Raises SchemaProblem."""
    parts = name.split("/")
    if (
        len(name) > _LONGEST_NAME
        or not name.isprintable()
        or "\\" in name
        or any(part in ("", ".", "..") or part.startswith(("-", "~")) for part in parts)
        or not name.endswith(".proto")
        or name == _OWN_FILE
    ):
        raise SchemaProblem(f"it imports {name[:_LONGEST_NAME]!r}, which is no name for a file below a folder")
    return name
