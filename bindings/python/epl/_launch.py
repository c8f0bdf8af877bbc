"""What `epl launch` says in the environment of a process that it has started. The library reads no environment; this
does, for a program that asks."""
import dataclasses
import os
from typing import Any, Dict, Mapping, Optional

from ._core import shown


@dataclasses.dataclass(frozen=True)
class Launch:
    """Ranks of the processes of a job, each of which has one, and what a plan and a session take of it."""
    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    rendezvous: str = ""
    secret: str = dataclasses.field(default="", repr=False)

    @property
    def plan_options(self) -> Dict[str, Any]:
        return {"ranks": self.ranks, "local_ranks": 1}

    @property
    def session_options(self) -> Optional[Dict[str, Any]]:
        """None for a program that was started alone."""
        if self.ranks == 1:
            return None
        return {"first_rank": self.rank, "ranks": 1, "rendezvous": self.rendezvous, "secret": self.secret}


def from_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Reads the variables of `epl launch` (docs/processes.md): epl.Plan(model, trainer, options=launch.plan_options),
    epl.Session(plan, launch.session_options). Without them it is of a program that was started alone."""
    if "EPL_RANK" not in environment:
        return Launch()

    def number(name: str, otherwise: Optional[str] = None) -> int:
        text = environment.get(name, otherwise)
        if text is None or not text.isdigit():
            raise ValueError(f"{name} is {shown(repr(text))}, which is no number")
        return int(text)

    secret = os.pread(number("EPL_SECRET_FD"), 256, 0).decode() if "EPL_SECRET_FD" in environment else ""
    return Launch(number("EPL_RANK"), number("EPL_WORLD_SIZE"), number("EPL_LOCAL_RANK", "0"),
                  number("EPL_LOCAL_WORLD_SIZE", "1"), environment.get("EPL_RENDEZVOUS", ""), secret)
