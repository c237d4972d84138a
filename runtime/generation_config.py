"""What a checkpoint's `generation_config.json` says about sampling."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dfc.artifacts import Artifact
from dfc.runtime.errors import RunError

FILE = "tokenizer/generation_config.json"


class _Fields(BaseModel):
    """The fields read; a checkpoint has many more."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    do_sample: bool | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None


@dataclass(frozen=True)
class SamplingDefaults:
    """What the publisher advises; None where the file says nothing."""

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


def read_defaults(artifact: Artifact) -> SamplingDefaults:
    """Return the artifact's defaults.

    Raises:
        RunError: the file is not JSON, or a field has no possible value.
    """
    path: Path = artifact.path(FILE)
    if not path.is_file():
        return SamplingDefaults()
    try:
        fields = _Fields.model_validate(json.loads(path.read_bytes()))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{path} has no possible value for {name}: {first['msg']}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read as JSON: {error}") from None
    return SamplingDefaults(**{**fields.model_dump(), "do_sample": bool(fields.do_sample)})
