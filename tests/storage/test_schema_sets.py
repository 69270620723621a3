"""Where schemas come from: files of a folder, a registry's topic, and the compiler of Protobuf."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.errors import SourceError
from kdump.format.value_schemas.schemas import NamedSchema, SchemaProblem, ValueSchema
from kdump.format.value_schemas.value_decoder import SchemaDecoder
from kdump.storage.value_schemas import chosen_schemas, protoc
from kdump.storage.value_schemas.chosen_schemas import CurrentSchemas, SchemaDecoders, schemas_at
from kdump.storage.value_schemas.folder import SchemaFolder, imports_in
from kdump.storage.value_schemas.protoc import Protoc
from kdump.storage.value_schemas.schema_files import SchemaFiles
from kdump.storage.value_schemas.schemas_topic import TopicSchemas, read_topic
from support import build
from support.schema_values import (
    LINE_BYTES,
    LINE_DATA,
    LINE_PATH,
    LINE_PROTO,
    MONEY_PROTO,
    ORDER,
    ORDER_BYTES,
    ORDER_DATA,
    ORDER_GUID,
    REGISTRY,
    Pair,
    Schemas,
    key_of,
    line_schema,
    log_of,
    registered,
    wire,
    write_log,
)

ROOT = Path(__file__).resolve().parents[2]
GUID = "7a0ea5cc-7a4f-4a3c-9f0e-3c1b5a1d2e4f"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "schemas"
    (found / "common").mkdir(parents=True)
    (found / "1.avsc").write_text(json.dumps(ORDER))
    (found / f"{GUID.upper()}.avsc").write_text('"int"')
    (found / "3.proto").write_text(LINE_PROTO)
    (found / "common" / "money.proto").write_text(MONEY_PROTO)
    (found / "4.json").write_text("{}")
    return found


# ---- a folder


def test_files_by_id_and_guid(folder: Path) -> None:
    found = SchemaFolder(str(folder))
    assert found.by_id(1) == ValueSchema("AVRO", json.dumps(ORDER))
    assert found.by_id(3) == line_schema()
    assert found.by_id(4).schema_type == "JSON"
    assert found.by_guid(UUID(GUID)).text == '"int"'
    with pytest.raises(SchemaProblem, match=r"schema 2 is not known: .* has no file 2\.avsc, \.proto or \.json"):
        found.by_id(2)


def test_avro_types_by_their_names(folder: Path) -> None:
    inner = {"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]}
    middle = {"type": "record", "name": "a.Middle", "fields": [{"name": "inner", "type": "Inner"}]}
    (folder / "a.Inner.avsc").write_text(json.dumps(inner))
    (folder / "a.Middle.avsc").write_text(json.dumps(middle))
    (folder / "7.avsc").write_text('["null", "a.Middle", "a.Inner"]')
    assert [each.name for each in SchemaFolder(str(folder)).by_id(7).references] == ["a.Inner", "a.Middle"]
    decoder = SchemaDecoders(str(folder)).of("t-0/0.log", None)
    assert decoder is not None
    found = decoder.decode(None, wire(7, b"\x02\x06"), ()).value
    assert found is not None
    assert found.data == {"inner": {"x": 3}}


def test_files_that_import_each_other(folder: Path) -> None:
    (folder / "8.proto").write_text('import "a.proto";')
    (folder / "a.proto").write_text('import "b.proto";')
    (folder / "b.proto").write_text('import "a.proto"; import "8.proto";')
    assert [each.name for each in SchemaFolder(str(folder)).by_id(8).references] == ["b.proto", "a.proto"]


OUTSIDE = ["../{name}", "{absolute}", "common/../../{name}", "./../{name}", "link/{name}", "{name}"]
"""Names of a file beside the folder: by its path, through a link to its directory, and a link to itself."""


def problem_of(folder: Path, suffix: str, text: str) -> str:
    (folder / f"9.{suffix}").write_text(text)
    found = SchemaDecoder(SchemaFolder(str(folder)), Protoc()).decode(None, wire(9, b"\0"), ())
    assert found.value is None
    assert found.problem is not None
    return found.problem


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_a_file_outside_the_folder_is_as_a_missing_one(folder: Path, pattern: str) -> None:
    (folder / "link").symlink_to("..")
    said = []
    for name, there in (("secret.proto", True), ("absent.proto", False)):
        if there:
            (folder.parent / name).write_text('syntax = "proto3"; message Hidden { int32 password = 1; }')
        (folder / name).symlink_to(Path("..", name))
        path = pattern.format(name=name, absolute=folder.parent / name)
        found = problem_of(folder, "proto", f'syntax = "proto3"; import "{path}"; message M {{ }}')
        said.append(found.replace(name, "NAME"))
    assert said[0] == said[1]
    assert "assword" not in said[0]


def test_a_schema_that_is_a_link_to_another_folder(folder: Path) -> None:
    (folder.parent / "there.json").write_text("{}")
    said = []
    for name in ("there", "absent"):
        (folder / "11.json").unlink(missing_ok=True)
        (folder / "11.json").symlink_to(f"../{name}.json")
        with pytest.raises(SchemaProblem, match=r"11\.json is not in the folder") as caught:
            SchemaFolder(str(folder)).by_id(11)
        said.append(str(caught.value))
    assert said[0] == said[1]
    (folder / "12.json").symlink_to("4.json")  # inside
    assert SchemaFolder(str(folder)).by_id(12).text == "{}"


def test_a_file_that_becomes_a_link_once_it_was_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = SchemaFiles._inside

    def swapped(files: SchemaFiles, path: str) -> str:
        found = inside(files, path)
        if path.endswith("4.json"):
            Path(path).unlink()
            Path(path).symlink_to("../there.json")
        return found

    monkeypatch.setattr(SchemaFiles, "_inside", swapped)
    (folder.parent / "there.json").write_text("{}")
    with pytest.raises(SchemaProblem, match=r"4\.json: too many levels of symbolic links"):
        SchemaFolder(str(folder)).by_id(4)


@pytest.mark.parametrize("part", ["_schemas-0", f"_schemas-0/{0:020}.log"])
@pytest.mark.parametrize("there", [True, False])
def test_a_topic_that_lies_outside(tmp_path: Path, part: str, there: bool) -> None:
    """What is said is the same where the target of the link is missing."""
    disk, elsewhere = tmp_path / "disk", tmp_path / "elsewhere"
    write_log(disk / "_schemas-0", REGISTRY)
    (disk / part).rename(elsewhere)
    (disk / part).symlink_to(elsewhere if there else tmp_path / "absent")
    said = f"{part} is not in the folder {disk}: nothing outside it is opened"
    with pytest.raises(SourceError) as caught:
        schemas_at(str(disk))
    assert str(caught.value) == said
    with pytest.raises(SourceError) as caught:
        SchemaDecoders("auto").of(str(disk / "t-0" / "0.log"), None)
    assert str(caught.value) == said
    (disk / part).unlink()
    elsewhere.rename(disk / "here")
    (disk / part).symlink_to(disk / "here")  # inside
    assert schemas_at(str(disk)).by_id(1).schema_type == "AVRO"


@pytest.mark.parametrize("name", ["missing.proto", "\0", "/etc/passwd"])
def test_an_import_of_something_else(folder: Path, name: str) -> None:
    problem_of(folder, "proto", f'syntax = "proto3"; import "{name}"; message M {{ }}')


TRACED = """
import os, sys
from kdump.errors import SourceError
from kdump.format.value_schemas.value_decoder import SchemaDecoder
from kdump.storage.value_schemas.folder import SchemaFolder
from kdump.storage.value_schemas.protoc import Protoc
for number in range(20, int(sys.argv[2])):
    decoder = SchemaDecoder(SchemaFolder(sys.argv[1]), Protoc())
    print(decoder.decode(None, b"\\0" + number.to_bytes(4, "big") + b"\\0\\0", ()).problem)
from kdump.storage.value_schemas.chosen_schemas import schemas_at
try:
    schemas_at(os.path.join(sys.argv[1], "disk"))
except SourceError as error:
    print(error)
"""


def test_nothing_outside_the_folder_is_opened(folder: Path, tmp_path: Path) -> None:
    """As the system sees it, the compiler included."""
    strace = shutil.which("strace")
    log, secret = tmp_path / "calls", folder.parent / "secret.proto"
    if strace is None or subprocess.run([strace, "-o", str(log), "true"], check=False).returncode:
        pytest.skip("needs strace")
    secret.write_text('syntax = "proto3"; message Hidden { int32 password = 1; }')
    (folder / "link").symlink_to("..")
    (folder / "secret.proto").symlink_to("../secret.proto")
    for number, pattern in enumerate(OUTSIDE, 20):
        path = pattern.format(name="secret.proto", absolute=secret)
        (folder / f"{number}.proto").write_text(f'syntax = "proto3"; import "{path}"; message M {{ }}')
    (folder / "disk").mkdir()
    (folder / "disk" / "_schemas-0").symlink_to(write_log(folder.parent / "secret.proto-0", REGISTRY))
    calls = [strace, "-f", "-y", "-s", "4096", "-e", "trace=open,openat,openat2,creat,link,linkat", "-o", str(log)]
    program = [sys.executable, "-P", "-c", TRACED, str(folder), str(20 + len(OUTSIDE))]
    done = subprocess.run([*calls, *program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(done.stdout.splitlines()) == len(OUTSIDE) + 1
    opened = [line for line in log.read_text(errors="replace").splitlines() if "secret.proto" in line]
    assert [line for line in opened if " ENOENT " not in line] == []
    assert not [line for line in opened if str(folder.parent / "secret.proto") in line]


@pytest.mark.parametrize(("files", "said"), [
    ({"1.avsc": '"int"', "1.proto": ""}, "has 1.avsc and 1.proto; keep one of them"),
    (
        {
            "1.avsc": '"shop.A"',
            "shop.A.avsc": '{"type": "record", "name": "shop.A", "fields": [{"name": "b", "type": "shop.B"}]}',
            "shop.B.avsc": '{"type": "record", "name": "shop.B", "fields": [{"name": "a", "type": "shop.A"}]}',
        },
        "the type shop.A is used before it is defined: types that refer to each other need one file",
    ),
    ({"1.avsc": '"shop.C"'}, "the type shop.C is neither defined nor in a file of its own"),
    ({"1.json": "{}"}, r"not JSON: \ud834 is one half of a character in UTF-16, without the other"),
])  # fmt: skip
def test_the_notes_about_schemas(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    decoder = SchemaDecoder(SchemaFolder(str(tmp_path)), Protoc())
    found = decoder.decode(None, wire(1, b'{"a": "\\ud834"}'), ())
    assert found.value is None
    assert found.problem is not None
    assert said in found.problem


@pytest.mark.parametrize("number", [-1, 2, 1 << 40])
def test_a_number_that_no_symbol_has(tmp_path: Path, number: int) -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    record = {"type": "record", "name": "R", "fields": [{"name": "e", "type": enum}, {"name": "f", "type": "E"}]}
    for at in (0, 1):
        (tmp_path / "1.avsc").write_text(json.dumps(record))
        data = [build.varlong(0), build.varlong(0)]
        data[at] = build.varlong(number)
        found = SchemaDecoder(SchemaFolder(str(tmp_path)), Protoc()).decode(None, wire(1, b"".join(data)), ())
        assert found.value is None
        assert f"the enum has 2 symbols and none with number {number}" in str(found.problem)


def test_imports_are_found_as_the_compiler_finds_them() -> None:
    text = """
    syntax = "proto3"; import "a.proto";import public 'b.proto' ; import weak"c.proto";
    // import "no.proto";
    /* import "no.proto"; */ option x = "import \\"no.proto\\";"; import "google/protobuf/any.proto";
    message important { string import_x = 1; }
    """
    assert list(imports_in(text)) == ["a.proto", "b.proto", "c.proto"]


@given(st.text(st.sampled_from("import\"'/*\n; \\"), max_size=60))
def test_any_text_has_imports_or_none(text: str) -> None:
    list(imports_in(text))


def test_a_long_text_takes_no_long_time() -> None:
    started = time.monotonic()
    for piece in ("/*", '\\"', "\\'", "import ", "import", 'import "', "import'a'", "import public ", "//", '"'):
        list(imports_in(piece * ((1 << 18) // len(piece))))
        list(imports_in("import" + piece[-1] * (1 << 18)))
    assert time.monotonic() - started < 20


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not a folder with schemas: no such file"):
        schemas_at(str(tmp_path / "none"))


def test_a_file_that_is_no_schema(folder: Path) -> None:
    (folder / "5.avsc").write_bytes(b"\xff")
    os.mkfifo(folder / "6.avsc")
    (folder / "7.avsc").write_bytes(b" " * (5 << 20))
    found = SchemaFolder(str(folder))
    for schema_id, problem in ((5, "not valid UTF-8"), (6, "regular file"), (7, "is larger than")):
        with pytest.raises(SchemaProblem, match=problem):
            found.by_id(schema_id)


# ---- a registry's topic


def topic(*pairs: Pair) -> TopicSchemas:
    return TopicSchemas("_schemas-0", pairs)


def test_a_registry() -> None:
    found = topic(*REGISTRY)
    assert found.by_id(1) == ValueSchema("AVRO", json.dumps(ORDER))
    assert found.by_guid(ORDER_GUID) == found.by_id(1)
    assert found.by_id(3) == line_schema()
    assert found.by_id(4).schema_type == "JSON"  # deleted, but not for good
    with pytest.raises(SchemaProblem, match="schema 5 was deleted for good from _schemas-0: version 1 of gone"):
        found.by_id(5)
    with pytest.raises(SchemaProblem, match=r"schema 6 is not known: it is not in _schemas-0$"):
        found.by_id(6)


def test_the_last_value_counts() -> None:
    found = topic(
        registered("a", 1, 1, '"int"'), registered("a", 1, 1, '"long"'), (key_of("a", 2), None), (key_of("a", 1), None),
        registered("a", 1, 1, '"bytes"'),
    )  # fmt: skip
    assert found.by_id(1).text == '"bytes"'


def test_karapace_deletes_for_good_with_an_empty_value() -> None:
    with pytest.raises(SchemaProblem, match="schema 1 was deleted for good"):
        topic(registered("a", 1, 1, '"int"'), (key_of("a", 1), b"")).by_id(1)


def test_an_id_of_the_default_context_comes_first() -> None:
    in_context = registered(":.x:a", 1, 1, '"int"')
    assert topic(in_context, registered("a", 1, 1, '"long"')).by_id(1).text == '"long"'
    assert topic(registered("a", 1, 1, '"long"'), in_context).by_id(1).text == '"long"'
    assert topic(in_context).by_id(1).text == '"int"'


def test_references_stay_in_their_context() -> None:
    refers = [{"name": "n", "subject": "inner", "version": 1}]
    found = topic(
        registered(":.x:inner", 1, 1, '"int"'),
        registered(":.x:a", 1, 2, '"n"', None, refers),
        registered("inner", 1, 3, ""),
    )
    assert found.by_id(2).references == (NamedSchema("n", '"int"'),)


def test_references_in_a_circle_and_in_a_chain() -> None:
    def refers(*names: str) -> list[Any]:
        return [{"name": name, "subject": name, "version": 1} for name in names]

    circle = topic(registered("a", 1, 1, "a", None, refers("b", "a")), registered("b", 1, 2, "b", None, refers("a")))
    assert circle.by_id(1).references == (NamedSchema("b", "b"),)
    chain = [registered(f"s{at}", 1, at, "x", None, refers(f"s{at + 1}")) for at in range(300)]
    with pytest.raises(SchemaProblem, match="refers to more than 256 others"):
        topic(*chain).by_id(0)
    with pytest.raises(SchemaProblem, match="version 1 of s300, which it refers to, is not known"):
        topic(*chain).by_id(290)


JSONISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(("SCHEMA", "AVRO", "a", "")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "keytype",
                    "subject",
                    "version",
                    "id",
                    "schema",
                    "schemaType",
                    "references",
                    "name",
                    "md5",
                    "metadata",
                    "tags",
                )
            ),
            inner,
            max_size=9,
        )
    ),
    max_leaves=12,
)
FIELDS = st.binary(max_size=9) | JSONISH.map(lambda value: json.dumps(value).encode()) | st.none()


@given(st.lists(st.tuples(FIELDS | st.just(key_of("a", 1)), FIELDS), max_size=6))
def test_any_records_are_a_registry(pairs: list[Pair]) -> None:
    found = topic(*pairs)
    for schema_id in (0, 1, -1):
        try:
            found.by_id(schema_id)
        except SchemaProblem:
            continue


def test_the_topic_is_read_as_far_as_it_is_valid(tmp_path: Path) -> None:
    directory = write_log(tmp_path / "_schemas-0", REGISTRY[:2])
    following = bytearray(log_of([registered("x", 1, 8, '"int"')], base_offset=2))
    following[-1] ^= 1
    (directory / "00000000000000000002.log").write_bytes(following + log_of(REGISTRY[2:], base_offset=3))
    (directory / "00000000000000000099.log.deleted").write_bytes(log_of([registered("y", 1, 9, '"int"')], 99))
    found = read_topic(str(directory))
    assert found.by_id(1).schema_type == "AVRO"
    for gone in (8, 9):
        with pytest.raises(SchemaProblem, match=r"not known: it is not in .*_schemas-0, which has damaged batches"):
            found.by_id(gone)


def test_where_schemas_are(tmp_path: Path, folder: Path) -> None:
    registry = write_log(tmp_path / "disk" / "_schemas-0", REGISTRY)
    assert isinstance(schemas_at(str(folder)), SchemaFolder)
    assert isinstance(schemas_at(str(registry)), TopicSchemas)
    assert isinstance(schemas_at(str(tmp_path / "disk")), TopicSchemas)


def test_auto_says_once_that_a_disk_has_no_schemas(tmp_path: Path) -> None:
    write_log(tmp_path / "one" / "_schemas-0", REGISTRY)
    decoders = SchemaDecoders("auto")
    with pytest.raises(SourceError, match="no _schemas-0 here, so there are no schemas"):
        decoders.of(str(tmp_path / "two" / "t-0" / "0.log"), None)
    unknown = decoders.of(str(tmp_path / "two" / "u-0" / "0.log"), None)
    assert unknown is not None
    assert "not known" in str(unknown.decode(None, wire(1, ORDER_BYTES), ()).problem)
    known = decoders.of(str(tmp_path / "one" / "t-0" / "0.log"), None)
    assert known is not None
    value = known.decode(None, wire(1, ORDER_BYTES), ()).value
    assert value is not None
    assert value.data == ORDER_DATA


def test_schemas_that_are_registered_later(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a log is followed. At most once a second, and only where files have changed, are they read again."""
    directory = write_log(tmp_path / "_schemas-0", REGISTRY)
    read: list[str] = []

    def counted(path: str) -> Any:
        read.append(path)
        return schemas_at(path)

    for path, change in (
        (
            directory,
            lambda: (directory / "00000000000000000099.log").write_bytes(log_of([registered("x", 1, 9, '"int"')], 99)),
        ),
        (folder, lambda: (folder / "9.avsc").write_text('"int"')),
    ):
        now = [100.0]
        monkeypatch.setattr(chosen_schemas.time, "monotonic", lambda now=now: now[0])
        decoder = SchemaDecoder(CurrentSchemas(str(path), counted), Protoc())
        read.clear()
        for _ in range(3):
            assert decoder.decode(None, wire(9, b"\x02"), ()).problem is not None
        now[0] += 2
        assert decoder.decode(None, wire(9, b"\x02"), ()).problem is not None
        assert not read
        change()
        assert decoder.decode(None, wire(9, b"\x02"), ()).problem is not None
        now[0] += 2
        value = decoder.decode(None, wire(9, b"\x02"), ()).value
        assert value is not None
        assert value.data == 1
        assert read == [str(path)]


# ---- the compiler


def test_a_schema_with_imports_is_compiled() -> None:
    decoder = SchemaDecoder(topic(*REGISTRY), Protoc())
    value = decoder.decode(None, wire(3, LINE_PATH + LINE_BYTES), ()).value
    assert value is not None
    assert (value.origin["name"], value.data) == ("shop.Line", LINE_DATA)


def test_a_schema_imports_what_a_registry_has_itself() -> None:
    text = """syntax = "proto3"; import "confluent/meta.proto"; import "confluent/type/decimal.proto";
    option (confluent.file_meta).doc = "d";
    message Price { option (confluent.message_meta).tags = "t";
      confluent.type.Decimal price = 1 [(confluent.field_meta) = {params: [{key: "precision", value: "9"}]}];
      enum Kind { option (confluent.enum_meta).doc = "k"; NONE = 0 [(confluent.enum_value_meta).doc = "n"]; } }"""
    decoder = SchemaDecoder(Schemas({1: ValueSchema("PROTOBUF", text)}), Protoc())
    value = decoder.decode(None, wire(1, b"\0\x0a\x04\x0a\x02\x04\xce"), ()).value
    assert value is not None
    assert value.data == {"price": {"value": b"\x04\xce"}}


def test_a_schema_imports_common_types(monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'syntax = "proto3"; import "google/type/date.proto"; message Day { google.type.Date date = 1; }'
    schema = ValueSchema("PROTOBUF", text)
    value = SchemaDecoder(Schemas({1: schema}), Protoc()).decode(None, wire(1, b"\0\x0a\x02\x08\x07"), ()).value
    assert value is not None
    assert value.data == {"date": {"year": 7}}
    monkeypatch.setattr(protoc, "_PROGRAM", protoc._PROGRAM.replace('"google.type"', '"no_such_package"'))
    with pytest.raises(SchemaProblem, match=r"File not found\. It is in the package googleapis-common-protos$"):
        Protoc()(schema)
    own = NamedSchema(
        "google/type/date.proto", 'syntax = "proto3"; package google.type; message Date { bool own = 1; }'
    )
    assert b"own" in Protoc()(schema._replace(references=(own,)))


def test_what_is_no_schema_has_the_message_of_the_compiler() -> None:
    with pytest.raises(SchemaProblem, match=r"protoc: 1:1: Expected top-level statement"):
        Protoc()(ValueSchema("PROTOBUF", "nonsense;"))


def test_compilation_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protoc, "_PROGRAM", "import time; time.sleep(60)")
    monkeypatch.setattr(protoc, "_MOST_FAILURES", 1)
    compiler = Protoc(time_limit_s=0.05)
    with pytest.raises(SchemaProblem, match=r"not compiled within 0\.05 seconds"):
        compiler(ValueSchema("PROTOBUF", ""))
    with pytest.raises(SchemaProblem, match="too many schemas"):
        compiler(ValueSchema("PROTOBUF", ""))


@pytest.mark.parametrize(
    "name",
    ["../x.proto", "/x.proto", "a//x.proto", "a/./x.proto", "x.txt", "a\nb.proto", "-x.proto", "x" * 250 + ".proto"],
)
def test_names_that_leave_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaProblem, match="which cannot be the name of a file in a folder"):
        Protoc()(ValueSchema("PROTOBUF", "", (NamedSchema(name, ""),)))


def test_two_files_of_one_name() -> None:
    twice = (NamedSchema("a.proto", ""), NamedSchema("a.proto", " "))
    with pytest.raises(SchemaProblem, match="two files with the same name"):
        Protoc()(ValueSchema("PROTOBUF", "", twice))
    with pytest.raises(SchemaProblem, match=r"could not be compiled: (not a directory|file exists)"):
        Protoc()(ValueSchema("PROTOBUF", "", (NamedSchema("a.proto", ""), NamedSchema("a.proto/b.proto", ""))))
