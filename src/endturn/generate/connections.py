"""What a Collector is connected to: where telemetry comes in and goes out, what it keeps on disk, who may come in."""

from __future__ import annotations

from textwrap import indent
from typing import Final


def filled(text: str, **values: object) -> str:
    """A block of configuration with its `@name@`s replaced. Braces and dollars are the Collector's own."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text.strip("\n")


def duration(seconds: int) -> str:
    """Seconds as the Collector writes them, in the largest unit that fits."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


# --- In -----------------------------------------------------------------------------------------------------------

_OTLP: Final = """
otlp:
  protocols:
    # Sizes are of what a message unpacks to: a small one that unpacks to a huge one is refused, too. A message of
    # nothing but lists within lists, of some 10 MiB, would overflow the stack of the process, and from the queue
    # again after each start.
    grpc:
      endpoint: ${env:ENDTURN_COLLECTOR_HOST:-127.0.0.1}:${env:ENDTURN_COLLECTOR_GRPC_PORT:-4317}
      max_recv_msg_size_mib: 4@auth@
    http:
      endpoint: ${env:ENDTURN_COLLECTOR_HOST:-127.0.0.1}:${env:ENDTURN_COLLECTOR_HTTP_PORT:-4318}
      max_request_body_size: ${env:ENDTURN_COLLECTOR_MESSAGE_BYTES:-4194304}@auth@
"""


def otlp(*, token: bool = False) -> str:
    """The receiver of applications' telemetry."""
    return filled(_OTLP, auth="\n      auth:\n        authenticator: bearertokenauth" if token else "")


ITSELF: Final = """\
# The Collector's own heartbeat comes in here, without a token, from this machine only.
otlp/self:
  protocols:
    http:
      endpoint: 127.0.0.1:${env:ENDTURN_COLLECTOR_SELF_PORT:-4319}"""

TLS: Final = """\
# Laid over gateway.yaml: what comes in is encrypted. The key must be readable by the Collector alone.
receivers:
  otlp:
    protocols:
      grpc:
        tls: &encrypted
          cert_file: ${env:ENDTURN_TLS_CERT}
          key_file: ${env:ENDTURN_TLS_KEY}
          min_version: "1.2"
          reload_interval: 1h # a renewed certificate is read without a restart
          # client_ca_file: asks callers for a certificate of theirs, besides the token
      http:
        tls: *encrypted
"""

# --- Out ----------------------------------------------------------------------------------------------------------

QUEUES: Final = """\
# Queues are on disk: what was accepted survives a restart, and a back end that is away for as long as there is
# room. Batches are made in the queues. Sizes are in bytes, because spans and log records differ in size a
# thousandfold and Tempo refuses messages above 4 MiB. max_elapsed_time 0: an attempt is repeated until it succeeds,
# or is refused for good."""

_SENDING: Final = """
retry_on_failure:
  enabled: true
  initial_interval: 1s
  max_interval: 30s
  max_elapsed_time: 0
sending_queue:
  storage: file_storage
  sizer: bytes
  queue_size: ${env:ENDTURN_COLLECTOR_QUEUE_BYTES:-1073741824} # for each signal; a full queue refuses
  num_consumers: @consumers@
  batch:
    sizer: bytes
    flush_timeout: 500ms
    min_size: 524288
    max_size: 3145728
"""

_TEMPO: Final = """
otlp_grpc/tempo:
  endpoint: ${env:ENDTURN_TEMPO_ENDPOINT:-127.0.0.1:14317}
  tls: # insecure on one host, or Compose's own network
    insecure: ${env:ENDTURN_TEMPO_INSECURE:-@insecure@}
"""

_GATEWAY: Final = """
otlp_grpc/gateway:
  endpoint: ${env:ENDTURN_GATEWAY_ENDPOINT:-127.0.0.1:14317}
  headers:
    authorization: Bearer ${env:ENDTURN_GATEWAY_TOKEN:-none}
  tls:
    insecure: ${env:ENDTURN_GATEWAY_INSECURE:-false}
    ca_file: ${env:ENDTURN_GATEWAY_CA:-} # of a certificate that the system does not know
"""

_LOKI: Final = """
otlp_http/loki:
  endpoint: ${env:ENDTURN_LOKI_URL:-http://127.0.0.1:3100}/otlp
"""

_PROMETHEUS: Final = """
otlp_http/prometheus:
  endpoint: ${env:ENDTURN_PROMETHEUS_URL:-http://127.0.0.1:9090}/api/v1/otlp
"""

_SCRAPED: Final = """
# What is counted here is scraped (job collector-counts, honor_labels), not pushed: a pushed counter is seen only
# when it moves, and one that moves every ten minutes would vanish in between.
prometheus/counted:
  endpoint: ${env:ENDTURN_COLLECTOR_HOST:-127.0.0.1}:${env:ENDTURN_COLLECTOR_COUNTS_PORT:-8889}
  metric_expiration: @stale@
  without_scope_info: true # the same labels as the library's
"""


def tempo(*, insecure: bool) -> str:
    """Traces to Tempo."""
    return _queued(filled(_TEMPO, insecure=str(insecure).lower()))


def loki() -> str:
    """Logs to Loki."""
    return _queued(filled(_LOKI))


def prometheus() -> str:
    """Metrics to Prometheus."""
    return _queued(filled(_PROMETHEUS), consumers="1 # two at once could deliver a counter's points in the wrong order")


def gateway() -> str:
    """Everything to a gateway, or to any OTLP back end."""
    return _queued(filled(_GATEWAY))


def scraped(stale: int) -> str:
    """The Collector's counts, to be scraped; a counter is offered for `stale` seconds after its last response."""
    return filled(_SCRAPED, stale=duration(stale))


def _queued(exporter: str, *, consumers: str = "4") -> str:
    return f"{exporter}\n{indent(filled(_SENDING, consumers=consumers), '  ')}"


# --- Beside -------------------------------------------------------------------------------------------------------

HEALTH: Final = """\
health_check:
  endpoint: ${env:ENDTURN_COLLECTOR_HOST:-127.0.0.1}:${env:ENDTURN_COLLECTOR_HEALTH_PORT:-13133}"""

AUTHENTICATION: Final = """\
# Empty, and the Collector does not start.
bearertokenauth:
  token: ${env:ENDTURN_COLLECTOR_TOKEN}"""

STORAGE: Final = """\
# Of one Collector alone. It survives the process; with fsync also a loss of power, at a price per message.
file_storage:
  directory: ${env:ENDTURN_COLLECTOR_DATA:-/var/lib/otelcol}
  create_directory: true
  fsync: ${env:ENDTURN_COLLECTOR_FSYNC:-false}
  recreate: true # a file that cannot be read is set aside, instead of keeping the Collector from starting
  compaction:
    on_start: true
    on_rebound: true
    directory: ${env:ENDTURN_COLLECTOR_DATA:-/var/lib/otelcol}
    cleanup_on_start: true"""

_OWN: Final = """
telemetry:
  resource:
    attributes:
      - name: service.name
        value: endturn-collector
      # Stays the same over restarts, and differs between Collectors: it tells their counts apart.
      - name: service.instance.id
        value: ${env:ENDTURN_COLLECTOR_ID:-${env:HOSTNAME:-collector}}
  metrics:
    level: normal
    readers:
      # Scraped by Prometheus: says what is wrong even when the path below is.
      - pull:
          exporter:
            prometheus:
              host: ${env:ENDTURN_COLLECTOR_HOST:-127.0.0.1}
              port: ${env:ENDTURN_COLLECTOR_METRICS_PORT:-8888}
"""

_HEARTBEAT: Final = """
      # Pushed into our own receiver: the heartbeat goes the very way of the applications' metrics, so its absence
      # at some moment says that theirs could not arrive either. (0.0.0.0 as a destination means this machine.) The
      # price: on the way down the last push finds the receiver closed, so the collector says so and exits with
      # status 1. Nothing is lost.
      - periodic:
          interval: ${env:ENDTURN_COLLECTOR_HEARTBEAT_MILLISECONDS:-15000}
          exporter:
            otlp:
              protocol: http/protobuf
              endpoint: @endpoint@
"""


def telemetry(heartbeat: str = "") -> str:
    """What the Collector says of itself; the heartbeat goes to that URL."""
    own = filled(_OWN)
    return f"{own}\n{filled(_HEARTBEAT, endpoint=heartbeat)}" if heartbeat else own
