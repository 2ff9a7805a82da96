"""Let an agent call a tool, and print the conversation.

    python examples/tool_agent.py [BASE_URL MODEL]

Without arguments, a scripted engine plays the model. With arguments, an OpenAI-compatible server does.
"""

import asyncio
import sys

import palestra
from palestra.agents import ChatAgent
from palestra.engines import ByteTokenizer, OpenAIEngine, ScriptedEngine
from palestra.rollout import collect


def subtract(a: int, b: int) -> int:
    """Subtract two numbers.

    a: the number to subtract from
    b: the number to subtract
    """
    return a - b


REPLIES = [  # for the question "Compute 9 - 50 - 8."
    '<tool_call>{"name": "subtract", "arguments": {"a": 9, "b": 50}}</tool_call>',
    '<tool_call>{"name": "subtract", "arguments": {"a": -41, "b": 8}}</tool_call>',
    r"The result is \boxed{-49}.",
]


def engine():
    if len(sys.argv) > 2:
        return OpenAIEngine(sys.argv[1], sys.argv[2])
    return ScriptedEngine(REPLIES, tokenizer=ByteTokenizer())


if __name__ == "__main__":
    factory = palestra.EnvFactory("math:Arithmetic-v0-easy", tools=[subtract], max_tool_calls=2)
    result = asyncio.run(collect(ChatAgent(engine()), factory, episodes=1, seed=1))
    (trajectory,) = result.trajectories
    for turn in trajectory.turns:
        print(f"--- environment\n{turn.observation}\n--- agent, reward {turn.reward:g}\n{turn.action.text}")
    print(f"--- environment\n{trajectory.final_observation}")
