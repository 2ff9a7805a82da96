"""Kinds of pages, organizations, events and professions."""

from __future__ import annotations

KINDS = ("country", "province", "city", "river", "mountain", "organisation", "event", "work", "person")
ORGANISATIONS = (  # title template and type; a city has at most one organization of each type
    ("University of {}", "university"),
    ("{} Academy of Sciences", "learned society"),
    ("{} Museum of Art", "museum"),
    ("{} Philharmonic", "orchestra"),
    ("{} Herald", "newspaper"),
    ("{} Observatory", "observatory"),
    ("{} Shipyard", "shipyard"),
    ("Bank of {}", "bank"),
    ("{} Press", "publishing house"),
    ("{} Botanical Garden", "botanical garden"),
)
EVENTS = (
    ("Battle of {}", "battle"),
    ("Siege of {}", "siege"),
    ("Treaty of {}", "treaty"),
    ("Congress of {}", "congress"),
    ("Great Fire of {}", "fire"),
    ("{} Exhibition", "exhibition"),
    ("{} Uprising", "uprising"),
)
CREATORS: tuple[tuple[str, tuple[str, ...]], ...] = (  # professions, each with its types of works
    ("novelist", ("novel", "novella", "memoir")),
    ("poet", ("poem", "ballad", "elegy")),
    ("playwright", ("comedy", "tragedy", "farce")),
    ("composer", ("symphony", "opera", "cantata")),
    ("painter", ("painting", "fresco", "altarpiece")),
    ("historian", ("chronicle", "biography", "atlas")),
    ("sculptor", ("statue", "relief", "fountain")),
    ("philosopher", ("treatise", "dialogue", "essay")),
)
OTHER_PROFESSIONS = (
    "astronomer", "botanist", "chemist", "engineer", "physician", "merchant", "general", "explorer", "lawyer",
    "cartographer", "politician", "banker", "architect", "mathematician", "navigator", "clockmaker",
)  # fmt: skip
