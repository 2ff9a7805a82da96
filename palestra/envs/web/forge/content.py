"""Generate a software project from a seed: developers, check-ins, tickets, wiki pages and forum threads."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha1
from random import Random
from typing import NamedTuple

from palestra.seeding import child_seed

USER = "robin"  # the agent's login
START, NOW = datetime(2025, 10, 6, 9, 0), datetime(2026, 3, 2, 9, 0)  # UTC
PROJECTS = (
    ("Heron", "a data logger for weather stations"),
    ("Lantern", "a reader for electronic books"),
    ("Quarry", "a search engine for photo collections"),
    ("Saffron", "a manager for recipes and shopping lists"),
    ("Tidal", "a scheduler for backups"),
    ("Umber", "an editor for vector drawings"),
    ("Walnut", "a ledger for small clubs"),
    ("Zephyr", "a planner for bicycle tours"),
)
PEOPLE = {
    "amara": "Amara Okafor",
    "bruno": "Bruno Costa",
    "chidi": "Chidi Eze",
    "dalia": "Dalia Haddad",
    "elif": "Elif Demir",
    "farid": "Farid Karimi",
    "greta": "Greta Lind",
    "hana": "Hana Sato",
    "ivo": "Ivo Novak",
    "jun": "Jun Park",
}
DEVELOPERS, READERS = 6, 4  # users who may check in, and users who may only write tickets and posts
TYPES = ("Code_Defect", "Build_Problem", "Documentation", "Feature_Request", "Incident")
STATUSES = ("Open", "Verified", "Review", "Deferred", "Fixed", "Tested", "Closed")
SEVERITIES = ("Critical", "Severe", "Important", "Minor", "Cosmetic")
PRIORITIES = ("Immediate", "High", "Medium", "Low", "Zero")
RESOLUTIONS = (
    "Open",
    "Fixed",
    "Rejected",
    "Workaround",
    "Unable_To_Reproduce",
    "Works_As_Designed",
    "Duplicate",
    "Misconfiguration",
)
SUBSYSTEMS = ("Export", "Import", "Installer", "Network", "Storage", "Window")
SYMPTOMS = ("Crash", "Wrong total", "No error message", "Slow response", "Garbled text", "Missing entry")
SITUATIONS = (
    "a file is empty",
    "the disk is full",
    "two users save at once",
    "the clock changes",
    "a name contains a quote",
    "the connection is lost",
    "a table has one row",
    "the log is rotated",
    "a folder is renamed",
    "the password expires",
    "a date is in the future",
    "the screen is narrow",
)
REMARKS = (
    "I see this as well.",
    "It happens only on the second attempt.",
    "A fix is on its way.",
    "The log contains nothing unusual.",
    "It worked in the previous version.",
    "I could not reproduce it yet.",
)
CHANGES = ("Fix", "Simplify", "Document", "Test", "Speed up", "Rename parts of")
PARTS = (
    "the cache",
    "the command line",
    "the configuration file",
    "the date parser",
    "the error messages",
    "the export filter",
    "the index",
    "the main window",
    "the retry logic",
    "the settings dialog",
    "the start script",
    "the upgrade path",
)
SOURCES = (
    "archive",
    "buffer",
    "config",
    "dates",
    "export",
    "filter",
    "index",
    "loader",
    "paths",
    "queue",
    "retry",
    "view",
)
README = "README.md"
CONSTANTS = ("MAX_RETRIES", "CACHE_PAGES", "TIMEOUT_MS", "LINE_WIDTH", "QUEUE_DEPTH", "MIN_SPACE_MB")
BRANCHES = ("faster-start", "new-parser", "dark-theme", "plugin-api", "undo-stack")
QUESTIONS = (
    "How do I move my data to a new computer?",
    "How do I change the language?",
    "Is there a version for tablets?",
    "Can I run it without a network?",
    "Where are the settings stored?",
    "How large can a file be?",
    "Which format should I export to?",
    "Why does the first start take so long?",
    "How do I undo an import?",
    "Can several people share one account?",
    "How do I report a security problem?",
    "Does it work with a screen reader?",
)
REPLIES = (
    "Yes, that has worked since the last release.",
    "The manual has a chapter about it.",
    "I use a small script for that.",
    "Not yet, but there is a ticket.",
    "Thank you, that helped.",
    "Please attach the log file.",
    "I have the same question.",
    "Restart it once, then it works.",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
MONTHS = ("April", "May", "June", "July", "September", "October", "November")


class CheckIn(NamedTuple):
    comment: str
    user: str
    when: datetime
    branch: str
    files: tuple[str, ...]  # names of the files that it changes
    release: str = ""  # tag such as version-1.2


class Ticket(NamedTuple):
    id: str
    title: str
    type: str
    status: str
    subsystem: str
    priority: str
    severity: str
    foundin: str
    resolution: str
    reporter: str
    text: str
    when: datetime
    remarks: tuple[tuple[str, str], ...]  # login and text


class Page(NamedTuple):
    title: str
    author: str
    when: datetime
    text: str


class Post(NamedTuple):
    author: str
    text: str
    reply_to: int  # index of another post; -1 for the first one


class Thread(NamedTuple):
    title: str
    when: datetime
    posts: tuple[Post, ...]


class Project:
    """All content for one data seed. `facts` contains the statements on the wiki pages by page and subject."""

    def __init__(self, data_seed: int) -> None:
        rng = Random(child_seed(data_seed, "forge"))
        self.data_seed = data_seed
        self.name, self.purpose = rng.choice(PROJECTS)
        logins = rng.sample(sorted(PEOPLE), DEVELOPERS + READERS)
        self.developers, self.readers = tuple(logins[:DEVELOPERS]), tuple(logins[DEVELOPERS:])
        self.files = tuple(f"src/{name}.c" for name in sorted(rng.sample(SOURCES, 8)))
        self.constants = {
            name: (constant, rng.randint(3, 900))
            for name, constant in zip(rng.sample(self.files, 5), rng.sample(CONSTANTS, 5), strict=True)
        }
        self.branches = tuple(sorted(rng.sample(BRANCHES, 2)))
        self.check_ins = self._check_ins(rng)
        self.releases = tuple(entry for entry in self.check_ins if entry.release)
        self.tickets = self._tickets(rng)
        self.facts = self._facts(rng)
        self.pages = tuple(self._page(rng, title) for title in self.facts)
        self.threads = self._threads(rng)

    def _check_ins(self, rng: Random) -> tuple[CheckIn, ...]:
        comments = rng.sample([f"{change} {part}" for change in CHANGES for part in PARTS], 34)
        branches = ["trunk"] * 22 + [self.branches[0]] * rng.randint(3, 6) + [self.branches[1]] * 7
        branches = branches[:34] + ["trunk"] * (34 - len(branches))
        rng.shuffle(branches)
        trunk = [place for place, branch in enumerate(branches) if branch == "trunk"]
        releases = {place: number for number, place in enumerate(trunk[4::6])}
        entries = [CheckIn("Add the first version", self.developers[0], START, "trunk", (*self.files, README))]
        for place, (comment, branch) in enumerate(zip(comments, branches, strict=True)):
            when = START + timedelta(days=2 + 4 * place, hours=rng.randint(0, 8), minutes=rng.randint(0, 59))
            files = tuple(sorted(rng.sample(self.files, rng.choice((1, 1, 2, 3)))))
            release = f"version-1.{releases[place]}" if place in releases else ""
            entries.append(CheckIn(comment, rng.choice(self.developers), when, branch, files, release))
        return tuple(entries)

    def _tickets(self, rng: Random) -> tuple[Ticket, ...]:
        titles = rng.sample([f"{symptom} when {case}" for symptom in SYMPTOMS for case in SITUATIONS], 22)
        people = (*self.developers, *self.readers)
        tickets = []
        for number, title in enumerate(titles):
            status = rng.choice(("Open", "Open", "Open", "Verified", "Review", "Fixed", "Closed"))
            resolution = rng.choice(("Fixed", "Works_As_Designed")) if status in ("Fixed", "Closed") else "Open"
            tickets.append(
                Ticket(
                    id=sha1(f"{self.data_seed}/{number}".encode(), usedforsecurity=False).hexdigest(),
                    title=title,
                    type=rng.choice(TYPES),
                    status=status,
                    subsystem=rng.choice(SUBSYSTEMS),
                    priority=rng.choice(PRIORITIES),
                    severity=rng.choice(SEVERITIES),
                    foundin=rng.choice(self.releases).release.removeprefix("version-"),
                    resolution=resolution,
                    reporter=rng.choice(people),
                    text=f"{title}. Seen by {rng.randint(2, 60)} people so far.",
                    when=START + timedelta(days=20 + 5 * number, hours=rng.randint(0, 8), minutes=rng.randint(0, 59)),
                    remarks=tuple((rng.choice(people), rng.choice(REMARKS)) for _ in range(rng.choice((0, 1, 1, 2)))),
                )
            )
        return tuple(tickets)

    def _facts(self, rng: Random) -> dict[str, dict[str, str]]:
        areas = rng.sample(SUBSYSTEMS, 4)
        return {
            "Contacts": {area: PEOPLE[rng.choice(self.developers)] for area in areas},
            "Installation": {
                "Port": str(rng.randint(4000, 9000)),
                "Memory in MB": str(rng.randint(2, 40) * 64),
                "Folder": f"/srv/{self.name.lower()}{rng.randint(2, 9)}",
            },
            "Meetings": {
                "Day": rng.choice(DAYS),
                "Time": f"{rng.randint(9, 16)}:{rng.choice(('00', '15', '30', '45'))}",
                "Room": str(rng.randint(101, 399)),
            },
            "Roadmap": {f"Version 2.{number}": rng.choice(MONTHS) for number in range(4)},
            "Style guide": {"Line length": str(rng.randint(72, 120)), "Indentation": str(rng.choice((2, 3, 4, 8)))},
        }

    def _page(self, rng: Random, title: str) -> Page:
        lines = [f"  *  {subject}: {value}" for subject, value in self.facts[title].items()]
        when = START + timedelta(days=rng.randint(5, 120), hours=rng.randint(0, 8))
        return Page(title, rng.choice(self.developers), when, "\n".join([f"# {title}", "", *lines, ""]))

    def _threads(self, rng: Random) -> tuple[Thread, ...]:
        threads = []
        people = (*self.developers, *self.readers)
        for number, title in enumerate(rng.sample(QUESTIONS, 9)):
            author = rng.choice(self.readers)
            posts = [Post(author, f"{title} I am using version {rng.choice(self.releases).release[8:]}.", -1)]
            for text in rng.sample(REPLIES, rng.randint(1, 5)):
                others = [login for login in people if login != posts[-1].author]
                posts.append(Post(rng.choice(others), text, rng.randrange(len(posts))))
            when = START + timedelta(days=15 + 13 * number, hours=rng.randint(0, 8), minutes=rng.randint(0, 59))
            threads.append(Thread(title, when, tuple(posts)))
        return tuple(threads)


@lru_cache(maxsize=16)
def project(data_seed: int) -> Project:
    return Project(data_seed)
