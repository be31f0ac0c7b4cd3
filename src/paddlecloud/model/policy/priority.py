"""Priority classes: their names, their numbers, and which number belongs to which class.

A job stores a number, which is compatible with jobs stored before classes had names; users give a
name. Preemption compares classes only; the number decides the order within a class. No dataclasses
or typing here: submit_job loads this module.
"""

from __future__ import annotations

from paddlecloud.model.errors import Refused

CLASSES = {"low": -100, "normal": 0, "high": 100, "urgent": 200}
"""Name to number, lowest first."""
STEP = 100
LOWEST, HIGHEST = CLASSES["low"], CLASSES["urgent"]
_NAMES = tuple(CLASSES)


def rank(priority: int) -> int:
    """0 for low to 3 for urgent: the highest class whose number `priority` has reached."""
    return max(0, min(priority - LOWEST, HIGHEST - LOWEST) // STEP)


def class_name(priority: int) -> str:
    return _NAMES[rank(priority)]


def aged(priority: int, steps: int) -> int:
    """The number that a job counts with in the order after `steps` times of long waiting."""
    return max(priority, min(priority + STEP * steps, HIGHEST)) if steps > 0 else priority


def check_allowed(priority: int, highest: str) -> None:
    """Refused if a plan that allows at most the class `highest` does not allow this priority."""
    if rank(priority) > rank(CLASSES[highest]):
        raise Refused("priority_not_allowed", priority=class_name(priority), highest=highest)
