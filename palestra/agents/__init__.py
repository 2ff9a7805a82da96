"""Who plays: chat models, the environments' own experts and random players, people, functions."""

from palestra.agents.base import Agent, Session
from palestra.agents.chat import Chat
from palestra.agents.context import Everything, LastTurns, Summary, TokenBudget
from palestra.agents.players import Expert, Function, Human, Random
from palestra.agents.reflection import Reflect
from palestra.agents.styles import Plain, ReAct, Tools

__all__ = [
    "Agent",
    "Chat",
    "Everything",
    "Expert",
    "Function",
    "Human",
    "LastTurns",
    "Plain",
    "Random",
    "ReAct",
    "Reflect",
    "Session",
    "Summary",
    "TokenBudget",
    "Tools",
]
