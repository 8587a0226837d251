"""Sign requests for AWS with botocore and the credentials that AWS's own SDKs would find."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from endturn.errors import UsageError

Signer = Callable[[str, str, Mapping[str, str], bytes], dict[str, str]]
"""(method, URL, headers, content) → the headers to send."""

_SERVICE: Final = "bedrock"
"""The service that signatures for bedrock-runtime name."""


def signer(region: str) -> Signer:
    """Return a function that signs requests for Bedrock.

    The credentials are searched once, as boto3 does (environment, files, roles), and renewed by
    botocore when they expire. The signature covers the URL and the content, which must not change
    afterwards.

    Raises:
        UsageError: botocore is not installed, or finds no credentials.
    """
    try:
        session: Any = import_module("botocore.session").get_session()
        aws_error: Any = import_module("botocore.exceptions").BotoCoreError
        auth: Any = import_module("botocore.auth").SigV4Auth
        aws_request: Any = import_module("botocore.awsrequest").AWSRequest
    except ImportError:
        raise UsageError(
            "requests to Bedrock are signed with botocore: pip install 'endturn[bedrock]'; or give "
            "api_key, a Bedrock API key"
        ) from None
    try:
        credentials = session.get_credentials()
    except aws_error as error:
        raise UsageError(f"the AWS credentials cannot be used: {error}") from error
    if credentials is None:
        raise UsageError(
            "no AWS credentials found: configure them as for boto3 (AWS_ACCESS_KEY_ID, a profile, "
            "a role), or set AWS_BEARER_TOKEN_BEDROCK"
        )

    def sign(method: str, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, str]:
        request = aws_request(method=method, url=url, data=content, headers=dict(headers))
        auth(credentials.get_frozen_credentials(), _SERVICE, region).add_auth(request)
        return dict(request.headers.items())

    return sign
