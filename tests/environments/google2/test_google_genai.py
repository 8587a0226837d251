"""The major before the current one: every fact about the current one is one about it."""

from tests.telemetry.test_google_genai import *  # noqa: F403
