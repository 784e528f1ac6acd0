"""Expects errors by their words."""

import re

import pytest


def refuses(kind, *words):
    """Expects an exception whose message has all of these words in this order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(re.escape(word) for word in words))
