"""Compare MCP tool calls over stdio through Palestra with calls in a bare session of the official SDK.

    python benchmarks/mcp_calls.py [--calls N] [--json]

Each side has its own SDK server process, which adds two numbers. The sides alternate, with twenty calls at a time,
so that other load on the machine affects both. Palestra's side calls synchronously, so its time includes switching to
the tools' event loop and back; the bare session awaits in its own loop. The reported ratio compares the total times;
the ratio of the medians is also printed. Exits with 1 if the target is missed.
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

BAR = 1.3  # maximum ratio of Palestra's time to the bare session's
SERVER = """
from mcp.server import MCPServer
server = MCPServer("adder")
@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("stdio")
"""
BATCH = 20


def time_palestra(tool: Any, calls: int) -> list[float]:
    times = []
    for number in range(calls):
        start = time.perf_counter()
        assert tool.run({"a": number, "b": 1}).text == str(number + 1)
        times.append(time.perf_counter() - start)
    return times


async def time_bare(client: Any, calls: int) -> list[float]:
    times = []
    for number in range(calls):
        start = time.perf_counter()
        result = await client.session.call_tool("add", {"a": number, "b": 1})
        assert result.content[0].text == str(number + 1)
        times.append(time.perf_counter() - start)
    return times


async def measure(calls: int) -> dict[str, float]:
    template = McpTools([sys.executable, "-c", SERVER])
    tools = template.open(seed=0)
    ours: list[float] = []
    bare: list[float] = []
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", SERVER])) as client:
        await time_bare(client, BATCH)
        time_palestra(tools.tools[0], BATCH)
        while len(ours) < calls:
            bare += await time_bare(client, BATCH)
            # This call blocks the event loop, but the bare session is idle at this time.
            ours += time_palestra(tools.tools[0], BATCH)
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


def missed_bars(report: dict[str, float]) -> list[str]:
    if report["ratio"] <= BAR:
        return []
    return [f"calls take {report['ratio']:.2f}x the bare session's time; the target is {BAR}x"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    report = asyncio.run(measure(args.calls))
    missed = missed_bars(report)
    if args.json:
        print(json.dumps({**report, "missed": missed}))
    else:
        print(f"{report['calls']} calls in a row over stdio, median of a call")
        print(f"  Palestra's tool       {report['ours_median_ms']:.2f} ms   {report['ours_s']:.2f} s in total")
        print(f"  bare SDK session      {report['bare_median_ms']:.2f} ms   {report['bare_s']:.2f} s in total")
        print(f"  ratio {report['ratio']:.2f}, of the medians {report['ratio_of_medians']:.2f}; the target is {BAR}")
        for line in missed:
            print(f"MISSED: {line}")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
