"""``dlb explain``."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from dlb.cli.output import echo, json_option, print_json

__all__ = ["explain_command"]


@click.command("explain")
@click.argument("certificate", type=click.Path(path_type=Path))
@json_option
def explain_command(certificate: Path, as_json: bool) -> int:
    """Show where adapters differ first, by how much, and the likely reason.

    CERTIFICATE is a file that dlb verify --certificate wrote, or a record.
    """
    from dlb import record
    from dlb.cli.tables import print_certificate
    from dlb.errors import RecordError, RequestError
    from dlb.proof.certificate import read
    from dlb.proof.explain import explain
    from dlb.report.explanations import built_text, not_run_texts, place_text, reason_text

    try:
        read_certificate = read(certificate)
    except RecordError as error:
        try:
            embedded = record.read(certificate).certificate
        except RecordError as of_record:
            shown = error if of_record.message.startswith("not a record") else of_record
            raise RequestError(shown.message, path=shown.path) from None
        if embedded is None:
            raise RequestError("a record without a certificate", path=certificate) from None
        read_certificate = embedded
    explanations = explain(read_certificate)
    statuses = {
        adapter: read_certificate.status(adapter) for adapter in read_certificate.judged_adapters
    }
    if as_json:
        print_json(
            {
                "proof": statuses,
                "left_out": read_certificate.left_out,
                "explanations": [
                    {
                        **msgspec.to_builtins(explanation),
                        "text": {
                            "where": place_text(explanation),
                            "built": built_text(explanation),
                            "reason": reason_text(explanation),
                            "not_run": not_run_texts(explanation),
                        },
                    }
                    for explanation in explanations
                ],
            }
        )
        return 0
    print_certificate(read_certificate, whole=True)
    for adapter, status in statuses.items():
        if status != "deviates":
            failure = read_certificate.failures.get(adapter)
            failed = f"; its run failed: {failure.line}" if failure else ""
            echo(f"{read_certificate.title(adapter)}: {status}{failed}")
    return 0
