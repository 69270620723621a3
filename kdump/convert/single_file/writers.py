"""The writer of an output that is one file, by what the run is asked for."""

from kdump.convert.field_formats import FieldFormats
from kdump.convert.options import ConvertOptions, Target
from kdump.convert.single_file.table_writer import ByteSink, TableWriter


def table_writer(
    file: ByteSink, formats: FieldFormats, options: ConvertOptions, *, is_stream: bool = False, is_part: bool = False
) -> TableWriter:
    """What writes record batches of `formats.schema` to a file.

    `is_stream`: Arrow's IPC stream in place of the IPC file. `is_part`: the file becomes a part of another one, and has
    rows alone.
    """
    schema, json_columns = formats.schema, formats.json_columns
    match options.target:
        case Target.NDJSON:
            from kdump.convert.single_file.ndjson import NdjsonWriter

            return NdjsonWriter(file, schema, json_columns)
        case Target.CSV:
            from kdump.convert.single_file.csv import CsvWriter

            return CsvWriter(file, schema, json_columns, has_names=not is_part)
        case _:
            from kdump.convert.single_file.arrow_file import ArrowFileWriter, ArrowStreamWriter

            return (ArrowStreamWriter if is_stream else ArrowFileWriter)(file, schema, options.codec)
