"""A manager that keeps any model's parameters synchronized between workers, and its framework adapters."""

from unisono.parameters.adapter import Arrays, Callables, Parameters
from unisono.parameters.manager import ParameterManager
from unisono.parameters.recognition import recognise

__all__ = ["Arrays", "Callables", "ParameterManager", "Parameters", "recognise"]
