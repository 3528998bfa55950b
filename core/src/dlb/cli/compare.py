"""``dlb compare``: the cells of a measurement next to each other, or those of two measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlb.cli.output import json_option, print_json, print_table
from dlb.cli.rounds import share_of

if TYPE_CHECKING:
    from dlb.measure.ratios import Ratio
    from dlb.results.measurement import Cell, Measurement

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
@json_option
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
    from dlb.results.measurement import latest

    limit = None if fail_slower is None else share_of("--fail-slower", fail_slower)
    if len(results) not in (1, 2):
        raise click.UsageError("give one or two results folders or measurements")
    if len(results) == 1:
        return _within(latest(results[0]), baseline, limit, as_json)
    if baseline is not None:
        raise click.UsageError(
            "--baseline is about one measurement; the first of two is the baseline"
        )
    return _between(latest(results[0]), latest(results[1]), limit, force, as_json)


def _within(
    measurement: Measurement, baseline: str | None, limit: float | None, as_json: bool
) -> int:
    from dlb.cli.measurements import compared_cells, measurement_document, print_measurement
    from dlb.errors import UnknownNameError

    names = [cell.adapter for cell in measurement.cells]
    if baseline is not None and baseline not in names:
        raise UnknownNameError("adapter of the measurement:", baseline, names, "")
    place = 0 if baseline is None else names.index(baseline)
    if as_json:
        print_json(measurement_document(measurement, place))
    else:
        print_measurement(measurement, place)
    ratios = [each.ratio for each in compared_cells(measurement, place) if each.ratio is not None]
    return _status(ratios, limit)


def _between(
    first: Measurement, second: Measurement, limit: float | None, force: bool, as_json: bool
) -> int:
    import msgspec

    from dlb.cli.measurements import cell_names
    from dlb.errors import RequestError
    from dlb.measure.comparison import figures_by_round
    from dlb.measure.ratios import ratio_unpaired, word_for

    differ = list(_other_machine(first, second))
    if differ and not force:
        raise RequestError(
            f"they are of two machines ({'; '.join(differ)}): a ratio would be that of the machines; "
            "--force compares them all the same"
        )
    rows, compared, ratios = [], [], []
    names = cell_names(second)
    for place, cell in enumerate(second.cells):
        other = _counterpart(first, cell)
        if other is None:
            continue
        times = list(figures_by_round(second.trials, place).values())
        before = list(figures_by_round(first.trials, other).values())
        name = names[place]
        if not times or not before:
            rows.append([name, "-", "no steady trial on one side", ""])
            continue
        ratio = ratio_unpaired(times, before)
        word = word_for(ratio, max(first.margin, second.margin))
        ratios.append(ratio)
        compared.append({"adapter": name, "ratio": msgspec.to_builtins(ratio), "word": word})
        interval = f"{ratio.low:.3f} to {ratio.high:.3f}"
        rows.append([name, f"{ratio.ratio:.3f}", interval, word])
    if not rows:
        raise RequestError("the two measurements have no adapter with the same variant in common")
    others = [*differ, *_differences(first, second)]
    if as_json:
        print_json(
            {"first": first.name, "second": second.name, "compared": compared, "differ": others}
        )
    else:
        columns = ["adapter", "times before", "interval", ""]
        print_table(columns, rows, f"{second.name} next to {first.name}", right=columns[1:2])
        for line in others:
            click.echo(f"Also different: {line}")
        click.echo("The two were measured at other times: what drifted in between is in the ratios")
    return _status(ratios, limit)


def _status(ratios: list[Ratio], limit: float | None) -> int:
    slower = limit is not None and any(
        ratio.low > 1 and ratio.ratio > 1 + limit for ratio in ratios
    )
    return 1 if slower else 0


def _same_cell(one: Cell, other: Cell) -> bool:
    """Whether both are one adapter in one way, with any number of threads."""
    ways = [(cell.adapter, cell.options.variant, cell.options.variables) for cell in (one, other)]
    return ways[0] == ways[1]


def _counterpart(first: Measurement, cell: Cell) -> int | None:
    """The place of the same cell in another measurement, with as many threads if there is such a one."""
    places = [place for place, each in enumerate(first.cells) if _same_cell(each, cell)]
    alike = [p for p in places if first.cells[p].options.threads == cell.options.threads]
    if alike:
        return alike[0]
    return places[0] if len(places) == 1 else None


def _other_machine(first: Measurement, second: Measurement) -> Iterator[str]:
    for fact in ("cpu", "physical_cores", "logical_cores", "memory_bytes"):
        one, other = first.machine.get(fact), second.machine.get(fact)
        if one != other:
            yield f"{fact}: {one}, {other}"


def _state(measurement: Measurement) -> dict[str, Any]:
    """The state of the machine; empty if it was not kept."""
    state = measurement.machine.get("state")
    return state if isinstance(state, dict) else {}


def _differences(first: Measurement, second: Measurement) -> Iterator[str]:
    """What else differs between two measurements."""
    import msgspec

    for fact in ("available_cores", "system", "python"):
        one, other = first.machine.get(fact), second.machine.get(fact)
        if one != other:
            yield f"{fact}: {one}, {other}"
    states = [_state(each) for each in (first, second)]
    for fact in ("governor", "boost", "transparent_hugepages"):
        one, other = (each.get(fact) for each in states)
        if one != other:
            yield f"{fact}: {one}, {other}"
    if first.core != second.core:
        yield f"dlb: {first.core.get('version')}, {second.core.get('version')}, or its commit"
    for cell in second.cells:
        place = _counterpart(first, cell)
        if place is None:
            continue
        each = first.cells[place]
        if each.framework != cell.framework:
            yield f"{cell.adapter}: {each.framework}, {cell.framework}"
        if each.workload_hash != cell.workload_hash:
            yield f"{cell.adapter}: the workload"
        before: dict[str, Any] = msgspec.to_builtins(each.options)
        after: dict[str, Any] = msgspec.to_builtins(cell.options)
        for name in before:
            if before[name] != after[name]:
                yield f"{cell.adapter}, {name}: {before[name]}, {after[name]}"
