"""Click's types of options with their parameters, which they have at run time only from Click 8.4 on."""

from typing import TYPE_CHECKING

import click

__all__ = ["Choice", "ParamType"]

if TYPE_CHECKING:
    from click import Choice, ParamType
else:

    class ParamType(click.ParamType):
        """click.ParamType."""

        def __class_getitem__(cls, _: object) -> type:
            return cls

    class Choice(click.Choice):
        """click.Choice."""

        def __class_getitem__(cls, _: object) -> type:
            return cls
