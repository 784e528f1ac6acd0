"""Random calls from several threads, with signals in the middle of them."""

import os

# `make soak` runs longer, with other seeds.
SECONDS = float(os.environ.get("UNISONO_STRESS", "60"))
SEED = os.environ.get("UNISONO_STRESS_SEED", "1")


def test_threads_and_signals(run_ranks):
    job = run_ranks(3, "stress.py", SEED, str(SECONDS), deadline=SECONDS + 260)
    assert job.status == 0, f"with UNISONO_STRESS_SEED={SEED}:\n{job.output}"
    print(job.output)
