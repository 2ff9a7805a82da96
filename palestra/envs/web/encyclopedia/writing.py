"""Tasks that change something in the encyclopedia: articles, talk pages, the watchlist and the preferences."""

from __future__ import annotations

import re

from palestra.envs.web.encyclopedia.content import PREFERENCES, USER, library
from palestra.envs.web.encyclopedia.reading import SITE, find, readable
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import Choose, Click, Draw, Fill, Move, Stop, Task, template

_YEAR = re.compile(r"\b1[0-9]{3}\b")
QUESTIONS = (
    "Which sources were used for {}?",
    "Please add a map of {}.",
    "The article on {} needs a better introduction.",
    "Can anyone confirm the figures about {}?",
)
TOPICS = ("Bridge", "Lighthouse", "Market", "Cathedral", "Theater", "Aqueduct", "Harbor", "Windmill")


def _set_body(title: str, body: str) -> Change:
    return Change(SITE, "UPDATE article SET body = ? WHERE title = ?", (body, title))


def _watch(title: str) -> Change:
    return Change(SITE, "INSERT INTO watched VALUES (?)", (title,))


def _message(title: str, words: str) -> Change:
    return Change(SITE, "INSERT INTO message (title, author, text) VALUES (?, ?, ?)", (title, USER, words))


@template(SITE, level=1)
def watch(draw: Draw) -> Task:
    content = library(draw.data_seed)
    kind = draw.choice(("city", "river", "organisation", "person"))
    first, second = draw.pair(entry for entry in content.by_kind[kind] if entry.title not in content.watched)
    return Task(
        intent=f"Add the article about {first.title} to your watchlist.",
        changes=(_watch(first.title),),
        expert=(*find(first.title), Click("Watch"), Stop()),
        wrong=(*find(second.title), Click("Watch"), Stop()),
    )


@template(SITE, level=1)
def unwatch(draw: Draw) -> Task:
    first, second = draw.pair(library(draw.data_seed).watched)
    return Task(
        intent=f"Remove the article about {first} from your watchlist.",
        changes=(Change(SITE, "DELETE FROM watched WHERE title = ?", (first,)),),
        expert=(Click("Watchlist"), Click(first), Click("Unwatch"), Stop()),
        wrong=(Click("Watchlist"), Click(second), Click("Unwatch"), Stop()),
    )


@template(SITE, level=1, held_out=True)
def preference(draw: Draw) -> Task:
    name = draw.choice(PREFERENCES)
    current = library(draw.data_seed).preferences[name]
    value, other = draw.pair(value for value in PREFERENCES[name] if value != current)
    return Task(
        intent=f"In your preferences, set {name} to {value}.",
        changes=(Change(SITE, "UPDATE preference SET value = ? WHERE name = ?", (value, name)),),
        expert=(Click("Preferences"), Choose(name, value), Click("Save"), Stop()),
        wrong=(Click("Preferences"), Choose(name, other), Click("Save"), Stop()),
    )


@template(SITE, level=2)
def talk_post(draw: Draw) -> Task:
    first, second = draw.pair(readable(draw, draw.choice(("city", "mountain", "event"))))
    words = draw.choice(QUESTIONS).format(first.title)
    return Task(
        intent=f'Post the message "{words}" on the talk page of the article about {first.title}.',
        changes=(_message(first.title, words),),
        expert=(*find(first.title), Click("Talk"), Fill("Message", words), Click("Post"), Stop()),
        wrong=(*find(second.title), Click("Talk"), Fill("Message", words), Click("Post"), Stop()),
    )


@template(SITE, level=2)
def correct_year(draw: Draw) -> Task:
    entry = draw.choice(entry for entry in readable(draw, "organisation") if len(_YEAR.findall(entry.body)) == 1)
    year = _YEAR.findall(entry.body)[0]
    right = str(int(year) + draw.rng.randint(2, 40))
    fixed = entry.body.replace(year, right)
    mistaken = entry.body.replace(year, str(int(right) + 1))
    return Task(
        intent=f"The year {year} in the article about the {entry.title} is wrong. Replace it with {right}.",
        changes=(_set_body(entry.title, fixed),),
        expert=(*find(entry.title), Click("Edit"), Fill("Text", fixed), Click("Save"), Stop()),
        wrong=(*find(entry.title), Click("Edit"), Fill("Text", mistaken), Click("Save"), Stop()),
    )


@template(SITE, level=2)
def create_article(draw: Draw) -> Task:
    city = draw.choice(readable(draw, "city"))
    topic = draw.choice(TOPICS)
    title, words = f"{topic} of {city.title}", f"The {topic.lower()} is a landmark in [[{city.title}]]."
    moves: tuple[Move, ...] = (Click("Create an article"), Fill("Title", title), Choose("Category", "Organizations"))
    return Task(
        intent=f'Create an article with the title "{title}" in the category Organizations, with the text "{words}"',
        changes=(Change(SITE, "INSERT INTO article VALUES (?, 'organisation', ?)", (title, words)),),
        expert=(*moves, Fill("Text", words), Click("Create"), Stop()),
        wrong=(*moves[:2], Fill("Text", words), Click("Create"), Stop()),  # leaves the default category
    )


@template(SITE, level=2)
def restore(draw: Draw) -> Task:
    content = library(draw.data_seed)
    title = draw.choice(content.vandalized)
    body = next(entry.body for entry in content.entries if entry.title == title)
    return Task(
        intent=f"A guest has destroyed the article about {title}. Restore the revision before that edit.",
        changes=(_set_body(title, body),),
        expert=(*find(title), Click("History"), Click("Restore revision 1"), Stop()),
        wrong=(*find(title), Click("History"), Click("Restore revision 2"), Stop()),
    )


@template(SITE, level=3)
def remove_spam(draw: Draw) -> Task:
    content = library(draw.data_seed)
    title = draw.choice(content.spam)
    spammer = content.spam[title]
    messages = [message for message in content.messages if message[0] == title]
    places = [place for place, message in enumerate(messages, 1) if message[1] == spammer]
    # The numbers of later messages fall when one is removed, so the last one is removed first.
    removals = tuple(Click(f"Remove message {place}") for place in reversed(places))
    fair = next(place for place, message in enumerate(messages, 1) if message[1] != spammer)
    return Task(
        intent=f"Remove all messages by {spammer} from the talk page of the article about {title}, and no others.",
        changes=(Change(SITE, "DELETE FROM message WHERE title = ? AND author = ?", (title, spammer)),),
        expert=(*find(title), Click("Talk"), *removals, Stop()),
        wrong=(*find(title), Click("Talk"), Click(f"Remove message {fair}"), Stop()),
    )


@template(SITE, level=3)
def watch_cities(draw: Draw) -> Task:
    content = library(draw.data_seed)
    provinces = [
        entry
        for entry in readable(draw, "province")
        if not {content.entries[city.page].title for city in entry.facts["cities"]} & {*content.watched}
    ]
    province = draw.choice(provinces)
    cities = [content.entries[city.page].title for city in province.facts["cities"]]
    visits: list[tuple[Move, ...]] = [(*find(province.title), Click(city), Click("Watch")) for city in cities]
    return Task(
        intent=f"Add the articles about all cities in the province {province.title} to your watchlist.",
        changes=tuple(map(_watch, cities)),
        expert=(*(move for visit in visits for move in visit), Stop()),
        wrong=(*(move for visit in visits[:-1] for move in visit), Stop()),
    )


@template(SITE, level=3)
def answer_on_talk_page(draw: Draw) -> Task:
    content = library(draw.data_seed)
    river = draw.choice(readable(draw, "river"))
    country = content.of(river, "country")
    words = f"The river is {river.facts['length']} km long."
    mistaken = f"The river is {river.facts['length'] + 10} km long."
    last: tuple[Move, ...] = (*find(country.title), Click("Talk"))
    return Task(
        intent=f'Find the length of {river.title}, and post the message "The river is N km long." on the talk page of '
        f"the article about {country.title}, with the length, without a comma, in place of N.",
        changes=(_message(country.title, words),),
        expert=(*find(river.title), *last, Fill("Message", words), Click("Post"), Stop()),
        wrong=(*find(river.title), *last, Fill("Message", mistaken), Click("Post"), Stop()),
        evidence=(f"{river.facts['length']:,}",),
    )
