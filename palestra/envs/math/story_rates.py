"""Word problems about rates: tanks, joint work, mixtures, recipes, meetings, timetables and units."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from random import Random

from palestra.envs.math.story_parts import EXACT, Story, counted, joined, people, vocabulary

_TANKS = vocabulary("pool", "tank", "pond", "barrel", "fountain", "basin")
_DRINKS = vocabulary("apple juice", "syrup", "vinegar", "fruit juice", "sugar solution", "paint")
_JOBS = (
    ("paint a fence", "painting the fence"),
    ("clean the hall", "cleaning the hall"),
    ("plant the flower beds", "planting the flower beds"),
    ("unload a truck", "unloading the truck"),
    ("build a wall", "building the wall"),
)
_INGREDIENTS = vocabulary("flour", "rice", "sugar", "oats", "lentils", "pasta")
_TOWNS = vocabulary("Arden", "Bellport", "Corvin", "Dunmore", "Eastlake", "Farrow", "Glenwick", "Hollis")
_PUBLIC_TRANSPORT = vocabulary("bus", "tram", "ferry", "shuttle")


def filling(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about pipes that fill and drain a tank."""
    tank = rng.choice(_TANKS)
    pipes = [rng.randint(4, max(6, size)) for _ in range(min(max(1, steps - 1), 4))]
    drain = rng.randint(1, min(pipes)) - 1 if steps > 1 else 0
    start = rng.randint(2, size) if steps > 2 else 0
    capacity = start + rng.randint(3, 20) * sum(pipes)
    sentences = [
        rng.choice(
            (f"A {tank} holds {capacity} liters.", f"There are {capacity} liters of water in a {tank} when it is full.")
        )
    ]
    if start:
        sentences.append(
            rng.choice(
                (f"The {tank} already contains {start} liters.", f"At first, there are {start} liters in the {tank}.")
            )
        )
    rates = joined([f"{rate} liters" for rate in pipes])
    if len(pipes) == 1:
        sentences.append(
            rng.choice((f"A pipe adds {rates} per minute.", f"Every minute, {rates} flow into the {tank}."))
        )
    else:
        sentences.append(f"{len(pipes)} pipes are opened at the same time, and they add {rates} per minute.")
    if drain:
        sentences.append(
            rng.choice(
                (
                    f"Meanwhile, {counted(drain, 'liters')} per minute leak out.",
                    f"A hole loses {counted(drain, 'liters')} per minute.",
                )
            )
        )
    rate = sum(pipes) - drain
    facts = {"capacity": capacity, "start": start, "drain": drain, **{f"pipe{i}": p for i, p in enumerate(pipes)}}
    if rng.random() < 0.4:
        minutes = rng.randint(1, (capacity - start) // rate)
        question = rng.choice(
            (
                f"How many liters are in the {tank} after {counted(minutes, 'minutes')}?",
                f"After {counted(minutes, 'minutes')}, how many liters does the {tank} contain?",
            )
        )
        content = start
        for _ in range(minutes):
            content += rate
        return Story.of("filling", sentences, question, content, **facts, minutes=minutes)
    question = rng.choice(
        (
            f"How many minutes does it take until the {tank} is full? {EXACT}",
            f"After how many minutes is the {tank} full? {EXACT}",
        )
    )
    return Story.of("filling", sentences, question, Fraction(capacity - start, rate), **facts)


def teamwork(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about people who do a job together at different speeds."""
    team = people(rng, 2 if steps < 4 else 3)
    job, doing = rng.choice(_JOBS)
    hours = [rng.randint(2, 6 + min(size, 60) // 10) for _ in team]
    sentences = [
        rng.choice((f"{person.name} can {job} in {time} hours.", f"To {job} alone, {person.name} needs {time} hours."))
        for person, time in zip(team, hours, strict=True)
    ]
    facts = {f"hours{i}": time for i, time in enumerate(hours)}
    names = joined([person.name for person in team])
    speed = sum((Fraction(1, time) for time in hours), Fraction(0))
    if steps > 2:
        alone = rng.randint(1, min(hours) - 1)
        first = team[hours.index(min(hours))]
        sentences.append(
            f"{first.name} starts {doing} and works alone for {counted(alone, 'hours')}. Then the others join."
        )
        question = f"How many more hours do {names} need together to finish? {EXACT}"
        rest = 1 - Fraction(alone, min(hours))
        return Story.of("teamwork", sentences, question, rest / speed, **facts, alone=alone)
    question = rng.choice(
        (
            f"How many hours do {names} need if they work together? {EXACT}",
            f"If {names} work at the same time, how many hours does the job take? {EXACT}",
        )
    )
    return Story.of("teamwork", sentences, question, 1 / speed, **facts)


def mixture(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about mixing liquids of different concentrations."""
    drink = rng.choice(_DRINKS)
    count = min(max(2, steps), 4)
    amounts = [rng.randint(2, max(4, size)) for _ in range(count)]
    percentages = rng.sample(range(5, 96, 5), count)
    person = people(rng, 1)[0]
    sentences = [
        rng.choice((f"{person.name} mixes several kinds of {drink}.", f"Several kinds of {drink} are poured together."))
    ]
    facts: dict[str, int] = {}
    for i, (amount, percent) in enumerate(zip(amounts, percentages, strict=True)):
        sentences.append(
            rng.choice(
                (
                    f"{'One' if i == 0 else 'Another'} portion of {amount} liters has {percent}% concentrate.",
                    f"There are {amount} liters of {drink} with {percent}% concentrate.",
                )
            )
        )
        facts |= {f"amount{i}": amount, f"percent{i}": percent}
    pure = sum((Fraction(a * p, 100) for a, p in zip(amounts, percentages, strict=True)), Fraction(0))
    total = sum(amounts)
    if steps > 2:
        water = rng.randint(2, max(4, size // 2))
        total += water
        facts["water"] = water
        sentences.append(
            rng.choice(
                (f"Then {water} liters of pure water are added.", f"{person.name} adds {water} liters of water.")
            )
        )
    if rng.random() < 0.5:
        question = f"How many liters of concentrate does the mixture contain? {EXACT}"
        return Story.of("mixture", sentences, question, pure, **facts, percentage=0)
    question = (
        f"What percentage of the mixture is concentrate? {EXACT} Write only the number, without the percent sign."
    )
    return Story.of("mixture", sentences, question, 100 * pure / total, **facts, percentage=1)


def recipe(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about scaling a recipe; the question asks for an amount or the number of packages to buy."""
    who = people(rng, 1)[0]
    parts = rng.sample(_INGREDIENTS, min(max(1, steps // 2), 3))
    servings = rng.randint(2, 6)
    guests = servings * rng.randint(2, 4 + size // 20) + rng.randint(0, servings - 1)
    each = [servings * 5 * rng.randint(3, 3 + size // 2) for _ in parts]
    package = rng.choice((250, 400, 500, 750, 1000))
    needs = joined([f"{grams} grams of {name}" for grams, name in zip(each, parts, strict=True)])
    sentences = [
        rng.choice(
            (f"A recipe for {servings} people needs {needs}.", f"For {servings} people, {who.name} takes {needs}.")
        )
    ]
    sentences.append(
        rng.choice(
            (f"{who.name} cooks for {guests} people.", f"{who.name} has invited guests, {guests} people in all.")
        )
    )
    facts = {"servings": servings, "guests": guests, **{f"grams{i}": grams for i, grams in enumerate(each)}}
    needed = [Fraction(grams * guests, servings) for grams in each]
    which = rng.randrange(len(parts))
    if steps < 2 or rng.random() < 0.3:
        question = f"How many grams of {parts[which]} are needed?"
        return Story.of("recipe", sentences, question, needed[which], **facts, which=which + 1)
    sentences.append(
        rng.choice((f"Every ingredient is sold in packages of {package} grams.", f"A package holds {package} grams."))
    )
    left = 0
    if steps > 3:
        left = rng.randint(1, min(package, int(needed[which])) - 1)
        sentences.append(f"There are still {counted(left, 'grams')} of {parts[which]} in the cupboard.")
    packages = ceil((needed[which] - left) / package)
    question = rng.choice(
        (
            f"How many packages of {parts[which]} must {who.name} buy?",
            f"What is the smallest number of packages of {parts[which]} to buy?",
        )
    )
    return Story.of("recipe", sentences, question, packages, **facts, which=which + 1, package=package, left=left)


def meeting(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about two travelers who approach or follow each other."""
    first, second = people(rng, 2)
    here, there = rng.sample(_TOWNS, 2)
    slow, fast = sorted(rng.sample(range(8, 30 + size // 2), 2))
    if rng.random() < 0.5:
        distance = rng.randint(20, 60 + 4 * size)
        sentences = [
            rng.choice(
                (
                    f"The road from {here} to {there} is {distance} kilometers long.",
                    f"{here} and {there} are {distance} kilometers apart.",
                )
            )
        ]
        lead = rng.randint(1, max(1, distance // slow - 1)) if steps > 2 and distance > 2 * slow else 0
        sentences.append(f"{first.name} rides from {here} to {there} at {slow} kilometers per hour.")
        if lead:
            sentences.append(
                f"After {counted(lead, 'hours')}, {second.name} starts in {there} at {fast} kilometers per hour."
            )
        else:
            sentences.append(
                f"At the same time, {second.name} rides from {there} to {here} at {fast} kilometers per hour."
            )
        time = lead + Fraction(distance - lead * slow, slow + fast)
        facts = {"distance": distance, "slow": slow, "fast": fast, "lead": lead}
        if rng.random() < 0.5:
            question = f"How many hours after {first.name}'s start do the two meet? {EXACT}"
            return Story.of("meeting", sentences, question, time, **facts, place=0)
        question = f"How many kilometers from {here} do the two meet? {EXACT}"
        return Story.of("meeting", sentences, question, time * slow, **facts, place=1)
    lead = rng.randint(1, 3 + steps)
    sentences = [
        f"{first.name} leaves {here} at {slow} kilometers per hour.",
        rng.choice(
            (
                f"After {counted(lead, 'hours')}, {second.name} follows at {fast} kilometers per hour.",
                f"{second.name} starts {counted(lead, 'hours')} later on the same road at {fast} kilometers per hour.",
            )
        ),
    ]
    question = f"How many hours after {second.name}'s start does {second.name} catch up with {first.name}? {EXACT}"
    return Story.of(
        "meeting", sentences, question, Fraction(lead * slow, fast - slow), slow=slow, fast=fast, lead=lead, place=2
    )


def timetable(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about buses that leave at regular intervals; the answer is found by simulating each minute."""
    who = people(rng, 1)[0]
    first, interval = 60 * rng.randint(5, 8) + 5 * rng.randint(0, 11), rng.randint(7, 10 + size // 4)
    leaves, walk = first + rng.randint(30, 300), rng.randint(4, 25)
    ride = rng.randint(8, 50)
    vehicle = rng.choice(_PUBLIC_TRANSPORT)

    def clock(time: int) -> str:
        return f"{time // 60}:{time % 60:02}"

    sentences = [
        rng.choice(
            (
                f"The first {vehicle} leaves at {clock(first)}, and then one leaves every {interval} minutes.",
                f"A {vehicle} leaves at {clock(first)} and every {interval} minutes after that.",
            )
        ),
        rng.choice(
            (
                f"{who.name} leaves home at {clock(leaves)} and walks {walk} minutes to the stop.",
                f"At {clock(leaves)}, {who.name} sets off for the stop, which is {walk} minutes away.",
            )
        ),
    ]
    delay = rng.randint(2, 12) if steps > 2 else 0
    if delay:
        sentences.append(f"On the way, {who.name} stops for {delay} minutes to buy a newspaper.")
    arrival = departure = leaves + walk + delay
    while (departure - first) % interval:
        departure += 1
    facts = {"first": first, "interval": interval, "leaves": leaves, "walk": walk, "delay": delay}
    if steps < 2 or rng.random() < 0.5:
        question = f"How many minutes does {who.name} wait for the next {vehicle} (0 if one leaves at that moment)?"
        return Story.of("timetable", sentences, question, departure - arrival, **facts, ride=0)
    sentences.append(
        rng.choice((f"The ride takes {ride} minutes.", f"The {vehicle} needs {ride} minutes to the destination."))
    )
    sentences.append(f"{who.name} takes the first possible {vehicle}.")
    question = f"How many minutes after leaving home does {who.name} arrive at the destination?"
    return Story.of("timetable", sentences, question, departure + ride - leaves, **facts, ride=ride)


_UNITS = (  # smaller unit, larger unit, factor and name of the pieces
    ("centimeters", "meters", 100, "ribbons"),
    ("grams", "kilograms", 1000, "bags"),
    ("minutes", "hours", 60, "lessons"),
    ("milliliters", "liters", 1000, "bottles"),
    ("inches", "feet", 12, "boards"),
)
vocabulary(*(word for small, large, _, pieces in _UNITS for word in (small, large, pieces)))
vocabulary(*(phrase for job in _JOBS for phrase in job))


def units(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about adding quantities in different units."""
    small, large, factor, pieces = rng.choice(_UNITS)
    who = people(rng, 1)[0]
    total = 0
    parts, facts = [], {"factor": factor}
    for i in range(min(max(2, steps), 5)):
        number, in_small = rng.randint(2, max(3, size // 10)), i % 2 == 0
        amount = rng.randint(5, 5 + size) * (factor // 20 or 1) if in_small else rng.randint(2, 5 + size // 20)
        parts.append(f"{number} {pieces} of {amount} {small if in_small else large}")
        total += number * amount * (1 if in_small else factor)
        facts |= {f"number{i}": number, f"{'small' if in_small else 'large'}{i}": amount}
    verb = "gives" if pieces == "lessons" else "prepares"
    sentences = [
        rng.choice(
            (f"In one week, {who.name} {verb} {joined(parts)}.", f"Altogether, {who.name} {verb} {joined(parts)}.")
        )
    ]
    if rng.random() < 0.5:
        question = rng.choice((f"How many {small} is that in all?", f"What is the total in {small}?"))
        return Story.of("units", sentences, question, total, **facts, asked=1)
    question = rng.choice((f"How many {large} is that in all? {EXACT}", f"What is the total in {large}? {EXACT}"))
    return Story.of("units", sentences, question, Fraction(total, factor), **facts, asked=2)
