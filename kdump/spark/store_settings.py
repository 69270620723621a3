"""Spark's settings of object stores as arguments of the file systems that kdump reads with.

    ===========================================  =====================================================
    setting, after spark.hadoop.                 argument of s3fs, adlfs, gcsfs, or of Arrow for HDFS
    ===========================================  =====================================================
    fs.s3a.access.key, .secret.key               key, secret
    fs.s3a.session.token                         token
    fs.s3a.endpoint, .endpoint.region            client_kwargs: endpoint_url, region_name
    fs.s3a.connection.ssl.enabled                http or https, of an endpoint that does not say it
    fs.s3a.path.style.access                     config_kwargs: s3: addressing_style
    fs.s3a.aws.credentials.provider              anon, for Anonymous…; others are those of boto's own chain
    fs.azure.account.key.NAME.dfs.core.…         account_name, account_key
    fs.gs.auth.type                              token: anon, cloud or google_default
    fs.gs.auth.service.account.json.keyfile      token
    fs.gs.project.id, fs.gs.storage.root.url     project, endpoint_url
    fs.defaultFS, for hdfs:///PATH               host, port
    ===========================================  =====================================================

Credentials of another kind are refused where a URL is opened that would need them, and nothing else.
Values are secrets: they go to the workers inside of what is pickled, and into no message.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from kdump.storage.object_store import object_store

_HADOOP: Final = "spark.hadoop."
_S3: Final = "fs.s3a."
_AZURE_KEY: Final = "fs.azure.account.key."
_GOOGLE: Final = "fs.gs."
_DEFAULT: Final = "fs.defaultfs"
_OF_STORES: Final = ("fs.s3a.", "fs.azure.", "fs.gs.", _DEFAULT)
_S3_NAMES: Final = {"access.key": "key", "secret.key": "secret", "session.token": "token"}
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_PROVIDER: Final = f"{_S3}aws.credentials.provider"
_OF_BOTO: Final = (
    "SimpleAWSCredentialsProvider",
    "TemporaryAWSCredentialsProvider",
    "BasicAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
    "SystemPropertiesCredentialsProvider",
    "ProfileCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "ContainerCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    _ANONYMOUS,
)
"""The ends of the names of credential providers that boto has as well, or that take the keys of the settings."""
_GOOGLE_TYPE: Final = f"{_GOOGLE}auth.type"
_KEY_FILE: Final = f"{_GOOGLE}auth.service.account.json.keyfile"
_GOOGLE_TOKENS: Final = {
    "APPLICATION_DEFAULT": "google_default",
    "COMPUTE_ENGINE": "cloud",
    "UNAUTHENTICATED": "anon",
}
_AZURE: Final = ("abfs", "abfss", "az")
_HDFS_PORT: Final = 8020

Arguments = dict[str, dict[str, Any]]
_Value = TypeVar("_Value")


def is_store_setting(name: str) -> bool:
    """Whether this is the name of a setting of an object store, with or without spark.hadoop before it."""
    return name.lower().removeprefix(_HADOOP).startswith(_OF_STORES)


class StoreSettings:
    """The settings of object stores, by names without spark.hadoop. Neither str nor repr shows a value."""

    def __init__(self, settings: Iterable[tuple[str, str]] = ()) -> None:
        """Others among the settings are left out."""
        self._values = {name.lower().removeprefix(_HADOOP): value for name, value in settings if is_store_setting(name)}

    def __repr__(self) -> str:
        return f"StoreSettings({', '.join(sorted(self._values))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StoreSettings) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._values)))

    def use(self) -> None:
        """Open the object stores of this process with these from now on."""
        object_store().configure(self.arguments, self.refusals)

    @property
    def options(self) -> Mapping[str, str]:
        """Options of the data source with these settings."""
        return self._values

    @property
    def arguments(self) -> Arguments:
        """The arguments of the file systems, by the protocols of URLs."""
        google = self._google()
        stores = {"s3a": self._s3(), "s3": self._s3(), "gs": google, "gcs": google, "hdfs": self._hdfs()}
        found = _without_none(stores)
        for name, key in self._values.items():
            if name.startswith(_AZURE_KEY):
                account = name.removeprefix(_AZURE_KEY).partition(".")[0]
                found |= {protocol: {"account_name": account, "account_key": key} for protocol in _AZURE}
        return found

    @property
    def refusals(self) -> dict[str, str]:
        """Why the URLs of a protocol cannot be opened with these settings. No reason has a value."""
        found = dict[str, str]()
        providers = [each.strip() for each in self._values.get(_PROVIDER, "").split(",") if each.strip()]
        if providers and not any(each.endswith(_OF_BOTO) for each in providers):
            why = _refusal(_PROVIDER, "keys as settings, the anonymous provider, or one that boto has as well")
            found |= {"s3": why, "s3a": why}
        if (kind := self._google_type) and kind not in (*_GOOGLE_TOKENS, "SERVICE_ACCOUNT_JSON_KEYFILE"):
            why = _refusal(_GOOGLE_TYPE, f"{', '.join(_GOOGLE_TOKENS)} and SERVICE_ACCOUNT_JSON_KEYFILE")
            found |= {"gs": why, "gcs": why}
        elif kind == "SERVICE_ACCOUNT_JSON_KEYFILE" and not self._values.get(_KEY_FILE):
            why = f"{_HADOOP}{_GOOGLE_TYPE} needs {_HADOOP}{_KEY_FILE}"
            found |= {"gs": why, "gcs": why}
        return found

    @property
    def _google_type(self) -> str:
        return self._values.get(_GOOGLE_TYPE, "").strip().upper()

    def _google(self) -> dict[str, Any] | None:
        token = _GOOGLE_TOKENS.get(self._google_type)
        if token is None:
            token = self._values.get(_KEY_FILE) or None
        project, endpoint = (
            self._values.get(f"{_GOOGLE}{name}") or None for name in ("project.id", "storage.root.url")
        )
        return _without_none({"token": token, "project": project, "endpoint_url": endpoint}) or None

    def _hdfs(self) -> dict[str, Any] | None:
        """Where hdfs:///PATH is; a URL with a host has its own."""
        address = self._values.get(_DEFAULT, "")
        if not address.startswith("hdfs://"):
            return None
        host, _, port = address.removeprefix("hdfs://").partition("/")[0].partition(":")
        return {"host": host, "port": int(port) if port.isdecimal() else _HDFS_PORT} if host else None

    def _s3(self) -> dict[str, Any] | None:
        given = {name.removeprefix(_S3): value for name, value in self._values.items() if name.startswith(_S3)}
        found: dict[str, Any] = {argument: given[name] for name, argument in _S3_NAMES.items() if given.get(name)}
        endpoint = given.get("endpoint") or None
        if endpoint is not None and "://" not in endpoint:
            scheme = "http" if given.get("connection.ssl.enabled", "").lower() == "false" else "https"
            endpoint = f"{scheme}://{endpoint}"
        client = _without_none({"endpoint_url": endpoint, "region_name": given.get("endpoint.region") or None})
        if client:
            found["client_kwargs"] = client
        if given.get("path.style.access", "").lower() == "true":
            found["config_kwargs"] = {"s3": {"addressing_style": "path"}}
        if given.get("aws.credentials.provider", "").strip().endswith(_ANONYMOUS):
            found["anon"] = True
        return found or None


NO_STORES: Final = StoreSettings()


def _without_none(values: Mapping[str, _Value | None]) -> dict[str, _Value]:
    return {name: value for name, value in values.items() if value is not None}


def _refusal(name: str, taken: str) -> str:
    return f"kdump cannot use what {_HADOOP}{name} names; it takes {taken}"


def path_of(url: str) -> str:
    """The local path that a URL file:///PATH means to Spark, which decodes nothing; another one as it is."""
    for prefix in ("file://", "file:"):
        if url.startswith(f"{prefix}/"):
            return url.removeprefix(prefix)
    return url
