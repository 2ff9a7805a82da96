"""Map numbers to unique invented names for places, families and works.

A stem has a fixed number of syllables, each made of consonants followed by vowels, and every ending starts with a
consonant. A name therefore determines its stem, and names with different numbers differ regardless of their endings.
"""

from __future__ import annotations

_ONSETS = (
    "b", "br", "c", "ch", "d", "dr", "f", "fl", "g", "gr", "h", "j", "k", "kl", "l", "m", "n", "p", "pr", "r", "s",
    "sh", "sk", "st", "t", "th", "tr", "v", "vr", "w", "y", "z",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "au", "ei", "ia")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in _VOWELS)

ENDINGS = {
    "country": ("nia", "land", "ria", "mar", "via", "lia"),
    "province": ("shire", "mark", "wold", "dale", "moor", "rin"),
    "city": ("ton", "burg", "mouth", "ford", "port", "grad", "haven", "wick", "stad", "bridge", "", ""),
    "river": ("", "n", "ra", "l", "sk", "r"),
    "mountain": ("horn", "l", "r", "nak", "tor", "th"),
    "family": ("son", "wick", "man", "berg", "ley", "sen", "ric", "mont", "dal", ""),
}

MEN = (
    "Adrel", "Alden", "Anselm", "Arvid", "Baldur", "Bastian", "Benno", "Caspar", "Cedric", "Corvin", "Damian", "Darian",
    "Edmar", "Edric", "Elias", "Emeric", "Fabian", "Felix", "Florian", "Gareth", "Gideon", "Gregor", "Halvar", "Hector",
    "Henrik", "Hugo", "Ivo", "Jasper", "Joris", "Julian", "Kasimir", "Kilian", "Konrad", "Lambert", "Leander", "Linus",
    "Lorenz", "Lucan", "Magnus", "Marius", "Milo", "Nestor", "Norbert", "Odilo", "Oskar", "Otto", "Pascal", "Percival",
    "Quentin", "Ragnar", "Raphael", "Roland", "Rufus", "Sander", "Silas", "Tancred", "Theobald", "Tobias", "Ulric",
    "Valerian", "Viktor", "Waldemar", "Wendel", "Zeno",
)  # fmt: skip
WOMEN = (
    "Adela", "Agnes", "Alma", "Amalia", "Annika", "Astrid", "Beata", "Beatrix", "Bettina", "Camilla", "Carlotta",
    "Celeste", "Clarissa", "Dagmar", "Daphne", "Delia", "Edda", "Elena", "Elvira", "Estelle", "Eugenia", "Fabiola",
    "Felicia", "Flora", "Frieda", "Gisela", "Greta", "Gudrun", "Hedda", "Helga", "Hermine", "Ida", "Ingrid", "Irma",
    "Isolde", "Jolanda", "Josefa", "Judith", "Klara", "Kora", "Leonie", "Liselotte", "Livia", "Ludmila", "Magda",
    "Marlene", "Mathilda", "Minerva", "Nadia", "Nora", "Octavia", "Odette", "Ottilie", "Petra", "Philippa", "Ramona",
    "Rosalind", "Sabina", "Selma", "Sidonia", "Thea", "Ursula", "Verena", "Wilma",
)  # fmt: skip

_ADJECTIVES = (
    "Amber", "Ancient", "Autumn", "Bitter", "Blind", "Borrowed", "Brass", "Broken", "Buried", "Burning", "Careful",
    "Cold", "Copper", "Crimson", "Crooked", "Curious", "Dark", "Distant", "Divided", "Drowned", "Dusty", "Early",
    "Eastern", "Empty", "Endless", "Faded", "Faithful", "Fallen", "Fifth", "Final", "Forgotten", "Fourth", "Frozen",
    "Gentle", "Gilded", "Glass", "Golden", "Green", "Grey", "Half", "Hidden", "Hollow", "Honest", "Humble", "Hungry",
    "Idle", "Inner", "Iron", "Ivory", "Jealous", "Last", "Late", "Latent", "Little", "Lonely", "Long", "Lost", "Loyal",
    "Marble", "Midnight", "Modest", "Mute", "Narrow", "Nameless", "New", "Noble", "Northern", "Old", "Open", "Outer",
    "Pale", "Patient", "Perfect", "Plain", "Proud", "Quiet", "Red", "Restless", "Rising", "Rusty", "Sacred", "Salt",
    "Scarlet", "Second", "Secret", "Seventh", "Severed", "Silent", "Silver", "Simple", "Sleeping", "Slow", "Solemn",
    "Southern", "Stolen", "Stone", "Strange", "Summer", "Sunken", "Tall", "Tame", "Tender", "Third", "Thirsty", "Torn",
    "Twin", "Uncertain", "Unseen", "Upper", "Vacant", "Vanished", "Velvet", "Violet", "Wandering", "Western", "White",
    "Wild", "Winter", "Wooden", "Young",
)  # fmt: skip
_THINGS = (
    "Acre", "Anchor", "Answer", "Archive", "Ark", "Arrow", "Ashes", "Atlas", "Autograph", "Bakery", "Balcony",
    "Ballad", "Banner", "Barley", "Basin", "Beacon", "Bell", "Bellows", "Bench", "Birch", "Blanket", "Boat", "Bonfire",
    "Bread", "Bridle", "Bucket", "Canal", "Candle", "Canvas", "Cavern", "Cellar", "Chapel", "Chimney", "Choir",
    "Circle", "Cistern", "Clay", "Clock", "Cloister", "Coast", "Compass", "Corridor", "Courtyard", "Cradle",
    "Crossing", "Crown", "Curtain", "Dagger", "Debt", "Diary", "Door", "Dowry", "Drum", "Dune", "Echo", "Ember",
    "Engine", "Estuary", "Evening", "Falcon", "Feast", "Fence", "Ferry", "Fiddle", "Flute", "Forest", "Forge",
    "Fountain", "Furnace", "Gallery", "Garden", "Gate", "Glacier", "Granary", "Grove", "Hammer", "Harbour", "Harp",
    "Harvest", "Hearth", "Hedge", "Heir", "Heron", "Hill", "Horizon", "Hour", "Inheritance", "Inkwell", "Inn",
    "Island", "Journey", "Kettle", "Kiln", "Kite", "Ladder", "Lake", "Lamp", "Lantern", "Ledger", "Letter", "Library",
    "Lighthouse", "Loom", "Lute", "Map", "Market", "Mask", "Meadow", "Measure", "Medal", "Mill", "Mirror", "Monument",
    "Morning", "Needle", "Nest", "Oath", "Orchard", "Organ", "Oven", "Parcel", "Passage", "Path", "Pavilion", "Pearl",
    "Pendulum", "Pilgrim", "Plough", "Portrait", "Promise", "Quarry", "Quill", "Raft", "Rain", "Reed", "Ribbon",
    "Riddle", "Ring", "Root", "Rope", "Saddle", "Sail", "Scale", "Sentence", "Shadow", "Shell", "Shore", "Shutter",
    "Signal", "Sleigh", "Sparrow", "Spindle", "Spring", "Stable", "Staircase", "Statue", "Storm", "Street", "Sundial",
    "Swallow", "Table", "Tale", "Tapestry", "Theatre", "Thread", "Threshold", "Tide", "Torch", "Tower", "Treasure",
    "Trumpet", "Tunnel", "Umbrella", "Valley", "Vase", "Vault", "Verdict", "Viaduct", "Vineyard", "Violin", "Voyage",
    "Wall", "Watch", "Wheel", "Whistle", "Willow", "Window", "Wreath",
)  # fmt: skip
_FIGURES = (
    "Apprentice", "Architect", "Astronomer", "Baker", "Baron", "Brother", "Captain", "Carpenter", "Clerk", "Collector",
    "Cook", "Countess", "Cousin", "Dancer", "Daughter", "Doctor", "Duchess", "Emperor", "Exile", "Ferryman",
    "Fisherman", "Gardener", "Ghost", "Governess", "Guardian", "Guest", "Hermit", "Hunter", "Innkeeper", "Judge",
    "Keeper", "Maker", "Mayor", "Messenger", "Miller", "Mother", "Musician", "Orphan", "Painter", "Porter", "Printer",
    "Prisoner", "Queen", "Sailor", "Scholar", "Sculptor", "Shepherd", "Sister", "Smith", "Soldier", "Stranger",
    "Surgeon", "Tailor", "Teacher", "Thief", "Traveller", "Uncle", "Watchman", "Weaver", "Widow",
)  # fmt: skip

# A pair of words is used either in short titles or in long titles. Otherwise, a search for "The Cold Ballad" could
# return only titles such as "The Keeper of the Cold Ballad".
_PAIRS = len(_ADJECTIVES) // 2 * len(_THINGS)
PLAIN_TITLES = _PAIRS  # number of titles such as "The Silent Orchard"
LONG_TITLES = _PAIRS * len(_FIGURES)  # number of titles such as "The Keeper of the Silent Orchard"


def syllables_for(stems: int) -> int:
    """Return the number of syllables per stem that allows for at least twice as many stems as requested."""
    count = 2
    while len(_SYLLABLES) ** count < 2 * stems:
        count += 1
    return count


def stems(syllables: int) -> int:
    """Return the number of different stems with this many syllables."""
    return int(len(_SYLLABLES) ** syllables)


def stem(number: int, syllables: int) -> str:
    """Return the capitalized stem for a number."""
    parts = []
    for _ in range(syllables):
        number, index = divmod(number, len(_SYLLABLES))
        parts.append(_SYLLABLES[index])
    return "".join(parts).capitalize()


def plain_title(number: int) -> str:
    """Return the short title of a work; `number` must be below PLAIN_TITLES."""
    return f"The {_pair(number, 0)}"


def long_title(number: int) -> str:
    """Return the long title of a work; `number` must be below LONG_TITLES."""
    figure, pair = divmod(number, _PAIRS)
    return f"The {_FIGURES[figure]} of the {_pair(pair, 1)}"


def _pair(number: int, side: int) -> str:
    """Return an adjective and a noun. Sides 0 and 1 have no pairs in common."""
    thing, half = divmod(number, len(_ADJECTIVES) // 2)
    return f"{_ADJECTIVES[2 * half + (thing + side) % 2]} {_THINGS[thing]}"
