"""Spark's settings of object stores reach the file systems of the driver and of the workers, and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdump.spark.store_settings import NO_STORES, StoreSettings, path_of
from kdump.spark.tasks import WorkerAnswer, packed_group, run_group
from kdump.storage.object_store import object_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
SECRET = "XsecretX"
SETTINGS = {
    "spark.hadoop.fs.s3a.access.key": "id",
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.hadoop.fs.s3a.session.token": f"token {SECRET}",
    "spark.hadoop.fs.s3a.endpoint": "store:9000",
    "spark.hadoop.fs.s3a.endpoint.region": "eu-1",
    "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    "spark.hadoop.fs.s3a.path.style.access": "true",
    "spark.hadoop.fs.s3a.connection.maximum": "100",
    "spark.executor.memory": "1g",
}
S3 = {
    "key": "id",
    "secret": SECRET,
    "token": f"token {SECRET}",
    "client_kwargs": {"endpoint_url": "http://store:9000", "region_name": "eu-1"},
    "config_kwargs": {"s3": {"addressing_style": "path"}},
}


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    yield
    NO_STORES.use()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """The URLs for which a file system is asked, with its arguments."""
    found: list[tuple[str, dict[str, Any]]] = []

    def url_to_fs(path: str, **arguments: Any) -> Any:
        found.append((path, arguments))
        raise OSError("no network here")

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    return found


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        (SETTINGS, {"s3": S3, "s3a": S3}),
        ({"spark.executor.memory": "1g"}, {}),
        (
            {"fs.s3a.endpoint": "https://e"},
            {key: {"client_kwargs": {"endpoint_url": "https://e"}} for key in ("s3", "s3a")},
        ),
        (
            {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {key: {"anon": True} for key in ("s3", "s3a")},
        ),
        ({"fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider"}, {}),
        (
            {"spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net": SECRET},
            {key: {"account_name": "acc", "account_key": SECRET} for key in ("abfs", "abfss", "az")},
        ),
        (
            {
                "spark.hadoop.fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
                "spark.hadoop.fs.gs.auth.service.account.json.keyfile": "/etc/key.json",
                "spark.hadoop.fs.gs.project.id": "p",
            },
            {key: {"token": "/etc/key.json", "project": "p"} for key in ("gs", "gcs")},
        ),
        ({"fs.gs.auth.type": "UNAUTHENTICATED"}, {key: {"token": "anon"} for key in ("gs", "gcs")}),
        ({"fs.gs.auth.type": "COMPUTE_ENGINE"}, {key: {"token": "cloud"} for key in ("gs", "gcs")}),
        ({"spark.hadoop.fs.defaultFS": "hdfs://head:9000/"}, {"hdfs": {"host": "head", "port": 9000}}),
        ({"spark.hadoop.fs.defaultFS": "hdfs://head"}, {"hdfs": {"host": "head", "port": 8020}}),
        ({"spark.hadoop.fs.defaultFS": "file:///"}, {}),
    ],
)
def test_settings_are_arguments(settings: dict[str, str], arguments: dict[str, Any]) -> None:
    assert StoreSettings(settings.items()).arguments == arguments


@pytest.mark.parametrize(
    ("settings", "url", "words"),
    [
        (
            {"spark.hadoop.fs.s3a.aws.credentials.provider": f"com.example.{SECRET}"},
            "s3a://b/x",
            "credentials.provider",
        ),
        ({"fs.gs.auth.type": "ACCESS_TOKEN_PROVIDER"}, "gs://b/x", "spark.hadoop.fs.gs.auth.type"),
        ({"fs.gs.auth.type": SECRET}, "gs://b/x", "spark.hadoop.fs.gs.auth.type"),
        ({"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, "gs://b/x", "service.account.json.keyfile"),
    ],
)
def test_credentials_that_cannot_be_had_are_a_sentence(
    opened: list[tuple[str, dict[str, Any]]], settings: dict[str, str], url: str, words: str
) -> None:
    """Which names the setting, and has no value; other stores are opened."""
    StoreSettings(settings.items()).use()
    assert words in (said := _status(url))
    assert SECRET not in said
    assert "\n" not in said
    assert not opened
    _status("hdfs://host/x")
    assert opened.pop()[0] == "hdfs://host/x"


def test_a_provider_among_others_is_taken() -> None:
    providers = "com.example.Own,org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    assert not StoreSettings({"fs.s3a.aws.credentials.provider": providers}.items()).refusals


def test_the_default_file_system_is_for_urls_without_a_host(opened: list[tuple[str, dict[str, Any]]]) -> None:
    StoreSettings({"spark.hadoop.fs.defaultFS": "hdfs://head:9000"}.items()).use()
    for url, host in (("hdfs:///logs", {"host": "head", "port": 9000}), ("hdfs://other/logs", {})):
        _status(url)
        assert opened.pop() == (url, host)


@pytest.mark.parametrize("given", ["file:///a b/%20", "file:/a b/%20", "/a b/%20"])
def test_a_url_of_a_file_is_its_path(given: str) -> None:
    pytest.importorskip("pyspark")
    from kdump.spark.source_options import parse_batch_options

    assert parse_batch_options({"path": given}).paths == ("/a b/%20",)
    assert path_of("s3://b/x") == "s3://b/x"


def test_a_worker_opens_stores_with_them(opened: list[tuple[str, dict[str, Any]]]) -> None:
    """Of one group alone: the next one has its own. No message has a secret."""
    stores = StoreSettings(SETTINGS.items())
    assert SECRET not in repr(stores)
    assert SECRET not in str(stores)
    for given, expected in ((stores, S3), (NO_STORES, {})):
        answer = WorkerAnswer(run_group(packed_group(_status, ["s3a://bucket/a"], names_host=False, stores=given)))
        assert SECRET not in str(answer.results())
        path, arguments = opened.pop()
        assert path == "s3a://bucket/a"
        assert arguments == {"use_listings_cache": False, **expected}


def _status(path: str) -> str:
    try:
        object_store().status(path)
    except OSError as error:
        return str(error)
    return ""


def test_the_data_source_takes_them_as_options(opened: list[tuple[str, dict[str, Any]]]) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("pandas")
    from kdump.errors import KdumpError
    from kdump.spark import KdumpSource

    options = {name.removeprefix("spark.hadoop."): value for name, value in SETTINGS.items() if "s3a" in name}
    source = KdumpSource({"path": "s3a://bucket/logs", **options})
    reader = pickle.loads(pickle.dumps(source.reader(source.schema())))
    with pytest.raises(KdumpError) as refused:
        reader.partitions()
    assert SECRET not in str(refused.value)
    assert opened[0][1] == {"use_listings_cache": False, **S3}
    assert SECRET not in repr(reader._options)


def test_no_plan_shows_them(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    from kdump.spark import KdumpSource

    spark.dataSource.register(KdumpSource)
    frame = spark.read.format("kdump").option("fs.s3a.secret.key", SECRET).load(str(FIXTURES / "headers"))
    frame.explain("formatted")
    frame.explain(extended=True)
    shown = capsys.readouterr().out + frame._jdf.queryExecution().toString()
    assert "kdump" in shown
    assert SECRET not in shown
