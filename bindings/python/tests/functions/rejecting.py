"""Checks of error messages."""

import re

import pytest


def rejects(kind, *words):
    """Expects an exception whose message contains all of these words in this order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(re.escape(word) for word in words))
