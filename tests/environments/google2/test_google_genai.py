"""The major before the current one, in every situation of the HTTP clients' matrix."""

from tests.instrumentation.test_exchanges import *  # noqa: F403
