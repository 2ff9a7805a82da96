"""Specs for the BabyAI environments: AgentGym's forty levels and the groups that AgentGym-RL forms from them."""

from __future__ import annotations

from palestra.envs.babyai.levels import GROUPS, LEVELS, RANDOM
from palestra.spec import EnvSpec

# Success rate of a player that repeats one action, such as "go to red ball 1". The echo player solves no episode.
_CONSTANT = {
    "GoTo": 0.125,
    "AOD": 0.05,
    "OpenRoom": 0.25,
    "All": 0.11,
    "GoToRedBallGrey": 0.464,
    "GoToRedBall": 0.467,
    "GoToRedBallNoDists": 0.371,
    "GoToObjS6": 0.091,
    "GoToSeqS5R2": 0.167,
    "GoToRedBlueBall": 0.261,
    "GoToObjDoor": 0.167,
    "OpenRedDoor": 0.657,
    "OpenDoorLoc": 0.222,
    "OpenDoorsOrderN4Debug": 0.083,
    "PickupLoc": 0.091,
    "PickupDistDebug": 0.045,
    "OneRoomS20": 0.25,
}
# An action can be a whole path, such as "go to red ball 1", so random actions often complete simple missions.
_EASY = frozenset(
    {
        "GoTo",
        "AOD",
        "FindObj",
        "OpenRoom",
        "SLoc",
        "All",
        "GoToRedBallGrey",
        "GoToRedBall",
        "GoToRedBallNoDists",
        "GoToObjS6",
        "GoToLocalS8N7",
        "GoToObjMazeS7",
        "GoToImpUnlock",
        "GoToSeqS5R2",
        "GoToRedBlueBall",
        "GoToDoor",
        "GoToObjDoor",
        "Open",
        "OpenRedDoor",
        "OpenDoorLoc",
        "OpenRedBlueDoorsDebug",
        "Pickup",
        "UnblockPickup",
        "PickupAbove",
        "Unlock",
        "ActionObjDoor",
        "FindObjS7",
        "OneRoomS20",
        "SynthS5R2",
        "SynthLoc",
        "SynthSeq",
        "MiniBossLevel",
        "BossLevel",
        "BossLevelNoUnlock",
    }
)


def _spec(name: str, summary: str, random: float) -> EnvSpec:
    return EnvSpec(
        id=f"babyai:{name}-v0",
        entry_point="palestra.envs.babyai.env:BabyAI",
        kwargs={"level": name},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=0.0,
        constant_success=_CONSTANT.get(name, 0.0),
        rates_reason="easy_by_design" if name in _EASY else "",
        splits=("train", "test"),
        extra="babyai",
    )


SPECS = [
    *(
        _spec(
            name,
            f"follow an instruction in rooms: {' '.join(levels) if len(levels) == 1 else f'{len(levels)} levels'}",
            RANDOM[name],
        )
        for name, levels in GROUPS.items()
    ),
    *(_spec(name, f"follow an instruction in rooms: level {name}", RANDOM[name]) for name in LEVELS),
]
