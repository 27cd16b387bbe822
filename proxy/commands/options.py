"""Options that several commands have, in the same words."""

from __future__ import annotations

import typer

# A running proxy

UPSTREAM = typer.Option(
    metavar="URL", help="Base URL of a provider or an engine, with or without /v1."
)
CONFIG = typer.Option(
    metavar="FILE", help="Configuration file (TOML), as for lethe serve.", envvar="LETHE_CONFIG"
)
ADMIN = typer.Option(
    "--admin",
    metavar="URL",
    help="Where the proxy's admin listener is (http://127.0.0.1:4101, or as --config says).",
)
JSON = typer.Option("--json", help="Print it all as JSON, for scripts.")

# What things cost

CACHE = typer.Option(
    metavar="RULE",
    help="What the provider's cache holds: prompt+generated, prompt or none; behind that, if "
    "wanted, the block and the minimum in tokens, as in prompt:128:1024.",
)
PRICES = typer.Option(
    "--prices",
    "--model",
    metavar="NAME",
    help="Whose prices: sonnet-5.5, fable-5.1 or deepseek-v3.2; a model of the price list as "
    "PROVIDER/NAME (NAME alone where all that have it charge the same); or a TOML file with a "
    "[[price]] table.",
)
INPUT = typer.Option(metavar="$", help="Dollars a million input tokens, in place of --prices.")
CACHE_READ = typer.Option(
    metavar="$", help="Dollars a million tokens read from the cache (else as --input)."
)
CACHE_WRITE = typer.Option(
    metavar="$", help="Dollars a million tokens written to the cache (else as --input)."
)

# What an engine works

ARCHITECTURE = typer.Option(
    metavar="NAME",
    help="The open model whose operations are counted: one that lethe horizon lists, or one of "
    "your own as hidden=N,layers=N,heads=N,ffn=N.",
)
EXCHANGE_RATE = typer.Option(
    metavar="N",
    help="In place of --architecture: how many pairs (one token that attends to one before it) "
    "cost as much as one position (one token's way through the model).",
)
DECODE_PREMIUM = typer.Option(
    metavar="W",
    help="How many times as much it costs to generate a token as to read one of a prompt. Engines "
    "read a prompt in one go and generate token by token, which uses a machine worse: with 3, "
    "an answer of 100 tokens counts as much as 300 of a prompt.",
)
