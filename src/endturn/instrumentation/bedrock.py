"""AWS's SDKs (botocore below boto3, aiobotocore): the one method through which a client makes every call.

`BaseClient._make_api_call` is a whole call, retries included; the clients that are generated for each service inherit
it. Only four operations of `bedrock-runtime` are watched. What they return stays what it is: the event stream and the
body in it are the SDK's own, read when their host reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Caller
from endturn.instrumentation import botocore_bodies, sdk_call
from endturn.instrumentation.hosts import Home
from endturn.instrumentation.patches import Patch, put
from endturn.instrumentation.sdk_call import SdkCall
from endturn.stop import Stop, StopReason
from endturn.wires import wire

PROVIDER: Final = "aws.bedrock"
SERVICE: Final = "bedrock-runtime"

_NO_STREAMS: Final = (type(None), type(None))

Active = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation that is watched.

    Attributes:
        wire: what its calls look like.
        events, body: the member of its answer that is a stream of events, or a body as bytes.
    """

    wire: str
    events: str | None = None
    body: str | None = None


OPERATIONS: Final = {
    "Converse": _Operation("bedrock_converse"),
    "ConverseStream": _Operation("bedrock_converse", events="stream"),
    "InvokeModel": _Operation("bedrock_invoke", body="body"),
    "InvokeModelWithResponseStream": _Operation("bedrock_invoke", events="body"),
}
"""What asks a model and waits for its answer; not jobs, guardrails alone, or counting tokens."""


def patch(module: ModuleType, active: Active) -> Iterator[Patch]:
    """Wrap the base of boto3's clients, in `botocore.client`.

    Args:
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    yield put(module.BaseClient, "_make_api_call", _call(module.BaseClient._make_api_call, active))


def patch_async(module: ModuleType, active: Active) -> Iterator[Patch]:
    """Wrap the base of aiobotocore's clients, in `aiobotocore.client`: its method is one of its own."""
    yield put(module.AioBaseClient, "_make_api_call", _acall(module.AioBaseClient._make_api_call, active))


def _call(original: Any, active: Active) -> Any:
    @wraps(original)
    def _make_api_call(self: Any, operation_name: Any, api_params: Any) -> Any:
        watched = _begin(self, operation_name, api_params, active) if operation_name in OPERATIONS else None
        if watched is None:
            return original(self, operation_name, api_params)
        under_way, operation = watched
        try:
            with under_way.step():
                result = original(self, operation_name, api_params)
        except BaseException as error:
            _failed(under_way, error)
            raise
        _take(under_way, operation, result, asynchronous=False)
        return result

    return _make_api_call


def _acall(original: Any, active: Active) -> Any:
    @wraps(original)
    async def _make_api_call(self: Any, operation_name: Any, api_params: Any) -> Any:
        watched = _begin(self, operation_name, api_params, active) if operation_name in OPERATIONS else None
        if watched is None:
            return await original(self, operation_name, api_params)
        under_way, operation = watched
        try:
            with under_way.step():
                result = await original(self, operation_name, api_params)
        except BaseException as error:
            _failed(under_way, error)
            raise
        _take(under_way, operation, result, asynchronous=True)
        return result

    return _make_api_call


def _begin(client: Any, name: str, asked: Any, active: Active) -> tuple[SdkCall, _Operation] | None:
    if not active() or not announce.listening():
        return None
    try:
        meta = client.meta
        if meta.service_model.service_name != SERVICE:
            return None
        operation = OPERATIONS[name]
        home = _home(str(meta.endpoint_url))
        under_way = sdk_call.opened(
            wire(operation.wire), asked, home, stream=operation.events is not None, caller=Caller(id(client))
        )
    except Exception:
        swallow("opening a call")
        return None
    return None if under_way is None else (under_way, operation)


@lru_cache(maxsize=256)
def _home(url: str) -> Home:
    parts = urlsplit(url)
    port = parts.port or (80 if parts.scheme == "http" else 443)
    return Home(PROVIDER, "", parts.hostname, None if port == 443 else port)


def _failed(under_way: SdkCall, error: BaseException) -> None:
    """The SDK raised; its ClientError holds the answer as parsed, and the status and headers that it came with."""
    try:
        answer = getattr(error, "response", None)
        if isinstance(error, Exception) and isinstance(answer, Mapping) and "Error" in answer:
            said, about = answer["Error"], answer.get("ResponseMetadata", {})
            status, headers = about.get("HTTPStatusCode"), about.get("HTTPHeaders", {})
            if isinstance(status, int):
                beside = {name: each for name, each in answer.items() if name not in ("Error", "ResponseMetadata")}
                body = {**beside, "__type": said.get("Code"), "message": said.get("Message")}
                content = json.dumps(body, default=str).encode()
                found = under_way.wire.decode_error(status, headers, content, ctx=under_way.context)
                under_way.scope.end(found.stop or Stop(StopReason.ERROR, incomplete=True), error=error)
                return
    except Exception:
        swallow("reading an error")
    under_way.failed(error)


def _take(under_way: SdkCall, operation: _Operation, result: Any, *, asynchronous: bool) -> None:
    """What the SDK hands to its host: an answer, or one in which a stream or a body is still to be read."""
    try:
        if operation.events is not None and operation.events in result:
            watch = under_way.watching()
            botocore_bodies.watch_events(under_way.scope, watch, result[operation.events], asynchronous=asynchronous)
        elif operation.body is not None and operation.body in result:
            watch = under_way.watching()
            watch.see(result)  # the headers: some models' bodies say nothing of tokens
            botocore_bodies.watch_body(under_way.scope, watch, result[operation.body], asynchronous=asynchronous)
        else:
            under_way.take(result, _NO_STREAMS)
    except Exception:
        swallow("watching a response")
        under_way.take(None, _NO_STREAMS)
