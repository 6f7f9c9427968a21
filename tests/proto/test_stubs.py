"""Stubs that are not the ones that `agent.proto` gives are noticed: by `make check`, and here."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.proto import generate


def test_a_changed_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("agent.proto", *generate.STUBS):
        (tmp_path / name).write_text((generate.HERE / name).read_text())
    proto = tmp_path / "agent.proto"
    proto.write_text(proto.read_text().replace("message Nothing {}", "message Nothing { bool really = 1; }"))
    assert generate.outdated() == []
    monkeypatch.setattr(generate, "HERE", tmp_path)
    assert "agent_pb2.py" in generate.outdated()
