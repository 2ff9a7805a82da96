"""Test AgentGym's protocol on our server with the requests that AgentGym's clients send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.sciworld.tasks import TYPES
from palestra.registry import list_envs
from palestra.registry.agentgym_tasks import TASKS, Task, family_envs, spread
from palestra.server.protocols import agentgym_webarena as webarena
from palestra.server.protocols.protocol_session import ProtocolSession, StepResult
from tests.server.bad_envs import TRICKY
from tests.server.servers import Client, Reply, Server, serving, until

SEARCH = ["search:World-v0-1hop", "search:World-v0-2hop"]
OTHERS = ["sciworld:All-v0", "webshop:Shop-v0", "game:Wordle-v0-hard", "sql:Shop-v0-easy"]
ENVS = [*list_envs("babyai"), *list_envs("textcraft"), *SEARCH, *OTHERS]
NUMBER = {"searchqa": "env_idx", "sqlgym": "env_idx", "webshop": "env_idx"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*ENVS, TRICKY) as server:
        yield server


class AgentGymClient:
    """Client that sends the same requests as AgentGym's clients."""

    def __init__(self, client: Client, family: str) -> None:
        self.client = client
        self.family = family
        self.key = NUMBER.get(family, "id")
        self.number = -1

    def send(self, path: str, body: Any = None) -> Reply:
        address = f"/agentgym/{self.family}/{path}"
        if body is None:  # like requests.post(url), which sends no body and no content type
            return self.client.send("POST", address)
        return self.client.send("POST", address, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def post(self, path: str, body: Any = None) -> Any:
        reply = self.send(path, body)
        assert reply.status == 200, reply.body
        return reply.data

    def read(self, what: str) -> Any:
        reply = self.client.get(f"/agentgym/{self.family}/{what}?{self.key}={self.number}")
        assert reply.status == 200, reply.body
        return reply.data

    def create(self) -> Any:
        if self.family == "textcraft":
            reply = self.post("create", {"minecraft_dir": "agentenv_textcraft/", "commands": None, "goal": None})
            assert (reply["reward"], reply["done"]) == (0, False)
            assert "Goal: craft" in reply["observation"]
        else:
            reply = self.post("create", {"id": 0} if self.family == "searchqa" else None)
        self.number = reply if self.key == "env_idx" else reply["id"]
        assert type(self.number) is int
        return reply

    def reset(self, task: int) -> str:
        """Start an episode and return the same text as `observe` in AgentGym's client."""
        if self.family == "searchqa":
            response = self.post("reset", {"id": task, "env_idx": self.number})
            assert response == self.read("observation")
            return str(response)
        if self.family == "webshop":
            state, nothing = self.post("reset", {"session_id": task, "env_idx": self.number})
            assert nothing is None
            assert state == self.read("observation")
            return str(state)
        response = self.post("reset", {"data_idx": task, "id": self.number})
        assert (response["reward"], response["done"]) == (0, False)
        return str(response["observation"])

    def step(self, action: str) -> tuple[str, float, bool]:
        """Take an action and return the fields of AgentGym's StepOutput: state, reward and done."""
        response = self.post("step", {"action": action, self.key: self.number})
        reward = response["score" if self.family in ("babyai", "sciworld") else "reward"]
        return response["state" if self.family == "webshop" else "observation"], reward, response["done"]


def expert(client: Client, task: Task) -> Iterator[tuple[str, str, float]]:
    """Play an episode with the expert over the native protocol, and yield its actions and their results."""
    play = client.open(task.env, kwargs=task.kwargs)
    yield play.reset(seed=task.seed, options=task.options).data["observation"], "", 0.0
    done = False
    while not done:
        action = play.suggest_action(player="expert").data["action"]
        step = play.step(action).data
        done = step["terminated"]
        yield action, step["observation"], step["reward"]
    play.close()


@pytest.mark.parametrize(
    ("family", "number"),
    [("babyai", 0), ("babyai", 47), ("textcraft", 5), ("textcraft", 6), ("searchqa", 3), ("webshop", 4)],
)
def test_expert_plays_an_episode(server: Server, family: str, number: int) -> None:
    with server.client() as client, server.client() as other:
        their = AgentGymClient(client, family)
        their.create()
        expert_steps = expert(other, TASKS[family][1](family_envs(ENVS, family), number))
        first, _, _ = next(expert_steps)
        assert their.reset(number) == first
        last = (0.0, False)
        for action, observation, reward in expert_steps:
            state, earned, done = their.step(action)
            assert state == observation == their.read("observation")
            assert earned == reward
            last = (earned, done)
        assert last == (1.0, True)
        assert their.send("step", {their.key: their.number, "action": "x"}).status == 409
        closed = their.post("close", {their.key: their.number})
        again = their.post("close", {their.key: their.number})
        assert (closed, again) == ((True, False) if family == "searchqa" else (closed, {**closed, "closed": False}))


@pytest.mark.slow
def test_scienceworld_scores_are_percentages(server: Server) -> None:
    with server.client() as client:
        their = AgentGymClient(client, "sciworld")
        assert their.create() == {"id": their.number}
        response = their.post("reset", {"id": their.number, "data_idx": 3_500})
        assert (response["task_name"], response["var_num"]) == ("find-non-living-thing", 264)
        assert "find a(n) non-living thing" in response["task_description"]
        assert "workshop" in response["observation"]
        hint = their.read("action_hint")
        assert "look at OBJ" in hint["possible_actions"]
        assert "red box" in hint["possible_objects"]
        # Expert actions, and the score after each action.
        expected = {"look around": 8, "focus on green wire": 58, "move green wire to red box": 100}
        for action, score in expected.items():
            _, earned, done = their.step(action)
            assert (earned, done) == (score, score == 100)
        assert their.read("detail")["score"] == 100
        assert "Score: 1.00" in their.read("goals")["goals"]
        their.post("close", {"id": their.number})


def test_views_of_textcraft_and_webshop(server: Server) -> None:
    with server.client() as client:
        craft = AgentGymClient(client, "textcraft")
        reply = craft.post("create", {"goal": "minecraft:stick"})
        craft.number = reply["id"]
        assert "Goal: craft stick." in reply["observation"]
        assert "Goal: craft stick." in craft.reset(3)
        assert craft.read("goal") == "craft stick"
        recipes = craft.read("commands").splitlines()
        assert any(" stick using " in line for line in recipes)
        assert all(line.startswith("craft ") for line in recipes)
        assert craft.read("detail") == {
            "observation": craft.read("observation"),
            "done": False,
            "reward": 0.0,
            "deleted": False,
        }
        assert craft.send("create", {"commands": "craft 1 a using 1 b"}).status == 422
        shop = AgentGymClient(client, "webshop")
        shop.create()
        page = shop.reset(7)
        assert shop.read("instruction_text") in page
        assert shop.read("available_actions") == {"has_search_bar": True, "clickables": []}
        shop.step("search[blanket]")
        assert "Back to Search" in shop.read("available_actions")["clickables"]


def test_wordle_and_sqlgym(server: Server) -> None:
    with server.client() as client, server.client() as other:
        wordle = AgentGymClient(client, "wordle")
        wordle.create()
        vocabulary = wordle.read("filtered_vocab")
        assert all(len(word) == 5 for word in vocabulary)
        assert wordle.post("reset", {"id": wordle.number, "seed": 3}) == {
            "id": wordle.number,
            "observation": "Let's start Wordle!",
        }
        body = {"id": wordle.number}
        assert wordle.post("step", {**body, "action": "?"})["observation"] == "invalid word"
        steps = list(expert(other, TASKS["wordle"][1](family_envs(ENVS, "wordle"), 3)))[1:]
        for action, _, reward in steps:
            guess = action.removeprefix("\\boxed{").removesuffix("}")
            reply = wordle.post("step", {**body, "action": " ".join(guess)})
            assert len(reply["observation"].split()) == 5
            assert set(reply["observation"]) <= set("gyb ")
            assert (reply["reward"], reply["done"]) == (reward, reward == 1.0)
            assert wordle.read("observation") == reply["observation"]
            vocabulary = wordle.read("filtered_vocab")
        assert (reply["observation"], vocabulary) == ("g g g g g", [guess])

        sql = AgentGymClient(client, "sqlgym")
        sql.create()
        question, nothing = sql.post("reset", {"env_idx": sql.number, "item_id": 2})
        assert nothing is None
        assert "CREATE TABLE" in question
        assert sql.read("observation") == question
        [*_, (action, _, _)] = expert(other, TASKS["sqlgym"][1](family_envs(ENVS, "sqlgym"), 2))
        query = action.removeprefix("<answer>").removesuffix("</answer>")
        reply = sql.post("step", {"env_idx": sql.number, "action": query})
        assert (reply["reward"], reply["done"], reply["info"]) == (1.0, True, None)


def test_numbers_are_private_and_never_reused() -> None:
    with (
        serving("textcraft:Depth1-v0", tokens={"token-of-a": "a", "token-of-b": "b"}) as server,
        server.client(token="token-of-a") as one,
        server.client(token="token-of-b") as two,
        server.client() as anonymous,
    ):
        a, b = AgentGymClient(one, "textcraft"), AgentGymClient(two, "textcraft")
        seen = []
        for _ in range(3):
            a.create()
            seen.append(a.number)
            a.post("close", {"id": a.number})
        a.create()
        assert len({*seen, a.number}) == 4
        assert sorted(seen) == seen
        a.reset(0)
        for path, body in (("reset", {"data_idx": 0}), ("step", {"action": "inventory"}), ("close", {})):
            assert b.send(path, {"id": a.number, **body}).status == 404
            assert b.send(path, {"id": seen[0], **body}).status == 404
        assert b.client.get(f"/agentgym/textcraft/observation?id={a.number}").status == 404
        assert b.client.get("/agentgym/textcraft/list_envs").data == []
        assert a.client.get("/agentgym/textcraft/list_envs").data == [a.number]
        assert a.step("inventory")[2] is False
        assert anonymous.post("/agentgym/textcraft/create").status == 401


def test_ended_environments_report_their_cause() -> None:
    with serving("textcraft:Depth1-v0", lease=1.0) as server, server.client() as client:
        their = AgentGymClient(client, "textcraft")
        their.create()
        their.reset(0)
        until(lambda: server.number("sessions") == 0)
        late = their.send("step", {"id": their.number, "action": "inventory"})
        assert (late.status, late.data["code"], late.data["cause"]) == (410, "session_gone", "expired")
        assert client.get("/agentgym/textcraft/list_envs").data == []
        assert their.post("close", {"id": their.number}) == {"closed": False, "id": their.number}
        their.create()
        their.reset(0)
        for worker in server.workers():
            worker.kill()
        until(lambda: server.number("sessions") == 0)
        lost = their.send("step", {"id": their.number, "action": "inventory"})
        assert (lost.status, lost.data["cause"], lost.data["boundary"]) == (410, "worker", "env")
        until(lambda: client.get("/ready").status == 200)
        their.create()
        their.reset(0)


def test_reset_with_another_environment_reuses_the_capacity() -> None:
    with serving("textcraft:Depth1-v0", "textcraft:Depth2-v0", max_sessions=1) as server, server.client() as client:
        their = AgentGymClient(client, "textcraft")
        their.create()
        full = their.send("create", {})
        assert (full.status, full.data["code"]) == (503, "capacity")
        assert int(full.headers["retry-after"]) >= 1
        prompts = {their.reset(number) for number in range(4)}
        assert len(prompts) == 4
        assert server.number("sessions") == 1
        their.post("close", {"id": their.number})
        assert server.number("sessions") == 0


def test_repeated_request_id_is_one_step(server: Server) -> None:
    with server.client() as client:
        their = AgentGymClient(client, "textcraft")
        their.create()
        their.reset(1)
        body = json.dumps({"id": their.number, "action": "get 2 cobblestone"}).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": "again"}
        responses = [client.send("POST", "/agentgym/textcraft/step", body, headers).body for _ in range(3)]
        assert len(set(responses)) == 1
        assert their.step("inventory")[0] == "You have: 2 cobblestone."


def test_error_codes(server: Server) -> None:
    def send(method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> int:
        with server.client() as client:
            reply = client.send(method, f"/agentgym/{path}", body, {"Content-Type": kind} if body else {})
            assert reply.status == 200 or set(reply.data) >= {"error", "code"}
            return reply.status

    with server.client() as client:
        their = AgentGymClient(client, "babyai")
        their.create()
    number = str(their.number)
    step = f'{{"id": {number}, "action": "x"}}'.encode()
    assert send("POST", "babyai/step", step) == 409  # no episode has been started
    assert send("GET", f"babyai/observation?id={number}") == 409
    assert send("GET", "babyai/step") == 405
    assert send("POST", f"babyai/observation?id={number}") == 405
    assert send("POST", "babyai/step", step, "application/msgpack") == 415
    assert send("POST", "babyai/step", b"{") == 400
    assert send("POST", "babyai/step", b"\xff") == 400
    assert send("POST", "babyai/step", b"[1]") == 400
    assert send("POST", "babyai/step", b"{}") == 400
    assert send("POST", "babyai/step", f'{{"id": {number}}}'.encode()) == 400
    assert send("POST", "babyai/step", b'{"id": -1, "action": "x"}') == 400
    assert send("POST", "babyai/step", b'{"id": 1e99, "action": "x"}') == 400
    assert send("POST", "babyai/step", b'{"id": 0, "action": "x"}') == 404
    assert send("POST", "babyai/reset", f'{{"id": {number}, "data_idx": -1}}'.encode()) == 400
    assert send("POST", "textcraft/step", step) == 404  # the environment belongs to another family
    assert send("GET", "babyai/observation?id=x") == 400
    assert send("GET", "babyai/observation") == 400
    assert send("GET", "babyai/nothing") == 404
    assert send("GET", "alfworld/observation?id=1") == 404
    assert send("GET", "babyai/") == 200
    assert send("POST", "babyai/step", b"x" * 20_000_000) == 413


@given(number=st.integers(0, 10_000), ids=st.lists(st.text("abc", min_size=1), min_size=1, max_size=9, unique=True))
def test_spread_is_a_bijection(number: int, ids: list[str]) -> None:
    task = spread(ids, number)
    assert task.seed * len(ids) + ids.index(task.env) == number


@given(st.integers(0, 100_000))
def test_babyai_and_sciworld_use_agentgyms_numbers(number: int) -> None:
    # The seeds of babyai:All-v0 are AgentGym's task numbers.
    assert TASKS["babyai"][1](ENVS, number)[:2] == ("babyai:All-v0", number)
    task = TASKS["sciworld"][1](ENVS, number)
    kind = TYPES[task.options["task"]]
    assert kind.number not in ("5-1", "5-2", "9-1", "9-2", "9-3", "10-1", "10-2")
    assert task.options["variation"] in range(kind.variations)


def test_scienceworld_variations_are_in_order() -> None:
    first = [TASKS["sciworld"][1](ENVS, number).options for number in range(62)]
    assert first[:2] == [{"task": "boil", "variation": 0}, {"task": "boil", "variation": 1}]
    assert first[30] == {"task": "melt", "variation": 0}
    assert TASKS["sciworld"][1](["sciworld:Boil-v0"], 7)[:2] == ("sciworld:Boil-v0", 7)


def test_webarena_bodies() -> None:
    page = "Tab 0 (current): Map\n[1] RootWebArea 'Map'\n\t[2] link 'Home'"
    prompt = f"Instructions.\n\nTask: Go.\n\n{page}\nURL: http://map.test/"
    session = ProtocolSession.__new__(ProtocolSession)
    session.steps, session.last_action = 0, ""
    first = StepResult(seq=0, observation=prompt, info={"goal": "Go."})
    assert webarena.reset_body(first) == {"observation": page, "sites": ["map.test"], "object": "Go."}
    shown = f"OBSERVATION:\n{page}\nURL: http://map.test/\nOBJECTIVE: Go.\nPREVIOUS ACTION: "
    assert webarena.observation(session, first, first) == f"{shown}None"
    session.steps, session.last_action = 1, "I go home. ```click [2]```"
    last = StepResult(seq=1, observation=f"{page}\nURL: http://map.test/", reward=0.0)
    assert webarena.step_body(session, first, last)["observation"] == f"{shown}click [2]"
    assert webarena.metadata(last)["text"]["obs_nodes_info"]["2"] == {"text": "[2] link 'Home'"}
    end = StepResult(seq=2, observation="Solved.", reward=1.0, terminated=True, info={"success": True})
    assert webarena.step_body(session, first, end) == {
        "observation": "Solved.",
        "reward": 1.0,
        "terminated": True,
        "truncated": False,
        "info": {"success": True},
    }
