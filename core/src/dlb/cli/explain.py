"""``dlb explain``."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from dlb.cli.output import json_option, print_json

__all__ = ["explain_command"]


@click.command("explain")
@click.argument("certificate", type=click.Path(path_type=Path))
@json_option
def explain_command(certificate: Path, as_json: bool) -> int:
    """What differs, where first, by how much, and the likely reason.

    CERTIFICATE is a file that dlb verify --certificate wrote, or a record.
    """
    from dlb import record
    from dlb.errors import RecordError, RequestError
    from dlb.proof.certificate import read
    from dlb.proof.explain import explain
    from dlb.tables import print_certificate

    try:
        held = read(certificate)
    except RecordError as error:
        try:
            within = record.read(certificate).certificate
        except RecordError:
            raise RequestError(str(error)) from None
        if within is None:
            raise RequestError(f"{certificate}: a record without a certificate") from None
        held = within
    found = explain(held)
    words = {adapter: held.word(adapter) for adapter in held.judged}
    if as_json:
        print_json(
            {"words": words, "left_out": held.left_out, "explanations": msgspec.to_builtins(found)}
        )
        return 0
    print_certificate(held)
    for one in found:
        size = "" if one.size is None else f", {one.size:.1e} apart"
        click.echo(f"\n{held.title(one.adapter)} differs first in {one.rung}: {one.where}{size}")
        if one.built:
            click.echo(f"  as {one.adapter} has it: {one.built}")
        click.echo(f"  likely: {one.reason}")
        if one.others:
            click.echo(f"  failed too, and mostly follows: {', '.join(one.others)}")
    for adapter, word in words.items():
        if word != "deviates":
            failed = held.failures.get(adapter, "")
            click.echo(
                f"{held.title(adapter)}: {word}" + (f"; its run failed: {failed}" if failed else "")
            )
    return 0
