"""A program that exits while calls are in progress."""

import sys
import threading

import numpy as np

import unisono as uni

world = uni.init()
group = world.split(0)
pending = uni.recv(np.zeros(3), 0, wait=False)
if sys.argv[1] == "thread":
    ready = threading.Event()

    def wait():
        ready.set()
        group.recv(np.zeros(3), 0)

    threading.Thread(target=wait, daemon=True).start()
    ready.wait()
if sys.argv[1] == "exit":
    sys.exit(3)
