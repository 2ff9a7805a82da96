"""Test environment names (ids, module:Class, URLs, names from other libraries), their factories, and plug-ins."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra import plugins, registry
from palestra.errors import AlreadyRegistered, BadEnvId, BadValue, UnknownEnv
from palestra.registry import EnvFactory
from palestra.registry import specs as registered
from palestra.wrappers import Horizon, Statistics, Tools, resolve_wrappers
from tests.conformance.defective_envs import Sound

GUESS = "game:GuessTheNumber-v0-easy"
ECHO = '''"""A user's module: an environment without a constructor, returning plain tuples, and its registration."""

import palestra


class Echo(palestra.Env):
    """Repeat the word."""

    reward_range = (0.0, 1.0)

    def __init__(self, word="hello"):
        self.word = word

    def reset(self, seed=None, options=None):
        return f"Say {self.word}.", {"seed": self.start_episode(seed)}

    def step(self, action):
        success = self.word in action
        return "Over.", float(success), True, False, {"success": success}


def build(word="from a function"):
    return Echo(word=word)


class Loud(palestra.Wrapper):
    def __init__(self, env, mark="!"):
        super().__init__(env)
        self.mark = mark

    def after_reset(self, observation, info):
        return observation + self.mark, info


def shout(text: str) -> str:
    """Return the text in capitals.

    Args:
        text: what to shout
    """
    return text.upper()


def shout_tool():
    return palestra.tools.FunctionTool(shout)


class NotAnEnv:
    pass


NUMBER = 3
palestra.register("echo_family:Echo-v0", Echo, expert_success=1.0)
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "echo_module.py").write_text(ECHO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "echo_module"
    sys.modules.pop("echo_module", None)
    registered._specs.pop("echo_family:Echo-v0", None)
    registered._makers.pop("echo_family:Echo-v0", None)
    plugins._imported.pop("echo_module", None)


def test_module_and_class_name_an_env(module: str) -> None:
    env = palestra.make(f"{module}:Echo", word="moon")
    assert env.reset(seed=1)[0] == "Say moon."
    step = env.step("moon")
    assert isinstance(step, palestra.Step)
    assert step.done
    spec = palestra.get_spec(f"{module}:Echo")
    assert env.spec == spec
    assert (spec.summary, spec.reward_range) == ("Repeat the word.", (0.0, 1.0))
    assert spec.parts.family == module
    assert palestra.make(f"{module}:build").reset()[0] == "Say from a function."


def test_unknown_names_are_explained(module: str) -> None:
    with pytest.raises(UnknownEnv, match="has no attribute 'Eco'"):
        palestra.make(f"{module}:Eco")
    with pytest.raises(UnknownEnv, match="neither a family of environments nor a module"):
        palestra.make("no_such_module:Echo")
    with pytest.raises(UnknownEnv, match="no module named 'no_such_package.envs'"):
        palestra.make("no_such_package.envs:Echo")
    with pytest.raises(BadValue, match="not a subclass of palestra.Env"):
        palestra.make(f"{module}:NotAnEnv")
    with pytest.raises(BadValue, match="neither a subclass of palestra.Env nor a function"):
        palestra.make(f"{module}:NUMBER")
    with pytest.raises(BadValue, match="returned a str"):
        palestra.make(f"{module}:shout", text="x")
    with pytest.raises(BadEnvId, match=r"is not the name of an environment.*module:Class.*http://HOST"):
        palestra.make("just words")
    with pytest.raises(UnknownEnv, match="Did you mean game:Wordle"):
        palestra.make("game:Wordel-v0-easy")


def test_registered_lookup_never_imports(module: str) -> None:
    with pytest.raises(UnknownEnv):
        registry.get_registered_spec(f"{module}:Echo")
    assert module not in sys.modules


def test_families_of_other_libraries_are_reserved() -> None:
    assert palestra.get_spec("gymnasium:ALE/Pong-v5").kwargs == {"env": "ALE/Pong-v5"}
    assert palestra.get_spec("verifiers:owner/name").kwargs == {"env": "owner/name"}
    with pytest.raises(BadValue, match="reserved"):
        palestra.register("gymnasium:Mine-v0", Sound)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("http://host:8100/game:Wordle-v0-easy", ("game", "Wordle", 0, "easy")),
        ("https://host/prefix/game:Wordle-v0-easy?max_turns=3", ("game", "Wordle", 0, "easy")),
        ("openenv+http://host:8000", ("", "host:8000", None, None)),
    ],
)
def test_a_url_has_a_spec_without_contacting_the_server(url: str, parts: tuple[Any, ...]) -> None:
    spec = palestra.get_spec(url)
    assert spec.id == url
    if parts[0]:
        assert spec.parts == parts


def test_the_query_of_a_url_holds_keywords(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def make_remote(url: str, /, **kwargs: Any) -> palestra.Env:
        calls.append((url, kwargs))
        return Sound()

    monkeypatch.setattr("palestra.remote.make.make_remote", make_remote)
    palestra.make("http://host:8100/game:Wordle-v0-easy?max_turns=3&mode=fast%20one", mode="slow")
    assert calls == [("http://host:8100/game:Wordle-v0-easy", {"max_turns": 3, "mode": "slow"})]


def test_register_accepts_all_fields_of_a_spec() -> None:
    try:
        palestra.register(
            "zoo:Stated-v0",
            "tests.conformance.defective_envs:Sound",
            summary="A sound env.",
            reward_range=Sound.reward_range,
            expert_success=1.0,
            random_success=0.1,
            seeded=True,
            extra="zoo",
            needs_data=True,
            kwargs={"summary": "a keyword of the same name"},
        )
        spec = palestra.get_spec("zoo:Stated-v0")
        assert (spec.summary, spec.reward_range, spec.extra) == ("A sound env.", Sound.reward_range, "zoo")
        assert (spec.expert_success, spec.random_success, spec.needs_data) == (1.0, 0.1, True)
        assert spec.kwargs == {"summary": "a keyword of the same name"}
    finally:
        palestra.unregister("zoo:Stated-v0")


def test_a_registered_class_passes_check_env() -> None:
    palestra.register("zoo:Checked-v0", Sound)
    try:
        assert palestra.check_env("zoo:Checked-v0", episodes=5, processes=False).passed
    finally:
        palestra.unregister("zoo:Checked-v0")


def test_only_an_identical_registration_may_be_repeated(module: str) -> None:
    plugins.import_modules([module])
    exec(compile(ECHO, "echo_module.py", "exec"), {"__name__": module})  # imports the module a second time
    with pytest.raises(AlreadyRegistered, match="is already registered"):
        palestra.register("echo_family:Echo-v0", Sound)


PLANNED = """
import palestra
from echo_module import Echo, NotAnEnv


class Planned(Echo):
    def __init__(self, plan=None):
        super().__init__(word=type(plan).__name__)


palestra.register("echo_family:Planned-v0", Planned, plan=NotAnEnv())  # not equal to the object in another process
"""


def test_a_module_may_hold_an_env_and_its_registration_in_worker_processes(module: str) -> None:
    """Check that a worker accepts the registration in the module that it imports to build the env."""
    Path("planned.py").write_text(PLANNED)
    plugins.import_module(module)
    plugins.import_module("planned")
    data = pickle.dumps(EnvFactory("echo_family:Planned-v0"))
    palestra.unregister("echo_family:Planned-v0")
    try:
        del sys.modules["planned"]  # simulates a new process
        for _ in range(2):
            assert pickle.loads(data)().reset()[0] == "Say NotAnEnv."
        palestra.unregister("echo_family:Planned-v0")
        palestra.register("echo_family:Planned-v0", Sound)  # after `unregister`, any env may use the id
    finally:
        sys.modules.pop("planned", None)
        palestra.unregister("echo_family:Planned-v0")


def test_a_script_with_an_env_and_its_registration_may_be_imported_by_name(tmp_path: Path) -> None:
    script = tmp_path / "echo_script.py"
    main = """
if __name__ == "__main__":
    print(palestra.make("echo_family:Echo-v0").reset()[0], palestra.make("echo_script:Echo").reset()[0])
"""
    script.write_text(ECHO + main)
    run = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("Say hello. Say hello.\n", "")


def test_a_factory_builds_and_compares() -> None:
    factory = EnvFactory(GUESS, kwargs={"max_turns": 3}, wrappers=["Horizon(turns=2)", "Statistics"])
    env = factory()
    assert isinstance(env, Statistics)
    assert isinstance(env.env, Horizon)
    assert env.max_turns == 3
    same = EnvFactory(GUESS, kwargs={"max_turns": 3}, wrappers=("Horizon(turns=2)", "Statistics"))
    assert factory == same == pickle.loads(pickle.dumps(factory))
    assert len({factory, same}) == 1
    assert factory.key != EnvFactory(GUESS).key
    assert factory.spec is palestra.get_spec(GUESS)
    merged = EnvFactory(GUESS, kwargs={"max_turns": 3, "wrappers": ["Horizon(turns=2)"]}, wrappers=["Statistics"])
    assert merged == factory
    with pytest.raises(AttributeError):
        factory.name = "other"  # type: ignore[misc]


def test_factories_from_classes_functions_and_factories() -> None:
    assert isinstance(EnvFactory.of(Sound)(), Sound)
    assert EnvFactory.of(Sound) == EnvFactory.of(Sound)
    assert EnvFactory.of(lambda: Sound()) != EnvFactory.of(lambda: Sound())
    inner = EnvFactory.of(GUESS, kwargs={"max_turns": 3}, wrappers="Statistics")
    outer = EnvFactory.of(inner, kwargs={"max_number": 9}, wrappers=[("Horizon", {"turns": 1})])
    assert outer.kwargs == {"max_turns": 3, "max_number": 9}
    assert isinstance(outer(), Horizon)
    with pytest.raises(UnknownEnv):
        EnvFactory.of("game:Nothing-v0")
    with pytest.raises(BadValue, match="expected the name of an environment"):
        EnvFactory.of(3)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="returned a str, not a palestra.Env"):
        EnvFactory.of(lambda: "text")()  # type: ignore[arg-type, return-value]
    with pytest.raises(BadValue, match="max_tool_calls needs tools"):
        EnvFactory(GUESS, max_tool_calls=3)


def test_a_factory_works_in_another_process(module: str, tmp_path: Path) -> None:
    plugins.import_modules([module])
    factories = [
        EnvFactory("echo_family:Echo-v0", kwargs={"word": "sun"}),
        EnvFactory(f"{module}:Echo"),
        EnvFactory(GUESS),
    ]
    (tmp_path / "factories.pkl").write_bytes(pickle.dumps(factories))
    code = (
        "import pickle, pathlib\n"
        "for factory in pickle.loads(pathlib.Path('factories.pkl').read_bytes()):\n"
        "    print(factory().reset(seed=1)[0].splitlines()[0])\n"
        "import echo_module  # registers again\n"
    )
    root = str(Path(palestra.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["Say sun.", "Say hello."]


def test_tools_and_wrappers_by_module_and_name(module: str) -> None:
    env = palestra.make(GUESS, tools=[f"{module}:shout"], wrappers=[f"{module}:Loud(mark='?')"])
    prompt = str(env.reset(seed=1)[0])
    assert prompt.endswith("?")
    assert "shout" in prompt
    assert isinstance(env.env, Tools)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "wrappers",
    [
        "Horizon(turns=5), concat",
        ["Horizon(turns=5)", "concat"],
        [("Horizon", {"turns": 5}), "concat"],
        [{"name": "Horizon", "turns": 5}, "concat"],
        [["Horizon", {"turns": 5}], "concat"],
    ],
)
def test_wrappers_are_named_in_several_forms(wrappers: Any) -> None:
    env = palestra.make(GUESS, wrappers=wrappers)
    assert env.env.turns == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("Horizn", "no wrapper 'Horizn'.*Horizon"),
        ("Horizon(5)", "cannot be read.*Horizon\\(turns=5\\)"),
        ("Horizon(turns=os.x)", "cannot be read"),
        ("Horizon(turns=", "cannot be read"),
        ("no_such_module:Loud", "cannot be imported"),
        ("json:JSONDecoder", "neither a subclass of palestra.Wrapper"),
        (3, "a wrapper is a name"),
    ],
)
def test_bad_wrappers_are_explained(wrapper: Any, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        resolve_wrappers([wrapper])


class EntryPoint:
    """Stand-in for an installed entry point, so that no package has to be installed."""

    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value

    def load(self) -> Any:
        return plugins.import_object(self.value) if ":" in self.value else plugins.import_module(self.value)


@pytest.fixture
def installed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str) -> list[EntryPoint]:
        return {
            "palestra.envs": [EntryPoint("echo_family", module), EntryPoint("broken", "no_such_module")],
            "palestra.tools": [EntryPoint("shout", f"{module}:shout_tool")],
        }.get(group, [])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    monkeypatch.setattr(plugins, "_entry_points", {})
    monkeypatch.setattr(plugins, "_objects", {})
    monkeypatch.setattr(registered, "_loaded_plugins", set())


@pytest.mark.usefixtures("installed")
def test_installed_environments_are_found_when_looked_up(module: str) -> None:
    assert module not in sys.modules
    assert palestra.make("echo_family:Echo-v0").reset()[0] == "Say hello."
    with pytest.warns(RuntimeWarning, match="the plug-in 'broken'"):
        assert "echo_family:Echo-v0" in palestra.list_envs()
    assert palestra.list_envs("echo_family") == ["echo_family:Echo-v0"]


@pytest.mark.usefixtures("installed")
def test_installed_tools_are_found_by_name() -> None:
    env = palestra.make(GUESS, tools=["shout"])
    assert "shout" in str(env.reset(seed=1)[0])
    with pytest.raises(BadValue, match="no tool named 'shoot'"):
        palestra.make(GUESS, tools=["shoot"])


def test_plugin_groups_and_modules_are_checked() -> None:
    with pytest.raises(BadValue, match="no plug-in group 'games'"):
        plugins.available("games")
    with pytest.raises(BadValue, match="no module named 'no_such_module'.*working directory"):
        plugins.import_modules(["no_such_module"])
    with pytest.raises(BadValue, match="not a valid module name"):
        plugins.import_modules(["my-module"])
    assert plugins.load("tools", "no such tool") is None
