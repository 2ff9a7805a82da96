"""A fictional encyclopedia generated from a seed, with questions, answers and proofs.

from palestra.envs.world import World, article_of, draw_question

world = World(seed=1, pages=100_000)       # returns immediately, because pages are generated on demand
article_of(world, 17).text
draw_question(world, Random(0), "3hop").answer
"""

from palestra.envs.world.articles import Article, article_of
from palestra.envs.world.corpus import WorldCorpus, articles, write_jsonl, write_questions
from palestra.envs.world.facts import facts_of
from palestra.envs.world.questions import QUESTIONS, Proof, Question, draw_question
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
    "draw_question",
    "facts_of",
    "read",
    "write_jsonl",
    "write_questions",
]
