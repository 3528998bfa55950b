"""Forms of export that plugins bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dlb.errors import PackageMissing, PluginError, RequestError
from dlb_measure.results import exports
from dlb_worker import hookimpl
from dlb_worker.plugins import plugins_of


class Brings:
    @hookimpl
    def dlb_exports(self) -> Mapping[str, str]:
        return {
            name: f"{__name__}:{name}" for name in ("written", "wrong", "refuses", "broken", "none")
        }


def written(folder: Path, rows: Any, output: str | None) -> bytes:
    return f"{folder} {len(rows)} {output}".encode()


def wrong(folder: Path, rows: Any, output: str | None) -> int:
    return 3


def refuses(folder: Path, rows: Any, output: str | None) -> bytes:
    raise RequestError("not so")


def broken(folder: Path, rows: Any, output: str | None) -> bytes:
    raise ValueError("oh")


def test_forms_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "load_plugins", lambda: plugins_of(Brings(), "mine"))
    assert exports.forms()[-5:] == sorted(Brings().dlb_exports())
    assert exports.export(Path("in"), [], "written", "out") == b"in 0 out"
    with pytest.raises(RequestError, match=r"^not so$"):
        exports.export(Path("in"), [], "refuses", None)
    for name, says in (("wrong", "returned a int"), ("broken", "ValueError: oh"), ("none", "none")):
        with pytest.raises(PluginError, match=says):
            exports.export(Path("in"), [], name, None)
    with pytest.raises(PackageMissing, match="dlb-track"):
        exports.export(Path("in"), [], "mlflow", None)
