"""The manifest: written and read back unchanged, refused when it does not fit."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dfc.artifacts import SCHEMA_VERSION, ArtifactError, Build, Component, Engine, File, Manifest, Model, Stage, Tensor
from dfc.artifacts.calibration import Calibration
from tests.artifacts.samples import (
    DEVICE,
    ENGINE,
    FILES,
    assert_one_sentence,
    sample_calibration,
    sample_manifest,
    with_mtp,
)

DIGEST = "0" * 64


def complete_manifest() -> Manifest:
    manifest = with_mtp(sample_manifest()).with_calibration({DEVICE: sample_calibration()})
    return manifest.with_files({name: File(sha256=DIGEST, size=len(data)) for name, data in FILES.items()})


def save(path: Path, manifest: Manifest) -> Path:
    path.write_text(manifest.to_json(), encoding="utf-8")
    return path


def changed(field: str, value: Any) -> str:
    """Return the sample's text with the field at the dotted path set; a number in it is an index."""
    document = json.loads(complete_manifest().to_json())
    *parents, last = [int(part) if part.isdigit() else part for part in field.split("/")]
    place = document
    for parent in parents:
        place = place[parent]
    place[last] = value
    return json.dumps(document)


def test_round_trip(tmp_path: Path) -> None:
    manifest = complete_manifest()
    assert Manifest.load(save(tmp_path / "manifest.json", manifest)) == manifest


words = st.text(st.characters(codec="utf-8", exclude_characters="/\\~", exclude_categories=("C", "Z")), min_size=1)
counts = st.integers(1, 2**40)
parameters = st.one_of(
    st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False, allow_infinity=False), words, st.none()
) | st.lists(st.integers(-9, 9)).map(tuple)


@st.composite
def calibrations(draw: st.DrawFn) -> Calibration:
    contexts = sorted(draw(st.sets(st.integers(1, 2**20), min_size=1, max_size=3)))
    lengths = draw(st.sets(st.integers(1, 8), max_size=3))
    seconds = st.tuples(*[st.floats(1e-9, 1e3) for _ in contexts])
    rounds = [{"drafter": "none", "draft_tokens": 0, "seconds": draw(seconds)}]
    rounds += [{"drafter": "dflash2", "draft_tokens": count, "seconds": draw(seconds)} for count in sorted(lengths)]
    ends = [*sorted(draw(st.sets(st.integers(1, 2**20), max_size=3))), None]
    way = {"drafter": "none", "draft_tokens": 0, "tokens_per_second": draw(st.floats(1e-9, 1e6))}
    return Calibration.model_validate(
        {
            "library": draw(words),
            "library_version": draw(words),
            "contexts": tuple(contexts),
            "rounds": tuple(rounds),
            "acceptance": {"dflash2": tuple(draw(st.floats(0, 1)) for _ in range(max(lengths, default=0)))},
            "thresholds": tuple({"below": end, **way} for end in ends),
        }
    )


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    dimensions = st.one_of(st.integers(0, 2**40), words)
    names = draw(st.lists(words, min_size=1, max_size=4, unique=True))
    inputs = [
        Tensor(name=name, dtype="float32", shape=tuple(draw(st.lists(dimensions, max_size=4))), role="state")
        for name in names
    ]
    outputs = [
        tensor.model_copy(update={"name": f"{tensor.name}_next", "alias": draw(st.sampled_from((tensor.name, None)))})
        for tensor in inputs
    ]
    engine = Engine(path=ENGINE, precision="float16", library="l", library_version="1", options=draw(options))
    return Manifest(
        model=Model(
            name=draw(words),
            architecture=draw(words),
            hidden_size=draw(counts),
            vocab_size=draw(counts),
            num_layers=draw(counts),
            max_context=draw(counts),
            eos_token_ids=tuple(draw(st.lists(st.integers(0, 9)))),
            candidate_vocab_size=draw(counts),
        ),
        precision="bfloat16",
        backends=("b",),
        components={"dflash2": Component(source=draw(words), parameters=draw(st.dictionaries(words, parameters)))},
        stages={
            draw(words): Stage(
                component="dflash2", inputs=tuple(inputs), outputs=tuple(outputs), engines={"b": (engine,)}
            )
        },
        files={ENGINE: File(sha256=DIGEST, size=draw(counts))},
        calibration=draw(st.dictionaries(words, calibrations(), max_size=2)),
        build=Build(options=draw(options), tools=draw(options)),
    )


options = st.dictionaries(words, words, max_size=3)


@given(manifests())
def test_any_manifest_round_trips_and_has_one_text(
    tmp_path_factory: pytest.TempPathFactory, manifest: Manifest
) -> None:
    path = save(tmp_path_factory.getbasetemp() / "any-manifest.json", manifest)
    read = Manifest.load(path)
    assert read == manifest
    assert read.to_json() == path.read_text(encoding="utf-8")


def test_text_does_not_depend_on_the_order_of_construction() -> None:
    files = complete_manifest().files
    backwards = complete_manifest().with_files(dict(reversed(files.items())))
    assert list(backwards.files) != list(files)
    assert backwards.to_json() == complete_manifest().to_json()


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99])
def test_a_newer_manifest_is_refused_even_when_nothing_else_is_understood(tmp_path: Path, version: int) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"schema_version": version, "all": "different"}))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), "newer dfc", f"schema_version is {version}")


REFUSALS = [
    ("schema_version", 0, "schema_version"),
    ("schema_version", "1", "schema_version"),
    ("schema_version", -1, "schema_version"),
    ("schema_version", 2.0, "schema_version"),
    ("schema_version", True, "schema_version"),
    ("surprise", 1, "surprise"),
    ("model/hidden_size", "256", "model.hidden_size"),
    ("model/hidden_size", 0, "model.hidden_size"),
    ("model/name", "/home/someone/tiny", "model.name"),
    ("model/surprise", 1, "model.surprise"),
    ("precision", "int3", "precision"),
    ("backends", [], "onnxruntime"),
    ("components", {}, "component target"),
    ("components/eagle", {"source": "x"}, "components.eagle"),
    ("components/target/source", "a/b", "components.target.source"),
    ("components/target/parameters/where", "/home/someone", "components.target.parameters.where"),
    ("stages/target_advance/inputs/0/alias", "key_3", "input_ids"),
    ("stages/target_advance/inputs/0/role", "guest", "stages.target_advance.inputs.0.role"),
    ("stages/target_advance/inputs/0/shape", [-1], "stages.target_advance.inputs.0.shape.0"),
    ("stages/target_advance/inputs/1/name", "input_ids", "same name"),
    ("stages/target_advance/outputs/1/alias", "nowhere", "nowhere"),
    ("stages/target_advance/engines/onnxruntime/0/path", "stages/other.onnx", "stages/other.onnx"),
    ("stages/target_advance/engines/onnxruntime/0/path", "../model.onnx", "engines.onnxruntime.0.path"),
    ("stages/target_advance/engines/onnxruntime/0/options", {"cache": "/tmp/cache"}, "options.cache"),
    ("files", {}, "files"),
    ("files", {"../outside": {"sha256": DIGEST, "size": 0}}, "../outside"),
    ("files", {"a\nb": {"sha256": DIGEST, "size": 0}}, r"a\nb"),
    ("calibration", {"threshold": "high"}, "calibration.threshold"),
    ("calibration", {"": {}}, "calibration"),
    (f"calibration/{DEVICE}/version", 2, f"calibration.{DEVICE}.version"),
    (f"calibration/{DEVICE}/contexts", [], "contexts"),
    (f"calibration/{DEVICE}/contexts", [48, 16], "do not rise"),
    (f"calibration/{DEVICE}/contexts", [16, 32, 48], "none 0 lack a time"),
    (f"calibration/{DEVICE}/rounds/1/seconds", [0.5], "mtp 1 lack a time"),
    (f"calibration/{DEVICE}/rounds/1/seconds", [0.5, 0.0], "rounds.1.seconds.1"),
    (f"calibration/{DEVICE}/rounds/1/seconds", [0.5, "1"], "rounds.1.seconds.1"),
    (f"calibration/{DEVICE}/rounds/1/drafter", "target", "rounds.1.drafter"),
    (f"calibration/{DEVICE}/rounds/1/drafter", "none", "do not go with"),
    (f"calibration/{DEVICE}/rounds/1/drafter", "dflash", "no position 1 of dflash"),
    (f"calibration/{DEVICE}/rounds/2/draft_tokens", 0, "do not go with"),
    (f"calibration/{DEVICE}/rounds/2/draft_tokens", 1, "two entries"),
    (f"calibration/{DEVICE}/rounds/2/draft_tokens", 3, "no position 3 of mtp"),
    (f"calibration/{DEVICE}/rounds", [], "no entry of plain"),
    (f"calibration/{DEVICE}/acceptance/mtp", [0.5, 1.5], "acceptance.mtp.1"),
    (f"calibration/{DEVICE}/acceptance/dflash2", [0.5], "dflash2, which is not listed"),
    (f"calibration/{DEVICE}/thresholds", [], "do not rise"),
    (f"calibration/{DEVICE}/thresholds/0/below", None, "do not rise"),
    (f"calibration/{DEVICE}/thresholds/0/tokens_per_second", 0, "tokens_per_second"),
    ("build/options", {"output": "/work/out"}, "build.options.output"),
    ("build/options", {"flags": "--output=/work/out"}, "build.options.flags"),
    ("build/tools", {"dfc": "file:///work"}, "build.tools.dfc"),
    ("build/time", "2026-01-01T00:00:00", "build.time"),
]


@pytest.mark.parametrize(("field", "value", "named"), REFUSALS)
def test_refusals_name_file_and_field(tmp_path: Path, field: str, value: Any, named: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(changed(field, value))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), named)


@pytest.mark.parametrize("field", ["sha256", "size"])
@pytest.mark.parametrize("value", [-1, "short", None])
def test_a_damaged_file_entry_is_refused(tmp_path: Path, field: str, value: Any) -> None:
    document = json.loads(complete_manifest().to_json())
    document["files"][ENGINE][field] = value
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), ENGINE, field)


@pytest.mark.parametrize("field", ["model", "precision", "backends", "components", "stages"])
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    document = json.loads(complete_manifest().to_json())
    del document[field]
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), f"field {field}", "required")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[]", "no schema_version"),
        (b"{}", "no schema_version"),
        (b'{"schema_version": null}', "no schema_version"),
        (b'{"schema_version": true}', "schema_version is not a whole number"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(data)
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(path)
    assert_one_sentence(caught.value, str(path), reason)


def test_a_missing_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as caught:
        Manifest.load(tmp_path / "manifest.json")
    assert_one_sentence(caught.value, str(tmp_path / "manifest.json"), "No such file")


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_refused_and_never_crash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.json"
    path.write_bytes(data)
    with pytest.raises(ArtifactError):
        Manifest.load(path)


@pytest.mark.parametrize("value", ["/home/someone/cache", "~/cache", "file:///cache", "--cache=/x"])
def test_absolute_paths_are_refused_at_construction(value: str) -> None:
    with pytest.raises(ValidationError, match="absolute path"):
        Build(options={"cache": value})
    with pytest.raises(ValidationError, match="absolute path"):
        Build(tools={"cache": value})
    with pytest.raises(ValidationError, match="absolute path"):
        Component(source="tiny", parameters={"cache": value})
    with pytest.raises(ValidationError, match="absolute path"):
        Engine(path=ENGINE, precision="float32", library="l", library_version="1", options={"cache": value})


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="finite"):
        sample_calibration(plain=float("nan"))


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (key, *strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def test_the_schema_has_no_place_for_a_time_stamp() -> None:
    names = strings(Manifest.model_json_schema())
    assert not [name for name in names if re.fullmatch(r"date-time|date|time|.*(timestamp|created|modified|_at)", name)]
