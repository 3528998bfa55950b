"""``dlb verify A.onnx B.onnx``: two files compared with each other."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from dlb.cli.output import print_json

__all__ = ["verify_two_files"]

#: Options of ``dlb verify`` that mean something for files.
_OPTIONS = {"workload", "other", "inputs", "certificate", "seed", "as_json"}


def verify_two_files(
    first: str,
    second: str | None,
    inputs: Path | None,
    destination: Path | None,
    seed: int,
    as_json: bool,
) -> int:
    """Compare, show, and give the exit status: 0 proven, 1 otherwise.

    Raises:
        click.UsageError: a file is missing, or an option is about adapters.
        DlbError: as :func:`dlb.proof.files.certificate.verify_files`.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) == ParameterSource.COMMANDLINE
        if typed and name not in _OPTIONS:
            raise click.UsageError(f"{parameter.opts[0]} is about adapters, not about files")
    if second is None:
        raise click.UsageError("--input is for files; give two: dlb verify A.onnx B.onnx")

    import msgspec

    from dlb.cli.tables import print_certificate
    from dlb.proof.certificate import check_destination, write
    from dlb.proof.files.certificate import verify_files
    from dlb.report.sentences import describe

    check_destination(destination)
    certificate = verify_files(Path(first), Path(second), inputs, seed)
    if destination is not None:
        write(certificate, destination)
    status = certificate.status(certificate.checks[0].adapter)
    if as_json:
        document = {
            "proven": status == "proven",
            "proof": status,
            "files": [first, second],
            "certificate": msgspec.to_builtins(certificate),
        }
        print_json(document)
    else:
        for name, made_by in certificate.adapters.items():
            click.echo(f"{name}: {made_by}")
        print_certificate(certificate)
        for result in certificate.checks:
            if result.verdict == "passed" and result.findings:
                click.echo(f"{result.check}: {describe(result)}")
        click.echo(f"{certificate.workload}: {status}")
    return 0 if status == "proven" else 1
