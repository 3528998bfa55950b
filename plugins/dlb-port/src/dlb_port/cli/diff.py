"""``dlb diff A.onnx B.onnx``: the comparison of two files."""

from __future__ import annotations

from pathlib import Path

import click

from dlb.cli.options import ANSWERED, CERTIFICATE, option, with_options
from dlb.cli.output import echo, print_answer, print_json
from dlb_port.cli.inputs import ARRAYS

__all__ = ["diff_command"]


@click.command("diff")
@click.argument("first")
@click.argument("second")
@ARRAYS
@click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="FILE=ORDER",
    help="The order of the axes that a file reads, such as b.onnx=NHWC. Default: as sizes show.",
)
@option("seed")
@CERTIFICATE
@with_options(ANSWERED)
def diff_command(
    first: str,
    second: str,
    inputs: Path | None,
    layouts: tuple[str, ...],
    seed: int,
    certificate: Path | None,
    as_json: bool,
) -> int:
    """Prove that two ONNX files compute the same, whoever wrote them.

    Exit status 0: proven, or within rounding. Where the files differ, the first difference is named.
    """
    import msgspec

    from dlb.cli.tables import print_certificate
    from dlb.proof.certificate import check_destination, write
    from dlb.report.sentences import describe
    from dlb_port.file_proof import compare_files

    check_destination(certificate)
    orders = {file: order for file, _, order in (each.rpartition("=") for each in layouts)}
    compared = compare_files(first, second, inputs=inputs, seed=seed, layouts=orders)
    if certificate is not None:
        write(compared, certificate)
    status = compared.status(compared.checks[0].adapter)
    if as_json:
        document = {
            "answer": f"{compared.workload}: {status}",
            "proven": status == "proven",
            "proof": status,
            "files": [first, second],
            "certificate": msgspec.to_builtins(compared),
        }
        print_json(document)
    else:
        for name, made_by in compared.adapters.items():
            echo(f"{name}: {made_by}")
        print_certificate(compared)
        for result in compared.checks:
            if result.verdict == "passed" and result.findings:
                echo(f"{result.check}: {describe(result)}")
        print_answer(f"{compared.workload}: {status}")
    return 0 if compared.agrees else 1
