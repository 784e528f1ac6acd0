"""Fits a line to noisy points, on any number of processes.

Start it with: unisono run -n 2 -- train.py
"""

import numpy as np

import unisono as uni

STEPS = 200
LEARNING_RATE = 0.5

world = uni.init()  # a world of one, unless a launcher started this process

# Every rank has its own points. A real script reads a different part of the data on each rank.
random = np.random.default_rng(world.rank)
x = random.uniform(-1, 1, size=1000)
y = 3 * x + 0.5 + random.normal(scale=0.1, size=1000)

line = np.zeros(2)  # slope and intercept, the same on all ranks
for step in range(1, STEPS + 1):
    error = line[0] * x + line[1] - y
    gradient = np.array([np.mean(error * x), np.mean(error)])
    uni.all_reduce(gradient, op="avg")  # in place: the mean over all ranks
    line -= LEARNING_RATE * gradient

    if step % 50 == 0:
        loss = uni.all_reduce(np.array([np.mean(error**2)]), op="avg")
        if world.rank == 0:
            print(f"step {step}: loss {loss[0]:.4f}, slope {line[0]:.2f}, intercept {line[1]:.2f}")
