"""What `unisono bench` measures in Python."""
