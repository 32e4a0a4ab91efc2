"""What Ray reads when it is imported: it listens on 127.0.0.1 only, with a token, and reports to nobody."""

from __future__ import annotations

import os
import secrets

os.environ.update(
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
