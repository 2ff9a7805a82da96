"""Domain for a town library with authors, books, members and loans."""

from __future__ import annotations

from random import Random

from palestra.envs.sql.domain import EASY, HARD, MEDIUM, Domain, Names, Tables, Template
from palestra.envs.sql.domains.people import people, titles
from palestra.envs.sql.draw import Draw

_GENRES = ("novel", "poetry", "history", "travel", "crime", "science")
_KINDS = ("adult", "adult", "student", "senior")
_COUNTRIES = ("Portugal", "Norway", "Kenya", "Chile", "Japan", "Ireland")


def _names(rng: Random) -> Names:
    every = people(rng, 18 + 35)
    return {"author": every[:18], "member": every[18:], "book": titles(rng, 60)}


def _fill(draw: Draw, names: Names) -> Tables:
    authors = [
        (key, name, draw.choice(_COUNTRIES), draw.integer(1920, 1985))
        for key, name in zip(draw.keys(18), names["author"], strict=True)
    ]
    books = [
        (key, title, draw.choice(authors)[0], draw.choice(_GENRES), draw.integer(1950, 2021), draw.integer(80, 760))
        for key, title in zip(draw.keys(60), names["book"], strict=True)
    ]
    members = [
        (key, name, draw.day("2018-01-01", "2022-06-30"), draw.choice(_KINDS))
        for key, name in zip(draw.keys(35), names["member"], strict=True)
    ]
    loans = []
    lent_books, active = books[:54], members[:31]
    for key in sorted(draw.keys(draw.size(260))):
        lent = draw.day("2022-07-01", "2024-12-31")
        due = draw.later(lent, 28, 28)
        back = None if draw.chance(0.15) else draw.later(lent, 1, 45)
        loans.append((key, draw.choice(lent_books)[0], draw.choice(active)[0], lent, due, back))
    return {"authors": authors, "books": books, "members": members, "loans": loans}


DOMAIN = Domain(
    name="library",
    about="The books, members and loans of a town library. returned_on is NULL for loans that have not been returned.",
    ddl=(
        (
            "CREATE TABLE authors (author_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, country TEXT NOT NULL, "
            "birth_year INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE books (book_id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, author_id INTEGER NOT NULL "
            "REFERENCES authors, genre TEXT NOT NULL, published INTEGER NOT NULL, pages INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE members (member_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, joined_on TEXT NOT NULL, "
            "kind TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE loans (loan_id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES books, member_id "
            "INTEGER NOT NULL REFERENCES members, lent_on TEXT NOT NULL, due_on TEXT NOT NULL, returned_on TEXT)"
        ),
    ),
    slots={
        "genre": _GENRES,
        "country": _COUNTRIES,
        "kind": ("adult", "student", "senior"),
        "decade": range(1950, 2011, 10),
        "pages": range(150, 651, 25),
        "year": (2023, 2024),
        "count": (2, 3, 4),
    },
    names=_names,
    fill=_fill,
    templates=(
        Template(
            EASY,
            "How many books of the genre {genre} have more than {pages} pages? Return one number.",
            "SELECT COUNT(*) FROM books WHERE genre = {genre} AND pages > {pages}",
            "SELECT COUNT(CASE WHEN pages > {pages} THEN 1 END) FROM books WHERE genre = {genre}",
            held_out=True,
        ),
        Template(
            EASY,
            "Which books were published in the ten years starting with {decade}? Return title and year.",
            "SELECT title, published FROM books WHERE published >= {decade} AND published < {decade} + 10",
            "SELECT title, published FROM books WHERE published / 10 = {decade} / 10",
        ),
        Template(
            EASY,
            "How many members of each kind are there? Return the kind and the number.",
            "SELECT kind, COUNT(*) FROM members GROUP BY kind",
            "SELECT DISTINCT kind, COUNT(*) OVER (PARTITION BY kind) FROM members",
        ),
        Template(
            EASY,
            "Which authors come from {country}? Return their names, sorted by birth year and then by name.",
            "SELECT name FROM authors WHERE country = {country} ORDER BY birth_year, name",
            "SELECT n FROM (SELECT name AS n, birth_year AS b FROM authors WHERE country IN ({country})) ORDER BY b "
            "ASC, n",
            ordered=True,
        ),
        Template(
            MEDIUM,
            "How many books by {author} does the library have? Return one number.",
            "SELECT COUNT(*) FROM books JOIN authors USING (author_id) WHERE name = {author}",
            "SELECT COUNT(*) FROM books WHERE author_id = (SELECT author_id FROM authors WHERE name = {author})",
        ),
        Template(
            MEDIUM,
            "Which books by authors from {country} have never been lent? Return their titles.",
            "SELECT title FROM books JOIN authors USING (author_id) WHERE country = {country} "
            "AND book_id NOT IN (SELECT book_id FROM loans)",
            "SELECT b.title FROM books b LEFT JOIN loans l ON l.book_id = b.book_id WHERE l.loan_id IS NULL AND "
            "b.author_id IN (SELECT author_id FROM authors WHERE country = {country})",
            held_out=True,
        ),
        Template(
            MEDIUM,
            "Which books has {member} borrowed and not returned? Return each title once.",
            "SELECT DISTINCT title FROM loans JOIN members USING (member_id) JOIN books USING (book_id) "
            "WHERE name = {member} AND returned_on IS NULL",
            "SELECT title FROM books WHERE book_id IN (SELECT l.book_id FROM loans l, members m WHERE "
            "m.member_id = l.member_id AND m.name = {member} AND l.returned_on IS NULL)",
        ),
        Template(
            MEDIUM,
            "For each genre, how many loans started in {year}? Omit genres without such loans. Return the genre and "
            "the number, sorted by number in descending order and then by genre.",
            "SELECT genre, COUNT(*) AS n FROM loans JOIN books USING (book_id) WHERE strftime('%Y', lent_on) = '' || "
            "{year} GROUP BY genre ORDER BY n DESC, genre",
            "SELECT g, COUNT(*) FROM (SELECT (SELECT genre FROM books b WHERE b.book_id = l.book_id) AS g FROM loans "
            "l WHERE lent_on >= {year} || '-01-01' AND lent_on <= {year} || '-12-31') GROUP BY g ORDER BY COUNT(*) "
            "DESC, g",
            ordered=True,
        ),
        Template(
            HARD,
            "Which members of kind {kind} returned at least {count} loans after the due date? Return their names "
            "and the number of such loans.",
            "SELECT name, COUNT(*) FROM members JOIN loans USING (member_id) WHERE kind = {kind} AND returned_on > "
            "due_on GROUP BY member_id HAVING COUNT(*) >= {count}",
            "SELECT m.name, n FROM members m JOIN (SELECT member_id, SUM(julianday(returned_on) - julianday(due_on) "
            "> 0) AS n FROM loans WHERE returned_on IS NOT NULL GROUP BY member_id) AS late ON late.member_id = "
            "m.member_id WHERE m.kind = {kind} AND n >= {count}",
        ),
        Template(
            HARD,
            "For each author from {country}, after how many days on average were loans of the author's books returned? "
            "Ignore loans that have not been returned, and omit authors without returned loans. Return the author's "
            "name and the average.",
            "SELECT name, AVG(julianday(returned_on) - julianday(lent_on)) FROM authors JOIN books USING (author_id) "
            "JOIN loans USING (book_id) WHERE country = {country} AND returned_on IS NOT NULL GROUP BY author_id",
            "SELECT a.name, 1.0 * SUM(d.days) / COUNT(d.days) FROM authors a JOIN books b ON b.author_id = "
            "a.author_id JOIN (SELECT book_id, julianday(returned_on) - julianday(lent_on) AS days FROM loans) AS d "
            "ON d.book_id = b.book_id WHERE a.country = {country} AND d.days IS NOT NULL GROUP BY a.author_id",
        ),
        Template(
            HARD,
            "Which book was lent most often in {year}? In case of a tie, return all such books. Return the title and "
            "the number of loans.",
            "WITH n AS (SELECT book_id, COUNT(*) AS times FROM loans WHERE substr(lent_on, 1, 4) = '' || {year} "
            "GROUP BY book_id) SELECT title, times FROM n JOIN books USING (book_id) WHERE times = (SELECT "
            "MAX(times) FROM n)",
            "SELECT title, times FROM (SELECT b.title, COUNT(*) AS times, RANK() OVER (ORDER BY COUNT(*) DESC) AS "
            "place FROM loans l JOIN books b ON b.book_id = l.book_id WHERE strftime('%Y', l.lent_on) = '' || {year} "
            "GROUP BY b.book_id) WHERE place = 1",
        ),
        Template(
            HARD,
            "Which members have borrowed books by at least {count} different authors from {country}? Return their "
            "names.",
            "SELECT m.name FROM members m JOIN loans USING (member_id) JOIN books USING (book_id) JOIN authors a "
            "USING (author_id) WHERE a.country = {country} GROUP BY m.member_id HAVING COUNT(DISTINCT a.author_id) "
            ">= {count}",
            "SELECT m.name FROM members m WHERE {count} <= (SELECT COUNT(*) FROM authors a WHERE a.country = "
            "{country} AND EXISTS (SELECT 1 FROM loans l JOIN books b ON b.book_id = l.book_id WHERE l.member_id = "
            "m.member_id AND b.author_id = a.author_id))",
            held_out=True,
        ),
    ),
)
