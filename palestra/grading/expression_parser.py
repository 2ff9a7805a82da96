"""Parse an expression into an exact Value (see `exact`).

The text must have been normalized by `answer_parser`: fractions are written as \\frac, products as * or by
juxtaposition, and brackets without \\left or \\right.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction

from palestra.grading.exact import PI, E, TooLarge, Value

MAX_DEPTH = 40
MAX_TOKENS = 1_500
MAX_DIGITS = 3_000

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d+\.(?=\s*\\overline)|\d+(?:\.\d+)?(?:[eE][+-]?\d{1,9}(?![\d.^_{]))?|\.\d+)
    | (?P<repeating>\\overline)
    | (?P<command>\\[A-Za-z]+)
    | (?P<letter>[A-Za-z])
    | (?P<symbol>[-+*/^!(){}\[\]|_])
    )""",
    re.X,
)
_GREEK = re.compile(
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|upsilon|"
    "phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega|ell"
)
_SUBSCRIPT = re.compile(r"\s*_\s*(?:\{([A-Za-z0-9,]{1,12})\}|([A-Za-z0-9]))")
_PROPER = re.compile(r"\\frac\s*\{\s*(\d{1,9})\s*\}\s*\{\s*(\d{1,9})\s*\}|(\d{1,9})\s*/\s*(\d{1,9})(?![\d.])")
_REPEATED = re.compile(r"\s*\{(\d{1,200})\}")
_RUN = re.compile("[A-Za-z]+")
_PLAIN = re.compile(r"-?\d+")


class Unsupported(Exception):
    """The expression cannot be represented as a Value."""


@functools.lru_cache(maxsize=4096)
def parse_value(text: str) -> Value | None:
    """Return the value, or None if it cannot be represented; raise TooLarge if it exceeds the supported size."""
    if _PLAIN.fullmatch(text):
        return Value.of(_integer(text))
    try:
        return Parser(text).parse()
    except (Unsupported, ZeroDivisionError):
        return None


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise TooLarge(f"a number has {len(digits)} digits")
    return int(digits)


class Parser:
    """Recursive descent parser with one token of lookahead; subclasses may override the arithmetic operations."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens = 0
        self._depth = 0
        self._kind = self._token = ""
        self._start = 0
        self._bars = 0
        self._next()

    def parse(self) -> Value:
        value = self._sum()
        if self._kind:
            raise Unsupported
        return value

    # Arithmetic operations.

    def negate(self, value: Value) -> Value:
        return -value

    def add(self, left: Value, right: Value) -> Value:
        return left + right

    def multiply(self, left: Value, right: Value) -> Value:
        return left * right

    def divide(self, top: Value, bottom: Value) -> Value:
        return top / bottom

    def power(self, base: Value, exponent: Fraction) -> Value:
        raised = base.power(exponent)
        if raised is None:
            raise Unsupported
        return raised

    def square_root(self, radicand: Value) -> Value:
        root = radicand.root()
        if root is None:
            raise Unsupported
        return root

    def apply(self, function: str, value: Value) -> Value:  # noqa: ARG002  # subclasses use `function`
        """Return the already computed value of a call to `function`."""
        return value

    # Grammar.

    def _next(self) -> None:
        self._tokens += 1
        if self._tokens > MAX_TOKENS:
            raise TooLarge("the expression has thousands of tokens")
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            if self._text[self._at :].strip():
                raise Unsupported
            self._kind, self._token, self._start = "", "", len(self._text)
            return
        self._kind = match.lastgroup or ""
        self._token = match[self._kind]
        self._start = match.start(self._kind)
        self._at = match.end()

    def _expect(self, symbol: str) -> None:
        if self._token != symbol:
            raise Unsupported
        self._next()

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise TooLarge("the expression is nested too deeply")

    def _sum(self) -> Value:
        self._deeper()
        total = self._product()
        while self._token in ("+", "-"):
            sign = self._token
            self._next()
            term = self._product()
            total = self.add(total, term if sign == "+" else -term)
        self._depth -= 1
        return total

    def _product(self) -> Value:
        negative = False
        while self._token in ("+", "-"):  # a sign belongs to the first factor
            negative ^= self._token == "-"
            self._next()
        product = self._factor()
        while True:
            if self._token == "*":
                self._next()
                product = self.multiply(product, self._signed())
            elif self._token == "/":
                self._next()
                product = self.divide(product, self._signed())
            elif self._starts_factor():
                if self._kind == "number":
                    raise Unsupported  # "3 4" or "x2" is not a product
                product = self.multiply(product, self._factor())
            else:
                return self.negate(product) if negative else product

    def _signed(self) -> Value:
        negative = False
        while self._token in ("+", "-"):
            negative ^= self._token == "-"
            self._next()
        factor = self._factor()
        return self.negate(factor) if negative else factor

    def _starts_factor(self) -> bool:
        if self._kind in ("number", "letter", "command"):
            return True
        return self._token in ("(", "{", "[") or (self._token == "|" and not self._bars)

    def _factor(self) -> Value:
        base = self._primary()
        while True:
            if self._token == "^":
                self._next()
                exponent = self._exponent()
                base = self.power(base, exponent)
            elif self._token == "!":
                base = self._factorial(base)
            else:
                return base

    def _exponent(self) -> Fraction:
        self._deeper()
        negative = False
        while self._token in ("+", "-"):
            negative ^= self._token == "-"
            self._next()
        if self._kind == "number" and "." not in self._token and "e" not in self._token.lower():
            digits = self._token  # x^23 means x^{23} in plain text
            self._next()
            value = Value.of(_integer(digits))
            if self._token == "^":
                self._next()
                value = self.power(value, self._exponent())
        else:
            value = self._factor()
        number = value.rational()
        if number is None:
            raise Unsupported
        self._depth -= 1
        return -number if negative else number

    def _factorial(self, base: Value) -> Value:
        self._next()
        number = base.rational()
        if number is None or number.denominator != 1 or number < 0 or self._token == "!":
            raise Unsupported
        if number > 1_000:
            raise TooLarge("a factorial has thousands of digits")
        product = 1
        for factor in range(2, int(number) + 1):
            product *= factor
        return self.apply("factorial", Value.of(product))

    def _primary(self) -> Value:
        if self._kind == "number":
            return self._number()
        if self._kind == "letter":
            return self._letter()
        if self._kind == "command":
            return self._command()
        closing = {"(": ")", "{": "}", "[": "]"}.get(self._token)
        if closing is not None:
            self._next()
            value = self._sum()
            self._expect(closing)
            return value
        if self._token == "|":
            return self._absolute()
        raise Unsupported

    def _absolute(self) -> Value:
        self._bars += 1
        self._next()
        value = self._sum()
        self._expect("|")
        self._bars -= 1
        size = value.decimal()
        if size is None or (size == 0) != (not value.num):
            raise Unsupported
        return self.apply("absolute value", -value if size < 0 else value)

    def _number(self) -> Value:
        token = self._token
        if len(token) > MAX_DIGITS:
            raise TooLarge(f"a number has {len(token)} digits")
        mantissa, _, exponent = token.lower().partition("e")
        number = Fraction(mantissa.rstrip("."))
        if exponent:
            if abs(int(exponent)) > MAX_DIGITS:
                raise TooLarge("a number has thousands of digits")
            number *= Fraction(10) ** int(exponent)
        self._next()
        if "." in token and self._kind == "repeating":
            number += self._repeating(len(mantissa.partition(".")[2]))
        elif not exponent and "." not in token:
            number += self._mixed()
        return Value.of(number)

    def _repeating(self, places: int) -> Fraction:
        """Parse the repeating part of a decimal, as in 0.1\\overline{6}."""
        match = _REPEATED.match(self._text, self._at)
        if match is None:
            raise Unsupported
        self._at = match.end()
        self._next()
        return Fraction(int(match[1]), (10 ** len(match[1]) - 1) * 10**places)

    def _mixed(self) -> Fraction:
        """Parse the fraction of a mixed number; return 0 if there is none."""
        match = _PROPER.match(self._text, self._start)
        if match is None or (match[3] is not None and not self._text[self._start - 1].isspace()):
            return Fraction(0)
        top, bottom = (int(match[1]), int(match[2])) if match[1] is not None else (int(match[3]), int(match[4]))
        if not 0 < top < bottom:
            return Fraction(0)
        self._at = match.end()
        self._next()
        if self._token == "^":
            raise Unsupported
        return Fraction(top, bottom)

    def _letter(self) -> Value:
        letter = self._token
        run = _RUN.match(self._text, self._start)
        if run is not None and len(run[0]) > 3:
            raise Unsupported  # the letters form a word
        name = letter + self._subscript()
        if name == "e":
            return Value.symbol(E)
        if name == "i":
            return Value.imaginary()
        if self._token == "(" and name in ("f", "g", "h", "P", "Q", "F"):
            raise Unsupported  # the text is a function call, not a product
        return Value.symbol(name)

    def _subscript(self) -> str:
        match = _SUBSCRIPT.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        self._next()
        return "" if match is None else f"_{match[1] or match[2]}"

    def _command(self) -> Value:
        name = self._token[1:]
        if name == "pi":
            self._next()
            return Value.symbol(PI)
        if name == "frac":
            self._next()
            top = self._argument()
            return self.divide(top, self._argument())
        if name == "sqrt":
            self._next()
            return self._root()
        if name == "binom":
            self._next()
            return self._binomial(self._argument(), self._argument())
        if _GREEK.fullmatch(name):
            return Value.symbol(f"\\{name}{self._subscript()}")
        raise Unsupported

    def _argument(self) -> Value:
        """Parse the argument of a LaTeX command: a group in braces, or a single token as in \\frac12."""
        if self._token == "{":
            self._next()
            value = self._sum()
            self._expect("}")
            return value
        if self._kind == "number":
            digit = self._text[self._start]
            if digit == ".":
                raise Unsupported
            self._at = self._start + 1
            self._next()
            return Value.of(int(digit))
        if self._kind == "letter":
            return self._letter()
        if self._kind == "command":
            self._deeper()
            value = self._command()
            self._depth -= 1
            return value
        raise Unsupported

    def _root(self) -> Value:
        degree = 2
        if self._token == "[":
            self._next()
            number = self._sum().rational()
            self._expect("]")
            if number is None or number.denominator != 1 or not 2 <= number <= 12:
                raise Unsupported
            degree = int(number)
        if self._token == "(":
            radicand = self._primary()
        else:
            radicand = self._argument()
        if degree == 2:
            return self.square_root(radicand)
        number = radicand.rational()
        if number is None or (number < 0 and degree % 2 == 0):
            raise Unsupported
        top, bottom = _exact_root(abs(number.numerator), degree), _exact_root(number.denominator, degree)
        if top is None or bottom is None:
            raise Unsupported
        return self.apply("root", Value.of(Fraction(-top if number < 0 else top, bottom)))

    def _binomial(self, upper: Value, lower: Value) -> Value:
        n, k = upper.rational(), lower.rational()
        if n is None or k is None or n.denominator != 1 or k.denominator != 1 or not 0 <= k <= n:
            raise Unsupported
        if n > 2_000:
            raise TooLarge("a binomial coefficient has thousands of digits")
        return self.apply("binomial coefficient", Value.of(math.comb(int(n), int(k))))


def _exact_root(number: int, degree: int) -> int | None:
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**degree < number:
            low = middle + 1
        else:
            high = middle
    return low if low**degree == number else None
