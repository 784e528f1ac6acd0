"""The program `unisono`; also: python -m unisono."""

import signal
import sys

from unisono import _native


def main() -> int:
    """Runs the program with this process's arguments.

    Returns:
        Its exit status.
    """
    # The program handles Ctrl-C itself; Python's handler would only note it for later.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(sys.argv[1:], [sys.executable, "-m", "unisono"])


if __name__ == "__main__":
    sys.exit(main())
