"""What MkDocs does here beyond its configuration.

- CONTRIBUTING.md and CHANGELOG.md, which live outside this folder, are pages of the site. A link to README.md
  leads to the repository.
- A page that would load something from another host ends the build.
- Roles of docstrings, ``:class:`~dlb.Name```, are shown as the name alone.
- The entries of the catalogue of framework differences are in the navigation, by category.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
#: Pages made of files of the repository's root, by the file.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
CATALOGUE = "reference/framework-differences/"
ADDRESS = r"[\"']?(?:https?:)?//[^\"'> ]+"
#: What a browser loads by itself; a link that a reader follows is none of it.
LOADED = re.compile(
    rf"<(?:script|img|iframe|source)\b[^>]*\bsrc={ADDRESS}"
    rf"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preload|preconnect|icon))[^>]*\bhref={ADDRESS}"
)


def on_config(config: Any) -> Any:
    """Put the entries of the catalogue into the navigation, in the sections of its index."""
    folder = Path(config["docs_dir"]) / CATALOGUE
    text = (folder / "index.md").read_text(encoding="utf-8")
    sections: list[Any] = [CATALOGUE + "index.md"]
    for heading, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text, re.M):
        entries = re.findall(r"^\| \[([^\]]+)\]\(([\w-]+\.md)\)", body, re.M)
        if entries:
            sections.append({heading: [{name: CATALOGUE + page} for name, page in entries]})
    for item in config["nav"]:
        if list(item.values()) == [CATALOGUE]:
            item[next(iter(item))] = sections
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are files of the root, with their links as seen from here."""
    for name, page in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to those files lead to their pages, and those to the README to the repository."""
    address = repository()
    markdown = re.sub(
        r"\[([^]]+)\]\((\.\./)+README\.md\)", rf"[\1]({address})" if address else r"\1", markdown
    )
    for name, target in ROOT_PAGES.items():
        markdown = re.sub(rf"\]\((\.\./)+{name}", f"]({up(page.file.src_uri)}{target}", markdown)
    return markdown


def repository() -> str:
    """The address of the repository that this is a checkout of; empty if it has none that a browser opens."""
    asked = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    address = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return address.removesuffix(".git") if address.startswith("https://") else ""


def up(source: str) -> str:
    return "../" * source.count("/")


def on_page_content(html: str, **_: Any) -> str:
    """``:meth:`~package.Class.method``` is a role of Sphinx; here it is ``Class.method``."""
    html = re.sub(
        r":(?:class|func|mod|data|attr):<code>~?(?:[\w.]+\.)?(\w+)</code>", r"<code>\1</code>", html
    )
    return re.sub(r":meth:<code>~?(?:[\w.]+\.)?(\w+\.\w+)</code>", r"<code>\1</code>", html)


def on_post_build(config: Any) -> None:
    """Refuse a site whose pages load anything from another host."""
    for path in Path(config["site_dir"]).rglob("*.html"):
        if found := LOADED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path}: loads from another host: {found[0]}")
