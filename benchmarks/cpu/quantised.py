"""What rounding a model's weights costs: perplexity, top-1 agreement, acceptance, bytes.

    python -m benchmarks.cpu.quantised [--target DIR] [--draft DIR] [--only NAME ..]

The texts are dfc's own source files, which no training data held. The plain artifact is the reference, and every
setting is checked to decode the same tokens with its drafters as without.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from dfc.artifacts import Artifact, open_artifact
from dfc.compiler.build import BuildRequest, build_artifact
from dfc.compiler.quantising import Quantisation
from dfc.compiler.reference import with_logits
from dfc.plugins.user_cache import cache_directory
from dfc.runtime.comparison import Check, artifact_logits, compare_drafter, compare_logits, greedy_tokens
from dfc.runtime.drafters import KINDS
from dfc.runtime.plan import RunContext, SpeculationRequest, resolve
from dfc.runtime.text import load_codec

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "examples" / "reference"

SETTINGS: Mapping[str, Quantisation | None] = {
    "plain": None,
    "int8, groups of 128": Quantisation("int8", group_size=128),
    "int8, groups of 32": Quantisation("int8"),
    "int4, groups of 16": Quantisation("int4", group_size=16),
    "int4, groups of 32": Quantisation("int4"),
    "int4, groups of 64": Quantisation("int4", group_size=64),
    "int4, groups of 128": Quantisation("int4", group_size=128),
    "int4, head int8": Quantisation("int4", head="int8"),
    "int4, head int4": Quantisation("int4", head="int4"),
    "int4, embedding int4": Quantisation("int4", embedding="int4"),
    "int4, MTP int4": Quantisation("int4", drafters="int4"),
    "int8, all int8": Quantisation("int8", head="int8", embedding="int8", drafters="int8"),
}

TEXTS, TEXT_TOKENS = 8, 256
PROMPTS, PROMPT_TOKENS, ANSWER_TOKENS = 8, 48, 48


@click.command()
@click.option("--target", type=click.Path(path_type=Path), default=REFERENCE / "target")
@click.option("--draft", type=click.Path(path_type=Path), default=REFERENCE / "dflash2")
@click.option("--only", "names", type=click.Choice(list(SETTINGS)), multiple=True)
def main(target: Path, draft: Path, names: tuple[str, ...]) -> None:
    """Print one Markdown row a setting."""
    with tempfile.TemporaryDirectory() as directory:
        plain = _build(Path(directory, "reference"), target, draft, None)
        reference, texts = artifact_logits(plain, with_logits), _texts(plain)
        for name in names or SETTINGS:
            artifact = _build(Path(directory, "artifact"), target, draft, SETTINGS[name])
            checks = list(compare_logits(artifact_logits(artifact, with_logits), reference, texts, None))
            prompts = [text[:PROMPT_TOKENS] for text in texts[:PROMPTS]]
            answers = greedy_tokens(artifact, prompts, ANSWER_TOKENS)
            for kind in KINDS:
                if kind in {str(component) for component in artifact.manifest.components}:
                    plan = resolve(SpeculationRequest(kind), artifact.manifest, RunContext("onnxruntime"))
                    checks.extend(compare_drafter(artifact, plan, prompts, answers))
            size = sum(path.stat().st_size for path in artifact.path("weights/target").iterdir())
            click.echo(f"| {name} | {size / 1e6:.1f} | {' | '.join(_measured(checks))} |")


def _measured(checks: list[Check]) -> list[str]:
    failed = [check.name for check in checks if check.passed is False]
    assert not failed, failed
    return [check.value for check in checks if check.passed is None]


def _build(output: Path, target: Path, draft: Path, quantisation: Quantisation | None) -> Artifact:
    cache = cache_directory("stages")
    build_artifact(BuildRequest(target, (draft,), output, cache=cache, force=True, quantisation=quantisation))
    return open_artifact(output)


def _texts(artifact: Artifact) -> list[list[int]]:
    codec = load_codec(artifact)
    assert codec is not None
    files = sorted((ROOT / "compiler").rglob("*.py"), key=lambda file: -file.stat().st_size)[:TEXTS]
    return [codec.encode(file.read_text(encoding="utf-8"))[:TEXT_TOKENS] for file in files]


if __name__ == "__main__":
    main()
