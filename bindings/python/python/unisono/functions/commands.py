"""The commands that the master sends to its workers."""

from unisono.functions.calling import Call
from unisono.functions.distribution import Distribute
from unisono.functions.member import Maker
from unisono.functions.moving import MOVES

COMMANDS: dict[str, Maker] = {"call": Call, "distribute": Distribute, **MOVES}
"""Maps the name of a command to the constructor of one rank's task."""
