"""``dlb data``: data sets."""

from __future__ import annotations

import click

from dlb.cli.listing import list_command
from dlb.cli.output import Group, echo, json_option, note

__all__ = ["data_command"]


@click.group("data", cls=Group)
def data_command() -> None:
    """List, fetch and find data sets. A folder in DLB_DATA_DIR is looked at first."""


@data_command.command("list")
@json_option
@click.pass_context
def list_all(ctx: click.Context, as_json: bool) -> None:
    """List data sets, and where each of them is."""
    ctx.invoke(list_command, what="datasets", as_json=as_json)


@data_command.command()
@click.argument("name")
@click.option(
    "--offline",
    is_flag=True,
    envvar="DLB_OFFLINE",
    help="Use archives in DLB_DATA_DIR only; download nothing. [env: DLB_OFFLINE]",
)
def fetch(name: str, offline: bool) -> None:
    """Download a data set, verify it, and keep it."""
    from dlb.data.own import own_data, own_kinds
    from dlb.data.registry import data_set
    from dlb.errors import RequestError
    from dlb_data.fetch import fetch as fetch_files

    if name in own_kinds():
        own = own_data(name)
        raise RequestError(
            f"data of the name '{name}' are your own and are not fetched: data.path of the workload "
            f"names {own.title}{own.alternative}"
        )
    echo(str(fetch_files(data_set(name), report=note, offline=offline)))


@data_command.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the folder a data set is in."""
    from dlb.data.locate import find_described
    from dlb.data.own import own_data, own_kinds
    from dlb.data.registry import data_set
    from dlb.errors import DataError

    if name in own_kinds():
        own = own_data(name)
        folder = own.find()
        if folder is None:
            raise DataError(
                f"data of the name '{name}' are your own: they are where data.path of the workload "
                f"says, {own.title}{own.alternative}"
            )
    else:
        folder = find_described(data_set(name))
    if folder is None:
        raise DataError(
            f"data set '{name}' is not on this machine; get it with: dlb data fetch {name}"
        )
    echo(str(folder))
