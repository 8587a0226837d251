"""Older versions of the SDKs, in every situation of the HTTP clients' matrix."""

from tests.instrumentation.test_exchanges import *  # noqa: F403
