"""What all tests share: property tests that judge by laws, never by the clock of a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "endturn",
    deadline=None,  # no test asserts on time
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
settings.load_profile("endturn")

# Each folder there needs the packages of an environment of its own: tests/test_environments.py runs it there.
collect_ignore_glob = ["environments/*"]
