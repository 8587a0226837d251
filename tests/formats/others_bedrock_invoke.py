"""What invoked models of Bedrock are asked that is no text, and what they answer (user guide, model parameters)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PROFILE = "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/abc123"
OTHERS: dict[str, tuple[Any, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""model → a request's body, and an answer's."""
