"""Settings of a site, which only its owner decides."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError

from flexfl.errors import Fault, InputError
from flexfl.parameters import Whole

SITE_FILE = "site.toml"


class SiteSettings(BaseModel):
    """The content of `site.toml` in the folder of a site.

    Attributes:
        data: An .npz file with train_x and train_y; by default this client's part of the spec's dataset.
        threads: Number of cores to use; by default torch's choice.
        paths: Whether a run may use files of this site as its data and for its costs.
        modules: Packages whose functions a run may call ("module:function").
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str | None = None
    threads: Annotated[int | None, Whole(1, "leave it out to use all cores", optional=True)] = None
    paths: bool = False
    modules: list[str] = []

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
        """Read the settings in `folder`; return the defaults if there is no file.

        Raises:
            InputError: The file is not valid.
        """
        path = folder / SITE_FILE
        try:
            return cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, ValidationError) as error:
            what = str(error).splitlines()[0]
            raise InputError(
                [Fault(str(path), "must be TOML with data, threads, paths and modules", what)]
            ) from error
