"""``dlb env``: the environments of adapters."""

from __future__ import annotations

from pathlib import Path

import click

from dlb.cli.output import Group, echo, json_option, note, show_rows

__all__ = ["env_command"]


@click.group("env", cls=Group)
def env_command() -> None:
    """Make, list, examine and remove the environments of adapters."""


@env_command.command()
@click.argument("names", nargs=-1, required=True, metavar="ADAPTER...")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A checkout, a folder of wheels, or the adapter's own folder.",
)
@click.option("--python", metavar="VERSION", help="Python version of the environment, e.g. 3.11.")
@click.option(
    "--constraint",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Constraints on versions, as pip's --constraint.",
)
def create(
    names: tuple[str, ...], source: Path | None, python: str | None, constraint: Path | None
) -> None:
    """Make an environment for each ADAPTER; replace one that exists.

    Settings of pip in environment variables (PIP_FIND_LINKS, PIP_INDEX_URL, PIP_CONSTRAINT, ...) are used.
    Settings of uv override them.
    """
    from dlb import environments

    called = list(dict.fromkeys(map(environments.adapter_called, names)))
    arguments = {"source": source, "python": python, "constraint": constraint}
    made = environments.make_each(environments.create, called, note, **arguments)
    for environment in made:
        echo(f"{environment.name}: ready in {environment.folder}")


@env_command.command("list")
@json_option
def list_all(as_json: bool) -> None:
    """List environments."""
    from dlb import environments

    rows = [
        [
            environment.name,
            environment.distribution,
            "made by dlb" if environment.managed else "added",
            environment.created,
            str(environment.source or "-"),
            str(environment.folder if environment.managed else environment.python),
        ]
        for environment in environments.list_all()
    ]
    columns = ["name", "distribution", "kind", "created", "source", "where"]
    none = f"none; make some with: dlb env create {' '.join(sorted(environments.KNOWN))}"
    show_rows("environments", columns, rows, as_json, none=none)


@env_command.command()
@click.argument("name")
@click.argument("python", type=click.Path(path_type=Path))
def add(name: str, python: Path) -> None:
    """Register an existing environment: the interpreter PYTHON has adapter NAME installed."""
    from dlb import environments

    environment = environments.add(name, python)
    echo(f"{name}: {environment.python}")


@env_command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove an environment; unregister one that was added with dlb env add."""
    from dlb import environments

    made = [environment.name for environment in environments.list_all()]
    name = environments.adapter_called(name, made)
    environments.remove(name)
    echo(f"{name}: removed")


@env_command.command()
@click.argument("name", required=False)
@json_option
def doctor(name: str | None, as_json: bool) -> int:
    """Show what is wrong with an adapter's environment (all, without NAME), and how to fix it."""
    from dlb import environments
    from dlb.adapters import adapter_environments, diagnose

    made = [environment.name for environment in environments.list_all()]
    names = sorted({*made, *adapter_environments()})
    if name:
        names = [environments.adapter_called(name, names)]
    rows = [
        [adapter, finding.severity, finding.what, finding.remedy]
        for adapter in names
        for finding in diagnose(adapter)
    ]
    none = "no adapter is installed, here or in an environment; see: dlb list adapters"
    show_rows("findings", ["name", "severity", "what", "remedy"], rows, as_json, none=none)
    return int(any(row[1] == "error" for row in rows))
