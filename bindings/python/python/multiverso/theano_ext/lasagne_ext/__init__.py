"""Multiverso's extension for Lasagne."""
