"""The benchmarks of `unisono bench` that are written in Python."""
