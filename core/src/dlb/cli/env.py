"""``dlb env``: the environments that adapters live in."""

from __future__ import annotations

from pathlib import Path

import click

from dlb.cli.output import json_option, note, print_json, print_table

__all__ = ["env_command"]


@click.group("env")
def env_command() -> None:
    """Make, list, examine and remove the environments that adapters live in."""


@env_command.command()
@click.argument("names", nargs=-1, required=True, metavar="ADAPTER...")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A checkout, a folder of wheels, or the adapter's own folder.",
)
@click.option("--python", metavar="VERSION", help="Interpreter to make it with, e.g. 3.11.")
@click.option(
    "--constraint",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Versions to keep to, as pip's --constraint.",
)
def create(
    names: tuple[str, ...], source: Path | None, python: str | None, constraint: Path | None
) -> None:
    """Make an environment for each ADAPTER, anew if there is one.

    pip's settings from the environment (PIP_FIND_LINKS, PIP_INDEX_URL, PIP_CONSTRAINT, ...) are
    honoured, and uv's own before them.
    """
    from dlb import environments

    for name in names:
        environment = environments.create(
            name, source=source, python=python, constraint=constraint, report=note
        )
        click.echo(f"{name}: ready in {environment.folder}")


@env_command.command("list")
@json_option
def list_all(as_json: bool) -> None:
    """Environments there are."""
    from dlb import environments

    rows = [
        [
            environment.name,
            environment.distribution,
            "made by dlb" if environment.managed else "told of",
            environment.created,
            str(environment.source or "-"),
            str(environment.folder if environment.managed else environment.python),
        ]
        for environment in environments.list_all()
    ]
    columns = ["name", "distribution", "kind", "created", "source", "where"]
    if as_json:
        print_json({"environments": [dict(zip(columns, row)) for row in rows]})
    elif rows:
        print_table(columns, rows)
    else:
        click.echo(f"none; make them with: dlb env create {' '.join(sorted(environments.KNOWN))}")


@env_command.command()
@click.argument("name")
@click.argument("python", type=click.Path(path_type=Path))
def add(name: str, python: Path) -> None:
    """Use an environment made by hand: NAME's adapter is installed for the interpreter PYTHON."""
    from dlb import environments

    environment = environments.add(name, python)
    click.echo(f"{name}: {environment.python}")


@env_command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove an environment; one that was told of is only forgotten."""
    from dlb import environments

    environments.remove(name)
    click.echo(f"{name}: removed")


@env_command.command()
@click.argument("name", required=False)
@json_option
def doctor(name: str | None, as_json: bool) -> int:
    """Say what is wrong with an environment (all, without NAME), and what mends it."""
    from dlb import environments

    names = [name] if name else [environment.name for environment in environments.list_all()]
    rows = [
        [environment, finding.severity, finding.what, finding.remedy]
        for environment in names
        for finding in environments.doctor(environment)
    ]
    if as_json:
        print_json(
            {"findings": [dict(zip(("name", "severity", "what", "remedy"), row)) for row in rows]}
        )
    elif rows:
        print_table(["name", "severity", "what", "remedy"], rows)
    else:
        click.echo("no environments")
    return int(any(row[1] == "error" for row in rows))
