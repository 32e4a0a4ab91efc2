"""Whether the model hub answers."""

from __future__ import annotations

import urllib.error
import urllib.request

_TIMEOUT_S = 5.0


def reachable(endpoint: str) -> bool:
    """Whether a server answers at ``endpoint`` within seconds; the hub client retries for half a minute."""
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        return False
    return True
