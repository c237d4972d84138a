"""Prompts of `dfc run`: messages and templates, and what is wrong with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from dfc.artifacts import Artifact
from tests.cli.process import assert_fails, dfc
from tests.oracle.random_checkpoints import TargetGeometry, write_target
from tests.paths import REFERENCE, ROOT

TEMPLATE = ROOT / "tests" / "runtime" / "templates" / "reasoning.jinja"
MESSAGES = [
    {"role": "user", "content": "def f(x):"},
    {"role": "assistant", "content": "é"},
    {"role": "user", "content": "b"},
]
OPTIONS = ("--max-new", 8, "--json")


def report(*arguments: object, stdin: bytes = b"") -> dict[str, Any]:
    finished = dfc("run", *arguments, *OPTIONS, stdin=stdin)
    assert finished.returncode == 0, finished.stderr
    loaded: dict[str, Any] = json.loads(finished.stdout)
    return loaded


def test_messages_are_the_ids_that_transformers_makes(reference_artifact: Artifact, tmp_path: Path) -> None:
    root = reference_artifact.root
    tokenizer = AutoTokenizer.from_pretrained(REFERENCE / "target")
    ids = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, return_dict=False)
    expected = report(root, "--prompt-ids", ",".join(map(str, ids)))
    assert expected["stats"]["prompt_tokens"] == len(ids)
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(MESSAGES))
    assert report(root, "--messages", file)["token_ids"] == expected["token_ids"]
    assert report(root, "--messages", "-", stdin=file.read_bytes())["token_ids"] == expected["token_ids"]
    wrapped = json.dumps({"messages": MESSAGES, "tools": []}).encode()
    assert report(root, "--messages", "-", stdin=wrapped)["token_ids"] == expected["token_ids"]


@pytest.mark.parametrize("given, thinking", [("enable_thinking=false", False), ("enable_thinking=true", True)])
def test_template_system_and_arguments(
    reference_artifact: Artifact, tmp_path: Path, given: str, thinking: bool
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(REFERENCE / "target")
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, *MESSAGES],
        tools=[{"name": "f"}],
        chat_template=TEMPLATE.read_text(),
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=thinking,
    )
    assert text.endswith("<think>\n" if thinking else "</think>\n\n")
    file = tmp_path / "messages.json"
    file.write_text(json.dumps({"messages": MESSAGES, "tools": [{"name": "f"}]}))
    options = ("--chat-template", TEMPLATE, "--system", "Be brief.", "--template-arg", given)
    expected = report(reference_artifact.root, "--prompt", text)
    actual = report(reference_artifact.root, "--messages", file, *options)
    assert (actual["token_ids"], actual["stats"]["prompt_tokens"]) == (
        expected["token_ids"],
        expected["stats"]["prompt_tokens"],
    )


def test_prompt_files_and_standard_input_are_taken_byte_for_byte(reference_artifact: Artifact, tmp_path: Path) -> None:
    content = "\r\n a\tb \u00a0\n\n".encode()
    file = tmp_path / "prompt"
    file.write_bytes(content)
    root = reference_artifact.root
    counts = {
        report(root, "--prompt", content.decode())["stats"]["prompt_tokens"],
        report(root, "--prompt-file", file)["stats"]["prompt_tokens"],
        report(root, stdin=content)["stats"]["prompt_tokens"],
    }
    tokenizer = AutoTokenizer.from_pretrained(REFERENCE / "target")
    assert counts == {len(tokenizer.encode(content.decode()))}


NOT_UTF8 = b"\xff".decode(errors="surrogateescape")
FILES = {
    "text": "hello",
    "shape": '{"message": []}',
    "no_role": '[{"content": "a"}]',
    "empty": "",
    "empty_list": "[]",
    "system": '[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]',
    "good": '[{"role": "user", "content": "a"}]',
    "broken.jinja": "{% if %}",
    "refusing.jinja": "{{ raise_exception('no such role') }}",
    "nothing.jinja": "{# nothing #}",
}


@pytest.mark.parametrize(
    "arguments, code, fragment",
    [
        (("--messages", "{files}/text"), 1, "not valid JSON"),
        (("--messages", "{files}/shape"), 1, "neither a list of messages"),
        (("--messages", "{files}/no_role"), 1, "message 1 has no role"),
        (("--messages", "{files}/empty"), 1, "not valid JSON"),
        (("--messages", "{files}/empty_list"), 1, "no messages"),
        (("--messages", "{files}/absent"), 1, "absent"),
        (("--messages", "{files}"), 1, "cannot read --messages"),
        (("--messages", "-"), 1, "standard input is not valid JSON"),
        (("--messages", "{files}/good", "--chat-template", "{files}/absent"), 1, "cannot read --chat-template"),
        (("--messages", "{files}/good", "--chat-template", "{files}/broken.jinja"), 1, "is not a template, line 1"),
        (("--messages", "{files}/good", "--chat-template", "{files}/refusing.jinja"), 1, "no such role"),
        (("--messages", "{files}/good", "--chat-template", "{files}/nothing.jinja"), 2, "is empty"),
        (("--messages", "{files}/good", "--template-arg", "thinking"), 2, "NAME=VALUE"),
        (("--messages", "{files}/good", "--template-arg", "=1"), 2, "NAME=VALUE"),
        (("--messages", "{files}/good", "--template-arg", "tools=[]"), 2, "--template-arg tools"),
        (("--messages", "{files}/good", "--template-arg", "enable_thinking=false"), 1, "reads no such argument"),
        (("--messages", "{files}/system", "--system", "b"), 1, "second system message"),
        (("--messages", "{files}/good", "--prompt", "a"), 2, "--messages"),
        (("--messages", "-", "--chat"), 2, "--chat reads standard input"),
        (("--chat", "--prompt", "a"), 2, "--chat"),
        (("--chat", "--json"), 2, "--json"),
        (("--prompt", "a", "--system", "b"), 2, "--system needs --messages"),
        (("--prompt", "a", "--chat-template", "b"), 2, "--chat-template needs --messages"),
        (("--prompt-ids", "1", "--template-arg", "b=1"), 2, "--template-arg needs --messages"),
        (("--prompt", NOT_UTF8), 2, "--prompt is not UTF-8"),
        (("--messages", "{files}/good", "--system", NOT_UTF8), 2, "--system is not UTF-8"),
    ],
)
def test_bad_prompts_get_one_sentence(
    reference_artifact: Artifact, tmp_path: Path, arguments: tuple[str, ...], code: int, fragment: str
) -> None:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    given = [
        item.format(files=tmp_path) if isinstance(item, str) else item.decode(errors="surrogateescape")
        for item in arguments
    ]
    assert_fails(dfc("run", reference_artifact.root, *given), code, fragment)


def test_what_comes_in_on_standard_input_must_be_text(reference_artifact: Artifact) -> None:
    assert_fails(dfc("run", reference_artifact.root, stdin=b"\xff"), 1, "standard input is not UTF-8")
    assert_fails(dfc("run", reference_artifact.root, "--chat", stdin=b"\xff\n"), 1, "line 1 of standard input")
    assert_fails(dfc("run", reference_artifact.root), 2, "standard input is empty")


@pytest.mark.parametrize("arguments", [("--chat",), ("--messages", "{file}")])
def test_a_checkpoint_without_template_or_tokenizer(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    target = write_target(tmp_path / "target", TargetGeometry())
    file = tmp_path / "messages.json"
    file.write_text(json.dumps(MESSAGES))
    given = [item.format(file=file) for item in arguments]
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    assert_fails(dfc("run", tmp_path / "artifact", *given), 1, "no chat template", "--chat-template")
    (target / "tokenizer.json").unlink()
    shutil.rmtree(tmp_path / "artifact")
    assert dfc("build", target, "-o", tmp_path / "artifact").returncode == 0
    assert_fails(dfc("run", tmp_path / "artifact", *given), 1, "no tokenizer")
