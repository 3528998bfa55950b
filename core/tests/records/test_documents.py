"""Documents tell nothing of the folder of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlb import documents


@pytest.mark.parametrize(
    ("home", "text", "written"),
    [
        ("/home/me", "/home/me/a.npz, -L/home/me/lib:/home/me", "~/a.npz, -L~/lib:~"),
        ("/home/me/", 'said "/home/me".', 'said "~".'),
        ("/home/me", "/home/me2/a /home/me.old /srv/home/me/a", None),
        ("/home/m\u00e9 (1)", "file:///home/m\u00e9 (1)/x", "file://~/x"),
        ("/", "/a/b", None),
        ("", "/a ~ b", None),
    ],
)
def test_the_home_folder_is_a_tilde(
    monkeypatch: pytest.MonkeyPatch, home: str, text: str, written: str | None
) -> None:
    monkeypatch.setenv("HOME", home)
    assert documents.without_home(text.encode()).decode() == (text if written is None else written)


def test_a_link_to_it_is_one_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "me").symlink_to("real")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    both = f"{tmp_path}/me/a {tmp_path}/real/b".encode()
    assert documents.without_home(both) == b"~/a ~/b"
