"""What all tests share: property tests that judge by laws, never by the clock of a busy machine."""

import gc
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from endturn.continuation import refused_prefills

LAWS = settings(
    deadline=None,  # no test asserts on time
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.register_profile("short", LAWS, max_examples=25)
settings.register_profile("long", LAWS, max_examples=300)  # `make test-all` asks for it
settings.load_profile("short")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and all that it starts

# Each folder there needs the packages of an environment of its own: tests/project/test_environments.py runs it there.
collect_ignore_glob = ["environments/*"]


@pytest.fixture(autouse=True, scope="module")
def _what_is_there_is_no_garbage() -> None:
    """Tests collect garbage often, and the SDKs' modules are most of what would be looked at each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Turns sync their transcripts, thousands of them; the test of that watches a replacement of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of an SDK reads the certificates of all authorities, which takes most of a test's time."""

    read = ssl.SSLContext.load_verify_locations

    def only_ours(self: ssl.SSLContext, cafile: Any = None, *args: Any, **kwargs: Any) -> None:
        if cafile is not None and Path(cafile).stat().st_size < 100_000:  # no bundle: a certificate of a test's own
            read(self, cafile, *args, **kwargs)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", only_ours)


@pytest.fixture(autouse=True)
def _no_model_is_known_to_refuse_a_prefill() -> None:
    """A process remembers it for all of its turns."""
    refused_prefills.forget()
