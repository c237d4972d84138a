"""What every part of the manifest has in common."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Cannot be changed, has no fields that are not declared, and holds finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
