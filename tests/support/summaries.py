"""Requests as their format has read them, from flat settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.formats import RequestSummary

REQUEST: Final = {each.name for each in fields(RequestFacts)}
RESPONSE: Final = {"stop", "response_id", "response_model", "usage", "reasons", "truncated_choices", "output_chars"}
"""What a response says; its id and its model are named so, as its request has a model too."""
ENDPOINT: Final = {each.name for each in fields(EndpointFacts)}


def request_facts(settings: Mapping[str, Any]) -> RequestFacts:
    """The facts among settings of a request."""
    return RequestFacts(**{name: value for name, value in settings.items() if name in REQUEST})


def endpoint_facts(settings: Mapping[str, Any]) -> EndpointFacts:
    """The facts of an endpoint among settings."""
    return EndpointFacts(**{name: value for name, value in settings.items() if name in ENDPOINT})


def response_facts(settings: Mapping[str, Any]) -> ResponseFacts:
    """The facts of a response among settings."""
    found = {name.removeprefix("response_"): value for name, value in settings.items() if name in RESPONSE}
    return ResponseFacts(**found)


def summarized(history: Sequence[Any] = (), **settings: Any) -> RequestSummary:
    """The summary of a request with this history; its facts are given beside its other fields."""
    other = {name: value for name, value in settings.items() if name not in REQUEST}
    return RequestSummary(facts=request_facts(settings), history=history, length=len(history), **other)
