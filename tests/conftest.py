"""What all tests share: property tests that judge by laws, never by the clock of a busy machine."""

from hypothesis import HealthCheck, settings

LAWS = settings(
    deadline=None,  # no test asserts on time
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.register_profile("short", LAWS, max_examples=25)
settings.register_profile("long", LAWS, max_examples=300)  # `make test-all` asks for it
settings.load_profile("short")

# Each folder there needs the packages of an environment of its own: tests/test_environments.py runs it there.
collect_ignore_glob = ["environments/*"]
