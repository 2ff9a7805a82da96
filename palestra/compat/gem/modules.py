"""Create modules with GEM's paths, and make them available as `gem`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from palestra.compat.gem.building import gem_class
from palestra.errors import BadValue

_PACKAGE = __name__.rpartition(".")[0]
_OWN = f"{_PACKAGE}."
# GEM's module -> the module of this package that defines its names.
_MODULES = {
    "core": "base",
    "envs.registration": "registration",
    "tools.base_tool": "tool_classes",
    "tools.mcp_tool": "mcp",
    "tools.python_code_tool": "tool_classes",
    "tools.search_tool": "tool_classes",
    "tools.tool_env_wrapper": "tool_classes",
    "utils.constants": "parsing",
    "utils.debug": "debug",
    "utils.math_grader": "grading",
    "utils.parsing": "parsing",
    "utils.qa_em": "grading",
    "utils.sandbox": "tool_classes",
    "utils.seeding": "seeding",
    "vector.async_vector_env": "vectors",
    "vector.sync_vector_env": "vectors",
    "vector.vector_env": "vectors",
    "wrappers.episode_tracking_wrapper": "wrapper_classes",
    "wrappers.observation_wrapper": "wrapper_classes",
    "wrappers.wrapper_factory": "wrapper_classes",
}
# GEM's class -> Palestra's class.
_CLASSES = {
    "envs.code_env:CodeEnv": "palestra.envs.code.problems:CodeProblems",
    "envs.game_env.crosswords:CrosswordsEnv": "palestra.envs.games.crosswords:Crosswords",
    "envs.game_env.fifteen_puzzle:FifteenPuzzleEnv": "palestra.envs.games.fifteen_puzzle:FifteenPuzzle",
    "envs.game_env.game_2048:Game2048Env": "palestra.envs.games.game_2048:Game2048",
    "envs.game_env.guess_the_number:GuessTheNumberEnv": "palestra.envs.games.guess_the_number:GuessTheNumber",
    "envs.game_env.hangman:HangmanEnv": "palestra.envs.games.hangman:Hangman",
    "envs.game_env.mastermind:MastermindEnv": "palestra.envs.games.mastermind:Mastermind",
    "envs.game_env.minesweeper:MinesweeperEnv": "palestra.envs.games.minesweeper:Minesweeper",
    "envs.game_env.sokoban:SokobanEnv": "palestra.envs.games.sokoban:Sokoban",
    "envs.game_env.sudoku:SudokuEnv": "palestra.envs.games.sudoku:Sudoku",
    "envs.game_env.tower_of_hanoi:TowerofHanoiEnv": "palestra.envs.games.tower_of_hanoi:TowerOfHanoi",
    "envs.game_env.wikigame:WikiGameEnv": "palestra.envs.games.wiki_game:WikiGame",
    "envs.game_env.word_search:WordSearchEnv": "palestra.envs.games.word_search:WordSearch",
    "envs.game_env.wordle:WordleEnv": "palestra.envs.games.wordle:Wordle",
    "envs.math_env:MathEnv": "palestra.envs.math.problems:MathProblems",
    "envs.math_visual_env:MathVisualEnv": "palestra.envs.math.problems:MathProblems",
    "envs.qa_env:QaEnv": "palestra.envs.qa.questions:Questions",
    "envs.reasoning_gym:ReasoningGymEnv": "palestra.envs.rg.dataset:ReasoningGym",
    "envs.webshop.webshop:WebshopEnv": "palestra.envs.webshop.env:WebShop",
}


def add_modules() -> None:
    """Create submodules of this package with the same paths as GEM's modules; names are imported on first use."""
    names = [*_MODULES, *(entry.partition(":")[0] for entry in _CLASSES)]
    for path in names:
        parent = ""
        for part in path.split("."):
            parent = f"{parent}.{part}" if parent else part
            _add(parent)


def _add(path: str) -> None:
    name = _OWN + path
    if name in sys.modules and not isinstance(sys.modules[name], _LazyModule) and path not in _MODULES:
        raise AssertionError(f"{name} is a module of this package, so GEM's {path} needs another name")
    module = sys.modules.setdefault(name, _LazyModule(name, path))
    owner, _, attribute = name.rpartition(".")
    setattr(sys.modules[owner], attribute, module)


class _LazyModule(ModuleType):
    """Module whose attributes are imported on first access."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name, f"Names of GEM's module `gem.{path}`.")
        self.__path__: list[str] = []  # makes this module a package, so that its submodules can be imported
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        target = _CLASSES.get(f"{self._path}:{name}")
        value: Any
        if target is not None:
            value = gem_class(name, target)
        elif self._path in _MODULES:
            value = getattr(import_module(_OWN + _MODULES[self._path]), name)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value


def install(name: str = "gem") -> Callable[[], None]:
    """Make this package available as `gem`; return a function that reverses this.

    Raises BadValue if another package of that name has been imported.
    """
    present = sys.modules.get(name)
    if present is not None and present is not sys.modules[_PACKAGE]:
        raise BadValue(f"a module {name!r} has already been imported; call install() before it is imported")
    aliases = {name: sys.modules[_PACKAGE]}
    for path, module in list(sys.modules.items()):
        if isinstance(module, _LazyModule):
            aliases[f"{name}.{path.removeprefix(_OWN)}"] = module
    sys.modules.update(aliases)

    def uninstall() -> None:
        for alias in aliases:
            sys.modules.pop(alias, None)

    return uninstall
