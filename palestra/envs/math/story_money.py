"""Word problems about money: changing prices, offers, wages, coins and shares."""

from __future__ import annotations

from fractions import Fraction
from random import Random

from palestra.envs.math.story_parts import EXACT, GOODS, Story, counted, joined, people, vocabulary

_WARES = vocabulary("bicycle", "coat", "tent", "guitar", "desk", "camera", "watch", "sofa")
_COIN_PLACES = vocabulary("purse", "jar", "drawer", "piggy bank")


def price_changes(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about a price that rises and falls by percentages."""
    ware = rng.choice(_WARES)
    price = Fraction(20 * rng.randint(2, 5 + size // 4))
    facts = {"price": int(price)}
    sentences = [
        rng.choice(
            (f"A {ware} costs ${price}.", f"The price of a {ware} is ${price}.", f"A shop sells a {ware} for ${price}.")
        )
    ]
    for i in range(min(max(1, steps), 5)):
        percent, up = rng.choice((5, 10, 20, 25, 40, 50)), rng.random() < 0.5
        price *= 1 + Fraction(percent if up else -percent, 100)
        when = (
            ("Then", "Later", "After that", "A month later")[i % 4]
            if i
            else rng.choice(("In spring", "First", "In May"))
        )
        change = rng.choice(
            ("raises the price by", "increases the price by") if up else ("lowers the price by", "cuts the price by")
        )
        sentences.append(f"{when}, the shop {change} {percent}%.")
        facts[f"{'up' if up else 'down'}{i}"] = percent
    if rng.random() < 0.3 and price != facts["price"]:
        more = price > facts["price"]
        question = (
            f"By how many dollars is the final price {'higher' if more else 'lower'} than the first price? {EXACT}"
        )
        return Story.of("price_changes", sentences, question, abs(price - facts["price"]), **facts, difference=1)
    question = rng.choice(
        (f"How many dollars does the {ware} cost in the end? {EXACT}", f"What is the final price in dollars? {EXACT}")
    )
    return Story.of("price_changes", sentences, question, price, **facts, difference=0)


def offers(rng: Random, steps: int, size: int) -> Story:
    """Generate a story that compares what two shops charge for the same goods."""
    one, several = rng.choice(GOODS)
    who = people(rng, 1)[0]
    number, group = rng.randint(4, 12 + steps), rng.randint(2, 5)
    first, second = rng.randint(3, max(5, size)), rng.randint(3, max(5, size))
    percent = rng.choice((10, 20, 25, 50))
    shipping = rng.randint(2, 15) if steps > 2 else 0
    sentences = [
        rng.choice((f"{who.name} needs {number} {several}.", f"{who.name} wants to buy {number} {several}.")),
        rng.choice(
            (
                f"In the first shop, {one} costs ${first}, and for every {group} that are paid for, one more is free.",
                f"The first shop charges ${first} for {one} and adds a free one after every {group} that are paid for.",
            )
        ),
        rng.choice(
            (
                f"In the second shop, {one} costs ${second}, but there is a {percent}% discount on everything.",
                f"The second shop charges ${second} for {one} and takes {percent}% off the total.",
            )
        ),
    ]
    if shipping:
        sentences.append(f"The second shop also charges ${shipping} for delivery, without a discount.")
    paid = owned = 0
    while owned < number:
        paid, owned = paid + 1, owned + 1
        if paid % group == 0:
            owned += 1
    costs = Fraction(paid * first), Fraction(number * second * (100 - percent), 100) + shipping
    facts = {
        "number": number,
        "group": group,
        "first": first,
        "second": second,
        "percent": percent,
        "shipping": shipping,
    }
    if rng.random() < 0.5:
        question = rng.choice(
            (
                f"How many dollars does {who.name} pay in the cheaper shop? {EXACT}",
                f"What is the lowest total price in dollars? {EXACT}",
            )
        )
        return Story.of("offers", sentences, question, min(costs), **facts, difference=0)
    question = f"By how many dollars do the total prices of the two shops differ? {EXACT}"
    return Story.of("offers", sentences, question, abs(costs[0] - costs[1]), **facts, difference=1)


def wages(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about hourly pay with a higher rate for long days."""
    who = people(rng, 1)[0]
    pay, limit, extra = rng.randint(8, 10 + size // 4), rng.randint(5, 8), rng.randint(2, 9)
    days = [rng.randint(3, 12) for _ in range(min(max(2, steps), 6))]
    sentences = [
        rng.choice((f"{who.name} earns ${pay} per hour.", f"{who.name} is paid ${pay} for every hour of work.")),
        rng.choice(
            (
                f"For every hour beyond {limit} hours on the same day, {who.name} gets ${extra} more.",
                f"After the first {limit} hours of a day, each further hour is paid ${extra} more.",
            )
        ),
        rng.choice(
            (
                f"On {len(days)} days, {who.name} works {joined(list(map(str, days)))} hours.",
                f"The working days of {who.name} last {joined(list(map(str, days)))} hours.",
            )
        ),
    ]
    total = 0
    for day in days:
        for hour in range(1, day + 1):
            total += pay + (extra if hour > limit else 0)
    facts = {"pay": pay, "limit": limit, "extra": extra, **{f"day{i}": day for i, day in enumerate(days)}}
    if steps > 3:
        tax = rng.choice((10, 20, 25))
        sentences.append(
            rng.choice(
                (f"Of the whole pay, {tax}% is paid as tax.", f"{tax}% of the whole pay goes to the tax office.")
            )
        )
        question = f"How many dollars does {who.name} keep? {EXACT}"
        return Story.of("wages", sentences, question, Fraction(total * (100 - tax), 100), **facts, tax=tax)
    question = rng.choice(
        (f"How many dollars does {who.name} earn in all?", f"How much money, in dollars, does {who.name} get?")
    )
    return Story.of("wages", sentences, question, total, **facts, tax=0)


def coins(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about two kinds of coins with a known total number and value; the answer is found by search."""
    who = people(rng, 1)[0]
    low, high = sorted(rng.sample((1, 2, 5, 10, 20, 25, 50), 2))
    few, many = rng.randint(2, 4 + size // 4), rng.randint(2, 4 + size // 4)
    spent = rng.randint(1, few + many - 2) if steps > 3 else 0
    number, value = few + many, low * few + high * many
    where = rng.choice(_COIN_PLACES)
    sentences = [
        rng.choice(
            (
                f"{who.name} has {number} coins in a {where}, and each is worth {low} or {high} cents.",
                f"In a {where}, {who.name} finds {number} coins of {low} or {high} cents each.",
            )
        ),
        rng.choice(
            (f"Together, these coins are worth {value} cents.", f"The total value of these coins is {value} cents.")
        ),
    ]
    matching = [x for x in range(number + 1) if high * x + low * (number - x) == value]
    if steps > 3:
        each = " each" if spent > 1 else ""
        sentences.append(f"{who.name} also has {counted(spent, 'coins')} worth {high} cents{each} in a pocket.")
        question = rng.choice(
            (
                f"How many {high}-cent coins does {who.name} have in all?",
                f"What is the total number of {high}-cent coins?",
            )
        )
        return Story.of(
            "coins",
            sentences,
            question,
            matching[0] + spent,
            number=number,
            value=value,
            low=low,
            high=high,
            pocket=spent,
        )
    question = rng.choice((f"How many of the coins are worth {high} cents?", f"How many {high}-cent coins are there?"))
    return Story.of("coins", sentences, question, matching[0], number=number, value=value, low=low, high=high, pocket=0)


def ratio(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about money that is divided in a ratio."""
    friends = people(rng, 2 if steps < 3 else 3)
    parts = rng.sample(range(1, 10), len(friends))
    total = sum(parts) * rng.randint(2, max(4, size))
    names, numbers = joined([person.name for person in friends]), " : ".join(map(str, parts))
    sentences = [
        rng.choice(
            (
                f"{names} share ${total} in the ratio {numbers}.",
                f"In the ratio {numbers}, {names} divide a profit of ${total}.",
                f"A prize of ${total} is divided among {names} in the ratio {numbers}.",
            )
        )
    ]
    owned = [0 for _ in friends]
    while sum(owned) < total:
        owned = [have + part for have, part in zip(owned, parts, strict=True)]
    facts = {"total": total, **{f"part{i}": part for i, part in enumerate(parts)}}
    if steps > 3:
        gift = rng.randint(1, owned[0])
        owned[0], owned[1] = owned[0] - gift, owned[1] + gift
        facts["gift"] = gift
        sentences.append(f"Then {friends[0].name} gives ${gift} to {friends[1].name}.")
    first, second = rng.sample(range(len(friends)), 2)
    if rng.random() < 0.5 or owned[first] == owned[second]:
        question = rng.choice(
            (
                f"How many dollars does {friends[first].name} have now?",
                f"How many dollars are left for {friends[first].name}?",
            )
        )
        return Story.of("ratio", sentences, question, owned[first], **facts, first=first + 1, second=0)
    if owned[first] < owned[second]:
        first, second = second, first
    question = f"How many more dollars does {friends[first].name} have than {friends[second].name} now?"
    return Story.of(
        "ratio", sentences, question, owned[first] - owned[second], **facts, first=first + 1, second=second + 1
    )
