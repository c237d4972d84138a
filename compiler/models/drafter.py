"""What the build needs to know of a drafter; each drafter's file makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dfc.artifacts import ComponentName, Parameter
from dfc.compiler.checkpoint import TargetSpec, TensorLocation
from dfc.compiler.checkpoint.fields import Fields
from dfc.compiler.export.stage import StageGraph


@dataclass(frozen=True)
class StageSizes:
    """What a drafter's stages must know of the artifact.

    Cache rows of a sequence, the layers whose outputs the features hold, and how many candidates a slot of a sampled
    proposal has, the same for all drafters.
    """

    capacity: int
    feature_layers: tuple[int, ...]
    candidates: int


@dataclass(frozen=True)
class DrafterBuild:
    """A drafter that fits the target.

    ``draft_tokens`` is the most a round drafts; ``reads_hidden`` and ``feature_layers`` say what the target's verified
    rows must carry for it; ``weights_folder`` is where its own tensors go (none for a head in the target's checkpoint);
    ``stages`` authors its graphs; ``candidates`` is how many tokens a slot's draft is drawn from; ``positions`` is how
    many it has, None when its config does not say.
    """

    component: ComponentName
    source: Path
    draft_tokens: int
    stages: Callable[[StageSizes], Iterator[StageGraph]]
    candidates: int
    reads_hidden: bool = False
    feature_layers: tuple[int, ...] = ()
    weights_folder: str = ""
    tensors: Mapping[str, TensorLocation] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    positions: int | None = None


@dataclass(frozen=True)
class DrafterLoader:
    """What a drafter's file says of checkpoints of its kind.

    ``architecture`` is the kind's name in messages; ``recognises`` tells it by a config; ``load`` reads one for a
    target, given the most draft tokens the user wants (None: the drafter's own).
    """

    architecture: str
    recognises: Callable[[Fields], bool]
    load: Callable[[Path, TargetSpec, int | None], DrafterBuild]
