"""Synkhronos' extensions: update rules and training functions."""
