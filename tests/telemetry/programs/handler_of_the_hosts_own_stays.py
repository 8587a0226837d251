"""A handler of the host's own stays."""

import signal

import endturn


def ours(number: int, frame: object) -> None:
    raise SystemExit(0)


signal.signal(signal.SIGTERM, ours)
before = signal.getsignal(signal.SIGINT)
endturn.configure()
print(signal.getsignal(signal.SIGTERM) is ours, signal.getsignal(signal.SIGINT) is before)
