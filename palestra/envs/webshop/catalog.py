"""Specs for the WebShop environments: Shop-v0 and GEM's ids, in which an invalid action ends the episode."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _shop(name: str, summary: str, random: float, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"webshop:{name}",
        entry_point="palestra.envs.webshop.env:WebShop",
        kwargs=kwargs,
        summary=summary,
        reward_range=(min(0.0, kwargs.get("error_reward", 0.0)), 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=0.0,
        constant_success=0.0,
        splits=() if "data_split" in kwargs else ("train", "test"),
        extra="webshop",
    )


_GEM = {"max_turns": 15, "error_reward": -0.1, "stop_when_error": True}

SPECS = [
    _shop("Shop-v0", "search a shop and buy the product described", 0.005, mode="text_rich", max_turns=15),
    *(
        _shop(
            f"{split}-{mode}",
            f"buy the product described; {split} goals, {mode} pages",
            0.005 if split == "train" else 0.0,
            mode=mode,
            data_split=split,
            **_GEM,
        )
        for split in ("train", "test")
        for mode in ("text", "text_rich", "html")
    ),
]
