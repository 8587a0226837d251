"""What the page's tests share: a page on a free port, over a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from endturn.ui import server
from endturn.ui.store import Store
from tests.ui.support import Served


@pytest.fixture
def page() -> Iterator[Served]:
    """A page that has nothing yet."""
    with closing(Store()) as store, server.serving(store, server.listen("127.0.0.1", 0)) as url:
        yield Served(url, store)
