"""Measures the programs of examples/applications in turns with Vowpal Wabbit and with plain PyTorch.

All of them read, or generate, the same samples. The area under the curve on other samples is printed, too:
figures of models that predict worse do not count.

    python benches/peers/click_prediction.py
    python benches/peers/click_prediction.py --vowpal-wabbit ENVIRONMENT/bin/python

Vowpal Wabbit is measured if an interpreter has it (`pip install vowpalwabbit`).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

APPLICATIONS = Path(__file__).resolve().parents[2] / "examples/applications"
sys.path.insert(0, str(APPLICATIONS))
from clicks import CATEGORIES, NUMBERS, Generated, area_under_curve  # noqa: E402

ROWS = 10_000
# The options are those of ftrl.py; the time includes reading the samples as text.
VOWPAL_WABBIT = """
import sys, time
from vowpalwabbit import Workspace
folder = sys.argv[1]
rule = "--ftrl --ftrl_alpha 0.1 --ftrl_beta 1 --l1 1 --l2 1 -b 20 --loss_function logistic --noconstant"
begin = time.perf_counter()
Workspace(f"{rule} --hash all --quiet -d {folder}/train.vw -f {folder}/model").finish()
print(time.perf_counter() - begin)
Workspace(f"-t --quiet -d {folder}/test.vw -i {folder}/model -p {folder}/scores").finish()
"""
Run = Callable[[], tuple[float, float]]


def write(folder: Path, name: str, batch: int, count: int) -> np.ndarray:
    """Writes the same samples in the formats of LIBSVM and Vowpal Wabbit; returns the labels."""
    numbers, ids, clicked = Generated(ROWS).samples(batch, count)
    ids = ids + ROWS * np.arange(CATEGORIES) + NUMBERS
    with (folder / f"{name}.txt").open("w") as ours, (folder / f"{name}.vw").open("w") as theirs:
        for label, values, row in zip(clicked, numbers, ids, strict=True):
            features = [f"{at}:{value:.4g}" for at, value in enumerate(values)]
            text = " ".join([*features, *(f"{one}:1" for one in row)])
            ours.write(f"{label:.0f} {text}\n")
            theirs.write(f"{1 if label else -1} | {text}\n")
    return clicked


def output(command: list[str], **variables: str) -> str:
    """What a program prints."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def figures(text: str) -> tuple[float, float]:
    """The last samples per second, and the area under the curve, that a program has printed."""
    rates = re.findall(r"([\d,]+) samples/s", text)
    return float(rates[-1].replace(",", "")), float(re.findall(r"area under the curve: ([\d.]+)", text)[0])


def ours(workers: int, script: str, *options: str) -> Run:
    """A program on some workers, with one thread each."""
    launcher = [] if workers == 1 else ["-m", "unisono", "run", "-n", str(workers), "--"]
    command = [sys.executable, *launcher, str(APPLICATIONS / script), *options]
    return lambda: figures(output(command, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"))


def main() -> None:
    """Prints samples per second, and the area under the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=400_000, help="for logistic regression")
    parser.add_argument("--steps", type=int, default=300, help="of the deep model, with 512 samples each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--vowpal-wabbit", help="an interpreter that has it")
    arguments = parser.parse_args()
    workers = sorted({1, arguments.workers})
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, "train", 0, arguments.samples)
        clicked = write(folder, "test", 1, arguments.samples // 8)

        def vowpal_wabbit() -> tuple[float, float]:
            seconds = float(output([arguments.vowpal_wabbit, "-c", VOWPAL_WABBIT, name]))
            scores = np.loadtxt(folder / "scores", usecols=0)
            return arguments.samples / seconds, area_under_curve(scores, clicked)

        linear = {"Vowpal Wabbit, 1 process": vowpal_wabbit} if arguments.vowpal_wabbit else {}
        for count in workers:
            files = [str(folder / "train.txt"), "--test", str(folder / "test.txt")]
            linear[f"ftrl.py, {count} workers"] = ours(count, "ftrl.py", *files)
        steps = ["--steps", str(arguments.steps)]
        plain = [sys.executable, str(APPLICATIONS / "dlrm.py"), *steps]
        deep: dict[str, Run] = {"dlrm.py, all cores": lambda: figures(output(plain))}
        for count in workers:
            deep[f"dlrm_unisono.py, {count} workers"] = ours(count, "dlrm_unisono.py", *steps)
        for title, cases in (("logistic regression", linear), ("deep model", deep)):
            rates: dict[str, list[float]] = {case: [] for case in cases}
            areas = dict.fromkeys(cases, 0.0)
            for _ in range(arguments.rounds):
                for case, run in cases.items():
                    rate, areas[case] = run()
                    rates[case].append(rate)
            print(f"\n{title}: samples per second, maximum / median of {arguments.rounds} rounds in turns")
            for case in cases:
                best, median = max(rates[case]), statistics.median(rates[case])
                print(f"{case:28} {best:12,.0f} / {median:12,.0f}   area under the curve {areas[case]:.4f}")


if __name__ == "__main__":
    main()
