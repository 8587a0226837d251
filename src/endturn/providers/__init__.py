"""Calls of models, over HTTP with our own clients or through the application's official SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.providers.call import announce_end as announce_end, stop_by as stop_by
    from endturn.providers.http_client import AsyncClient as AsyncClient, Client as Client
    from endturn.providers.sdk_client import SdkProvider as SdkProvider, provider as provider
    from endturn.providers.sdk_errors import answer_in as answer_in
    from endturn.vocabulary.providers import (
        ALIASES as ALIASES,
        PROVIDERS as PROVIDERS,
        Auth as Auth,
        ProviderEndpoint as ProviderEndpoint,
        canonical as canonical,
        provider_at as provider_at,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            # The table of providers was here before it moved to the vocabulary.
            ".vocabulary.providers": (
                "ALIASES",
                "Auth",
                "PROVIDERS",
                "ProviderEndpoint",
                "canonical",
                "provider_at",
            ),
            "call": ("announce_end", "stop_by"),
            "http_client": ("AsyncClient", "Client"),
            "sdk_client": ("SdkProvider", "provider"),
            "sdk_errors": ("answer_in",),
        },
    )
