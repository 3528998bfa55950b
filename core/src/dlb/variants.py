"""Variants: options of how an adapter builds a model, such as compiled or in another layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlb.adapters import AdapterEnvironment, describe_environment
from dlb.environments import adapter_called
from dlb.errors import SettingError, WorkerError

__all__ = ["choose", "offers_of"]

#: By adapter, the choices that it offers, each with its values; the first value is the default.
Offers = Mapping[str, Mapping[str, Sequence[str]]]


def choose(
    words: Sequence[str], environments: Sequence[AdapterEnvironment]
) -> dict[str, dict[str, str]]:
    """The choices of each adapter that differ from their default.

    Args:
        words: ``[ADAPTER:]NAME=VALUE`` each. A word without an adapter applies to every adapter
            that offers the choice. A word with an adapter overrides it.
        environments: the environments of the request's adapters.

    Returns:
        by adapter, values by choice; only adapters with a choice that is not the default.

    Raises:
        SettingError: a word is malformed or repeated, names an adapter outside the request, or
            names a choice or a value that is not offered.
    """
    if not words:
        return {}
    parsed = [_parse(word) for word in words]
    if len({(adapter, name) for adapter, name, _ in parsed}) < len(parsed):
        raise _refused(" ".join(words), "give each choice once")
    offers = _offers(environments)
    parsed = [(adapter_called(adapter, offers), name, value) for adapter, name, value in parsed]
    for adapter in (adapter for adapter, _, _ in parsed if adapter and adapter not in offers):
        raise _refused(adapter, f"not an adapter of this request; it has {', '.join(offers)}")
    chosen: dict[str, dict[str, str]] = {adapter: {} for adapter in offers}
    # Words with an adapter come last, so that they override the others.
    for named_adapter, name, value in sorted(parsed, key=lambda choice: bool(choice[0])):
        for adapter in _adapters_of_choice(named_adapter, name, value, offers):
            chosen[adapter][name] = value
    changed = {
        adapter: {
            name: value for name, value in choices.items() if value != offers[adapter][name][0]
        }
        for adapter, choices in chosen.items()
    }
    return {adapter: choices for adapter, choices in changed.items() if choices}


def _refused(word: str, reason: str) -> SettingError:
    return SettingError(lambda name: f"{name('variants')} {word}: {reason}")


def _parse(word: str) -> tuple[str, str, str]:
    """The adapter ("" if none), the name and the value of a word."""
    left, _, value = word.partition("=")
    adapter, colon, name = left.rpartition(":")
    if not name or not value or (colon and not adapter):
        raise _refused(
            word, "must be NAME=VALUE or ADAPTER:NAME=VALUE, such as torch:compile=inductor"
        )
    return adapter, name, value


def _offers(environments: Sequence[AdapterEnvironment]) -> Offers:
    """The choices that each adapter offers.

    Raises:
        SettingError: an environment's worker failed.
    """
    return {environment.adapter: offers_of(environment) for environment in environments}


def offers_of(environment: AdapterEnvironment) -> Mapping[str, Sequence[str]]:
    """The choices that an adapter offers, each with its values, the default first.

    Raises:
        SettingError: the environment's worker failed.
    """
    try:
        described = describe_environment(environment)["adapters"]
    except WorkerError as error:
        reason = f"adapter '{environment.adapter}' could not report its variants: {error}"
        raise SettingError(
            lambda name: f"{reason}; leave out {name('variants')}, or the adapter"
        ) from None
    entries = [entry for entry in described if entry["name"] == environment.adapter]
    # A worker without variants may leave the field out.
    offers: Mapping[str, Sequence[str]] = entries[0].get("variants", {}) if entries else {}
    return offers


def _adapters_of_choice(named_adapter: str, name: str, value: str, offers: Offers) -> list[str]:
    """The adapters that a word applies to.

    Raises:
        SettingError: no adapter offers the choice, or one of them does not offer the value.
    """
    word = f"{named_adapter}{':' if named_adapter else ''}{name}={value}"
    candidates = {named_adapter: offers[named_adapter]} if named_adapter else offers
    adapters = [adapter for adapter, choices in candidates.items() if name in choices]
    if not adapters:
        raise _refused(word, f"nothing offers '{name}'; {_describe_offers(candidates)}")
    for adapter in adapters:
        if value not in offers[adapter][name]:
            raise _refused(
                word,
                f"adapter '{adapter}' offers no '{value}'; "
                f"{_describe_offers({adapter: offers[adapter]})}; "
                f"for one adapter alone: ADAPTER:{name}={value}",
            )
    return adapters


def _describe_offers(offers: Offers) -> str:
    """The offered choices as text for messages."""
    texts = [
        f"{adapter}:{name}={'|'.join(values)}"
        for adapter, choices in offers.items()
        for name, values in choices.items()
    ]
    return f"offered: {', '.join(texts) or 'none'}"
