"""The scripted task: twelve replies over three user turns, with all that clients trip over.

Reasoning holds quotes beyond ASCII, a line break and blanks at its end; arguments have odd spacing
and escapes; there is a reply without text, one with an empty text and no thought, two calls at
once, an answer that fails, one that writes a file, and answers that end in blanks.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.contracts.replies import Step

SYSTEM = "You are an agent in a small repository. Work step by step, and say what you did."
TURNS = (
    "Mend the two functions in sums.py, and run the tests.",
    "Now look at the second one again.",
    "Thank you. What changed, in one sentence?",
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in keys},
            },
        },
    }
    for name, about, keys in (
        ("bash", "Run a command.", ("command",)),
        ("read_file", "Show a file.", ("path",)),
        ("write_file", "Write a file anew.", ("path", "content")),
    )
]


def _thought(number: int, about: str) -> str:
    return f"T-{number} {about} — the “obvious” way is not it.\nSo, once more, slowly: {about}. \n"


TASK = (
    Step(
        _thought(1, "see what is there"), "I will look around first.\n\n",
        (("", "bash", '{"command": "ls -la && git status"}'),),
    ),
    Step(
        _thought(2, "read both files"), None,
        (("", "read_file", '{"path": "sums.py"}'), ("", "read_file", '{"path":  "README.md"}')),
    ),
    Step(
        _thought(3, "run the tests, they should fail"), "Running the tests.",
        (("", "bash", '{"command": "pytest -q; echo \\"ran\\""}'),),
    ),
    Step(
        _thought(4, "is there a second module"), None,
        (("", "read_file", '{"path": "absent.py"}'),),
    ),
    Step(
        _thought(5, "write the whole file"), "  Writing it.  ",
        (("", "write_file",
          '{"path": "sums.py",  "content": "def add(a, b):\\n    \\"\\"\\"Sum \\u2014 caf\\u00e9.'
          '\\"\\"\\"\\n    return a + b   \\n"}'),),
    ),
    Step("", "", (("", "bash", '{"command": "pytest -q"}'),)),
    Step(
        _thought(7, "how large is the log"), None,
        (("", "bash", '{"command": "cat build.log", "wait": 1e1, "most": 18446744073709551617}'),),
    ),
    Step(
        _thought(8, "one more look at it"), "One more look.",
        (("", "read_file", '{"path": "sums.py"}'),),
    ),
    Step(_thought(9, "say what was done"), "Both functions are mended.  \n\n"),
    Step(
        _thought(10, "look at the second one"), "Looking again.",
        (("", "bash", '{"command": "sed -n 5,9p sums.py"}'),),
    ),
    Step(_thought(11, "it is fine"), "It is fine — nothing to do.\n"),
    Step(_thought(12, "one sentence"), "add() adds now."),
)  # fmt: skip

_RESULTS: Mapping[str, str] = {
    "ls -la": "README.md\nbuild.log\nsums.py\ntest_sums.py\n",
    "echo": "1 failed, 1 passed\nExit code: 1",
    "absent.py": "Error: ENOENT: no such file: absent.py",
    "write_file": "wrote 62 bytes",
    "build.log": "\n".join(f"line {number}: compiled, linked, stripped" for number in range(60)),
}


def result_of(name: str, arguments: str) -> str:
    """What a tool answers: the same text to the same call, however its arguments are spelled."""
    asked = f"{name} {arguments}"
    return next((text for key, text in _RESULTS.items() if key in asked), f"{name}: ok\n")
