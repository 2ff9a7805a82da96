"""Calls of an MCP server's tool over stdio: through Palestra's tool, and in a bare session of the official SDK.

    python benchmarks/mcp_calls.py [--calls N] [--json]

Both talk to a server made with the SDK that adds two numbers, each to a process of its own. They take turns, twenty
calls each at a time, so that whatever else the machine does falls on both. Palestra's side is a caller without an event
loop, who pays for the way to the tools' loop and back; the bare one awaits in its own loop. The ratio is that of the
times of all calls; that of the medians is shown as well. Exits 1 where the bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from statistics import median
from typing import Any

from mcp import Client, StdioServerParameters

from palestra.tools.mcp import McpTools

BAR = 1.3  # ours by the bare session's, at most
SERVER = """
from mcp.server import MCPServer
server = MCPServer("adder")
@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("stdio")
"""
AT_A_TIME = 20


def timed_ours(tool: Any, calls: int) -> list[float]:
    times = []
    for number in range(calls):
        begun = time.perf_counter()
        assert tool.run({"a": number, "b": 1}).text == str(number + 1)
        times.append(time.perf_counter() - begun)
    return times


async def timed_bare(client: Any, calls: int) -> list[float]:
    times = []
    for number in range(calls):
        begun = time.perf_counter()
        result = await client.session.call_tool("add", {"a": number, "b": 1})
        assert result.content[0].text == str(number + 1)
        times.append(time.perf_counter() - begun)
    return times


async def measured(calls: int) -> dict[str, float]:
    template = McpTools([sys.executable, "-c", SERVER])
    tools = template.open(seed=0)
    ours: list[float] = []
    bare: list[float] = []
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", SERVER])) as client:
        await timed_bare(client, AT_A_TIME)
        timed_ours(tools.tools[0], AT_A_TIME)
        while len(ours) < calls:
            bare += await timed_bare(client, AT_A_TIME)
            ours += timed_ours(
                tools.tools[0], AT_A_TIME
            )  # on this thread; the bare session has nothing to do meanwhile
    tools.close()
    return {
        "calls": len(ours),
        "ours_s": sum(ours),
        "bare_s": sum(bare),
        "ours_median_ms": 1e3 * median(ours),
        "bare_median_ms": 1e3 * median(bare),
        "ratio": sum(ours) / sum(bare),
        "ratio_of_medians": median(ours) / median(bare),
    }


def missed(report: dict[str, float]) -> list[str]:
    if report["ratio"] <= BAR:
        return []
    return [f"calls take {report['ratio']:.2f}x the bare session's time, the bar is {BAR}x"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = asyncio.run(measured(args.calls))
    wrong = missed(report)
    if args.json:
        print(json.dumps({**report, "missed": wrong}))
    else:
        print(f"{report['calls']} calls in a row over stdio, median of a call")
        print(f"  Palestra's tool       {report['ours_median_ms']:.2f} ms   {report['ours_s']:.2f} s in all")
        print(f"  bare SDK session      {report['bare_median_ms']:.2f} ms   {report['bare_s']:.2f} s in all")
        print(f"  ratio {report['ratio']:.2f}, of the medians {report['ratio_of_medians']:.2f}; the bar is {BAR}")
        for line in wrong:
            print(f"MISSED: {line}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
