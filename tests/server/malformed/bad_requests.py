"""Tokens, limits and invalid request bodies for tests of malformed requests."""

from __future__ import annotations

ANN, BOB = "ann-has-a-token", "bob-has-another"
MEGABYTE = 1 << 20
LIMIT = 2 * MEGABYTE  # maximum size of a request body
OK_HEAD = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + ANN.encode() + b"\r\n"
BAD_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"\x00",
    b'{"env": "\xff"}',
    b'{"env": "\\ud800"}',
    b'{"env": "\\udc00\\ud800"}',
    b'{"env": 1}',
    b'{"env": ["bad:Tricky-v0"]}',
    b'{"env": "bad:Tricky-v0", "lease": NaN}',
    b'{"env": "bad:Tricky-v0", "lease": Infinity}',
    b'{"env": "bad:Tricky-v0", "lease": 1e999}',
    b'{"env": "bad:Tricky-v0", "lease": -1}',
    b'{"env": "bad:Tricky-v0", "lease": 0}',
    b'{"env": "bad:Tricky-v0", "timeout": "soon"}',
    b'{"env": "bad:Tricky-v0", "root": ' + b"9" * 400 + b"}",
    b'{"env": "bad:Tricky-v0", "root": -1}',
    b'{"env": "bad:Tricky-v0", "autoreset": "same_step"}',
    b'{"env": "bad:Tricky-v0", "autoreset": "now", "root": 1}',
    b'{"env": "bad:Tricky-v0", "kwargs": []}',
    b'{"env": "bad:Tricky-v0", "kwargs": {"size": ' + b"9" * 5_000 + b"}}",
    b'{"env": "bad:Tricky-v0", "kwargs": {"size": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"env": "bad:Tricky-v0", "kwargs": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    b'{"env": "bad:Tricky-v0", "op": "step"}',
    b'{"env": "bad:Tricky-v0", "id": "' + b"x" * 1_000 + b'"}',
    b'{"env": "bad:Tricky-v0", "more": 1}',
    b'{"env": "bad:Tricky-v0"} {}',
    b"[" * 1_000_000,
]
BAD_MSGPACK = [
    b"\xc1",
    b"\x90",
    b"\xc0",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x81\xa3env\xa1\xff",
    b"\x81\xa3env\xa3\xed\xa0\x80",
    b"\x81\x90\x01",
    b"\x81\x80\x01",
    b"\x82\xa3env\xadbad:Tricky-v0\xa5lease\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x82\xa3env\xadbad:Tricky-v0\xa5lease\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x82\xa3env\xadbad:Tricky-v0\xa6kwargs\x81\xa4size" + b"\x91" * 100_000,
    b"\x82\xa3env\xadbad:Tricky-v0\xa6kwargs\x81\xa4size\xc7\x0c\xff" + b"\xff" * 12,
    b"\x91" * 1_000_000,
]
