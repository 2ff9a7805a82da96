"""Domain for an airline network with airports, airlines, flights and bookings."""

from __future__ import annotations

from random import Random

from palestra.envs.sql.domain import EASY, HARD, MEDIUM, Domain, Names, Tables, Template
from palestra.envs.sql.domains.people import CITIES, people
from palestra.envs.sql.draw import Draw

_COUNTRIES = ("Portugal", "Italy", "Sweden", "Ireland", "Austria")
_CABINS = ("economy", "economy", "economy", "business")
_MINUTES = (0, 15, 30, 45)
_DELAYS = (0, 0, 0, 5, 15, 30, 60, 90, 150)
_AIRLINES = (
    "Aerobrisa", "Altamar", "Blue Heron", "Condoria", "Fjordline", "Kestrel Wings", "Monsoon Air", "Nordvind",
    "Pelican Jet", "Skylark Air", "Solaria", "Tramontana",
)  # fmt: skip


def _names(rng: Random) -> Names:
    return {"airport_city": rng.sample(CITIES, 9), "airline": rng.sample(_AIRLINES, 6), "passenger": people(rng, 45)}


def _fill(draw: Draw, names: Names) -> Tables:
    codes = draw.rng.sample([f"{a}{b}{c}" for a in "BDFGHKLM" for b in "AEIOU" for c in "KLNRST"], 9)
    airports = [
        (code, city, draw.choice(_COUNTRIES), draw.integer(1, 60, 10))
        for code, city in zip(codes, names["airport_city"], strict=True)
    ]
    airlines = [(key, name, draw.integer(1946, 2015)) for key, name in zip(draw.keys(6), names["airline"], strict=True)]
    flights = []
    served = airports[:8]  # no flight goes to the last airport
    for key in sorted(draw.keys(draw.size(150))):
        start, end = draw.sample(served, 2)
        if draw.chance(0.5):
            start, end = end, start
        hour, minute = draw.integer(5, 22), draw.choice(_MINUTES)
        moment = f"{draw.day('2024-01-01', '2024-12-31')} {hour:02d}:{minute:02d}"
        delay = None if draw.chance(0.08) else draw.choice(_DELAYS) + draw.integer(0, 1)
        flights.append((key, draw.choice(airlines)[0], start[0], end[0], moment, draw.integer(45, 240), delay))
    bookings = []
    passengers = names["passenger"][:41]
    for key in sorted(draw.keys(draw.size(320))):
        passenger, cabin = draw.choice(passengers), draw.choice(_CABINS)
        bookings.append((key, draw.choice(flights)[0], passenger, cabin, draw.integer(39, 480)))
    return {"airports": airports, "airlines": airlines, "flights": flights, "bookings": bookings}


DOMAIN = Domain(
    name="flights",
    about="The flights between several airports in one year. "
    "delay_minutes is NULL for canceled flights and 0 for flights that were on time.",
    ddl=(
        (
            "CREATE TABLE airports (code TEXT PRIMARY KEY, city TEXT NOT NULL UNIQUE, country TEXT NOT NULL, "
            "elevation_m INTEGER NOT NULL)"
        ),
        ("CREATE TABLE airlines (airline_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, founded INTEGER NOT NULL)"),
        (
            "CREATE TABLE flights (flight_id INTEGER PRIMARY KEY, airline_id INTEGER NOT NULL REFERENCES airlines, "
            "origin TEXT NOT NULL REFERENCES airports, destination TEXT NOT NULL REFERENCES airports, departs_at TEXT "
            "NOT NULL, duration_minutes INTEGER NOT NULL, delay_minutes INTEGER)"
        ),
        (
            "CREATE TABLE bookings (booking_id INTEGER PRIMARY KEY, flight_id INTEGER NOT NULL REFERENCES flights, "
            "passenger TEXT NOT NULL, cabin TEXT NOT NULL, price INTEGER NOT NULL)"
        ),
    ),
    slots={
        "country": _COUNTRIES,
        "cabin": ("economy", "business"),
        "minutes": range(60, 216, 5),
        "delay": (5, 15, 30, 60, 90),
        "month": tuple(f"2024-{month:02d}" for month in range(1, 13)),
        "metres": range(50, 551, 10),
        "founded": range(1955, 2006, 5),
        "count": (2, 3, 4),
    },
    names=_names,
    fill=_fill,
    templates=(
        Template(
            EASY,
            "Which airports have an elevation of more than {metres} meters? Return their codes and cities.",
            "SELECT code, city FROM airports WHERE elevation_m > {metres}",
            "SELECT code, city FROM airports WHERE NOT elevation_m <= {metres}",
        ),
        Template(
            EASY,
            "How many flights last longer than {minutes} minutes? Return one number.",
            "SELECT COUNT(*) FROM flights WHERE duration_minutes > {minutes}",
            "SELECT COUNT(*) - SUM(duration_minutes <= {minutes}) FROM flights",
            held_out=True,
        ),
        Template(
            EASY,
            "How many flights, including canceled flights, depart in the month {month}? Return one number.",
            "SELECT COUNT(*) FROM flights WHERE strftime('%Y-%m', departs_at) = {month}",
            "SELECT COUNT(*) FROM flights WHERE departs_at LIKE {month} || '-%'",
        ),
        Template(
            EASY,
            "For each cabin, what is the lowest and the highest price of a booking? Return cabin, lowest, highest.",
            "SELECT cabin, MIN(price), MAX(price) FROM bookings GROUP BY cabin",
            "SELECT DISTINCT cabin, MIN(price) OVER (PARTITION BY cabin), MAX(price) OVER (PARTITION BY cabin) FROM "
            "bookings",
        ),
        Template(
            MEDIUM,
            "How many flights of {airline} were canceled? Return one number.",
            "SELECT COUNT(*) FROM flights JOIN airlines USING (airline_id) WHERE name = {airline} AND delay_minutes "
            "IS NULL",
            "SELECT COUNT(*) - COUNT(delay_minutes) FROM flights WHERE airline_id IN "
            "(SELECT airline_id FROM airlines WHERE name = {airline})",
        ),
        Template(
            MEDIUM,
            "To which cities do flights from {airport_city} go, including canceled flights? Return each city once.",
            "SELECT DISTINCT d.city FROM flights f JOIN airports o ON o.code = f.origin JOIN airports d "
            "ON d.code = f.destination WHERE o.city = {airport_city}",
            "SELECT city FROM airports WHERE code IN (SELECT destination FROM flights WHERE origin = "
            "(SELECT code FROM airports WHERE city = {airport_city}))",
        ),
        Template(
            MEDIUM,
            "How much was paid for {cabin} bookings on flights to {airport_city}? Return one number, or 0 if there are "
            "no such bookings.",
            "SELECT COALESCE(SUM(price), 0) FROM bookings JOIN flights USING (flight_id) JOIN airports ON code = "
            "destination WHERE city = {airport_city} AND cabin = {cabin}",
            "SELECT TOTAL(b.price) FROM bookings b WHERE b.cabin = {cabin} AND b.flight_id IN (SELECT f.flight_id FROM "
            "flights f WHERE f.destination IN (SELECT code FROM airports WHERE city = {airport_city}))",
            held_out=True,
        ),
        Template(
            MEDIUM,
            "For each airline founded in {founded} or later, what is the average delay in minutes of its flights "
            "that were not canceled? Return name and average.",
            "SELECT name, AVG(delay_minutes) FROM airlines JOIN flights USING (airline_id) WHERE founded >= {founded} "
            "AND delay_minutes IS NOT NULL GROUP BY airline_id",
            "SELECT a.name, TOTAL(f.delay_minutes) / COUNT(f.delay_minutes) FROM airlines a, flights f WHERE "
            "f.airline_id = a.airline_id AND NOT a.founded < {founded} AND f.delay_minutes >= 0 GROUP BY a.airline_id",
        ),
        Template(
            HARD,
            "Which passengers flew on at least {count} different airlines, counting only flights that were not "
            "canceled? Return their names.",
            "SELECT passenger FROM bookings JOIN flights USING (flight_id) WHERE delay_minutes IS NOT NULL GROUP BY "
            "passenger HAVING COUNT(DISTINCT airline_id) >= {count}",
            "SELECT p FROM (SELECT DISTINCT b.passenger AS p, f.airline_id FROM bookings b JOIN flights f "
            "ON f.flight_id = b.flight_id WHERE f.delay_minutes IS NOT NULL) GROUP BY p HAVING COUNT(*) >= {count}",
        ),
        Template(
            HARD,
            "Among flights that were not canceled, which airline has the largest share of flights that were more than "
            "{delay} minutes late? In case of a tie, return all such airlines. Return name and share (from 0 to 1).",
            "WITH s AS (SELECT airline_id, AVG(delay_minutes > {delay}) AS share FROM flights WHERE delay_minutes IS "
            "NOT NULL GROUP BY airline_id) SELECT name, share FROM s JOIN airlines USING (airline_id) WHERE share = "
            "(SELECT MAX(share) FROM s)",
            "SELECT name, share FROM (SELECT a.name, SUM(CASE WHEN f.delay_minutes > {delay} THEN 1.0 ELSE 0 END) / "
            "COUNT(*) AS share, RANK() OVER (ORDER BY SUM(CASE WHEN f.delay_minutes > {delay} THEN 1.0 ELSE 0 END) / "
            "COUNT(*) DESC) AS place FROM airlines a JOIN flights f ON f.airline_id = a.airline_id WHERE "
            "f.delay_minutes IS NOT NULL GROUP BY a.airline_id) WHERE place = 1",
        ),
        Template(
            HARD,
            "Which cities can be reached from {airport_city} with exactly one change, but not by a direct flight? Use "
            "all flights, regardless of their dates and cancellations, and exclude {airport_city} itself. Return each "
            "city once.",
            "WITH hub AS (SELECT code FROM airports WHERE city = {airport_city}), direct AS (SELECT destination FROM "
            "flights WHERE origin IN hub) SELECT DISTINCT city FROM flights JOIN airports ON code = destination "
            "WHERE origin IN direct AND destination NOT IN direct AND destination NOT IN hub",
            "SELECT city FROM airports z WHERE city <> {airport_city} AND EXISTS (SELECT 1 FROM flights a JOIN "
            "flights b ON b.origin = a.destination JOIN airports s ON s.code = a.origin WHERE s.city = "
            "{airport_city} AND b.destination = z.code) AND NOT EXISTS (SELECT 1 FROM flights d JOIN airports s ON "
            "s.code = d.origin WHERE s.city = {airport_city} AND d.destination = z.code)",
            held_out=True,
        ),
        Template(
            HARD,
            "For each month of the year, by date of departure, which flights earned the most from bookings? In case of "
            "a tie, return all such flights. Omit months without bookings. Return the month as YYYY-MM, the flight_id "
            "and the sum, sorted by month and then by flight_id.",
            "WITH s AS (SELECT strftime('%Y-%m', departs_at) AS month, flight_id, SUM(price) AS earned FROM flights "
            "JOIN bookings USING (flight_id) GROUP BY flight_id) SELECT month, flight_id, earned FROM s WHERE earned = "
            "(SELECT MAX(earned) FROM s AS o WHERE o.month = s.month) ORDER BY month, flight_id",
            "SELECT m, id, e FROM (SELECT substr(f.departs_at, 1, 7) AS m, f.flight_id AS id, SUM(b.price) AS e, "
            "RANK() OVER (PARTITION BY substr(f.departs_at, 1, 7) ORDER BY SUM(b.price) DESC) AS place FROM flights "
            "f JOIN bookings b ON b.flight_id = f.flight_id GROUP BY f.flight_id) WHERE place = 1 ORDER BY m, id",
            ordered=True,
        ),
    ),
)
