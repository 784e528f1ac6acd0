"""Runs PyTorch's tests of process groups over the backend that BACKEND names; writes outcomes to RESULT.

Ranks are forked from this process, which has imported PyTorch but has started no threads: that takes a
tenth of the time of new processes.
"""

from __future__ import annotations

import json
import os
import re
import sys
import unittest

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

common_distributed.DistTestCases.backend_feature["ddp"].add("unisono")
common_distributed.DistTestCases.backend_feature["subgroup"].add("unisono")
dist.Backend._ensure_backend_registered("unisono")
if os.environ["INSTEAD_OF_GLOO"]:
    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["UNISONO"]
    # DDP's logger reads the C++ object of a group of type GLOO.
    dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM
    from unisono.torch.distributed import operations

    operations.PREFIX = "gloo"

from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)


class ProcessGroups(TestDistBackend, DistributedTest._DistTestBase):
    """The tests of PyTorch, each on forked ranks."""

    def setUp(self) -> None:
        """Starts the ranks."""
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Outcomes(unittest.TestResult):
    """Keeps the outcome of each test, also if a later one never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def _record(self, test: unittest.TestCase, outcome: str) -> None:
        name = test._testMethodName
        self.found[name] = outcome
        print(f"{name}: {outcome}", flush=True)
        with open(os.environ["RESULT"], "w") as file:
            json.dump(self.found, file)

    def addSuccess(self, test: unittest.TestCase) -> None:
        """A test has passed."""
        self._record(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """A test does not apply."""
        self._record(test, "skipped")

    def addFailure(self, test: unittest.TestCase, err: tuple) -> None:
        """A test has failed; the ranks' last error is kept."""
        lines = [
            line.strip() for line in str(err[1]).splitlines() if re.match(r"[\w.]*(Error|Exception)", line)
        ]
        self._record(test, (lines or [repr(err[1])])[-1][:300])
        print(err[1], flush=True)

    addError = addFailure


if __name__ == "__main__":
    names = sys.argv[1:] or unittest.TestLoader().getTestCaseNames(ProcessGroups)
    unittest.TestSuite(map(ProcessGroups, names)).run(Outcomes())
