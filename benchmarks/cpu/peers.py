"""The peers' environment and models, under the git-ignored `build/peers`. Run as a script it makes them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "build" / "peers"
TARGET = ROOT / "examples" / "reference" / "target"
HERE = Path(__file__).resolve().parent

REQUIREMENTS = (
    "onnxruntime-genai==0.18.*",
    # The model builder needs these without saying so; constraints.txt fixes the CPU build of torch.
    "torch",
    "transformers",
    "onnx",
    "onnx-ir",
    "safetensors",
)


class PeerError(Exception):
    """A peer's environment or model cannot be made."""


def python() -> Path:
    """Return the interpreter of the peers' environment, made on the first call.

    Raises:
        PeerError: a package cannot be installed.
    """
    environment = PEERS / "venv"
    interpreter = environment / "bin" / "python"
    ready = environment / "ready"
    wanted = "\n".join((*REQUIREMENTS, (ROOT / "constraints.txt").read_text(encoding="utf-8")))
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        venv.create(environment, clear=True, with_pip=True)
        install = (interpreter, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt")
        _run("install the peers", *install, *REQUIREMENTS)
        ready.write_text(wanted, encoding="utf-8")
    return interpreter


def genai_model() -> Path:
    """Return the directory of onnxruntime-genai's fp32 CPU model of the reference target, built on the first call.

    Raises:
        PeerError: the builder failed.
    """
    model = PEERS / "genai"
    ready = PEERS / "genai.ready"
    wanted = _digest(TARGET)
    if not ready.is_file() or ready.read_text(encoding="utf-8") != wanted:
        wrapper = PEERS / "wrapper"
        _run("convert the checkpoint", python(), HERE / "wrapper_checkpoint.py", TARGET, wrapper)
        command = (python(), "-m", "onnxruntime_genai.models.builder", "-p", "fp32", "-e", "cpu")
        _run("build genai's model", *command, "-i", wrapper, "-o", model, "-c", PEERS / "cache")
        ready.write_text(wanted, encoding="utf-8")
    return model


def _digest(directory: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _run(purpose: str, *command: str | Path) -> None:
    print(f"peers: {purpose}", file=sys.stderr)
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise PeerError(f"cannot {purpose}: exit code {done.returncode}\n{tail}")


@click.command()
def main() -> None:
    """Install the peers into build/peers and build their model; nothing is done that is done already."""
    try:
        click.echo(python())
        click.echo(genai_model())
    except PeerError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
