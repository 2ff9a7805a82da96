"""MCP server that does not use the SDK, so that it starts fast and can violate the protocol.

    python mcp_server.py [--noise] [--slow-start SECONDS] [--die-first FILE]

It communicates over standard input and output. Each tool is named after its behavior.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import Any

TEXT = {"type": "string"}
NUMBER = {"type": "number"}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {"text": TEXT},
    "add": {"a": NUMBER, "b": NUMBER},
    "count": {},  # returns the number of calls so far
    "pid": {},
    "env": {"name": TEXT},
    "picture": {},
    "fail": {"text": TEXT},
    "refuse": {},
    "crash": {},
    "hang": {},  # stops responding to all requests
    "slow": {"seconds": NUMBER},  # replies after a delay; other calls are answered in the meantime
    "garble": {"lines": NUMBER},  # prints invalid lines, then replies
    "nonsense": {},  # replies with an invalid result
    "huge": {"characters": NUMBER},
    "stranger": {},  # sends requests and replies with wrong ids, then the result
    "half": {},  # exits in the middle of a reply
    "child": {},  # starts a process that outlives the server
    "ünï-códe.tool": {"text": TEXT},
}
calls = 0
lock = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def content(*blocks: dict[str, Any], error: bool = False) -> dict[str, Any]:
    return {"content": list(blocks), "isError": error}


def text_content(text: object) -> dict[str, Any]:
    return content({"type": "text", "text": str(text)})


def handle_call(number: Any, name: str, arguments: dict[str, Any]) -> None:
    global calls
    calls += 1
    if name == "crash":
        sys.stderr.write("Traceback: a simulated crash\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "hang":
        while True:
            time.sleep(1)
    if name == "garble":
        for line in range(int(arguments["lines"])):
            sys.stdout.write(f"DEBUG {line} \x00\x01 {{not json\n")
    if name == "refuse":
        send({"id": number, "error": {"code": -32602, "message": "the call is refused"}})
        return
    if name == "stranger":
        for wrong in (number + 1000, f"{number}x", number - 1, None, 1.5, [number]):
            send({"id": wrong, "result": text_content("for someone else")})
        send({"id": number + 1, "error": {"code": -32603, "message": "not yours"}})
        send({"id": "s", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
        send({"id": "x", "method": "no/such/method"})
        send({"method": "notifications/unknown", "params": {}})
    if name == "half":
        sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": [')
        sys.stdout.flush()
        os._exit(0)
    if name == "nonsense":
        send({"id": number, "result": {"content": "a string"}})
        return
    if name == "slow":
        reply = text_content("done")
        timer = threading.Timer(arguments["seconds"], send, [{"id": number, "result": reply}])
        timer.daemon = True
        timer.start()
        return
    if name == "child":
        import subprocess

        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        send({"id": number, "result": text_content(child.pid)})
        return
    picture = base64.b64encode(b"\x89PNG fake").decode()
    results = {
        "echo": lambda: text_content(arguments["text"]),
        "ünï-códe.tool": lambda: text_content(arguments["text"][::-1]),
        "add": lambda: text_content(arguments["a"] + arguments["b"]),
        "count": lambda: text_content(calls),
        "pid": lambda: text_content(os.getpid()),
        "env": lambda: text_content(os.environ.get(arguments["name"])),
        "picture": lambda: content(
            {"type": "text", "text": "look:"}, {"type": "image", "data": picture, "mimeType": "image/png"}
        ),
        "fail": lambda: content({"type": "text", "text": arguments["text"]}, error=True),
        "garble": lambda: text_content("done"),
        "stranger": lambda: text_content("done"),
        "huge": lambda: text_content("x" * int(arguments["characters"])),
    }
    send({"id": number, "result": results[name]()})


def handle(message: dict[str, Any]) -> None:
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if number is None or method is None:  # a notification, or the reply to a request
        return
    if method == "initialize":
        info = {"name": "plain", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        send({"id": number, "result": result})
    elif method == "tools/list":  # the list has two pages
        names = list(TOOLS)
        second = params.get("cursor") == "2"
        shown = [
            {
                "name": name,
                "description": f"{name} tool",
                "inputSchema": {"type": "object", "properties": TOOLS[name], "required": list(TOOLS[name])},
            }
            for name in (names[5:] if second else names[:5])
        ]
        send({"id": number, "result": {"tools": shown, **({} if second else {"nextCursor": "2"})}})
    elif method == "tools/call":
        handle_call(number, params["name"], params.get("arguments") or {})
    else:
        send({"id": number, "error": {"code": -32601, "message": f"no method {method}"}})


def main() -> None:
    args = sys.argv[1:]
    if "--noise" in args:
        sys.stdout.write("Welcome to the server!\n\n")
    if "--slow-start" in args:
        time.sleep(float(args[args.index("--slow-start") + 1]))
    if "--die-first" in args:
        flag = args[args.index("--die-first") + 1]
        if not os.path.exists(flag):  # noqa: PTH110
            with open(flag, "w"):  # noqa: PTH123
                sys.exit("not today")
    for line in sys.stdin:
        handle(json.loads(line))


if __name__ == "__main__":
    main()
