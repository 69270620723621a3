"""Compiles Protobuf schemas in a process of its own, which has bounds of time and memory.

The files of google/type come from the package googleapis-common-protos, where it is installed.
"""

import os
import subprocess
import sys
import tempfile
from typing import Final

from kdump.errors import reason
from kdump.format.value_schemas.schemas import LONGEST_NAME, SchemaProblem, ValueSchema, is_path_below
from kdump.format.value_schemas.stored_protobuf import descriptor_set, is_serialized, with_option, without_option

TIME_LIMIT_S: Final = 20
_MEMORY_BYTES: Final = 2 << 30
_MOST_FAILURES: Final = 8
"""So many time-outs end all compilation: each one costs the whole time limit."""
_LARGEST_RESULT: Final = 16 << 20
_OWN_FILE: Final = "kdump-value-schema.proto"
_STORED: Final = "kdump-stored"
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
    "confluent/type/variant.proto": (
        'syntax = "proto3"; package confluent.type; message Variant { bytes metadata = 1; bytes value = 2; }'
    ),
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}  # fmt: skip
"""Files that schemas import without a reference: a registry has them itself, as it has those of google/protobuf."""
_PROGRAM: Final = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({TIME_LIMIT_S}, {TIME_LIMIT_S}))
resource.setrlimit(resource.RLIMIT_AS, ({_MEMORY_BYTES}, {_MEMORY_BYTES}))
import grpc_tools
from grpc_tools import protoc
types = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
from importlib.util import find_spec
common = find_spec("google.type")
if common is not None and not os.path.lexists("google/type"):
    os.makedirs("google", exist_ok=True)
    os.symlink(next(iter(common.submodule_search_locations)), "google/type")
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
            raise SchemaProblem("not compiled: too many schemas took too long to compile")
        names = [_checked(each.name) for each in schema.references]
        if len(set(names)) < len(names):
            raise SchemaProblem("it imports two files with the same name")
        known = {name: text for name, text in _WITHOUT_REFERENCE.items() if name not in names}
        files = {_OWN_FILE: schema.text, **{each.name: each.text for each in schema.references}, **known}
        serialized = {name: text for name, text in files.items() if is_serialized(text)}
        try:
            with tempfile.TemporaryDirectory(prefix="kdump-") as folder:
                for name, text in files.items():
                    if name not in serialized:
                        _write(folder, name, without_option(text).encode("utf-8", "replace"))
                _write(folder, _STORED, descriptor_set(serialized) if serialized else b"")
                return with_option(self._compiled(folder), is_own_serialized=_OWN_FILE in serialized)
        except OSError as error:
            raise SchemaProblem(f"it could not be compiled: {reason(error)}") from None

    def _compiled(self, folder: str) -> bytes:
        result = os.path.join(folder, "kdump-descriptors")
        arguments = ["--include_imports", f"--descriptor_set_out={result}", f"-I{folder}"]
        arguments.append(f"--descriptor_set_in={os.path.join(folder, _STORED)}")
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
            raise SchemaProblem(f"the compiled schema is larger than {_LARGEST_RESULT} bytes")
        with open(result, "rb") as file:
            return file.read()


def _write(folder: str, name: str, data: bytes) -> None:
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(data)


def _message(lines: list[str]) -> str:
    """The first line of protoc about the schema; the last one of an interpreter that failed."""
    errors = [line for line in lines if ".proto:" in line]
    found = (errors or lines[-1:] or ["it ended without a message"])[0][:300].removeprefix(f"{_OWN_FILE}:")
    is_common = found.startswith("google/type/") and found.endswith(": File not found.")
    return f"{found} It is in the package googleapis-common-protos" if is_common else found


def _checked(name: str) -> str:
    """The path of an imported file, which has to stay below the folder of the compiler. Raises SchemaProblem."""
    if not is_path_below(name) or not name.endswith(".proto") or name == _OWN_FILE:
        raise SchemaProblem(f"it imports {name[:LONGEST_NAME]!r}, which cannot be the name of a file in a folder")
    return name
