"""The post-import hooks of worker libraries: what they import while the host's import runs."""

from __future__ import annotations

import pytest

from tests.support.import_orders import run_order


@pytest.mark.parametrize("name", ["billiard.util", "celery.signals", "rq.worker"])
def test_a_workers_hook_imports_nothing(name: str) -> None:
    assert run_order("hook", name)[name] == []
