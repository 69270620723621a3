"""The session that all tests of Spark here share."""

from support.spark_session import spark

__all__ = ["spark"]
