"""What differs between two artifacts, as their manifests say it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dfc.artifacts.manifest import Manifest

Fields = Mapping[str, Any]
Items = dict[tuple[str, str], Fields]


@dataclass(frozen=True)
class Change:
    """One value that differs; `field` is None for an item that only one side has, and the other side is then None."""

    section: str
    item: str
    field: str | None
    a: Any
    b: Any


def differences(a: Manifest, b: Manifest) -> list[Change]:
    """Return everything that differs, by section; nothing exactly when the manifests say the same.

    Values are those of the manifest's JSON.
    """
    left, right = _items(a), _items(b)
    keys = [*left, *(key for key in right if key not in left)]
    sections = list(dict.fromkeys(section for section, _ in keys))
    keys.sort(key=lambda key: sections.index(key[0]))
    return [change for key in keys for change in _compare(key, left.get(key), right.get(key))]


def _compare(key: tuple[str, str], a: Fields | None, b: Fields | None) -> Iterator[Change]:
    section, item = key
    if a is None or b is None:
        yield Change(section, item, None, None if a is None else dict(a), None if b is None else dict(b))
        return
    for field in dict.fromkeys((*a, *b)):
        # To Python, true is 1 and 1 is 1.0; in a parameter they are not the same.
        if field not in a or field not in b or repr(a[field]) != repr(b[field]):
            yield Change(section, item, field, a.get(field), b.get(field))


def _items(manifest: Manifest) -> Items:
    """Return the manifest as items with plain fields; all of it but the digest of itself, which follows from it."""
    content = manifest.model_dump(mode="json")
    del content["content_sha256"]
    items: Items = {
        ("model", "model"): content.pop("model"),
        ("model", "artifact"): {name: content.pop(name) for name in ("schema_version", "precision", "backends")},
    }
    for name, component in content.pop("components").items():
        parameters = {f"parameter {key}": value for key, value in component.pop("parameters").items()}
        items["components", name] = {**component, **parameters}
    stages = content.pop("stages")
    for name, stage in stages.items():
        orders = {f"order of {side}": [tensor["name"] for tensor in stage[side]] for side in ("inputs", "outputs")}
        items["stages", name] = {"component": stage["component"], **orders, "backends": sorted(stage["engines"])}
    for name, stage in stages.items():
        for side in ("inputs", "outputs"):
            for tensor in stage[side]:
                items["tensors", f"{name} {side.removesuffix('s')} {tensor.pop('name')}"] = tensor
    for name, stage in stages.items():
        for backend, engines in stage["engines"].items():
            for number, engine in enumerate(engines):
                items["engines", f"{name} {backend} {number}"] = engine
    items.update({("weights", name): weight for name, weight in content.pop("weights").items()})
    items.update({("files", name): file for name, file in content.pop("files").items()})
    items.update({("calibration", device): _table(fields) for device, fields in content.pop("calibration").items()})
    items.update({("build", name): fields for name, fields in content.pop("build").items()})
    # A field that the format gets later must not be passed over.
    items.update({("other", name): {"value": value} for name, value in content.items()})
    return items


def _table(calibration: dict[str, Any]) -> Fields:
    """Return a calibration with a field for each way to decode and each drafter."""
    rounds = {f"round {way['drafter']} {way['draft_tokens']}": way["seconds"] for way in calibration.pop("rounds")}
    acceptance = {f"acceptance {name}": shares for name, shares in calibration.pop("acceptance").items()}
    return {**calibration, **rounds, **acceptance}
