"""The program `unisono`, also available as `python -m unisono`."""

import signal
import sys

from unisono import _native


def main() -> int:
    """Runs the program with this process's arguments.

    Returns:
        The exit status.
    """
    # The program handles Ctrl-C itself; Python's handler would only record it for later.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _native.main(sys.argv[1:], [sys.executable, "-m", "unisono"])


if __name__ == "__main__":
    sys.exit(main())
