"""The examples of agent frameworks do what they say, each as its user runs it."""

from tests.project.test_examples import *  # noqa: F403
