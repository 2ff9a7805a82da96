"""Browser for pages without scripts, which follows links, submits forms and plays the expert's moves quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit

from palestra.browser.actions import Command, parse_action
from palestra.browser.observation import Node
from palestra.browser.sites import Request, Site


@dataclass
class Form:
    action: str
    method: str
    values: dict[str, str] = field(default_factory=dict)


@dataclass
class Element:
    role: str
    name: str = ""
    href: str = ""
    form: Form | None = None
    key: str = ""  # name in the form
    options: list[str] = field(default_factory=list)


class Page(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self.text = ""
        self._form: Form | None = None
        self._open: Element | None = None
        self._option = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._form = Form(given["action"], given["method"].upper())
        elif tag == "input" and given.get("type") == "hidden" and self._form is not None:
            self._form.values[given["name"]] = given["value"]
        elif tag in ("input", "textarea", "select") and self._form is not None:
            role = "combobox" if tag == "select" else "textbox"
            self._add(Element(role, given["aria-label"], form=self._form, key=given["name"]))
            self._form.values[given["name"]] = given.get("value", "")
            self._open = self.elements[-1] if tag != "input" else None
        elif tag in ("a", "button"):
            role = "link" if tag == "a" else "button"
            self._open = Element(role, href=given.get("href", ""), form=self._form if tag == "button" else None)
            self._add(self._open)
        elif tag == "option" and self._open is not None and self._open.form is not None:
            self._open.options.append("")
            self._option = True
            if "selected" in given or len(self._open.options) == 1:
                self._open.form.values[self._open.key] = f"option {len(self._open.options)}"

    def _add(self, element: Element) -> None:
        self.elements.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None
        elif tag == "option":
            self._option = False
        elif tag in ("a", "button", "textarea", "select"):
            element, self._open = self._open, None
            if tag == "select" and element is not None and element.form is not None:
                number = int(element.form.values[element.key].removeprefix("option "))
                element.form.values[element.key] = element.options[number - 1]

    def handle_data(self, data: str) -> None:
        if self._option and self._open is not None:
            self._open.options[-1] += data
        elif self._open is not None and self._open.role in ("link", "button"):
            self._open.name += data
        elif self._open is not None and self._open.form is not None:
            self._open.form.values[self._open.key] += data
        self.text += data


class TextBrowser:
    """Visits the pages of `sites`; `shown` collects their texts."""

    def __init__(self, sites: Mapping[str, Site], url: str) -> None:
        self.sites = sites
        self.shown = ""
        self.answer: str | None = None
        self.visit(url)

    def visit(self, url: str, body: bytes | None = None) -> None:
        self.url = url
        method = "GET" if body is None else "POST"
        reply = self.sites[urlsplit(url).netloc].respond(Request(method=method, url=url, headers={}, body=body or b""))
        headers = dict(reply.headers)
        if "Location" in headers:
            self.visit(urljoin(url, headers["Location"]))
            return
        self.page = Page(reply.body.decode())
        self.shown += f"\n{self.page.text}"

    @property
    def nodes(self) -> list[Node]:
        return [Node(number, item.role, item.name, {}, 0) for number, item in enumerate(self.page.elements)]

    def do(self, action: str) -> None:
        command = parse_action(action)
        if command.name == "stop":
            self.answer = str(command.args[0])
        elif command.name == "goto":
            self.visit(str(command.args[0]))
        else:
            self._use(command, self.page.elements[command.args[0]])

    def _use(self, command: Command, element: Element) -> None:
        if command.name == "click" and element.form is None:
            self.visit(urljoin(self.url, element.href))
        elif command.name == "click" and element.form is not None:
            self._submit(element.form)
        elif command.name in ("fill", "type") and element.form is not None:
            element.form.values[element.key] = command.args[1]
            if command.name == "type":
                self._submit(element.form)
        elif command.name == "select" and element.form is not None:
            option = command.args[1][0]
            assert option in element.options
            element.form.values[element.key] = option
        else:
            raise AssertionError(command)

    def _submit(self, form: Form) -> None:
        encoded = urlencode(form.values)
        url = urljoin(self.url, form.action)
        if form.method == "POST":
            self.visit(url, encoded.encode())
        else:
            self.visit(f"{url}?{encoded}")
