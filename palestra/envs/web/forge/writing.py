"""Tasks that change something on the forge."""

from __future__ import annotations

from palestra.envs.web.forge.content import (
    PRIORITIES,
    RESOLUTIONS,
    SEVERITIES,
    STATUSES,
    TYPES,
    USER,
    Ticket,
    project,
)
from palestra.envs.web.forge.reading import SITE, opened, thread, wiki
from palestra.envs.web.forge.summary import NEW
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import Choose, Click, ClickAfter, Draw, Fill, Move, Stop, Task, Write, template

SUBMIT: tuple[Move, ...] = (Click("Preview"), Click("Submit"), Stop())
TITLES = (
    "Export stops after one page",
    "Search ignores umlauts",
    "Toolbar icons are too small",
    "Backup takes too long",
    "Wrong unit in the report",
    "Copy button does nothing",
)
DETAILS = (
    "It happens every time.",
    "It started this week.",
    "Restarting does not help.",
    "Only the newest version is affected.",
    "The same file works elsewhere.",
)
ANSWERS = (
    "I can help with that next week.",
    "Please try the latest version.",
    "This is explained in the wiki now.",
    "We discussed this in the last meeting.",
    "A fix will be in the next release.",
)
QUESTIONS = (
    "Can the report be printed?",
    "How do I merge two accounts?",
    "Is there a list of shortcuts?",
    "Who maintains the icons?",
)
PAGES = ("Glossary", "Hardware", "Known limits", "Testing", "Translations")
NEWCOMERS = {
    "kofi": "Kofi Mensah",
    "lena": "Lena Vogel",
    "mateo": "Mateo Ruiz",
    "noor": "Noor Aziz",
    "olga": "Olga Petrova",
    "priya": "Priya Nair",
    "quentin": "Quentin Roux",
    "rosa": "Rosa Lima",
}
TAGS = ("candidate", "reviewed", "stable", "do-not-merge", "demo")
MAX_GROUP = 3  # tickets that have to be changed in one task
MODERATE = "Moderate Forum"
NEW_TAG = "Add the following new tag name to this check-in:"


def edit(ticket: Ticket) -> tuple[Move, ...]:
    return *opened(ticket), Click("Edit")


def remark(ticket: str, text: str) -> Change:
    return Change(SITE, "INSERT INTO remark VALUES (?, ?, ?)", (ticket, USER, text))


def update(ticket: Ticket, **fields: str) -> Change:
    assignments = ", ".join(f"{name} = ?" for name in fields)
    return Change(SITE, f"UPDATE ticket SET {assignments} WHERE id = ?", (*fields.values(), ticket.id))  # noqa: S608


@template(SITE, level=2)
def new_ticket(draw: Draw) -> Task:
    title, text = draw.choice(TITLES), draw.choice(DETAILS)
    kind, (severity, other) = draw.choice(TYPES), draw.pair(SEVERITIES)
    version = draw.choice(project(draw.data_seed).releases).release.removeprefix("version-")

    def filed(severity: str) -> tuple[Move, ...]:
        return (
            Click("Tickets"),
            Click("New"),
            Fill("Enter a one-line summary of the ticket:", title),
            Choose("Type:", kind),
            Fill("Version:", version),
            Choose("Severity:", severity),
            Write(text),
            *SUBMIT,
        )

    values = (NEW, title, kind, severity, version)
    return Task(
        intent=f'File a ticket with the summary "{title}", the type {kind}, the version {version}, the severity '
        f'{severity} and the description "{text}".',
        changes=(
            Change(SITE, "INSERT INTO ticket VALUES (?, ?, ?, 'Open', '', '', ?, ?, '', '')", values),
            remark(NEW, text),
        ),
        expert=filed(severity),
        wrong=filed(other),
    )


@template(SITE, level=2)
def set_ticket_status(draw: Draw) -> Task:
    ticket = draw.choice(project(draw.data_seed).tickets)
    status, other = draw.pair(status for status in STATUSES if status != ticket.status)
    return Task(
        intent=f'Set the status of the ticket "{ticket.title}" to {status}.',
        changes=(update(ticket, status=status),),
        expert=(*edit(ticket), Choose("Status:", status), *SUBMIT),
        wrong=(*edit(ticket), Choose("Status:", other), *SUBMIT),
    )


@template(SITE, level=2)
def comment_on_ticket(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).tickets)
    text = draw.choice(ANSWERS)
    return Task(
        intent=f'Append the remark "{text}" to the ticket "{first.title}".',
        changes=(remark(first.id, text),),
        expert=(*edit(first), Write(text), *SUBMIT),
        wrong=(*edit(second), Write(text), *SUBMIT),
    )


@template(SITE, level=3, held_out=True)
def close_ticket(draw: Draw) -> Task:
    ticket = draw.choice(ticket for ticket in project(draw.data_seed).tickets if ticket.resolution == "Open")
    resolution = draw.choice(name for name in RESOLUTIONS if name != "Open")
    text = draw.choice(ANSWERS)
    closed: tuple[Move, ...] = (*edit(ticket), Choose("Status:", "Closed"))
    return Task(
        intent=f'Close the ticket "{ticket.title}": set its status to Closed and its resolution to {resolution}, and '
        f'append the remark "{text}".',
        changes=(update(ticket, status="Closed", resolution=resolution), remark(ticket.id, text)),
        expert=(*closed, Choose("Resolution:", resolution), Write(text), *SUBMIT),
        wrong=(*closed, Write(text), *SUBMIT),
    )


@template(SITE, level=3)
def set_priorities(draw: Draw) -> Task:
    groups: dict[str, list[Ticket]] = {}
    for ticket in project(draw.data_seed).tickets:
        if ticket.status == "Open":
            groups.setdefault(ticket.subsystem, []).append(ticket)
    largest = max(len(group) for group in groups.values() if len(group) <= MAX_GROUP)
    subsystem = draw.choice(name for name, group in groups.items() if len(group) == largest)
    group = groups[subsystem]
    used = {ticket.priority for ticket in group}
    priority = draw.choice(priority for priority in PRIORITIES if priority not in used)

    def changed(tickets: list[Ticket]) -> tuple[Move, ...]:
        return tuple(
            move for ticket in tickets for move in (*edit(ticket), Choose("Priority:", priority), *SUBMIT[:-1])
        )

    return Task(
        intent=f"Set the priority of all tickets for the subsystem {subsystem} with the status Open to {priority}.",
        changes=tuple(update(ticket, priority=priority) for ticket in group),
        expert=(*changed(group), Stop()),
        wrong=(*changed(group[:-1]), Stop()),
    )


@template(SITE, level=2)
def correct_wiki_page(draw: Draw) -> Task:
    content = project(draw.data_seed)
    page = draw.choice(page for page in content.pages if page.title in ("Installation", "Meetings", "Style guide"))
    subject = draw.choice(entry for entry, value in content.facts[page.title].items() if value.isdigit())
    old = int(content.facts[page.title][subject])
    value = old + draw.rng.randint(1, 9)

    def changed(value: int) -> str:
        return page.text.replace(f"{subject}: {old}", f"{subject}: {value}")

    opened: tuple[Move, ...] = (*wiki(page.title), Click("Edit"))
    return Task(
        intent=f'On the wiki page "{page.title}", change the entry "{subject}" to {value}. Change nothing else.',
        changes=(Change(SITE, "UPDATE page SET text = ? WHERE title = ?", (changed(value).strip(), page.title)),),
        expert=(*opened, Write(changed(value)), Click("Save & Close"), Stop()),
        wrong=(*opened, Write(changed(value + 1)), Click("Save & Close"), Stop()),
    )


@template(SITE, level=3)
def new_wiki_page(draw: Draw) -> Task:
    title, (text, other) = draw.choice(PAGES), draw.pair(DETAILS)

    def created(text: str) -> tuple[Move, ...]:
        name = Fill("Name of new wiki page:", title)
        return *wiki(title)[:-1], Click("New"), name, Click("Create"), Write(text), Click("Save & Close"), Stop()

    return Task(
        intent=f'Create a wiki page with the name "{title}" and the text "{text}".',
        changes=(Change(SITE, "INSERT INTO page VALUES (?, ?)", (title, text)),),
        expert=created(text),
        wrong=created(other),
    )


@template(SITE, level=2)
def new_thread(draw: Draw) -> Task:
    title, (text, other) = draw.choice(QUESTIONS), draw.pair(DETAILS)

    def posted(text: str) -> tuple[Move, ...]:
        return Click("Forum"), Click("New Thread"), Fill("Title:", title), Write(text), *SUBMIT

    return Task(
        intent=f'Start a forum thread with the title "{title}" and the text "{text}".',
        changes=(Change(SITE, "INSERT INTO post VALUES (?, ?, ?, '')", (title, USER, text)),),
        expert=posted(text),
        wrong=posted(other),
    )


@template(SITE, level=2)
def reply_to_post(draw: Draw) -> Task:
    chosen = draw.choice(project(draw.data_seed).threads)
    place = draw.rng.randrange(len(chosen.posts))
    mistaken = (place + 1) % len(chosen.posts)
    text = draw.choice(ANSWERS)
    values = (chosen.title, USER, text, chosen.posts[place].text)

    def replied(place: int) -> tuple[Move, ...]:
        return *thread(chosen), ClickAfter(chosen.posts[place].text, "Reply"), Write(text), *SUBMIT

    return Task(
        intent=f'In the forum thread "{chosen.title}", reply to post number {place + 1}: "{text}"',
        changes=(Change(SITE, "INSERT INTO post VALUES (?, ?, ?, ?)", values),),
        expert=replied(place),
        wrong=replied(mistaken),
    )


@template(SITE, level=2)
def add_user(draw: Draw) -> Task:
    login = draw.choice(NEWCOMERS)
    role, letter = draw.choice((("Reader", "u"), ("Developer", "v")))
    mistaken = "Developer" if role == "Reader" else "Reader"

    def added(role: str) -> tuple[Move, ...]:
        fields = (Fill("Login:", login), Fill("Contact Info:", NEWCOMERS[login]), Click(role))
        return Click("Users"), Click("Add"), *fields, Fill("Password:", "welcome"), Click("Apply Changes"), Stop()

    return Task(
        intent=f'Add a user with the login "{login}", the contact info "{NEWCOMERS[login]}", the password "welcome" '
        f"and only the capability {role}.",
        changes=(Change(SITE, "INSERT INTO member VALUES (?, ?, ?)", (login, letter, NEWCOMERS[login])),),
        expert=added(role),
        wrong=added(mistaken),
    )


@template(SITE, level=2, held_out=True)
def allow_moderation(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).readers)

    def allowed(login: str) -> tuple[Move, ...]:
        return Click("Users"), Click(login), Click(MODERATE), Click("Apply Changes"), Stop()

    return Task(
        intent=f'Give the user {first} the capability "{MODERATE}", in addition to those that {first} has.',
        changes=(Change(SITE, "UPDATE member SET rights = '2345u' WHERE login = ?", (first,)),),
        expert=allowed(first),
        wrong=allowed(second),
    )


@template(SITE, level=3, held_out=True)
def tag_check_in(draw: Draw) -> Task:
    first, second = draw.pair(project(draw.data_seed).check_ins[1:])
    tag = draw.choice(TAGS)

    def tagged(comment: str) -> tuple[Move, ...]:
        chosen = (Click("Timeline"), ClickAfter(comment), Click("edit"))
        return *chosen, Click(NEW_TAG), Fill("Tags:", tag), Click("Preview"), Click("Apply Changes"), Stop()

    return Task(
        intent=f'Add the tag "{tag}" to the check-in "{first.comment}".',
        changes=(Change(SITE, "INSERT INTO tagging VALUES (?, ?)", (first.comment, tag)),),
        expert=tagged(first.comment),
        wrong=tagged(second.comment),
    )


@template(SITE, level=3)
def correct_check_in(draw: Draw) -> Task:
    entry = draw.choice(project(draw.data_seed).check_ins[1:])
    number = draw.rng.randint(100, 999)
    comment, mistaken = f"{entry.comment} for customer {number}", f"{entry.comment} for customer {number + 1}"

    def corrected(comment: str) -> tuple[Move, ...]:
        chosen = (Click("Timeline"), ClickAfter(entry.comment), Click("edit"))
        return *chosen, Write(comment), Click("Preview"), Click("Apply Changes"), Stop()

    return Task(
        intent=f'Change the comment of the check-in "{entry.comment}" to "{comment}".',
        changes=(Change(SITE, "UPDATE check_in SET comment = ? WHERE original = ?", (comment, entry.comment)),),
        expert=corrected(comment),
        wrong=corrected(mistaken),
    )
