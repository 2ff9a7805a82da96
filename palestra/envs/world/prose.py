"""Sentence templates for articles, by kind of page. `articles` fills them in, and `reader` parses them.

An article has at most one sentence from each group. A group is a sequence of tiers, ordered from the most facts to the
fewest. The first tier whose slots can all be filled is used, and one of its templates is chosen at random. Most slots
are names of facts. In addition, `name` is the title, `a_type` is the type with its indefinite article, and `he`, `his`
and `surname` refer to a person. A sentence ends at the first period that is followed by a space.
"""

from __future__ import annotations

from collections.abc import Mapping

Tier = tuple[str, ...]
Group = tuple[Tier, ...]

LEADS: Mapping[str, Group] = {
    "country": (
        (
            "{name} is a {government} whose capital is {capital}.",
            "{name} is a country, a {government} with its capital at {capital}.",
            "The {government} of {name} is governed from {capital}, its capital.",
        ),
    ),
    "province": (
        (
            "{name} is a province of {country}.",
            "{name} is one of the provinces of {country}.",
            "{name} is a province in the country of {country}.",
        ),
    ),
    "city": (
        (
            "{name} is a city in the province of {province}, on the banks of the {river}.",
            "{name}, a city in the province of {province}, lies on the {river}.",
            "{name} is a city on the {river}, in the province of {province}.",
        ),
        (
            "{name} is a city in the province of {province}.",
            "{name}, a city, belongs to the province of {province}.",
            "{name} is one of the cities of the province of {province}.",
        ),
    ),
    "river": (
        (
            "The {name} is a river of {country}, {length} kilometres long.",
            "The {name} is a river in {country} with a length of {length} kilometres.",
            "At {length} kilometres, the {name} is one of the rivers of {country}.",
        ),
    ),
    "mountain": (
        (
            "{name} is a mountain in {country} that rises to {height} metres.",
            "{name}, a mountain of {country}, is {height} metres high.",
            "With a height of {height} metres, {name} is among the mountains of {country}.",
        ),
    ),
    "organisation": (
        (
            "The {name} is {a_type} in {seat}, founded in {founded_year} by {founder}.",
            "The {name}, {a_type} in {seat}, was founded by {founder} in {founded_year}.",
            "Founded in {founded_year} by {founder}, the {name} is {a_type} in {seat}.",
        ),
    ),
    "event": (
        (
            "The {name} was {a_type} that began on {date} in {place}.",
            "The {name} was {a_type} in {place} whose first day was {date}.",
            "On {date} the {name} began, {a_type} that was long remembered in {place}.",
        ),
    ),
    "work": (
        (
            "{name} is {a_type} by {creator}, completed in {year}.",
            "{name}, {a_type} of {year}, is the work of {creator}.",
            "{creator} completed {name}, {a_type}, in {year}.",
        ),
    ),
    "person": (
        (
            "{name} (born {birth_date}, died {death_date}) was {a_occupation}.",
            "{name} was {a_occupation} who was born on {birth_date} and died on {death_date}.",
            "Born on {birth_date}, {name} was {a_occupation}, mourned by many when {he} died on {death_date}.",
        ),
        (
            "{name} (born {birth_date}) is {a_occupation}.",
            "{name} is {a_occupation} who was born on {birth_date}.",
        ),
    ),
}

GROUPS: Mapping[str, tuple[Group, ...]] = {
    "country": (
        (
            (
                "It has existed in its present form since {founded_year}.",
                "The state goes back to the year {founded_year}.",
                "Its first constitution dates from {founded_year}.",
            ),
        ),
        (
            (
                "The official language is {language}, and people pay in the {currency}.",
                "People speak {language}, and the currency is the {currency}.",
                "Its currency is the {currency}, and its laws are written in {language}.",
            ),
        ),
        (
            (
                "The country covers {area} square kilometres.",
                "Its territory measures {area} square kilometres.",
                "All its provinces together have an area of {area} square kilometres.",
            ),
        ),
        (
            (
                "Its longest river is the {longest_river}, and its highest mountain is {highest_mountain}.",
                "The highest mountain is {highest_mountain}, the longest river the {longest_river}.",
                "No mountain there is higher than {highest_mountain}, and no river longer than the {longest_river}.",
            ),
        ),
        (
            (
                "It borders {neighbours}.",
                "Its neighbours are {neighbours}.",
            ),
        ),
        (
            (
                "The country is divided into the provinces of {provinces}.",
                "Its provinces are {provinces}.",
            ),
        ),
    ),
    "province": (
        (
            (
                "Its capital is {capital}.",
                "The provincial government sits in {capital}.",
                "{capital} has been its capital since the middle ages.",
            ),
        ),
        (
            (
                "It covers {area} square kilometres and is known for its {product}.",
                "With an area of {area} square kilometres, it lives mainly on {product}.",
                "Farms and workshops on its {area} square kilometres supply the country with {product}.",
            ),
        ),
        (
            (
                "The cities of the province are {cities}.",
                "It has the cities of {cities}.",
            ),
        ),
    ),
    "city": (
        (
            (
                "It was founded in {founded_year}.",
                "Its charter dates from {founded_year}.",
                "The first houses were built in {founded_year}.",
            ),
        ),
        (
            (
                "The city has {population} inhabitants and stands {elevation} metres above the sea.",
                "At {elevation} metres above the sea, it is home to {population} people.",
                "Its population is {population}, its elevation {elevation} metres.",
            ),
        ),
        (
            (
                "For centuries it has traded in {trade}.",
                "Its merchants grew rich on {trade}.",
                "The weekly market for {trade} draws visitors from afar.",
            ),
        ),
        (
            (
                "Its twin city is {twin}.",
                "It is twinned with {twin}.",
                "A partnership links it with {twin}, its twin city.",
            ),
        ),
        (
            (
                "It was the scene of the {event}.",
                "History books know it for the {event}.",
                "The {event} left its mark on the old town.",
            ),
        ),
        (
            (
                "Natives of the city include {natives}.",
                "It is the birthplace of {natives}.",
            ),
        ),
        (
            (
                "It is the seat of the {organisations}.",
                "It is home to the {organisations}.",
            ),
        ),
    ),
    "river": (
        (
            (
                "It rises on the slopes of {source}.",
                "Its source is on {source}.",
                "Springs on {source} feed its upper course.",
            ),
        ),
        (
            (
                "On its way it passes {cities}.",
                "It flows through {cities}.",
            ),
            (
                "No city stands on its banks.",
                "Its banks are without a city.",
            ),
        ),
    ),
    "mountain": (
        (
            (
                "It was first climbed in {first_climbed} by {first_climber}.",
                "The first to reach the top was {first_climber}, in {first_climbed}.",
                "{first_climber} made the first ascent in {first_climbed}.",
            ),
        ),
    ),
    "organisation": (
        (
            (
                "It has {members} members.",
                "At last count it had {members} members.",
                "Its rolls list {members} members.",
            ),
        ),
    ),
    "event": (
        (
            (
                "It was led by {leader}.",
                "The leading figure was {leader}.",
                "{leader} played the leading part.",
            ),
            (
                "Who led it is not known.",
                "The names of those who led it are lost.",
            ),
        ),
        (
            (
                "It lasted for {days} days in all.",
                "From the first day to the last it took {days} days.",
                "Chronicles count {days} days.",
            ),
        ),
    ),
    "work": (
        (
            (
                "It is set in {setting}, and the {patron} commissioned it.",
                "Commissioned by the {patron}, it is set in {setting}.",
                "Its setting is {setting}, and its commission came from the {patron}.",
            ),
            (
                "It is set in {setting}.",
                "Its setting is {setting}.",
            ),
            (
                "It was commissioned by the {patron}.",
                "Its commission came from the {patron}.",
            ),
        ),
        (
            (
                "It is dedicated to {dedicatee}.",
                "The dedication names {dedicatee}.",
                "{dedicatee} is the person to whom it is dedicated.",
            ),
        ),
    ),
    "person": (
        (
            (
                "{surname} was born in {birth_city} to {father} and {mother}.",
                "{He} was born in {birth_city}, the child of {father} and {mother}.",
                "The child of {father} and {mother}, {he} came into the world in {birth_city}.",
            ),
            (
                "{surname} was born in {birth_city}.",
                "{He} came from {birth_city}, where {he} was born.",
                "{His} birthplace is {birth_city}.",
            ),
            (
                "{His} parents were {father} and {mother}.",
                "{surname} was the child of {father} and {mother}.",
            ),
        ),
        (
            (
                "{He} died in {death_city}.",
                "{His} life ended in {death_city}.",
                "{surname} spent {his} last years in {death_city}, where {he} died.",
            ),
        ),
        (
            (
                "{He} married {spouse}, with whom {he} had {children}.",
                "{surname} was married to {spouse}; from this marriage came {children}.",
                "With {spouse}, {his} spouse, {he} brought up {children}.",
            ),
            (
                "{He} married {spouse}, and they had no children.",
                "{surname} was married to {spouse}, without children.",
            ),
            (
                "{He} never married and left no children.",
                "{surname} remained without spouse and children.",
            ),
        ),
        (
            (
                "{He} studied at the {university} and was a pupil of {teacher}.",
                "A pupil of {teacher}, {he} attended the {university}.",
                "{His} teacher was {teacher}, {his} university the {university}.",
            ),
            (
                "{He} studied at the {university}.",
                "{surname} attended the {university}.",
            ),
            (
                "{His} teacher was {teacher}.",
                "{surname} learned {his} profession from {teacher}.",
            ),
        ),
        (
            (
                "{He} founded the {organisation}.",
                "{surname} is remembered as the founder of the {organisation}.",
                "The {organisation} owes its foundation to {him}.",
            ),
        ),
        (
            (
                "{He} is the author of {works}.",
                "To {him} the world owes {works}.",
                "{surname} left behind {works}.",
            ),
        ),
    ),
}
