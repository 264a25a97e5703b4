"""A value that somebody gave to a setting, and where."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.config.declarations import Setting
from headrace.surfaces.notifications.yaml_nodes import ConfigurationError


class Given(NamedTuple):
    """A value as it was written."""

    setting: Setting
    text: str
    origin: str
    """The name of a variable, a line of a file, or where else it comes from."""
    label: str
    """How a problem with it begins; never with the value of a secret."""

    def parse(self) -> Any:
        """The value; raises ValueError with the whole problem."""
        try:
            return self.setting.type.parse(self.text)
        except ConfigurationError as error:  # says itself where it is in a file
            whole = str(error) if error.line is not None else f"{self.label} {error.problem}"
            raise ValueError(whole) from None
        except ValueError as accepted:
            if self.setting.secret:
                raise ValueError(f"{self.label}: {accepted}") from None
            raise ValueError(f"{self.label} is not accepted: expected {accepted}") from None
