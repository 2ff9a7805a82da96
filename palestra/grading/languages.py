"""Detect which of IFEval's thirty languages a text is written in, by its script and frequent words.

The detection needs no model and always returns the same result. It is designed to distinguish these languages in
answers of at least one sentence. The official evaluation uses the langdetect package instead.
"""

from __future__ import annotations

import re
from collections import Counter

# Scripts that identify a single language: first and last code point.
_SCRIPTS = {
    "bn": (0x0980, 0x09FF),
    "gu": (0x0A80, 0x0AFF),
    "he": (0x0590, 0x05FF),
    "kn": (0x0C80, 0x0CFF),
    "ko": (0xAC00, 0xD7AF),
    "ml": (0x0D00, 0x0D7F),
    "pa": (0x0A00, 0x0A7F),
    "ta": (0x0B80, 0x0BFF),
    "te": (0x0C00, 0x0C7F),
    "th": (0x0E00, 0x0E7F),
    "ja": (0x3040, 0x30FF),
    "arabic": (0x0600, 0x06FF),
    "cyrillic": (0x0400, 0x04FF),
    "devanagari": (0x0900, 0x097F),
}
# Frequent words, and letters that only one of the languages uses, which count as much as several words.
_WORDS = {
    "latin": {
        "en": "the and of to in is that for it with as was are be this you not have from on at by an or",
        "de": "der die das und ist nicht ein eine zu den mit auf für von dem im sich auch es wie ich wird sind",
        "es": "el la los las de que y en un una por con para es no se del al lo como más su pero muy",
        "fi": "ja on ei se että hän oli mutta kun niin myös ovat tämä joka minä sinä olen jos kuin voi",
        "fr": "le la les des et est une un dans pour que qui ne pas sur avec au du ce il elle nous vous par",
        "it": "il lo la gli che di e è un una per non con del della sono come nel alla anche più questo si",
        "pl": "i w nie na się jest to że z do jak co ale za od po przez są dla był może tak jego",
        "pt": "o a os as que de e do da em um uma para com não é por mais como no na se dos foi ao",
        "sw": "na ya wa kwa ni katika la za kuwa hii huu yake hiyo lakini kama watu sana pia au si cha",
        "vi": "và của là có không được cho một trong người những với các này đã để khi về cũng như",
    },
    "cyrillic": {
        "bg": "и на да се е за не са като от това ще съм беше при или със който ние",  # noqa: RUF001
        "ru": "и в не на что я с он как это но по они мы из у за был быть все",  # noqa: RUF001
        "uk": "і в не на що я з він як це але та до за ми від був бути й також є",  # noqa: RUF001
    },
    "arabic": {
        "ar": "في من على أن إلى هذا التي الذي عن مع كان هو هي ما لا بعد كل",
        "fa": "و در به از که این را با است برای آن یک خود تا کرد بر هم نیز شده می",
        "ur": "کے میں کی ہے اور سے کا کو یہ پر نے کہ اس ہیں ہو بھی ایک کر تھا",
    },
    "devanagari": {
        "hi": "के में की है और से का को यह पर ने कि इस हैं भी एक कर था नहीं",
        "mr": "आहे आणि या मध्ये ते हे आहेत तो ती एक पण होते नाही केले मला",
        "ne": "छ र को मा हो यो लाई पनि गर्न छन् एक तर भएको थियो हुन्छ",
    },
}
_LETTERS = {
    "de": "ß", "es": "ñ¿¡", "fi": "", "fr": "çœ", "pl": "ąęłśżźć", "pt": "ãõ", "vi": "ăđơưạảấầậếềệốồộớờợ",
    "uk": "іїєґ", "ru": "ыэё", "bg": "", "fa": "پچژگ", "ur": "ٹڈڑںےھ",
}  # fmt: skip
_LETTER_WEIGHT = 2
_BETWEEN_WORDS = re.compile(r"[\s\d.,;:!?'\"()\[\]*_\u00ab\u00bb\u2019\u201c\u201d\u060c\u061f\u0964-]+")


def detect_language(text: str) -> str | None:
    """Return the ISO 639-1 code of the text's language, or None if it has no letters or no known words."""
    scripts = Counter(_script(char) for char in text if char.isalpha())
    if not scripts:
        return None
    if scripts["ja"]:  # Japanese also uses Chinese characters
        return "ja"
    script = scripts.most_common(1)[0][0]
    if script not in _WORDS:
        return script if script in _SCRIPTS else None
    lower = text.lower()
    words = Counter(_BETWEEN_WORDS.split(lower))  # the class \w would split words at vowel signs
    scores = {}
    for language, frequent in _WORDS[script].items():
        score = sum(words[word] for word in frequent.split())
        score += _LETTER_WEIGHT * sum(lower.count(letter) for letter in _LETTERS.get(language, ""))
        scores[language] = score
    best = max(scores, key=lambda language: scores[language])
    return best if scores[best] else None


def _script(char: str) -> str:
    point = ord(char)
    if point < 0x0250 or 0x1E00 <= point <= 0x1EFF:
        return "latin"
    for name, (first, last) in _SCRIPTS.items():
        if first <= point <= last:
            return name
    return "other"
