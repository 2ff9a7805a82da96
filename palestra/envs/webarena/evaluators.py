"""WebArena's evaluators: the answer, the final address, and the content of pages.

The rules are those of `evaluation_harness/evaluators.py` in libwebarena, which needs Playwright, NLTK and other
packages. They are reimplemented here for this package's browser. A reference of one character is compared with the
words in the agent's answer; libwebarena splits these with NLTK, this module with a regular expression.
"""

from __future__ import annotations

import html
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from palestra.envs.web.tasks import same_answer
from palestra.errors import EnvFailed

Judge = Callable[[str, str, str], bool]  # (question, reference, answer) -> whether the answer is right
SECONDS = 30.0
ADMIN = {"username": "admin", "password": "admin1234"}  # WebArena's account
_CALL = re.compile(r"func:(\w+)\((.*)\)", re.S)
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_ROLE = """(() => {
  const names = [...document.querySelectorAll("td[data-label='Account'] span.gl-avatar-labeled-sublabel")];
  const place = names.findIndex(name => name.outerText === '@' + NAME);
  return document.querySelectorAll('td.col-max-role span')[place].outerText;
})()"""


class Pages(ABC):
    """Access to the agent's browser: the final page, and further pages that are loaded for the evaluation."""

    url: str  # address of the final page

    @abstractmethod
    def read(self, url: str | None, scripts: list[str]) -> str:
        """Evaluate scripts in a page (None is the final one) and return the last value as text, or "" if it fails."""


def clean(answer: str) -> str:
    answer = answer.strip()
    if len(answer) > 1 and answer[0] == answer[-1] and answer[0] in "'\"":
        answer = answer[1:-1]
    return answer.lower()


def includes(reference: str, answer: str, *, tokens: bool = False) -> bool:
    reference, answer = clean(reference), clean(answer)
    if tokens and len(reference) == 1:
        return reference in re.findall(r"\w+|[^\w\s]", answer)
    return reference in answer


def accepts_answer(config: Mapping[str, Any], answer: str, judge: Judge | None) -> bool:
    """Evaluate `string_match`."""
    for rule, reference in (config["eval"].get("reference_answers") or {}).items():
        if rule == "exact_match":
            accepted = clean(reference) == clean(answer)
        elif rule == "must_include":
            accepted = all(includes(part, answer, tokens=len(reference) == 1) for part in reference)
        elif reference == "N/A":
            note = config["eval"].get("string_note", "")
            accepted = same_answer(clean(answer), "n/a") or (
                judge is not None and judge(config["intent"], note, answer)
            )
        elif judge is None:
            raise EnvFailed("this task's answer has to be compared by a language model; pass `judge`")
        else:
            accepted = all(judge(config["intent"], part, answer) for part in reference)
        if not accepted:
            return False
    return True


def accepts_url(config: Mapping[str, Any], url: str) -> bool:
    """Evaluate `url_match`: the address contains one of the references, and has all of their query parameters."""
    references = [urlsplit(part.rstrip("/")) for part in config["eval"]["reference_url"].split(" |OR| ")]
    final = urlsplit(url.rstrip("/"))
    if not any(reference.netloc + reference.path in final.netloc + final.path for reference in references):
        return False
    wanted: dict[str, set[str]] = {}
    for reference in references:
        for name, values in parse_qs(reference.query).items():
            wanted.setdefault(name, set()).update(values)
    given = parse_qs(final.query)
    return all(values & set(given.get(name, [])) for name, values in wanted.items())


def accepts_pages(config: Mapping[str, Any], pages: Pages, urls: Mapping[str, str]) -> bool:
    """Evaluate `program_html`: elements of the final page, or of other pages, have the required content."""
    for target in config["eval"]["program_html"]:
        url = target["url"]
        if url.startswith("func"):
            url = _function(url.replace("__last_url__", pages.url), None, pages, urls)
        place = None if url == "last" else url
        locator = target["locator"]
        if not locator.strip():
            content = pages.read(place, ["document.documentElement.outerHTML"])
        elif locator.startswith("func:"):
            content = _function(locator, place, pages, urls)
        else:
            content = pages.read(place, [*target.get("prep_actions", []), locator])
        required, content = target["required_contents"], html.unescape(content)
        if "exact_match" in required:
            accepted = clean(required["exact_match"]) == clean(content)
        else:
            alternatives = [part.split(" |OR| ") for part in required["must_include"]]
            accepted = all(any(includes(choice, content) for choice in part) for part in alternatives)
        if not accepted:
            return False
    return True


def evaluate(
    config: Mapping[str, Any], answer: str, pages: Pages, urls: Mapping[str, str], judge: Judge | None
) -> bool:
    """Return whether all of a task's evaluators accept the final state of the episode."""
    checks: dict[str, Callable[[], bool]] = {
        "string_match": lambda: accepts_answer(config, answer, judge),
        "url_match": lambda: accepts_url(config, pages.url),
        "program_html": lambda: accepts_pages(config, pages, urls),
    }
    return all(checks[kind]() for kind in config["eval"]["eval_types"])


def _function(call: str, place: str | None, pages: Pages, urls: Mapping[str, str]) -> str:
    """Return the value of one of the functions that WebArena's configurations may call."""
    match = _CALL.fullmatch(call)
    name, arguments = (match[1], _TEXT.findall(match[2])) if match else ("", [])
    argument = next((single or double for single, double in arguments), "")
    if name == "reddit_get_post_url":
        return post_url(argument)
    if name == "gitlab_get_project_memeber_role":
        return pages.read(place, [_ROLE.replace("NAME", json.dumps(argument))])
    if name == "shopping_get_latest_order_url":
        newest = "searchCriteria[sortOrders][0][field]=created_at&searchCriteria[sortOrders][0][direction]=DESC"
        orders = _shop(urls["shopping"], f"orders?{newest}&searchCriteria[pageSize]=1")
        return f"{urls['shopping']}/sales/order/view/order_id/{int(orders['items'][0]['increment_id'])}/"
    if name in ("shopping_get_sku_latest_review_author", "shopping_get_sku_latest_review_rating"):
        reviews = _shop(urls["shopping"], f"products/{argument}/reviews")
        if not reviews:
            return ""
        return str(reviews[-1]["nickname"] if name.endswith("author") else reviews[-1]["ratings"][0]["percent"])
    raise EnvFailed(f"WebArena's function {call!r} is not known")


def post_url(url: str) -> str:
    """Return the address of the post to which an address on the forum belongs."""
    parts = urlsplit(url)
    path = parts.path.split("/")
    if len(path) < 4 or path[1] != "f":
        return url
    return f"{parts.scheme}://{parts.netloc}/f/{path[2]}/{path[3]}/"


def _shop(url: str, path: str) -> Any:
    """Query the shop's REST interface as its administrator."""
    try:
        login = Request(  # noqa: S310  # the user's own site
            f"{url}/rest/default/V1/integration/admin/token",
            data=json.dumps(ADMIN).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urlopen(login, timeout=SECONDS) as reply:  # noqa: S310
            token = json.load(reply)
        query = Request(f"{url}/rest/V1/{path}", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        with urlopen(query, timeout=SECONDS) as reply:  # noqa: S310
            return json.load(reply)
    except (OSError, ValueError) as err:
        raise EnvFailed(f"the shop's REST interface did not answer {path!r}: {err}") from err
