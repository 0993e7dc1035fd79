"""What every section of the configuration has in common, and how secrets come into it.

In: what a file or the environment says. Out: frozen sections. Keeps true: no value that may be a password is in an
error or a repr; a secret's file is read anew each time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from cdc.errors import ConfigError

_GIVEN: Final = "its password; a file or the environment is the better place"
_GIVEN_BY_FILE: Final = "a file that holds the password; read at each login, and it goes before `password`"


class Section(BaseModel):
    """Frozen, and unknown keys are refused."""

    # No value in any error: it may be a password.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Protected(Section):
    """What is reached with a password; a file or the environment is a better place for it than the YAML."""

    password: SecretStr | None = Field(default=None, description=_GIVEN)
    password_file: Path | None = Field(default=None, description=_GIVEN_BY_FILE)

    def secret(self) -> str | None:
        """The password, read anew each time so that a rotated file is seen."""
        if self.password_file is None:
            return self.password.get_secret_value() if self.password else None
        return read_secret(self.password_file)


def read_secret(path: Path) -> str:
    """What the file holds."""
    try:
        return path.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the password file {path}: {getattr(error, 'strerror', 'not text')}",
            "make it readable for this user, or name another one in the configuration",
            code="PASSWORD_FILE",
        ) from error
