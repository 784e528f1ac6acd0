"""Checks that a release can be made, without a network; prints what passed, failed or was left out.

Usage: scripts/release [--tag TAG] [WORD...]
With words, only the steps whose names contain one of them. All steps run even if one fails; the exit
status is 1 if any failed.
"""

import argparse
import shutil
import sys
import time

from steps import ROOT, STEPS, Failure, LeftOut, Release


def main() -> int:
    """Runs the steps; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make release-check")
    parser.add_argument("--tag", default="")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    logs = ROOT / "target/release-check/logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    release = Release(options.tag, logs)
    wanted = {
        name: step
        for name, step in STEPS.items()
        if not options.words or any(word in name for word in options.words)
    }
    if not wanted:
        parser.error(f"expected words from {', '.join(STEPS)}, received {' '.join(options.words)}")
    rows = []
    for name, step in wanted.items():
        print(f"{name} ...", flush=True)
        begin = time.monotonic()
        try:
            status, text = "passed", step(release)
        except LeftOut as reason:
            status, text = "left out", str(reason)
        except Failure as reason:
            status, text = "FAILED", str(reason)
        except Exception as error:
            status, text = "FAILED", f"{type(error).__name__}: {error}"
        rows.append((status, name, time.monotonic() - begin, text))

    print("\n=== release check")
    width = max(len(name) for _, name, _, _ in rows)
    for status, name, seconds, text in rows:
        print(f"{status:8}  {name:{width}}  {seconds:4.0f} s  {text}")
    counts = {word: sum(status == word for status, *_ in rows) for word in ("passed", "FAILED", "left out")}
    print(", ".join(f"{count} {word.lower()}" for word, count in counts.items()))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
