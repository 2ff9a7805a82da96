"""Static analysis of chat templates: find the strings in a message that change how the template renders it.

A template that does not inspect message texts writes the same text around every message, so that text is determined
only once. Most templates test for a few fixed strings (such as `</think>`), which `template_tests` collects. It returns
None if the output may depend on a message text in another way; then every prompt is rendered in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_NONE: frozenset[str] = frozenset()
_ROLES = frozenset({"system", "user", "assistant", "tool"})
_PRESERVING_FILTERS = frozenset(
    {"list", "reverse", "selectattr", "rejectattr", "select", "reject", "sort", "string", "safe"}
)
_SEARCHES = frozenset({"startswith", "endswith", "find", "rfind", "index", "count", "removeprefix", "removesuffix"})
_SPLITTERS = frozenset({"split", "rsplit", "partition", "rpartition", "replace"})
_STRIPS = frozenset({"strip", "lstrip", "rstrip"})
_TESTS_OF_STRING = {  # results of Jinja tests applied to a string
    "string": True,
    "iterable": True,
    "sequence": True,
    "defined": True,
    "undefined": False,
    "mapping": False,
    "none": False,
    "number": False,
    "boolean": False,
}
_TESTS_OF_UNDEFINED = {**dict.fromkeys(_TESTS_OF_STRING, False), "undefined": True, "iterable": True, "sequence": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTests:
    """Strings that change how a template renders a message whose text contains (`within`) or equals (`whole`) them."""

    within: frozenset[str]
    whole: frozenset[str]


class _Undecidable(Exception):
    """Raised if a template's output depends on a message's text other than through a search for fixed strings."""


def template_tests(template: str, *, variables: Mapping[str, Any]) -> TemplateTests | None:
    """Return the strings that `template` searches for in message texts. `variables` are its other variables."""
    if "messages" not in template:
        return None  # the template is not a Jinja chat template
    try:
        from jinja2 import TemplateSyntaxError
    except ModuleNotFoundError:
        return None
    try:
        body = _environment().parse(template).body
    except TemplateSyntaxError:
        return None
    reader = _TemplateReader(variables)
    try:
        reader.read(body)
    except _Undecidable:
        return None
    return TemplateTests(within=frozenset(reader.within), whole=frozenset(reader.whole))


def _environment() -> Any:
    from jinja2 import Environment
    from jinja2.ext import Extension

    class Generation(Extension):
        """Parse `{% generation %}`, which marks text written by the assistant."""

        tags = {"generation"}  # noqa: RUF012  # declared this way by Jinja

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    # Used only for parsing; nothing is rendered with this environment.
    return Environment(  # noqa: S701
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation]
    )


class _TemplateReader:
    """Tracks how messages flow through a template's variables, regardless of the order of execution.

    An expression may evaluate to a "list" of messages, a "message", the "text" of a message, or "parts" of a split
    text. Other values can depend on a text only through the tests collected here.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.within: set[str] = set()
        self.whole: set[str] = set()
        self._variables = dict(variables)
        self._kinds: dict[str, frozenset[str]] = {"messages": frozenset({"list"})}
        self._macros: dict[str, Any] = {}

    def read(self, body: list[Any]) -> None:
        before: Any = None
        while before != self._kinds:  # repeat until the kinds of all variables stop changing
            before = dict(self._kinds)
            self._statements(body)

    # Statements

    def _statements(self, body: Iterable[Any]) -> None:
        for node in body:
            method = getattr(self, f"_do_{type(node).__name__.lower()}", None)
            if method is None:
                raise _Undecidable(type(node).__name__)
            method(node)

    def _do_output(self, node: Any) -> None:
        for part in node.nodes:
            if type(part).__name__ != "TemplateData":
                self._kind(part)

    def _do_if(self, node: Any) -> None:
        self._kind(node.test)
        truth = self._truth(node.test)
        if truth is not False:
            self._statements(node.body)
        if truth is not True:
            self._statements(node.elif_)
            self._statements(node.else_)

    def _do_for(self, node: Any) -> None:
        kinds = self._kind(node.iter)
        if "text" in kinds or "message" in kinds:
            raise _Undecidable("a loop over a text")
        self._assign(node.target, frozenset({"message"} if "list" in kinds else {"text"} if "parts" in kinds else ()))
        if node.test is not None:
            self._kind(node.test)
        self._statements(node.body)
        self._statements(node.else_)

    def _do_assign(self, node: Any) -> None:
        value = node.node
        if type(value).__name__ == "Call" and getattr(value.node, "name", None) == "namespace":
            for pair in value.kwargs:
                self._add_kinds(f"{node.target.name}.{pair.key}", self._kind(pair.value))
            return
        self._assign(node.target, self._kind(value))

    def _do_assignblock(self, node: Any) -> None:
        self._statements(node.body)
        self._assign(node.target, frozenset({"text"}))
        if node.filter is not None:
            raise _Undecidable("a filtered block")

    def _do_macro(self, node: Any) -> None:
        self._macros[node.name] = node
        self._statements(node.body)

    def _do_exprstmt(self, node: Any) -> None:
        self._kind(node.node)

    def _do_scope(self, node: Any) -> None:
        self._statements(node.body)

    def _do_break(self, node: Any) -> None:
        """Do nothing: the condition of the break is analyzed by its `if` statement."""

    _do_continue = _do_break

    def _assign(self, target: Any, kinds: frozenset[str]) -> None:
        name = type(target).__name__
        if name == "Name":
            self._add_kinds(target.name, kinds)
        elif name == "NSRef":
            self._add_kinds(f"{target.name}.{target.attr}", kinds)
        elif name == "Tuple":
            for item in target.items:
                self._assign(item, kinds)
        elif kinds:
            raise _Undecidable(name)

    def _add_kinds(self, name: str, kinds: frozenset[str]) -> None:
        self._variables.pop(name, None)  # the variable is reassigned, so its value is unknown
        self._kinds[name] = self._kinds.get(name, _NONE) | kinds

    # Kinds of expression values

    def _kind(self, node: Any) -> frozenset[str]:
        method = getattr(self, f"_of_{type(node).__name__.lower()}", None)
        if method is not None:
            kinds: frozenset[str] = method(node)
            return kinds
        kinds = self._all(node.iter_child_nodes())
        if kinds:
            raise _Undecidable(type(node).__name__)
        return _NONE

    def _all(self, nodes: Iterable[Any]) -> frozenset[str]:
        return _NONE.union(*(self._kind(node) for node in nodes))

    def _of_const(self, node: Any) -> frozenset[str]:  # noqa: ARG002
        return _NONE

    def _of_name(self, node: Any) -> frozenset[str]:
        return self._kinds.get(node.name, _NONE)

    def _of_getattr(self, node: Any) -> frozenset[str]:
        return self._member(node.node, node.attr)

    def _of_getitem(self, node: Any) -> frozenset[str]:
        key = node.arg
        if type(key).__name__ == "Const" and isinstance(key.value, str):
            return self._member(node.node, key.value)
        kinds = self._kind(node.node)
        if "text" in kinds or self._all(key.iter_child_nodes()):
            raise _Undecidable("a part of a text selected by position")
        if "list" in kinds:
            return frozenset({"list" if type(key).__name__ == "Slice" else "message"})
        return frozenset({"text"}) if "parts" in kinds else _NONE

    def _member(self, owner: Any, key: str) -> frozenset[str]:
        if type(owner).__name__ == "Name":
            if owner.name == "loop":  # previtem and nextitem are messages; the other attributes are numbers
                return frozenset({"message"}) if key in ("previtem", "nextitem") else _NONE
            if f"{owner.name}.{key}" in self._kinds:
                return self._kinds[f"{owner.name}.{key}"]
        kinds = self._kind(owner)
        return frozenset({"text"}) if kinds & {"message", "list"} and key == "content" else _NONE

    def _of_call(self, node: Any) -> frozenset[str]:
        arguments = [*node.args, *(pair.value for pair in node.kwargs)]
        argument_kinds = self._all(arguments)
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            raise _Undecidable("a call with unpacked arguments")
        if type(node.node).__name__ == "Getattr":
            return self._method(node, self._kind(node.node.node), argument_kinds)
        name = getattr(node.node, "name", None)
        macro = self._macros.get(name or "")
        if macro is not None:
            for target, value in [
                *zip(macro.args, node.args, strict=False),
                *((t, p.value) for p in node.kwargs for t in macro.args if t.name == p.key),
            ]:
                self._assign(target, self._kind(value))
            return frozenset({"text"})  # the output of the macro
        if argument_kinds and name != "raise_exception":
            raise _Undecidable(f"{name}()")
        return _NONE

    def _method(self, node: Any, kinds: frozenset[str], argument_kinds: frozenset[str]) -> frozenset[str]:
        name = node.node.attr
        consts = [arg.value for arg in node.args if type(arg).__name__ == "Const"]
        if not kinds and not argument_kinds:
            return _NONE
        if kinds == {"message"} and name == "get" and consts:
            return frozenset({"text"}) if consts[0] == "content" else _NONE
        if kinds == {"message"} and name in ("items", "keys", "values"):
            raise _Undecidable(name)
        if kinds != {"text"} or argument_kinds or len(consts) != len(node.args):
            raise _Undecidable(f".{name}()")
        if name in _STRIPS and all(isinstance(chars, str) and not chars.strip() for chars in consts):
            return kinds
        if name in _SEARCHES | _SPLITTERS and consts and isinstance(consts[0], str) and consts[0].strip():
            # Strip the string, so that it also matches texts that the template stripped before the test.
            self.within.add(consts[0].strip())
            return kinds if name == "replace" else frozenset({"parts"}) if name in _SPLITTERS else _NONE
        raise _Undecidable(f".{name}()")

    def _of_filter(self, node: Any) -> frozenset[str]:
        if node.node is None:
            raise _Undecidable("a filter block")
        kinds = self._kind(node.node)
        argument_kinds = self._all([*node.args, *(pair.value for pair in node.kwargs)])
        if not kinds and not argument_kinds:
            return _NONE
        if argument_kinds and node.name != "default":
            raise _Undecidable(node.name)
        if node.name in _PRESERVING_FILTERS or (node.name == "trim" and not node.args) or node.name == "default":
            if node.name in ("selectattr", "rejectattr", "select", "reject", "sort") and not self._by_role(node):
                raise _Undecidable(node.name)
            return kinds | argument_kinds
        if node.name in ("length", "count") and "text" not in kinds:
            return _NONE
        if node.name in ("first", "last") and kinds == {"list"}:
            return frozenset({"message"})
        if node.name == "tojson":  # the result is written but not tested; `Renderer` verifies the output
            return frozenset({"text"})
        raise _Undecidable(node.name)

    @staticmethod
    def _by_role(node: Any) -> bool:
        return bool(node.args) and getattr(node.args[0], "value", None) in ("role", "tool_calls", "tool_call_id")

    def _of_test(self, node: Any) -> frozenset[str]:
        kinds = self._kind(node.node)
        if (kinds or self._all(node.args)) and node.name not in (*_TESTS_OF_STRING, "true", "false"):
            raise _Undecidable(node.name)
        return _NONE

    def _of_compare(self, node: Any) -> frozenset[str]:
        left = node.expr
        for operand in node.ops:
            self._compare(left, operand.op, operand.expr)
            left = operand.expr
        return _NONE

    def _compare(self, left: Any, op: str, right: Any) -> None:
        kinds = self._kind(left), self._kind(right)
        if not (kinds[0] or kinds[1]):
            return
        strings = [node.value for node in (left, right) if type(node).__name__ == "Const"]
        if op in ("in", "notin"):
            if kinds[1] <= {"message"} and not kinds[0]:
                return  # a test for a key in a message
            if kinds[1] == {"text"} and len(strings) == 1 and isinstance(strings[0], str) and strings[0].strip():
                self.within.add(strings[0].strip())
                return
        elif op in ("eq", "ne") and kinds[0] | kinds[1] == {"text"} and len(strings) == 1:
            if isinstance(strings[0], str):
                self.whole.add(strings[0].strip())
            return
        raise _Undecidable(f"{op} between texts")

    def _of_and(self, node: Any) -> frozenset[str]:
        left = self._kind(node.left)
        return left if self._truth(node.left) is False else left | self._kind(node.right)

    def _of_or(self, node: Any) -> frozenset[str]:
        left = self._kind(node.left)
        return left if self._truth(node.left) is True else left | self._kind(node.right)

    def _of_not(self, node: Any) -> frozenset[str]:
        self._kind(node.node)
        return _NONE

    def _of_condexpr(self, node: Any) -> frozenset[str]:
        self._kind(node.test)
        truth = self._truth(node.test)
        first = _NONE if truth is False else self._kind(node.expr1)
        return first if truth is True or node.expr2 is None else first | self._kind(node.expr2)

    def _of_add(self, node: Any) -> frozenset[str]:
        return self._all((node.left, node.right))

    def _of_concat(self, node: Any) -> frozenset[str]:
        return self._all(node.nodes)

    def _of_list(self, node: Any) -> frozenset[str]:
        return self._all(node.items)

    def _of_dict(self, node: Any) -> frozenset[str]:
        return self._all(pair.value for pair in node.items)

    # Truth values of expressions, if they are known for non-blank texts

    def _truth(self, node: Any) -> bool | None:
        name = type(node).__name__
        if name == "Const":
            return bool(node.value)
        if name == "Not":
            inner = self._truth(node.node)
            return None if inner is None else not inner
        if name in ("And", "Or"):
            left, right = self._truth(node.left), self._truth(node.right)
            decides = name == "Or"
            if decides in (left, right):
                return decides
            return None if left is None or right is None else not decides
        if name == "Name":
            return bool(self._variables[node.name]) if node.name in self._variables else None
        if name in ("Getattr", "Getitem"):
            return False if self._absent(node) else None
        if name == "Test":
            return self._test_result(node)
        return self._comparison(node) if name == "Compare" and len(node.ops) == 1 else None

    def _comparison(self, node: Any) -> bool | None:
        op, right = node.ops[0].op, node.ops[0].expr
        if op == "in" and self._kind(right) == {"message"}:
            key = getattr(node.expr, "value", None)
            return key in ("role", "content") if isinstance(key, str) else None
        if op == "eq" and _key(node.expr) == "role" and self._kind(node.expr.node) == {"message"}:
            role = getattr(right, "value", None)
            return False if isinstance(role, str) and role not in _ROLES else None
        return None

    def _test_result(self, node: Any) -> bool | None:
        inner = node.node
        if type(inner).__name__ == "Name" and inner.name in self._variables:
            value = self._variables[inner.name]
            return {"none": value is None, "defined": True, "undefined": False}.get(node.name)
        if self._kind(inner) == {"text"}:
            return _TESTS_OF_STRING.get(node.name)
        return _TESTS_OF_UNDEFINED.get(node.name) if self._absent(inner) else None

    def _absent(self, node: Any) -> bool:
        """Return whether `node` reads a key that plain messages lack (such as `tool_calls`) or a key of a text."""
        key = _key(node)
        if key is None:
            return False
        kinds = self._kind(node.node)
        return (kinds == {"message"} and key not in ("role", "content")) or (kinds == {"text"} and key == "content")


def _key(node: Any) -> str | None:
    """Return the constant key of an attribute or item access, or None."""
    key = getattr(node, "attr", None) or getattr(getattr(node, "arg", None), "value", None)
    return key if isinstance(key, str) and hasattr(node, "node") else None
