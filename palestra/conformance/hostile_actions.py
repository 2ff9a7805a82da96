"""Actions that no environment expects, each with a short Python expression that evaluates to it."""

from __future__ import annotations

HOSTILE_ACTIONS: tuple[tuple[str, str], ...] = (
    ("''", ""),
    ("' \\n\\t '", " \n\t "),
    ("'hello'", "hello"),
    ("'\\x00'", "\x00"),
    ("'\\x00\\x01\\x7f\\ufffe' * 50", "\x00\x01\x7f\ufffe" * 50),
    ("'\\ud800'", "\ud800"),  # a lone surrogate, which UTF-8 cannot encode
    ("'a' * 1_000_000", "a" * 1_000_000),
    ("'{' * 100_000", "{" * 100_000),
    ("'}' * 100_000", "}" * 100_000),
    ("r'\\boxed{' * 50_000", r"\boxed{" * 50_000),
    ("r'\\boxed{' * 5_000 + '}' * 5_000", r"\boxed{" * 5_000 + "}" * 5_000),
    ("r'\\boxed{}'", r"\boxed{}"),
    ("r'\\boxed{ }'", r"\boxed{ }"),
    ("r'\\boxed{-1}'", r"\boxed{-1}"),
    ("r'\\boxed{0}'", r"\boxed{0}"),
    ("r'\\boxed{1e999}'", r"\boxed{1e999}"),
    ("r'\\boxed{nan}'", r"\boxed{nan}"),
    ("r'\\boxed{' + '9' * 10_000 + '}'", r"\boxed{" + "9" * 10_000 + "}"),
    ("r'\\boxed{' + '1 ' * 10_000 + '}'", r"\boxed{" + "1 " * 10_000 + "}"),
    ("r'\\boxed{' + 'A' * 500_000 + '}'", r"\boxed{" + "A" * 500_000 + "}"),
    ("r'\\boxed{\\frac{1}{2}}'", r"\boxed{\frac{1}{2}}"),
    ("r'\\boxed{\\boxed{\\boxed{1}}}'", r"\boxed{\boxed{\boxed{1}}}"),
    ("'\\\\boxed{\\u0663 \\u0664}'", "\\boxed{\u0663 \u0664}"),  # Arabic digits
    ("'\\\\boxed{\\uff11}'", "\\boxed{\uff11}"),  # a full-width digit
    ("'\\\\boxed{\\u00b2}'", "\\boxed{\u00b2}"),  # superscript two: str.isdigit() is true, int() fails
    ("'\\\\boxed{\\u4e0a}'", "\\boxed{\u4e0a}"),
    ("'\\\\boxed{\\U0001f600}'", "\\boxed{\U0001f600}"),
    ("'\\\\boxed{a\\u0301\\u200d\\u202e}'", "\\boxed{a\u0301\u200d\u202e}"),
    ("'\\\\boxed{\\x00}'", "\\boxed{\x00}"),
    ("'\\\\boxed{1\\n2\\n3\\n4}'", "\\boxed{1\n2\n3\n4}"),
    ("r'\\boxed{None}'", r"\boxed{None}"),
    ("r'\\boxed{%s%n{0}{x}}'", r"\boxed{%s%n{0}{x}}"),
    ("r'\\boxed{../../etc/passwd}'", r"\boxed{../../etc/passwd}"),
    ("r'\\boxed{__import__(\"os\")}'", r'\boxed{__import__("os")}'),
    ('r"\\boxed{\'; drop table x; --}"', r"\boxed{'; drop table x; --}"),
    ("'<answer></answer><tool_call>{\"name\": 1}</tool_call>'", '<answer></answer><tool_call>{"name": 1}</tool_call>'),
    ("'```python\\nwhile True: pass\\n```'", "```python\nwhile True: pass\n```"),
    ("'<think>' * 1_000", "<think>" * 1_000),
)
