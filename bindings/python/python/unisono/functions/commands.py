"""The commands that the master sends to its workers."""

from unisono.functions.call_task import Call
from unisono.functions.collective_tasks import COLLECTIVE_TASKS
from unisono.functions.mapping import Map
from unisono.functions.member import Maker
from unisono.functions.pickling import Distribute

COMMANDS: dict[str, Maker] = {"call": Call, "map": Map, "distribute": Distribute, **COLLECTIVE_TASKS}
"""Maps the name of a command to the constructor of one rank's task."""
