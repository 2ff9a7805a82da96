"""Mathematics from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_set

math_set = partial(data_set, "palestra.envs.math.problems:MathProblems", question="problem", answer="answer")

DATA = [
    math_set("math:ASDiv2K", "word problems of primary school", dataset="axon-rl/ASDIV-2k"),
    math_set("math:GSM8K", "word problems of primary school, several steps each", dataset="axon-rl/GSM-8k"),
    math_set("math:Math12K", "competition problems, all levels", dataset="axon-rl/MATH-12k"),
    math_set("math:Math8K-3to5", "competition problems, levels 3 to 5", dataset="axon-rl/MATH-lvl3to5-8k"),
    math_set("math:Orz57K", "problems of Open-Reasoner-Zero", dataset="axon-rl/ORZ-57k"),
    math_set("math:DeepScaleR40K", "competition problems of DeepScaleR", dataset="axon-rl/DeepScaleR-40K"),
    math_set("math:Geometry3K", "geometry with drawings", dataset="axon-rl/geometry3k", images="images"),
    math_set("math:File-v0", "problems of your own: a file, a folder or any data set"),
]
