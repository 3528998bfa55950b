"""Variants: how an adapter builds a model (compiled, in another layout), as they are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlb.adapters import AdapterEnvironment, describe_environment
from dlb.errors import RequestError, WorkerError

__all__ = ["choose"]

#: By adapter, the choices that it offers, each with its values, the default first.
Offers = Mapping[str, Mapping[str, Sequence[str]]]


def choose(
    words: Sequence[str], environments: Sequence[AdapterEnvironment]
) -> dict[str, dict[str, str]]:
    """What is chosen of each adapter that is not its default.

    Args:
        words: ``[ADAPTER:]NAME=VALUE`` each. One without an adapter is for every adapter that
            offers the choice; one with an adapter goes before it.
        environments: the adapters of the request.

    Raises:
        RequestError: a word is malformed or there twice, names an adapter that is not of the
            request, or a choice or a value that is not offered.
    """
    if not words:
        return {}
    parsed = [_parse(word) for word in words]
    if len({(adapter, name) for adapter, name, _ in parsed}) < len(parsed):
        raise RequestError(f"--variant {' '.join(words)}: give each choice once")
    offers = _offers(environments)
    for adapter in (adapter for adapter, _, _ in parsed if adapter and adapter not in offers):
        raise RequestError(
            f"--variant {adapter}: is not of this request; it has {', '.join(offers)}"
        )
    chosen: dict[str, dict[str, str]] = {adapter: {} for adapter in offers}
    # Those with an adapter last, so that they are what holds.
    for adapter, name, value in sorted(parsed, key=lambda one: bool(one[0])):
        for one in _meant(adapter, name, value, offers):
            chosen[one][name] = value
    others = {
        adapter: {name: value for name, value in some.items() if value != offers[adapter][name][0]}
        for adapter, some in chosen.items()
    }
    return {adapter: some for adapter, some in others.items() if some}


def _parse(word: str) -> tuple[str, str, str]:
    """Adapter (empty if none), name and value."""
    left, _, value = word.partition("=")
    adapter, colon, name = left.rpartition(":")
    if not name or not value or (colon and not adapter):
        raise RequestError(
            f"--variant {word}: must be NAME=VALUE or ADAPTER:NAME=VALUE, such as "
            "torch:compile=inductor"
        )
    return adapter, name, value


def _offers(environments: Sequence[AdapterEnvironment]) -> Offers:
    """What each adapter offers; nothing where its environment cannot answer."""
    found = {}
    for environment in environments:
        try:
            described = describe_environment(environment)["adapters"]
        except WorkerError as error:
            raise RequestError(
                f"adapter '{environment.adapter}' cannot tell which variants it offers: {error}; leave "
                "out --variant, or the adapter"
            ) from None
        own = [one for one in described if one["name"] == environment.adapter]
        # Workers that know no variants do not tell any.
        found[environment.adapter] = own[0].get("variants", {}) if own else {}
    return found


def _meant(adapter: str, name: str, value: str, offers: Offers) -> list[str]:
    """The adapters that a word is for, all of which offer the value."""
    word = f"--variant {adapter}{':' if adapter else ''}{name}={value}"
    asked = {adapter: offers[adapter]} if adapter else offers
    found = [one for one, own in asked.items() if name in own]
    if not found:
        raise RequestError(f"{word}: nothing offers '{name}'; {_told(asked)}")
    for one in found:
        if value not in offers[one][name]:
            raise RequestError(
                f"{word}: adapter '{one}' offers no '{value}'; {_told({one: offers[one]})}; "
                f"for one adapter alone: ADAPTER:{name}={value}"
            )
    return found


def _told(offers: Offers) -> str:
    """What is offered, for messages."""
    parts = [
        f"{adapter}:{name}={'|'.join(values)}"
        for adapter, own in offers.items()
        for name, values in own.items()
    ]
    return f"offered: {', '.join(parts) or 'none'}"
