"""Spark's settings of object stores as arguments of the file systems that kdump reads with.

    ===========================================  =====================================================
    setting, after spark.hadoop.                 argument of s3fs, of adlfs for Azure
    ===========================================  =====================================================
    fs.s3a.access.key, .secret.key               key, secret
    fs.s3a.session.token                         token
    fs.s3a.endpoint, .endpoint.region            client_kwargs: endpoint_url, region_name
    fs.s3a.connection.ssl.enabled                http or https, of an endpoint that does not say it
    fs.s3a.path.style.access                     config_kwargs: s3: addressing_style
    fs.s3a.aws.credentials.provider              anon, for Anonymous…; others are those of boto's own chain
    fs.azure.account.key.NAME.dfs.core.…         account_name, account_key
    ===========================================  =====================================================

Values are secrets: they go to the workers inside of what is pickled, and into no message.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from kdump.storage.object_store import object_store

_HADOOP: Final = "spark.hadoop."
_S3: Final = "fs.s3a."
_AZURE_KEY: Final = "fs.azure.account.key."
_OF_STORES: Final = ("fs.s3a.", "fs.azure.", "fs.gs.")
_S3_NAMES: Final = {"access.key": "key", "secret.key": "secret", "session.token": "token"}
_ANONYMOUS: Final = "AnonymousAWSCredentialsProvider"
_AZURE: Final = ("abfs", "abfss", "az")

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
        object_store().configure(self.arguments)

    @property
    def options(self) -> Mapping[str, str]:
        """Options of the data source with these settings."""
        return self._values

    @property
    def arguments(self) -> Arguments:
        """The arguments of the file systems, by the protocols of URLs."""
        found = _without_none({"s3a": self._s3(), "s3": self._s3()})
        for name, key in self._values.items():
            if name.startswith(_AZURE_KEY):
                account = name.removeprefix(_AZURE_KEY).partition(".")[0]
                found |= {protocol: {"account_name": account, "account_key": key} for protocol in _AZURE}
        return found

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
