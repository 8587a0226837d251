"""endturn.adapters: a documented import path; the code is in endturn.providers.sdk_client."""

from endturn.providers import SdkProvider as SdkProvider, provider as provider

__all__ = ["SdkProvider", "provider"]
