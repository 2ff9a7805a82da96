"""Word problems about counting: stocks, averages, remainders, gardens, chances, books and growth."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import ceil
from random import Random

from palestra.envs.math.story_parts import EXACT, SMALL_THINGS, Story, counted, joined, people, vocabulary

_STOCK = vocabulary("bricks", "bottles", "chairs", "tires", "boxes", "sacks", "lamps", "helmets")
_SPORTS = vocabulary("tests", "races", "matches", "quizzes", "rounds")
_COLORS = vocabulary("red", "blue", "green", "yellow", "white")
_LIVING = (("rabbits", "on an island"), ("water lilies", "on a lake"), ("fish", "in a pond"), ("ants", "in a nest"))
vocabulary(*(phrase for living in _LIVING for phrase in living))
_CLOTHES = vocabulary("shirts", "trousers", "hats", "jackets", "scarves")
_AREAS = vocabulary("garden", "playground", "courtyard", "field", "terrace")
_CONTAINERS = vocabulary("bag", "box", "hat")


def warehouse(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about a stock with daily sales and deliveries; the answer is found by simulating each day."""
    thing = rng.choice(_STOCK)
    sold = rng.randint(3, max(5, size // 4))
    low = sold + rng.randint(1, max(4, size // 10))
    stock, delivered = low + rng.randint(10, 10 + size), sold + rng.randint(10, 20 + size)
    days = rng.randint(3, 4 + 3 * steps)
    start = stock
    sentences = [
        rng.choice((f"A warehouse has {stock} {thing} in stock.", f"There are {stock} {thing} in a warehouse.")),
        rng.choice((f"Every day, {sold} {thing} are sold.", f"The warehouse sells {sold} {thing} per day.")),
        rng.choice(
            (
                f"When fewer than {low} {thing} are left in the evening, {delivered} new ones arrive at night.",
                f"If fewer than {low} {thing} remain in the evening, {delivered} more are delivered at night.",
            )
        ),
    ]
    every = rng.randint(2, 4) if steps > 3 else 0
    back = rng.randint(1, 5)
    if every:
        sentences.append(f"Customers return {counted(back, thing)} on day {every}, {2 * every}, {3 * every} and so on.")
    deliveries = 0
    for day in range(1, days + 1):
        stock -= min(sold, stock)
        if every and day % every == 0:
            stock += back
        if stock < low and day < days:
            stock += delivered
            deliveries += 1
    facts = {
        "start": start,
        "sold": sold,
        "low": low,
        "delivered": delivered,
        "days": days,
        "every": every,
        "back": back if every else 0,
    }
    if rng.random() < 0.7 or not deliveries:
        question = rng.choice(
            (
                f"How many {thing} are in stock in the evening of day {days}, before any delivery?",
                f"In the evening of day {days}, before any delivery, how many {thing} are there?",
            )
        )
        return Story.of("warehouse", sentences, question, stock, **facts, count=0)
    question = f"How many deliveries arrive before the evening of day {days}?"
    return Story.of("warehouse", sentences, question, deliveries, **facts, count=1)


def averages(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about the average of several results."""
    who, kind = people(rng, 1)[0], rng.choice(_SPORTS)
    scores = [rng.randint(5, max(10, size)) for _ in range(min(max(2, steps + 1), 7))]
    listed = joined(list(map(str, scores)))
    sentences = [
        rng.choice(
            (
                f"In {len(scores)} {kind}, {who.name} gets {listed} points.",
                f"{who.name} scores {listed} points in {len(scores)} {kind}.",
            )
        )
    ]
    facts = {f"score{i}": score for i, score in enumerate(scores)}
    which = rng.randrange(3 if steps > 1 else 1)
    if which == 0:
        question = rng.choice(
            (
                f"What is the average number of points? {EXACT}",
                f"How many points does {who.name} get on average? {EXACT}",
            )
        )
        return Story.of(
            "averages", sentences, question, Fraction(sum(scores), len(scores)), **facts, target=0, dropped=0
        )
    if which == 1:
        target = max(sum(scores) // len(scores) + rng.randint(1, 5), 1)
        sentences.append(rng.choice(("One more result is still missing.", "One more result will follow.")))
        question = f"How many points must the next result have so that the average of all results is exactly {target}?"
        return Story.of(
            "averages", sentences, question, target * (len(scores) + 1) - sum(scores), **facts, target=target, dropped=0
        )
    if len(scores) > 3:
        sentences.append("The best and the worst result are left out (one of each).")
    rest = sorted(scores)[1:-1] if len(scores) > 3 else scores
    question = f"What is the average of the results that count? {EXACT}"
    return Story.of(
        "averages", sentences, question, Fraction(sum(rest), len(rest)), **facts, target=0, dropped=int(len(scores) > 3)
    )


def remainders(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about things left over in rows of different lengths; the answer is found by search."""
    who, thing = people(rng, 1)[0], rng.choice(SMALL_THINGS)
    rows = rng.sample((3, 4, 5, 7, 9, 11), 2 if steps < 4 else 3)
    rows = rows if all(b % a for a in rows for b in rows if a != b) else [4, 5, 7][: len(rows)]
    count = rng.randint(max(rows) + 1, 30 + 2 * size)
    low = rng.randint(max(rows), count)
    sentences = [
        rng.choice((f"{who.name} has at least {low} {thing}.", f"{who.name} owns no fewer than {low} {thing}."))
    ]
    for row in rows:
        left = count % row
        sentences.append(
            rng.choice(
                (
                    f"In rows of {row}, {counted(left, thing)} {'is' if left == 1 else 'are'} left over.",
                    f"When the {thing} are laid out in rows of {row}, {left} remain{'s' if left == 1 else ''}.",
                )
            )
        )
    answer = low
    while any(answer % row != count % row for row in rows):
        answer += 1
    facts = (
        {"low": low}
        | {f"row{i}": row for i, row in enumerate(rows)}
        | {f"left{i}": count % row for i, row in enumerate(rows)}
    )
    question = rng.choice(
        (f"What is the smallest possible number of {thing}?", f"How many {thing} does {who.name} have at least?")
    )
    return Story.of("remainders", sentences, question, answer, **facts)


def garden(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about the fence, the path or the tiles of a rectangular area."""
    place = rng.choice(_AREAS)
    length, width = rng.randint(6, 10 + size // 2), rng.randint(4, 8 + size // 3)
    price = rng.randint(2, 5 + size // 5)
    sentences = [
        rng.choice(
            (
                f"A rectangular {place} is {length} meters long and {width} meters wide.",
                f"A {place} is a rectangle of {length} by {width} meters.",
            )
        )
    ]
    facts = {"length": length, "width": width}
    which = rng.choice(("fence", "path", "tiles"))
    if which == "fence":
        gate = rng.randint(1, 3)
        sentences.append(
            rng.choice(
                (
                    f"The {place} gets a fence on all sides, except for a gate of {counted(gate, 'meters')}.",
                    f"A fence surrounds the {place}, with a gap of {counted(gate, 'meters')} for a gate.",
                )
            )
        )
        answer = 2 * (length + width) - gate
        question, facts["gate"] = "How many meters of fence are needed?", gate
    elif which == "path":
        border = rng.randint(1, 3)
        sentences.append(
            rng.choice(
                (
                    f"Around the {place}, there is a path {counted(border, 'meters')} wide with square corners.",
                    f"A path {counted(border, 'meters')} wide, with square corners, surrounds the {place}.",
                )
            )
        )
        answer = sum(
            not (border <= x < border + length and border <= y < border + width)
            for x in range(length + 2 * border)
            for y in range(width + 2 * border)
        )
        question, facts["border"] = "What is the area of the path in square meters?", border
    else:
        tile = rng.choice((20, 25, 50))
        sentences.append(
            rng.choice(
                (
                    f"The {place} is covered with square tiles with sides of {tile} centimeters.",
                    f"Square tiles of {tile} by {tile} centimeters cover the whole {place}.",
                )
            )
        )
        answer = (length * 100 // tile) * (width * 100 // tile)
        question, facts["tile"] = "How many tiles are needed?", tile
    if steps > 2:
        unit = {"fence": "meter of fence", "path": "square meter of the path", "tiles": "tile"}[which]
        sentences.append(rng.choice((f"One {unit} costs ${price}.", f"The price is ${price} for one {unit}.")))
        question, facts["price"], answer = (
            rng.choice(("How many dollars does all of this cost?", "What is the total cost in dollars?")),
            price,
            answer * price,
        )
    return Story.of("garden", sentences, question, answer, **facts)


def chances(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about drawing balls; the probability is found by counting all draws."""
    who = people(rng, 1)[0]
    colors = rng.sample(_COLORS, 2 if steps < 3 else 3)
    counts = [rng.randint(2, 4 + min(size, 60) // 15) for _ in colors]
    balls = [color for color, count in zip(colors, counts, strict=True) for _ in range(count)]
    container = rng.choice(_CONTAINERS)
    listed = joined([f"{count} {color} balls" for color, count in zip(colors, counts, strict=True)])
    sentences = [rng.choice((f"A {container} contains {listed}.", f"There are {listed} in a {container}."))]
    facts = {f"count{i}": count for i, count in enumerate(counts)}
    if steps == 1:
        sentences.append(f"{who.name} draws one ball at random.")
        question = f"What is the probability that the ball is {colors[0]}? {EXACT}"
        return Story.of("chances", sentences, question, Fraction(counts[0], len(balls)), **facts, event=0)
    sentences.append(
        rng.choice(
            (
                f"{who.name} draws two balls at random without putting the first one back.",
                f"{who.name} takes out two balls at random at the same time.",
            )
        )
    )
    event = rng.randrange(1, 4)
    text = (
        "",
        "both balls have the same color",
        f"both balls are {colors[0]}",
        f"at least one of the balls is {colors[0]}",
    )[event]
    draws = list(combinations(balls, 2))
    good = [(a, b) for a, b in draws if (a == b, a == b == colors[0], colors[0] in (a, b))[event - 1]]
    question = rng.choice((f"What is the probability that {text}? {EXACT}", f"How likely is it that {text}? {EXACT}"))
    return Story.of("chances", sentences, question, Fraction(len(good), len(draws)), **facts, event=event)


def reading(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about reading more pages every day; the answer is found by simulating each day."""
    who = people(rng, 1)[0]
    first, more = rng.randint(5, 10 + size // 5), rng.randint(2, 6)
    pages = rng.randint(5 * first, 10 * first + 3 * size)
    rest = rng.randint(3, 7) if steps > 2 else 0
    sentences = [
        rng.choice(
            (f"{who.name} starts a book of {pages} pages.", f"A book that {who.name} is reading has {pages} pages.")
        ),
        rng.choice(
            (
                f"{who.name} reads {first} pages on the first day and {more} more on each further day of reading.",
                f"On day 1, {who.name} reads {first} pages, and each further day of reading has {more} pages more.",
            )
        ),
    ]
    if rest:
        sentences.append(
            f"On every {rest}th day (day {rest}, day {2 * rest} and so on), {who.name} does not read.".replace(
                "3th", "3rd"
            )
        )
    day = done = 0
    today = first
    while done < pages:
        day += 1
        if not rest or day % rest:
            done, today = done + today, today + more
    question = rng.choice(
        (
            f"On which day does {who.name} finish the book? Give the number of the day.",
            f"What is the number of the day on which {who.name} reads the last page?",
        )
    )
    return Story.of("reading", sentences, question, day, pages=pages, first=first, more=more, rest=rest)


def outfits(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about combining clothes; the answer is found by counting all combinations."""
    who = people(rng, 1)[0]
    kinds = rng.sample(_CLOTHES, min(max(2, steps), 4))
    counts = [rng.randint(2, 4 + min(size, 100) // 20) for _ in kinds]
    listed = joined([f"{count} {kind}" for count, kind in zip(counts, kinds, strict=True)])
    sentences = [
        rng.choice((f"{who.name} packs {listed}.", f"In the closet of {who.name}, there are {listed}.")),
        rng.choice(
            (
                "All clothes are different, and an outfit has one of each kind.",
                "An outfit consists of one of each kind, and no two clothes are the same.",
            )
        ),
    ]
    facts = {f"count{i}": count for i, count in enumerate(counts)}
    ban = steps > 1 and rng.random() < 0.6
    if ban:
        one, other = kinds[0], kinds[1]
        sentences.append(
            f"However, there is one pair from the {one} and the {other} that {who.name} never wears together."
        )
    ways = [way for way in product(*map(range, counts)) if not (ban and way[0] == 0 and way[1] == 0)]
    if steps > 3 and rng.random() < 0.5:
        question = f"If {who.name} wears a different outfit every day, for how many full weeks do the outfits last?"
        return Story.of("outfits", sentences, question, len(ways) // 7, **facts, ban=int(ban), weeks=1)
    question = rng.choice(
        (
            f"How many different outfits are possible for {who.name}?",
            f"From how many different outfits can {who.name} choose?",
        )
    )
    return Story.of("outfits", sentences, question, len(ways), **facts, ban=int(ban), weeks=0)


def growth(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about animals or plants that multiply; the answer is found by simulating each year."""
    what, where = rng.choice(_LIVING)
    factor, count = rng.randint(2, 3), rng.randint(3, 5 + size // 5)
    times = "doubles" if factor == 2 else "triples"
    removed = rng.randint(1, count) if steps > 1 else 0
    are = "is" if removed == 1 else "are"
    sentences = [
        rng.choice((f"There are {count} {what} {where}.", f"At first, {count} {what} live {where}.")),
        rng.choice((f"Every year, the number of {what} {times}.", f"The number of {what} {times} in each year.")),
    ]
    if removed:
        sentences.append(
            rng.choice(
                (
                    f"At the end of each year, {removed} of the {what} {are} taken away.",
                    f"Then, at the end of every year, {removed} of the {what} {are} removed.",
                )
            )
        )
    facts = {"count": count, "factor": factor, "removed": removed}
    years = rng.randint(2, 3 + min(steps, 4))
    now, limit = count, 0
    for _ in range(years):
        now = now * factor - removed
    if steps > 2 and now > count and rng.random() < 0.5:
        limit = rng.randint(count + 1, now)
        year, now = 0, count
        while now < limit:
            now, year = now * factor - removed, year + 1
        question = f"After how many years are there at least {limit} {what} for the first time?"
        return Story.of("growth", sentences, question, year, **facts, years=0, limit=limit)
    question = rng.choice(
        (f"How many {what} are there after {years} years?", f"What is the number of {what} after {years} years?")
    )
    return Story.of("growth", sentences, question, now, **facts, years=years, limit=0)


def packing(rng: Random, steps: int, size: int) -> Story:
    """Generate a story about carrying things in several trips."""
    who, thing = people(rng, 1)[0], rng.choice(_STOCK)
    total, load = rng.randint(20, 40 + 3 * size), rng.randint(3, 12)
    minutes, pause, every = rng.randint(4, 20), rng.randint(5, 15), rng.randint(2, 4)
    sentences = [
        rng.choice(
            (
                f"{who.name} has to carry {total} {thing} to another building.",
                f"{total} {thing} must be moved, and {who.name} does it alone.",
            )
        ),
        rng.choice(
            (
                f"On each trip, {who.name} can take up to {load} {thing}.",
                f"At most {load} {thing} fit on the cart for one trip.",
            )
        ),
        rng.choice(
            (
                f"A trip there and back takes {minutes} minutes.",
                f"Each trip, including the way back, takes {minutes} minutes.",
            )
        ),
    ]
    facts = {"total": total, "load": load, "minutes": minutes, "pause": 0, "every": 0}
    if steps > 2:
        sentences.append(
            f"After every {every} trips, {who.name} rests for {pause} minutes if there is still something to carry."
        )
        facts |= {"pause": pause, "every": every}
    trips = time = 0
    while trips * load < total:
        if steps > 2 and trips and trips % every == 0:
            time += pause
        trips, time = trips + 1, time + minutes
    if rng.random() < 0.3:
        question = rng.choice(("How many trips are needed?", f"How many trips does {who.name} make?"))
        return Story.of("packing", sentences, question, ceil(Fraction(total, load)), **facts, trips=1)
    question = rng.choice(
        (
            "How many minutes does all of this take, including the last way back?",
            f"After how many minutes is {who.name} back from the last trip?",
        )
    )
    return Story.of("packing", sentences, question, time, **facts, trips=0)
