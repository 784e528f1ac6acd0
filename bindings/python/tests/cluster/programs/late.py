"""How long a rank takes to exit after a call on a table has timed out; the argument is `raise` or `catch`.

A rank is a parent, which measures, and its child, which joins the world.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import unisono as uni
from note import note

NOTES = Path(os.environ["NOTES"])


def join_and_time_out(how):
    world = uni.init()
    table = uni.ArrayTable(3, consistency="bsp")
    uni.barrier()
    if world.rank == 1:
        while not (NOTES / "0").exists():
            time.sleep(0.05)
        os._exit(0)
    table.add([1, 1, 1])
    try:
        table.get(timeout=1)
    except uni.Timeout:
        (NOTES / "10").write_text(str(time.time()))
        if how == "raise":
            raise


if len(sys.argv) > 2:
    join_and_time_out(sys.argv[1])
else:
    subprocess.run([sys.executable, *sys.argv, "child"], timeout=60)
    if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
        note(0, time.time() - float((NOTES / "10").read_text()))
