"""What the owner of a site decides, and nobody else."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, ValidationError

from flexfl.errors import Fault, InputError
from flexfl.spec import checks

SITE_FILE = "site.toml"


class SiteSettings(BaseModel):
    """`site.toml` in the folder of a site.

    data     an .npz file with train_x and train_y; without it, this client's part of the spec's dataset
    threads  cores that it may use; by default as many as torch takes
    paths    whether a run may name a file of this site as its data; by default not
    modules  packages whose functions a run may name ("module:function"); by default none
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    data: str | None = None
    threads: Annotated[int | None, checks.whole(1, "leave it out to use all cores")] = None
    paths: bool = False
    modules: list[str] = []

    @classmethod
    def read(cls, folder: Path) -> SiteSettings:
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
