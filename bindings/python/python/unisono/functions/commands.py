"""What the master can tell its workers to do."""

from unisono.functions.calling import Call
from unisono.functions.distribution import Distribute
from unisono.functions.member import Maker
from unisono.functions.moving import MOVES

COMMANDS: dict[str, Maker] = {"call": Call, "distribute": Distribute, **MOVES}
"""By name: each makes one rank's part of the task."""
