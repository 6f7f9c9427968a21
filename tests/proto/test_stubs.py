"""The generated stubs are the ones that `agent.proto` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.core.errors import ProveoutError
from proveout.proto import generate


def test_the_stubs_are_up_to_date() -> None:
    assert generate.outdated() == []


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("agent.proto", *generate.STUBS):
        (tmp_path / name).write_text((generate.HERE / name).read_text())
    proto = tmp_path / "agent.proto"
    proto.write_text(proto.read_text().replace("message Nothing {}", "message Nothing { bool really = 1; }"))
    monkeypatch.setattr(generate, "HERE", tmp_path)
    assert "agent_pb2.py" in generate.outdated()


def test_a_broken_file_gives_the_compilers_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.proto").write_text('syntax = "proto3"; message {')
    monkeypatch.setattr(generate, "HERE", tmp_path)
    with pytest.raises(ProveoutError, match="Expected message name"):
        generate.generate(tmp_path)
