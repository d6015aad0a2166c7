"""How an agent ends, for whoever starts it again: the boot script, systemd, the local cloud.

Python itself ends with 1 for an error that nobody caught and with 2 for a bad command line, so the
agent's own words are others: what is not listed here is a failure, and another try may do better.
The failures in a row are counted by who starts it, and told to it in LOWTIDE_AGENT_FAILURES.
"""

from __future__ import annotations

from typing import Final

LEFT: Final = 0
"""The machine is being given back."""
FAILED: Final = 70
"""An error that nobody caught; EX_SOFTWARE of sysexits.h. Start it again."""
REFUSED: Final = 77
"""The control plane will not have this machine; EX_NOPERM. Another try gets the same answer."""
SETTINGS: Final = 78
"""Its environment is unusable; EX_CONFIG."""

FAILURES_MAX: Final = 5
"""After more failures in a row than this, the agent only says so and gives the machine back."""
