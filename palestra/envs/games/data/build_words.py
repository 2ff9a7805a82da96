"""Build the word lists in this folder from SCOWL. Run this script manually, once per SCOWL release.

    apt-get install scowl && python palestra/envs/games/data/build_words.py

For every word length from 3 to 10, the script writes `common_N.txt` (everyday words), `rare_N.txt` (rarer words) and
`other_N.txt` (other words that a player may use), with one word per line. It also writes LICENSE.scowl. SCOWL groups
words by size: size 10 contains the most common words, and size 70 contains the words in a large dictionary. Regular
inflections (plural, past tense, -ing form, comparative) of words above size 20 are uninteresting as hidden words, so
they are written to `other`. SCOWL's lists of names, abbreviations and contractions are not read. Words with characters
other than a-z (possessives), slurs and obscenities are dropped.
"""

from __future__ import annotations

import codecs
import gzip
import re
from pathlib import Path

LISTS = Path("/usr/share/dict/scowl")
README = Path("/usr/share/doc/scowl/README.gz")
HERE = Path(__file__).parent

LENGTHS = range(3, 11)
COMMON, RARE, LARGE = (10, 20, 35), (40, 50, 55, 60), (70,)
EVERY_FORM = (10, 20)  # sizes with words so frequent that their inflections may be hidden words
LARGE_LENGTHS = range(3, 7)  # lengths for which size 70 is included; longer words would add 180 KB
# Spellings that are accepted in addition to American spellings.
SPELLINGS = ("british", "british_z", "canadian", "australian", "variant_1")

# Slurs and obscenities, which are excluded from every list; encoded with rot13 so that they are not readable here.
BLOCKED = re.compile(
    codecs.decode(
        r".*shpx.*|(ohyy|ubefr)?fuvg.*|phagf?|pbpxfhpxref?|qvpxurnqf?|cvff(rq|ref?|rf|vat)?|ovgpu.*|jube[rv].*|fyhg.*"
        r"|gjngf?|jnax.*|nefr(q|f|ubyrf?)?|nffubyrf?|gvgf|gvggl|gvggvrf|obyybpx.*|ohttre.*|gheqf?|avtt[nr].*"
        r"|arteb(vq|rf)?|artevghqr|pbbaf?|fcvpf?|xvxrf?|lvqf?|wrj|wrjsvfu|tbbxf?|qntbr?f?|jbcf?|jbtf?|xenhgf?|uhaf?"
        r"|snt(f|bgf?|tbgf?)?|ubzbf?|cbbs(f|gref?)?|ergneq(f|rq)?|fcnfgvpf?|zbatby.*|tlc(f|crq|cref?|cvat|fgref?)?"
        r"|fdhnjf?|erqfxvaf?|unysoerrqf?|zhynggb.*|bpgbebbaf?|dhnqebbaf?|qnexvrf?|qnexl|cvpxnavaa.*|fnzobf?"
        r"|tbyyvjbtf?|wvtnobbf?|ubaxl|fuvxfnf?|pyvgf?|qvyqb.*|phzf|phzzvat|jrgonpxf?|furral|oybjwbof?|pbbyvrf?|ubf"
        r"|cbbaf?|puvaxf?|zvys",
        "rot13",
    )
)

# Coarse, demeaning or dubious words, which are accepted as guesses but never used as hidden words.
UNFIT = re.compile(
    r"ass|asses|tit|bum|bums|sex|sexes|sod|sods|dick.*|cock|cocks|cockup|prick|pricks|crap|crapp.*|damn.*|goddam.*|hell"
    r"|fart.*|poo|poop|pee|peed|bloody|boobs?|bastard.*|niggard.*|dykes?|queer.*|gimp.*|cretin.*|midgets?|gyps(y|ies)"
    r"|moron.*|cripple.*|rap(e[drs]?|ing|ists?)|incest.*|p(ae)?edophil.*|porn.*|orgasm.*|org(y|ies)|penis.*|vagin.*"
    r"|clitor.*|vulva.*|masturb.*|sperm.*|semen|ejacul.*|erotic.*|horny|hookers?|huss(y|ies)|bimbos?|tarts?|slappers?"
    r"|fanny|puss(y|ies)|schmuck.*|putz|nob|nobs|shag|shagged|anus.*|anal|anally|rectums?|enemas?|feces|faeces|lynch.*"
    r"|genocid.*|suicid.*|molest.*|bestial.*|sodom.*|pederast.*|harlots?|prostitut.*|pimps?|pimp(ed|ing)|bordellos?"
    r"|brothels?|slave.*|slaving|papist.*|popish|wuss.*|sissy|nanc[ey]|frigg.*|gringos?|goy.*|shysters?|infidels?"
    r"|heathen.*|savages?|slag|bonk|kinky|nude|nudes|nudity|sexy|sexual.*|lust.*|striptease|pubis|pubic|perv"
    r"|bap|bis|bod|brr|cox|deb|dis|dob|dos|ecu|eek|ell|ems|ens|eta|fer|gee|git|guv|haj|hes|hmm|hoc|huh|ids|ifs|ins|ken"
    r"|lib|mac|mam|mas|meh|mes|mic|mil|moi|nae|nah|non|nth|nus|och|ohs|oms|ooh|ops|pah|pas|pis|pix|pow|pwn|qua|shh|sic"
    r"|ssh|ted|thy|til|tom|tum|ugh|ups|vac|veg|wiz|wot|xis|yer|yow"
    r"|bani|cols|effs|emfs|hols|hons|lats|lavs|mans|mkay|oles|psis|rads|rems|secs|sens|vars|wist|wive"
)

# Three-letter words of size 35 that are classified as rare, because they are seldom used.
BOOKISH = re.compile(
    r"ado|ail|ale|ark|aye|boa|bop|cad|caw|chi|cob|coo|cot|coy|cur|dab|din|dub|dud|duo|ebb|eke|"
    r"eon|ewe|fad|fen|fez|fib|fir|foe|fro|gab|gal|gnu|gob|hag|hem|hew|ilk|imp|ire|irk|jig|jot|"
    r"jut|keg|kin|lax|lee|lob|lop|lug|lye|mar|mew|nab|nit|oaf|ode|ohm|ova|pap|pep|pew|ply|pus|"
    r"rev|roe|rue|rut|sac|sag|sop|sup|tee|tot|vex|vie|vow|wad|wag|wan|woe|woo|wry|yap|yen|yew"
)


def read(spelling: str, size: int) -> set[str]:
    path = LISTS / f"{spelling}-words.{size}"
    if not path.exists():  # some spellings have no words of this size
        return set()
    words = path.read_text(encoding="latin-1").split()
    return {w for w in words if re.fullmatch(r"[a-z]{3,10}", w) and not BLOCKED.fullmatch(w)}


def stems(word: str, ending: str) -> set[str]:
    """Return the possible base forms of `word` if it is inflected with `ending`."""
    stem = word.removesuffix(ending)
    bases = {stem, stem + "e"}
    if stem.endswith("i"):
        bases.add(stem[:-1] + "y")
    if stem.endswith("v"):
        bases |= {stem[:-1] + "f", stem[:-1] + "fe"}
    if len(stem) > 3 and stem[-1] == stem[-2]:
        bases.add(stem[:-1])
    return bases


def inflected(word: str, words: set[str]) -> bool:
    """Return whether `word` is a regular inflection of another word in `words`."""
    if word.endswith("s") and not word.endswith("ss") and word[:-1] in words:
        return True
    if any(word.endswith(ending) and stems(word, ending) & words for ending in ("es", "ed", "ing")):
        return True
    # "taller" is an inflection but "writer" is not, because only "taller" has a superlative.
    pairs = (("er", "est"), ("est", "er"))
    return any(word.endswith(a) and word.removesuffix(a) + b in words and stems(word, a) & words for a, b in pairs)


def main() -> None:
    by_size = {size: read("english", size) | read("american", size) for size in (*COMMON, *RARE, *LARGE)}
    frequent = set().union(*(by_size[size] for size in EVERY_FORM))
    small = set().union(*(by_size[size] for size in COMMON))
    medium = small.union(*(by_size[size] for size in RARE))
    everyday = {w for w in small if not BOOKISH.fullmatch(w)}
    common = {w for w in everyday if (w in frequent or not inflected(w, small)) and not UNFIT.fullmatch(w)}
    rare = {w for w in medium - everyday if not inflected(w, medium) and not UNFIT.fullmatch(w)}
    spelt = set().union(*(read(spelling, size) for spelling in SPELLINGS for size in (*COMMON, *RARE)))
    large = {w for size in LARGE for w in by_size[size] if len(w) in LARGE_LENGTHS and re.search("[aeiouy]", w)}
    other = (medium | spelt | large) - common - rare
    for name, words in (("common", common), ("rare", rare), ("other", other)):
        for length in LENGTHS:
            lines = "".join(f"{word}\n" for word in sorted(words) if len(word) == length)
            (HERE / f"{name}_{length}.txt").write_text(lines, encoding="ascii", newline="\n")

    about = gzip.decompress(README.read_bytes()).decode("latin-1")
    notice = about[about.index("COPYRIGHT, SOURCES, and CREDITS:") : about.index("FUTURE PLANS:")]
    version = re.search(r"^Version (\S+)", about, re.MULTILINE)
    (HERE / "LICENSE.scowl").write_text(
        f"The word lists in this folder (*.txt) are a modified selection of SCOWL {version[1] if version else ''}\n"
        "(Spell Checker Oriented Word Lists, http://wordlist.aspell.net/), built by build_words.py: most words\n"
        f"were left out. SCOWL's own notice follows.\n\n{notice.rstrip()}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
