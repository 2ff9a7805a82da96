"""Agents: chat models, experts, random policies, functions and humans."""

from palestra.agents.base import Agent, AgentSession
from palestra.agents.chat import ChatAgent
from palestra.agents.context import FullHistory, LastTurns, LatestObservation, Summary, TokenBudget
from palestra.agents.players import ExpertAgent, FunctionAgent, HumanAgent, RandomAgent
from palestra.agents.reflection import Reflection
from palestra.agents.settings import AgentSettings
from palestra.agents.styles import PlainStyle, ReActStyle, ToolStyle

__all__ = [
    "Agent",
    "AgentSession",
    "AgentSettings",
    "ChatAgent",
    "ExpertAgent",
    "FullHistory",
    "FunctionAgent",
    "HumanAgent",
    "LastTurns",
    "LatestObservation",
    "PlainStyle",
    "RandomAgent",
    "ReActStyle",
    "Reflection",
    "Summary",
    "TokenBudget",
    "ToolStyle",
]
