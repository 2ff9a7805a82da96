"""Kinds of grade-school word problems; the answer is computed by simulating the story step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise
from random import Random

from palestra.envs.math import story_counts as counts
from palestra.envs.math import story_money as money
from palestra.envs.math import story_rates as rates
from palestra.envs.math.story_parts import (
    DAYS,
    EXACT,
    FRACTIONS,
    GOODS,
    SMALL_THINGS,
    Person,
    Story,
    counted,
    joined,
    people,
    vocabulary,
)

_VEHICLES = vocabulary("train", "bus", "truck", "car", "ferry", "cyclist")
_PLANTS = (("workshop", "toys"), ("bakery", "rolls"), ("factory", "bolts"), ("pottery", "cups"), ("mill", "sacks"))
_SELLERS = (("farmer", "eggs"), ("gardener", "tulips"), ("baker", "pies"), ("florist", "roses"), ("grocer", "melons"))
vocabulary(*(word for pair in (*_PLANTS, *_SELLERS) for word in pair))

StoryKind = Callable[[Random, int, int], Story]  # (rng, steps, size) -> story


def collection(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about friends who gain, lose and give away items from their collections."""
    friends = people(rng, 2 if steps < 4 else 3)
    thing = rng.choice(SMALL_THINGS)
    owns: dict[str, int] = {}
    sentences: list[str] = []
    for i, person in enumerate(friends):
        sentences.append(_first_count(rng, person, friends[i - 1] if i else None, owns, thing, size))
    sentences += [_event(rng, friends, owns, thing, size) for _ in range(max(1, steps - len(friends) + 1))]
    first, second = rng.sample(friends, 2)
    which = rng.randrange(3)
    if which == 0:
        question, answer = f"How many {thing} does {first.name} have in the end?", owns[first.name]
    elif which == 1 and owns[first.name] != owns[second.name]:
        if owns[first.name] < owns[second.name]:
            first, second = second, first
        question = f"How many more {thing} does {first.name} have than {second.name} in the end?"
        answer = owns[first.name] - owns[second.name]
    else:
        names = joined([person.name for person in friends])
        question, answer = f"How many {thing} do {names} have together in the end?", sum(owns.values())
    return Story(kind="collection", sentences=sentences, question=question, answer=Fraction(answer))


def _first_count(rng: Random, person: Person, other: Person | None, owns: dict[str, int], thing: str, size: int) -> str:
    name = person.name
    if other is None or rng.random() < 0.3:
        owns[name] = rng.randint(5, max(8, size))
        return f"{name} has {counted(owns[name], thing)}."
    base = owns[other.name]
    if rng.random() < 0.4 and base <= size:
        factor = rng.randint(2, 4)
        owns[name] = factor * base
        words = {2: "twice", 3: "three times", 4: "four times"}[factor]
        return f"{name} has {words} as many {thing} as {other.name}."
    gap = rng.randint(2, max(3, size // 3))
    if rng.random() < 0.5 and base > gap + 2:
        owns[name] = base - gap
        return f"{name} has {gap} fewer {thing} than {other.name}."
    owns[name] = base + gap
    return f"{name} has {gap} more {thing} than {other.name}."


def _event(rng: Random, friends: list[Person], owns: dict[str, int], thing: str, size: int) -> str:
    giver, taker = rng.sample(friends, 2)
    name, has = giver.name, owns[giver.name]
    kind = rng.choice(("gain", "bags", "lose", "give", "share"))
    if kind == "share":
        parts = [words for words, part in FRACTIONS.items() if has and has % part.denominator == 0]
        if parts:
            words = rng.choice(parts)
            moved = has // FRACTIONS[words].denominator
            owns[name] -= moved
            owns[taker.name] += moved
            return f"{name} gives {words} of {giver.their} {thing} to {taker.name}."
    if kind in ("lose", "give") and has > 3:
        moved = rng.randint(2, has - 1)
        owns[name] -= moved
        if kind == "give":
            owns[taker.name] += moved
            verb = rng.choice(("gives {} to {}", "sends {} to {}", "hands {} over to {}"))
            return f"{name} {verb.format(counted(moved, thing), taker.name)}."
        return f"{name} {rng.choice(('loses', 'throws away', 'misplaces'))} {counted(moved, thing)}."
    if kind == "bags":
        bags, each = rng.randint(2, 6), rng.randint(2, max(4, size // 4))
        owns[name] += bags * each
        return f"{name} buys {bags} bags with {counted(each, thing)} in each."
    gained = rng.randint(2, max(5, size // 2))
    owns[name] += gained
    return f"{name} {rng.choice(('finds', 'wins', 'buys', 'collects'))} {gained} more {thing}."


def shopping(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about shopping with a discount, a coupon and change."""
    buyer = people(rng, 1)[0].name
    goods = rng.sample(GOODS, min(max(1, (steps + 1) // 2), 4))
    prices = [rng.randint(2, max(4, size)) for _ in goods]
    numbers = [rng.randint(2, 9) for _ in goods]
    sentences = [f"{one[0].upper()}{one[1:]} costs ${price}." for (one, _), price in zip(goods, prices, strict=True)]
    bought = [f"{number} {several}" for (_, several), number in zip(goods, numbers, strict=True)]
    sentences.append(f"{buyer} buys {joined(bought)}.")
    total = Fraction(sum(price * number for price, number in zip(prices, numbers, strict=True)))
    left = steps - len(goods)
    if left > 0:
        percentages = [percent for percent in (10, 20, 25, 50) if total * percent % 100 == 0]
        if percentages:
            percent = rng.choice(percentages)
            total -= total * percent / 100
            sentences.append(f"The shop gives a {percent}% discount on the whole purchase.")
            left -= 1
    if left > 0 and total > 8:
        coupon = rng.randint(2, min(10, int(total) - 2))
        total -= coupon
        sentences.append(f"After that, {buyer} uses a coupon that takes another ${coupon} off.")
        left -= 1
    if left > 0 or rng.random() < 0.5:
        notes = (10, 20, 50, 100, 200, 500)
        note = rng.choice([value for value in notes if value > total][:2] or [(int(total) // 100 + 1) * 100])
        sentences.append(f"{buyer} pays with ${note}.")
        return Story(
            kind="shopping",
            sentences=sentences,
            question=rng.choice(
                (
                    f"How many dollars of change does {buyer} get?",
                    f"How much change, in dollars, does {buyer} receive?",
                    f"How many dollars does the cashier give {buyer} as change?",
                )
            ),
            answer=note - total,
        )
    question = rng.choice(
        (
            f"How many dollars does {buyer} pay in all?",
            f"What is the total price in dollars that {buyer} pays?",
            f"How much does {buyer} spend in all, in dollars?",
        )
    )
    return Story(kind="shopping", sentences=sentences, question=question, answer=total)


def travel(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about a trip with several speeds, and ask for a distance, a time or an average speed."""
    who = f"A {rng.choice(_VEHICLES)}"
    fastest = 15 if who == "A cyclist" else 40 + min(size, 80)
    legs = max(1, (steps + 1) // 2)
    speeds = [rng.randint(fastest // 2, fastest) for _ in range(legs)]
    hours = [rng.randint(1, 6) for _ in range(legs)]
    sentences = []
    for i, (speed, time) in enumerate(zip(speeds, hours, strict=True)):
        start = who if i == 0 else f"Then {who[0].lower()}{who[1:]}".replace("Then a ", "Then the ")
        sentences.append(f"{start} travels for {counted(time, 'hours')} at {speed} kilometers per hour.")
    distance = sum(speed * time for speed, time in zip(speeds, hours, strict=True))
    subject = f"the {who.split()[1]}"
    which = rng.randrange(3)
    if which == 0 and steps > 1:
        back = rng.choice([speed for speed in range(fastest // 3, fastest + 1) if distance % speed == 0] or speeds)
        sentences.append(f"In the end, {subject} returns by the same route at a constant {back} kilometers per hour.")
        trip = rng.choice(("the return trip", "the way back"))
        question = f"How many hours does {trip} take? {EXACT}"
        return Story(kind="travel", sentences=sentences, question=question, answer=Fraction(distance, back))
    if which == 1 and steps > 1:
        rest = rng.randint(1, 3)
        sentences.append(f"In addition, {subject} stops for {counted(rest, 'hours')} on the way.")
        including = f"Including the stop, what is the average speed of {subject} in kilometers per hour? {EXACT}"
        whole = (
            f"What is the average speed of {subject} over the whole time, including the stop, in kilometers per hour?"
        )
        question = rng.choice((including, f"{whole} {EXACT}"))
        return Story(
            kind="travel", sentences=sentences, question=question, answer=Fraction(distance, sum(hours) + rest)
        )
    question = f"How many kilometers does {subject} {rng.choice(('travel in all', 'cover altogether'))}?"
    return Story(kind="travel", sentences=sentences, question=question, answer=Fraction(distance))


def production(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about machines whose products, except for faulty ones, are packed into boxes."""
    place, thing = rng.choice(_PLANTS)
    machines, rate, hours = rng.randint(2, 9), rng.randint(3, max(6, size)), rng.randint(2, 10)
    total = Fraction(machines * rate)
    sentences = [
        rng.choice((f"A {place} has {machines} machines.", f"There are {machines} machines in a {place}.")),
        f"{rng.choice(('Each machine makes', 'Every machine produces'))} {counted(rate, thing)} per hour.",
    ]
    if steps > 1:
        total *= hours
        sentences.append(f"The machines run for {counted(hours, 'hours')} per day.")
    if steps > 3:
        days = rng.randint(2, 6)
        total *= days
        sentences.append(f"The machines run like this for {days} days in a row.")
    if steps > 2:
        percentages = [percent for percent in (5, 10, 20, 25) if total * percent % 100 == 0]
        if percentages:
            percent = rng.choice(percentages)
            total -= total * percent / 100
            sentences.append(f"Then {percent}% of all the {thing} turn out to be faulty and are thrown away.")
    if steps > 4:
        taken = rng.randint(2, max(3, int(total) // 3))
        total -= taken
        sentences.append(f"Of the remaining {thing}, {taken} are kept in the warehouse.")
    span = {1: " in one hour", 2: " in one day", 3: " that day"}.get(steps, "")
    which = rng.randrange(3) if total > 40 and steps > 1 else 0
    if which == 0:
        question = f"How many {thing} are there{' to sell' if steps > 2 else ''}{span}?"
        return Story(kind="production", sentences=sentences, question=question, answer=total)
    each = rng.randint(4, 24)
    sentences.append(f"The {thing} are packed into boxes of {each}.")
    if which == 1:
        question, answer = f"How many boxes can be filled completely{span}?", int(total) // each
    else:
        question = f"When as many boxes as possible are full, how many {thing} are left over{span}?"
        answer = int(total) % each
    return Story(kind="production", sentences=sentences, question=question, answer=Fraction(answer))


def ages(rng: Random, steps: int, size: int) -> Story:
    """Generate a story that states ages relative to each other; with many steps, the sentences are in random order."""
    family = people(rng, min(max(2, steps), 7))
    age = {family[0].name: rng.randint(3, 12)}
    sentences = [f"{family[0].name} is {age[family[0].name]} years old."]
    for before, person in pairwise(family):
        base, name = age[before.name], person.name
        if rng.random() < 0.4 and base <= 24:
            factor = rng.randint(2, 3)
            age[name] = factor * base
            sentences.append(f"{name} is {'twice' if factor == 2 else 'three times'} as old as {before.name}.")
        elif rng.random() < 0.4 and base > 6:
            gap = rng.randint(2, base - 3)
            age[name] = base - gap
            sentences.append(f"{name} is {counted(gap, 'years')} younger than {before.name}.")
        else:
            gap = rng.randint(2, 9 + size // 10)
            age[name] = base + gap
            sentences.append(f"{name} is {counted(gap, 'years')} older than {before.name}.")
    if steps > 2:
        rng.shuffle(sentences)
    last = family[-1].name
    years = rng.randint(2, 20)
    which = rng.randrange(3)
    if which == 0:
        question, answer = f"How old will {last} be in {years} years?", age[last] + years
    elif which == 1:
        other = rng.choice(family[:-1]).name
        question = f"What will be the sum of the ages of {last} and {other} in {years} years?"
        answer = age[last] + age[other] + 2 * years
    else:
        question, answer = f"What is the sum of the ages of {joined(sorted(age))} now?", sum(age.values())
    return Story(kind="ages", sentences=sentences, question=question, answer=Fraction(answer))


def shares(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about selling part of the stock every day; the question asks for its initial or final size."""
    owner, thing = rng.choice(_SELLERS)
    days = DAYS[: min(max(1, steps), 7)]
    backwards = steps > 2 and rng.random() < 0.5
    left = rng.randint(2, max(4, size))  # final stock; the story is constructed backward from it
    parts: list[str] = []
    number = Fraction(left)
    for day in reversed(days):
        if rng.random() < 0.65:
            words, part = rng.choice([*FRACTIONS.items(), ("20%", Fraction(1, 5)), ("50%", Fraction(1, 2))])
            before = number / (1 - part)
            if before.denominator == 1 and before < 50 * size:
                number = before
                rest = "" if day == days[0] else " that are left"
                parts.append(f"On {day}, {words} of the {thing}{rest} are sold.")
                continue
        sold = rng.randint(2, max(3, size // 2))
        number += sold
        parts.append(f"On {day}, {sold} of the {thing} are sold.")
    parts.reverse()
    start = int(number)
    if backwards:
        sentences = [f"A {owner} has some {thing} before {days[0]}.", *parts, f"In the end, {left} {thing} are left."]
        question, answer = f"How many {thing} did the {owner} have at the start?", start
    else:
        sentences = [f"A {owner} has {start} {thing} before {days[0]}.", *parts]
        question, answer = f"How many {thing} are left in the end?", left
    return Story(kind="shares", sentences=sentences, question=question, answer=Fraction(answer))


def savings(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about saving and spending every week, and ask for the balance or the number of weeks."""
    saver = people(rng, 1)[0].name
    start, earned = rng.randint(0, size) * 2, rng.randint(5, max(8, size))
    sentences = [f"{saver} has ${start} in a savings box." if start else f"{saver} has an empty savings box."]
    sentences.append(f"Every week, {saver} earns ${earned} and puts it into the box.")
    gain = earned
    if steps > 1:
        spent = rng.randint(1, gain - 2)
        gain -= spent
        sentences.append(f"Every week, {saver} also takes ${spent} out of the box.")
    for giver in ("An aunt", "An uncle", "A grandmother")[: max(0, min(3, steps - 3))]:
        gift = rng.randint(5, 40)
        start += gift
        sentences.append(f"{giver} puts ${gift} into the box before the first week.")
    if rng.random() < 0.5:
        weeks = rng.randint(3, 30)
        question = rng.choice(
            (
                f"How many dollars are in the box after {weeks} weeks?",
                f"How much money, in dollars, does the box contain after {weeks} weeks?",
                f"What is the balance of the box in dollars after {weeks} weeks?",
            )
        )
        return Story(kind="savings", sentences=sentences, question=question, answer=Fraction(start + weeks * gain))
    goal = start + rng.randint(gain, 25 * gain)
    needed = -((start - goal) // gain)
    sentences.append(f"{saver} wants to buy a bicycle for ${goal}.")
    question = "What is the smallest number of weeks after which there is enough money in the box to buy the bicycle?"
    return Story(kind="savings", sentences=sentences, question=question, answer=Fraction(needed))


def seats(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about a theater's ticket sales."""
    rows, each = rng.randint(4, 12 + size // 5), rng.randint(5, 12 + size // 5)
    all_seats = rows * each
    sentences = [f"A theater has {rows} rows of {each} seats."]
    sold = Fraction(0)
    shows = max(1, min(steps - 1, 4))
    for show in ("first", "second", "third", "fourth")[:shows]:
        fractions = [words for words, part in FRACTIONS.items() if all_seats % part.denominator == 0]
        if fractions and rng.random() < 0.5:
            words = rng.choice(fractions)
            sold += all_seats * FRACTIONS[words]
            sentences.append(f"For the {show} show, {words} of the seats are sold.")
        else:
            empty = rng.randint(1, all_seats - 2)
            sold += all_seats - empty
            sentences.append(f"For the {show} show, all but {empty} of the seats are sold.")
    if steps == 1:
        return Story(
            kind="seats", sentences=sentences[:1], question="How many seats are there?", answer=Fraction(all_seats)
        )
    price = rng.randint(3, 20)
    if rng.random() < 0.5:
        in_all = " in all" if shows > 1 else ""
        questions = (f"How many tickets are sold{in_all}?", f"How many tickets does the theater sell{in_all}?")
        question, answer = rng.choice(questions), sold
    else:
        sentences.append(f"A ticket costs ${price}.")
        questions = (
            "How many dollars does the theater earn from ticket sales?",
            "How much money, in dollars, do the ticket sales bring in?",
        )
        question, answer = rng.choice(questions), sold * price
        if steps > 4:
            rent = rng.randint(1, int(answer) - 1)
            sentences.append(
                f"From this money, ${rent} is paid to the owner of the building, and the actors get the rest."
            )
            question, answer = "How many dollars do the actors get?", answer - rent
    return Story(kind="seats", sentences=sentences, question=question, answer=answer)


KINDS: Mapping[str, StoryKind] = {
    "collection": collection,
    "shopping": shopping,
    "travel": travel,
    "production": production,
    "ages": ages,
    "shares": shares,
    "savings": savings,
    "seats": seats,
    **{
        kind.__name__: kind
        for kind in (
            *(rates.filling, rates.teamwork, rates.mixture, rates.recipe, rates.meeting, rates.timetable, rates.units),
            *(money.price_changes, money.offers, money.wages, money.coins, money.ratio),
            *(counts.warehouse, counts.averages, counts.remainders, counts.garden, counts.chances, counts.reading),
            *(counts.outfits, counts.growth, counts.packing),
        )
    },
}
