"""Tasks that look something up on the forge."""

from __future__ import annotations

from collections import Counter
from urllib.parse import quote_plus

from palestra.envs.web.forge.app import FORGE
from palestra.envs.web.forge.content import SITUATIONS, SYMPTOMS, Thread, Ticket, project
from palestra.envs.web.suite.tasks import NOT_POSSIBLE, Click, Draw, Move, Stop, Task, template

SITE = FORGE.name
MISSING = (  # wiki pages and entries that these pages do not have
    ("Installation", "License key"),
    ("Installation", "Disk space"),
    ("Meetings", "Chair"),
    ("Meetings", "Agenda"),
    ("Style guide", "Tab width"),
    ("Style guide", "Brace style"),
    ("Roadmap", "Version 3.0"),
    ("Roadmap", "Version 9.1"),
)
LIST: tuple[Move, ...] = (Click("Tickets"), Click("Reports"), Click("All Tickets"))


def opened(ticket: Ticket) -> tuple[Move, ...]:
    """Return the moves that open a ticket."""
    return *LIST, Click(ticket.id[:10])


def wiki(title: str) -> tuple[Move, ...]:
    return Click("Wiki"), Click("List"), Click(title)


def thread(chosen: Thread) -> tuple[Move, ...]:
    return Click("Forum"), Click(chosen.title)


def source(name: str) -> tuple[Move, ...]:
    """Return the moves that open a file."""
    folder, _, file = name.partition("/")
    return Click("Files"), Click(folder), Click(file)


@template(SITE, level=1)
def ticket_severity(draw: Draw) -> Task:
    tickets = project(draw.data_seed).tickets
    first = draw.choice(tickets)
    second = draw.choice(ticket for ticket in tickets if ticket.severity != first.severity)
    return Task(
        intent=f'What is the severity of the ticket "{first.title}"?',
        answer=(first.severity,),
        expert=(*opened(first), Stop(first.severity)),
        wrong=(*opened(second), Stop(second.severity)),
        evidence=(first.title, first.severity),
    )


@template(SITE, level=1)
def wiki_fact(draw: Draw) -> Task:
    facts = project(draw.data_seed).facts
    title = draw.choice(facts)
    subject = draw.choice(facts[title])
    value = facts[title][subject]
    others = [other for page in facts.values() for other in page.values() if other != value]
    return Task(
        intent=f'The wiki page "{title}" has an entry "{subject}". What does it say?',
        answer=(value,),
        expert=(*wiki(title), Stop(value)),
        wrong=(*wiki(title), Stop(draw.choice(others))),
        evidence=(f"{subject}: {value}",),
    )


@template(SITE, level=2)
def missing_fact(draw: Draw) -> Task:
    content = project(draw.data_seed)
    title, subject = draw.choice(MISSING)
    return Task(
        intent=f'The wiki page "{title}" of the project {content.name} has an entry "{subject}". What does it say?',
        answer=(NOT_POSSIBLE,),
        expert=(*wiki(title), Stop(NOT_POSSIBLE)),
        wrong=(*wiki(title), Stop(next(iter(content.facts[title].values())))),
    )


@template(SITE, level=1)
def open_ticket(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).tickets)
    return Task(
        intent=f'Open the page of the ticket "{first.title}".',
        url=f"{FORGE.url}tktview/{first.id[:10]}",
        expert=(*opened(first), Stop()),
        wrong=(*opened(second), Stop()),
    )


@template(SITE, level=1)
def open_wiki_page(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).pages)
    return Task(
        intent=f'Open the wiki page "{first.title}" of the project {project(draw.data_seed).name}.',
        url=f"{FORGE.url}wiki?name={quote_plus(first.title)}",
        expert=(*wiki(first.title), Stop()),
        wrong=(*wiki(second.title), Stop()),
    )


@template(SITE, level=1)
def file_constant(draw: Draw) -> Task:
    constants = project(draw.data_seed).constants
    first, second = draw.pair(constants)
    constant, value = constants[first]
    return Task(
        intent=f"What is the value of {constant} in the file {first}?",
        answer=(str(value),),
        expert=(*source(first), Stop(str(value))),
        wrong=(*source(second), Stop(str(constants[second][1]))),
        evidence=(f"#define {constant} {value}",),
    )


@template(SITE, level=1)
def release_date(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).releases)
    date, mistaken = f"{first.when:%Y-%m-%d}", f"{second.when:%Y-%m-%d}"
    return Task(
        intent=f"On which date was the check-in of {project(draw.data_seed).name} with the tag {first.release} made? "
        "Answer in the form YYYY-MM-DD.",
        answer=(date,),
        expert=(Click("Tags"), Click(first.release), Stop(date)),
        wrong=(Click("Tags"), Click(second.release), Stop(mistaken)),
        evidence=(date, first.comment),
    )


@template(SITE, level=2)
def count_tickets(draw: Draw) -> Task:
    counts = Counter((ticket.subsystem, ticket.status) for ticket in project(draw.data_seed).tickets)
    subsystem, status = draw.choice(sorted(counts))
    count = counts[subsystem, status]
    return Task(
        intent=f"How many tickets for the subsystem {subsystem} have the status {status}?",
        answer=(str(count),),
        expert=(*LIST, Stop(str(count))),
        wrong=(*LIST, Stop(str(count + 1))),
        evidence=(subsystem, status),
    )


@template(SITE, level=2)
def last_change(draw: Draw) -> Task:
    content = project(draw.data_seed)
    name = draw.choice(content.files)
    last = [entry for entry in content.check_ins if name in entry.files][-1]
    other = draw.choice(login for login in content.developers if login != last.user)
    return Task(
        intent=f"Which user made the most recent check-in of {content.name} that changed the file {name}? Answer with "
        "the login.",
        answer=(last.user,),
        expert=(*source(name), Click(name), Stop(last.user)),
        wrong=(*source(name), Click(name), Stop(other)),
        evidence=(last.comment, last.user),
    )


@template(SITE, level=2, held_out=True)
def last_poster(draw: Draw) -> Task:
    threads = project(draw.data_seed).threads
    chosen = draw.choice(thread for thread in threads if thread.posts[0].author != thread.posts[-1].author)
    return Task(
        intent=f'Which user wrote the last post in the forum thread "{chosen.title}"? Answer with the login.',
        answer=(chosen.posts[-1].author,),
        expert=(*thread(chosen), Stop(chosen.posts[-1].author)),
        wrong=(*thread(chosen), Stop(chosen.posts[0].author)),
        evidence=(chosen.posts[-1].author, chosen.posts[-1].text),
    )


@template(SITE, level=2)
def missing_ticket(draw: Draw) -> Task:
    tickets = project(draw.data_seed).tickets
    titles = {ticket.title for ticket in tickets}
    possible = [f"{symptom} when {case}" for symptom in SYMPTOMS for case in SITUATIONS]
    title = draw.choice(title for title in possible if title not in titles)
    similar = draw.choice(tickets)
    return Task(
        intent=f'What is the status of the ticket "{title}"?',
        answer=(NOT_POSSIBLE,),
        expert=(*LIST, Stop(NOT_POSSIBLE)),
        wrong=(*opened(similar), Stop(similar.status)),
    )


@template(SITE, level=3)
def check_ins_on_branch(draw: Draw) -> Task:
    content = project(draw.data_seed)
    branch = draw.choice(content.branches)
    users = Counter(entry.user for entry in content.check_ins if entry.branch == branch)
    user = draw.choice(sorted(users))
    return Task(
        intent=f"How many check-ins did the user {user} make on the branch {branch}?",
        answer=(str(users[user]),),
        expert=(Click("Branches"), Click(branch), Stop(str(users[user]))),
        wrong=(Click("Branches"), Click(branch), Stop(str(users[user] + 1))),
        evidence=(user, branch),
    )


@template(SITE, level=3)
def contact_for_ticket(draw: Draw) -> Task:
    content = project(draw.data_seed)
    contacts = content.facts["Contacts"]
    ticket = draw.choice(ticket for ticket in content.tickets if ticket.subsystem in contacts)
    name = contacts[ticket.subsystem]
    other = next((other for other in contacts.values() if other != name), "nobody")
    return Task(
        intent=f'Which developer is the contact for the subsystem of the ticket "{ticket.title}", according to the '
        "wiki? Answer with the full name.",
        answer=(name,),
        expert=(*opened(ticket), *wiki("Contacts"), Stop(name)),
        wrong=(*wiki("Contacts"), Stop(other)),
        evidence=(ticket.subsystem, f"{ticket.subsystem}: {name}"),
    )


@template(SITE, level=3, held_out=True)
def more_changes(draw: Draw) -> Task:
    content = project(draw.data_seed)
    changes = Counter(name for entry in content.check_ins for name in entry.files if name in content.files)
    first = draw.choice(content.files)
    second = draw.choice(name for name in content.files if changes[name] != changes[first])
    more, fewer = sorted((first, second), key=lambda name: -changes[name])
    histories: tuple[Move, ...] = (*source(first), Click(first), *source(second), Click(second))
    return Task(
        intent=f"Which of the files {first} and {second} was changed by more check-ins? Answer with its full name.",
        answer=(more, more.partition("/")[2]),
        expert=(*histories, Stop(more)),
        wrong=(*histories, Stop(fewer)),
    )
