r"""Palestra and Gymnasium, both ways.

import gymnasium
from palestra.integrations.gymnasium import from_gymnasium, register_all, to_gymnasium

env = to_gymnasium("game:Sudoku-v0-easy")               # strings in, strings out
register_all()
env = gymnasium.make("palestra/game.Sudoku-v0-easy")    # Gymnasium splits ids at a colon, so ours becomes a dot

env = from_gymnasium("FrozenLake-v1", parse={"left": 0, "down": 1, "right": 2, "up": 3})
observation, info = env.reset(seed=1)                   # a prompt; actions go in \boxed{}
"""

from palestra.integrations.gymnasium.from_gymnasium import FromGymnasium
from palestra.integrations.gymnasium.to_gymnasium import AnyText, ToGymnasium, register_all

__all__ = ["AnyText", "FromGymnasium", "ToGymnasium", "from_gymnasium", "register_all", "to_gymnasium"]

from_gymnasium = FromGymnasium
to_gymnasium = ToGymnasium
