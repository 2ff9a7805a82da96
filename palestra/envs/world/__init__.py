"""The world: an encyclopaedia that never was, made from a seed, with questions whose answers it proves.

from palestra.envs.world import World, article_of, ask

world = World(seed=1, pages=100_000)       # costs nothing: pages are told when they are asked for
article_of(world, 17).text
ask(world, Random(0), "3hop").answer
"""

from palestra.envs.world.articles import Article, article_of
from palestra.envs.world.corpus import WorldCorpus, articles, write_jsonl, write_questions
from palestra.envs.world.facts import facts_of
from palestra.envs.world.questions import QUESTIONS, Proof, Question, ask
from palestra.envs.world.reader import Reading, read
from palestra.envs.world.solver import Solver
from palestra.envs.world.world import World

__all__ = [
    "QUESTIONS",
    "Article",
    "Proof",
    "Question",
    "Reading",
    "Solver",
    "World",
    "WorldCorpus",
    "article_of",
    "articles",
    "ask",
    "facts_of",
    "read",
    "write_jsonl",
    "write_questions",
]
