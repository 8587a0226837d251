"""endturn.transcript: a documented import path; the code is in endturn.continuation.transcript."""

from endturn.continuation import (
    AS_IT_CAME as AS_IT_CAME,
    NOT_RECORDED as NOT_RECORDED,
    VERSION as VERSION,
    Recovered as Recovered,
    Transcript as Transcript,
    played as played,
    recover as recover,
)

__all__ = ["AS_IT_CAME", "NOT_RECORDED", "VERSION", "Recovered", "Transcript", "played", "recover"]
