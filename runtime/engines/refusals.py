"""Why an engine does not run here: one sentence each, with what would."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dfc.artifacts import Engine as EngineFile
from dfc.artifacts import Manifest
from dfc.runtime.rebuild import build_command

VERSION, GPU, DRIVER, MEMORY, DAMAGED = "version", "gpu", "driver", "memory", "damaged"
"""What a library may say is wrong with an engine."""


@dataclass(frozen=True)
class Installation:
    """A library and the GPU it runs on; ``builds_for`` are the compute capabilities that it can build for by name."""

    backend: str
    version: str
    gpu: str
    capability: str
    builds_for: tuple[str, ...] = ()


def wrong_gpu(path: object, file: EngineFile, manifest: Manifest, here: Installation) -> str:
    """Return the sentence for an engine that is for other GPUs."""
    known = ", ".join(here.builds_for)
    meant = ", ".join(file.compute_capabilities) or (known and f"any of {known}") or "the GPU that built it"
    sentence = f"{path} is for compute capability {meant} and this GPU, {here.gpu}, has {here.capability}"
    # Engines for no GPU by name also run on some that cannot be named.
    if here.builds_for and here.capability not in here.builds_for and not file.compute_capabilities:
        return f"{sentence}; {here.backend} {here.version} cannot build for it: run on another GPU or backend"
    named = (here.capability,) if here.capability in here.builds_for else ()
    return f"{sentence}; build for it with: {build_command(manifest, here.backend, named)}"


def unreadable(
    path: object, file: EngineFile, manifest: Manifest, here: Installation, wrong: Collection[str], said: str
) -> str:
    """Return the sentence for an engine that the library does not load.

    `wrong` is what the library finds wrong with it, empty where it does not tell; `said` is its last error.
    """
    if VERSION in wrong or (not wrong and file.library_version != here.version):
        command = build_command(manifest, here.backend, file.compute_capabilities)
        return (
            f"{here.backend} {here.version} cannot read {path}, which {file.library_version} built; install"
            f" {here.backend} {file.library_version}, or build with this version: {command}"
        )
    if GPU in wrong:
        return wrong_gpu(path, file, manifest, here)
    if DRIVER in wrong:
        return f"the NVIDIA driver of this machine is too old for {path} and {here.backend} {here.version}; update it"
    if MEMORY in wrong:
        return (
            f"{here.gpu} has no room for {path}; close other programs on it, or build with a smaller --max-context:"
            f" {build_command(manifest, here.backend, file.compute_capabilities)}"
        )
    because = f" ({said})" if said else ""
    if DAMAGED in wrong:
        return f"{path} is damaged{because}; `dfc verify` shows what else is, and a new build mends it"
    return (
        f"{here.backend} {here.version} cannot load {path} on {here.gpu} of compute capability {here.capability}"
        f"{because}; build it there with: {build_command(manifest, here.backend)}"
    )
