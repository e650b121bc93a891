"""What a name in a configuration may look like, and the base of every model that reads one."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A name that may stand in a metric label, a log line and a URL query."""


class Strict(BaseModel):
    """A part of a configuration: a key that is not known is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
