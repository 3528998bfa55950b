"""``dlb compare``: the cells of a measurement next to each other, or those of two measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlb.cli.options import ANSWERED, with_options
from dlb.cli.output import echo, print_answer, print_json, print_table
from dlb_measure.cli.rounds import share_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlb_measure.comparison import Compared
    from dlb_measure.results.between import Pair
    from dlb_measure.results.measurement import Measurement

__all__ = ["compare_command"]


@click.command("compare")
@click.argument("results", nargs=-1, type=click.Path(path_type=Path), metavar="RESULTS [RESULTS]")
@click.option(
    "--baseline", metavar="ADAPTER", help="What ratios are to. Default: the first adapter."
)
@click.option(
    "--fail-slower",
    metavar="SHARE",
    help="Exit with 1 if something is slower by more than this, such as 5%.",
)
@click.option("--force", is_flag=True, help="Compare measurements of two machines all the same.")
@with_options(ANSWERED)
def compare_command(
    results: tuple[Path, ...],
    baseline: str | None,
    fail_slower: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Compare what was measured in rounds, as ratios with intervals.

    RESULTS is a results folder, of which the last measurement is taken, or the file of a measurement. With
    one, its adapters are compared with the baseline; with two, each adapter of the second with itself in
    the first.
    """
    limit = None if fail_slower is None else share_of("--fail-slower", fail_slower)
    if len(results) not in (1, 2):
        raise click.UsageError("give one or two results folders or measurements")
    if len(results) == 1:
        return _within(_read(results[0]), baseline, limit, as_json)
    if baseline is not None:
        raise click.UsageError(
            "--baseline is about one measurement; the first of two is the baseline"
        )
    return _between(_read(results[0]), _read(results[1]), limit, force, as_json)


def _read(path: Path) -> Measurement:
    """A measurement. That there is none is a fault of the request: exit status 1 means slower.

    Raises:
        RequestError: there is none, or it cannot be read.
    """
    from dlb.errors import RecordError, RequestError
    from dlb_measure.results.measurement import latest

    if path.suffix == ".onnx":
        raise RequestError("not a measurement; ONNX files are compared by: dlb diff", path=path)
    try:
        return latest(path)
    except RecordError as error:
        raise RequestError(error.message, path=error.path) from None


def _within(
    measurement: Measurement, baseline: str | None, limit: float | None, as_json: bool
) -> int:
    from dlb_measure.cli.measurements import show_measurement
    from dlb_measure.results.compared import compared_cells, find_cell

    place = find_cell(measurement, baseline or "")
    show_measurement(measurement, as_json, place)
    return _status(compared_cells(measurement, place), limit)


def _between(
    first: Measurement, second: Measurement, limit: float | None, force: bool, as_json: bool
) -> int:
    import msgspec

    from dlb.errors import RequestError
    from dlb_measure.results.between import differences, other_machine, pairs
    from dlb_measure.results.compared import cell_names

    differ = list(other_machine(first, second))
    if differ and not force:
        raise RequestError(
            f"they are of two machines ({'; '.join(differ)}): a ratio would be that of the machines; "
            "--force compares them all the same"
        )
    rows, compared, found = [], [], pairs(first, second)
    names = cell_names(second)
    for pair in found:
        name, ratio = names[pair.second], pair.ratio
        if ratio is None or pair.word is None:
            rows.append([name, "-", "no steady trial on one side", ""])
            continue
        compared.append({"adapter": name, "ratio": msgspec.to_builtins(ratio), "word": pair.word})
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        rows.append([name, f"{ratio.ratio:.3f}", interval, pair.word])
    if not rows:
        raise RequestError("the two measurements have no adapter with the same variant in common")
    others = [*differ, *differences(first, second)]
    said = [f"{row[0]} {row[1]} ({'; '.join(filter(None, row[2:]))})" for row in rows]
    answer = f"In times before: {', '.join(said)}."
    if as_json:
        document = {"answer": answer, "first": first.name, "second": second.name}
        print_json({**document, "compared": compared, "differ": others})
    else:
        columns = ["adapter", "times before", "interval", ""]
        print_table(columns, rows, f"{second.name} next to {first.name}", right=columns[1:2])
        for line in others:
            echo(f"Also different: {line}")
        echo("The two were measured at other times: what drifted in between is in the ratios")
        print_answer(answer)
    return _status(found, limit)


def _status(found: Sequence[Compared | Pair], limit: float | None) -> int:
    slower = [each.ratio for each in found if each.word == "slower" and each.ratio is not None]
    return int(limit is not None and any(ratio.ratio > 1 + limit for ratio in slower))
