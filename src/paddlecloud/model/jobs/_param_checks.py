"""How many trainers: the rules of instance_count, min_instance and max_instance together.

Part of the rules of `submit.py`, which calls them. No dataclasses or typing, as there.
"""

from __future__ import annotations

from paddlecloud.model.errors import Invalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def start_with_most(values: dict[str, object], given: Mapping[str, object]) -> None:
    """An elastic job that does not say with how many trainers it starts wants all of them."""
    if given.get("instance_count") is None and values["max_instance"] is not None:
        values["instance_count"] = values["max_instance"]


def check_instances(values: Mapping[str, object]) -> None:
    """Raise Invalid where the three contradict each other, or the mode needs fixed trainers."""
    least, most = values["min_instance"], values["max_instance"]
    if least is None and most is None:
        return
    if least is None or most is None:
        raise Invalid("elastic_alone", name="min_instance" if most is None else "max_instance")
    if values["distribute_job_type"] == "NCCL2":
        raise Invalid("elastic_nccl2")
    wanted = values["instance_count"]
    if not int(str(least)) <= int(str(wanted)) <= int(str(most)):
        raise Invalid("elastic_order", least=least, wanted=wanted, most=most)
