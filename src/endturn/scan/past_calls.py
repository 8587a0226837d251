"""Calls and turns from files, before copies are removed and records are created."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, Strategy, TurnOutcome
from endturn.vocabulary import Stop, StopReason


class Evidence(StrEnum):
    """The place in the file that shows how a response ended."""

    RECORDED = "recorded"
    """The response's own stop reason is in the file."""
    OTHER_RECORD = "other_record"
    """The response has no reason, but another record of the file shows how it ended."""
    NOT_RECORDED = "not_recorded"
    """The file does not contain it. Such a call counts in no rate."""


UNRECORDED_STOP: Final = Stop(StopReason.UNKNOWN, terminal_seen=False)
"""The stop of a call whose evidence is NOT_RECORDED: neither finished nor truncated."""

CANCELLED_STOP: Final = Stop(StopReason.CANCELLED, terminal_seen=False, incomplete=True)
"""The stop of a response that the user interrupted."""

TRUNCATED_STOP: Final = Stop(StopReason.MAX_TOKENS, incomplete=True)
"""The stop of a response that another record marks as truncated by the output limit."""

FAILED_STOP: Final = Stop(StopReason.ERROR, terminal_seen=False, incomplete=True)
"""The stop of an attempt that failed without a response."""


@dataclass(slots=True, kw_only=True)
class PastCall:
    """One response, or one failed attempt, from a file.

    Attributes:
        key: the identity of the call in all files: usually the provider's response id. Calls of
            one source with the same key are copies of one call.
        request, endpoint, response: the facts that a live call records. Facts that the file lacks
            keep their defaults. `response.stop` is UNRECORDED_STOP if `evidence` is
            NOT_RECORDED.
        evidence: the place in the file that shows how the response ended.
        started_ns, ended_ns: wall clock; None if the file lacks them.
        strategy: how this call continues an earlier one; None for an ordinary call.
        continues: the key of the call that it continues.
        error: the kind of error of an attempt that failed, such as "529"; None for a response.
        tool_calls: ids of the tool calls that the response asks for.
        ran_cut_tool_call: the response is truncated, and a tool call of it was run all the same.
        version: of the tool that wrote the file.
        offset: of the record in the decompressed file, in bytes.
        is_copy: the file itself says that the record was copied from another one.
        path: the file, as it is shown.
        digest: of the beginning of the record, or of the state of its file; None for none.
    """

    key: str
    request: RequestFacts = field(default_factory=RequestFacts)
    endpoint: EndpointFacts = field(default_factory=EndpointFacts)
    response: ResponseFacts = field(default_factory=lambda: ResponseFacts(stop=UNRECORDED_STOP))
    evidence: Evidence = Evidence.NOT_RECORDED
    started_ns: int | None = None
    ended_ns: int | None = None
    strategy: Strategy | None = None
    continues: str | None = None
    error: str | None = None
    tool_calls: tuple[str, ...] = ()
    ran_cut_tool_call: bool = False
    version: str = ""
    offset: int | None = None
    is_copy: bool = False
    path: str = ""
    digest: int | None = None

    @property
    def truncated(self) -> bool:
        """True if the response is known to be truncated."""
        return self.response.stop.truncated


@dataclass(slots=True, kw_only=True)
class PastTurn:
    """The calls of an agent for one message of its user, from a file.

    Attributes:
        id: the identity of the turn in all files. Turns of one source with the same id are copies.
        source: the `title` of the source; agent: the agent's own name where the file has one.
        session: the id of the session; project: the folder or project that it was about.
        calls: in the order of the file.
        started_ns: when the user's message came.
        is_interrupted: the user stopped it.
        error: the turn ended with this error.
        outcome: how the turn ended, where the file says it.
        runs_tools: the agent runs the tools that a response asks for and gives the results back, so
            a turn that ends with such a response did not end as far as the file says: its agent
            was killed, or still works. False where the response itself may be the answer.
        has_user_message: False for calls that no message of a user began (a warm-up, a title):
            they count as calls, and are no turn.
        parent_tool_call: the id of the tool call that started this turn, of a sub-agent.
        parent_session: the id of the session that started this turn, of a sub-agent.
        path: the file, as it is shown.
        offset: of the record with the user's message in the decompressed file, in bytes.
        digest: of the beginning of that record, or of the state of its file; None for none.
    """

    id: str
    source: str
    agent: str = ""
    session: str = ""
    project: str = ""
    calls: list[PastCall] = field(default_factory=list)
    started_ns: int | None = None
    is_interrupted: bool = False
    error: str | None = None
    outcome: TurnOutcome | None = None
    runs_tools: bool = False
    has_user_message: bool = True
    parent_tool_call: str | None = None
    parent_session: str | None = None
    path: str = ""
    offset: int | None = None
    digest: int | None = None

    @property
    def has_record(self) -> bool:
        """True if the file has an answer, an error or an interruption of the turn.

        A prompt without any of them may not have reached a model.
        """
        return bool(self.calls) or self.error is not None or self.is_interrupted
