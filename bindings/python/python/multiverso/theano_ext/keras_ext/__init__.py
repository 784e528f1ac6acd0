"""Multiverso's extension for Keras."""
