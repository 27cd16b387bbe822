"""What a command or a program text leaves behind, by tables.

A program that no table knows leaves nothing, however it is called: a write that is missed keeps a
step's reasoning, one that is made up drops it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from proxy.core.shell import MAX_TEXT, SHELLS, Room, Simple, commands, handed, operands, quoted


@dataclass(frozen=True, slots=True)
class _Writes:
    """A program that writes: always, or only with one of `when`, and never with one of `unless`.

    A flag of one letter is found in clusters too (`-i` in `-ni.bak`).
    """

    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    def __call__(self, args: Sequence[str]) -> bool:
        if any(_has(args, flag) for flag in self.unless):
            return False
        return not self.when or any(_has(args, flag) for flag in self.when)


_CLUSTER = re.compile(r"-([0-9a-zA-HJ-LN-WYZ]+)")


def _has(args: Sequence[str], flag: str) -> bool:
    if len(flag) != 2 or flag[0] != "-":
        return any(arg == flag or arg.startswith(flag + "=") for arg in args)
    for arg in args:
        cluster = _CLUSTER.match(arg)
        if cluster is not None and flag[1] in cluster[1]:
            return True
    return False


def _operands(args: Sequence[str]) -> list[str]:
    return [arg for arg in args if not arg.startswith("-")]


def _operand(args: Sequence[str]) -> bool:
    return any(not arg.startswith("-") for arg in args)


def _into(args: Sequence[str]) -> bool:
    """The last operand is what is written (`convert a.png b.png`)."""
    named = _operands(args)
    return len(named) > 1 and args[-1] == named[-1] and not named[-1].endswith(":")


def _packs(args: Sequence[str]) -> bool:
    """A file is packed or unpacked in its place; without one, what comes in is."""
    return _operand(args) and not any(_has(args, flag) for flag in _TO_OUTPUT)


_TO_OUTPUT = ("-c", "-l", "-t", "--stdout", "--to-stdout", "--list", "--test", "--help")
_TAR_MAKES = frozenset({"--create", "--append", "--update"})
_TAR_MODE = re.compile(r"-?[a-zA-Z]*[xctru][a-zA-Z]*\Z")


def _tar(args: Sequence[str]) -> bool:
    """Unpacking, or making an archive; not where it is the output that takes it."""
    given = (arg for i, arg in enumerate(args) if i == 0 or arg.startswith("-"))
    mode = next(filter(_TAR_MODE.match, given), "")
    if "x" in mode or "--extract" in args:
        return "O" not in mode and "--to-stdout" not in args
    if not re.search("[cru]", mode) and not _TAR_MAKES.intersection(args):
        return False
    named = "f" in mode or any(arg.startswith(("-f", "--file")) for arg in args)
    return named and "-" not in args and "/dev/null" not in args


_AWK_TEXT = re.compile(r'"(/dev/)?(?:[^"\\\n]|\\.)*"')
_AWK_PRINT = re.compile(r'\bprintf?\b(?:[^;{}()>\n]|\([^()\n]*\)){0,200}>>?(?!>|\s*"/dev/")')


def _awk(args: Sequence[str]) -> bool:
    """In place, or printing into a file; the sign in a text or in a condition is another."""
    if "inplace" in args:
        return True
    texts = (_AWK_TEXT.sub(lambda text: f'"{text[1] or ""}"', arg) for arg in args if ">" in arg)
    return any(map(_AWK_PRINT.search, texts))


_CURL_NAMED = re.compile(r"-[0-9afgGijIklLMnNpqRsSvZ#]*O|--remote-name")
_CURL_OUTPUT = re.compile(r"(?:-[0-9afgGijIklLMnNpqRsSvZ#]*o|--output(?:=|\Z))(.*)\Z", re.S)
_WGET_OUTPUT = re.compile(r"(?:-[a-zA-Z]*O|--output-document(?:=|\Z))(.*)\Z", re.S)


def _curl(args: Sequence[str]) -> bool:
    return any(map(_CURL_NAMED.match, args)) or _file(_target(args, _CURL_OUTPUT) or "-")


def _wget(args: Sequence[str]) -> bool:
    target = _target(args, _WGET_OUTPUT)
    return _named(args) and "--spider" not in args and (target is None or _file(target))


def _target(args: Sequence[str], option: re.Pattern[str]) -> str | None:
    """The value of an option, joined to it or following it; None without it."""
    for at, arg in enumerate(args):
        found = option.match(arg)
        if found is not None:
            return found[1] or "".join(args[at + 1 : at + 2])
    return None


def _file(target: str) -> bool:
    return target != "-" and _durable(target)


def _ffmpeg(args: Sequence[str]) -> bool:
    """The last word is what is written; with nothing but an input it tells of that."""
    if not args or args[-1].startswith("-") or "null" in args[-3:]:
        return False
    return args[-2:-1] not in (["-i"], ("-i",)) and _durable(args[-1])


_QUITTING = re.compile(r"(?:\+|.*\|\s?)?(?:wq?a?|x|up(?:date)?)!?\Z", re.S)
_SETTERS = frozenset(
    "set mset setex setnx append incr incrby decr decrby del unlink expire rename hset hmset hdel "
    "hincrby lpush rpush lpop rpop lset sadd srem zadd zrem xadd flushall flushdb".split()
)


def _redis(args: Sequence[str]) -> bool:
    named = operands(args, frozenset({"-h", "-p", "-n", "-a", "-u", "--user", "--pass"}))
    return bool(named) and named[0].lower() in _SETTERS


def _tee(args: Sequence[str]) -> bool:
    return any(_durable(arg) for arg in args if not arg.startswith("-"))


def _git_checkout(args: Sequence[str]) -> bool:
    """A path, or a new branch; changing to a branch that is there leaves nothing new."""
    if any(_has(args, flag) for flag in ("-b", "-B", "--orphan", "--", "--theirs", "--ours")):
        return True
    named = _operands(args)
    return len(named) > 1 or any(map(_PATH.search, named))


# A file's suffix, and not the last number of a version.
_PATH = re.compile(r"\.[a-zA-Z]\w{0,4}\Z|\A\.|/\Z")


def _git_stash(args: Sequence[str]) -> bool:
    return not args or args[0] not in ("list", "show")


def _git_branch(args: Sequence[str]) -> bool:
    reads = ("-l", "--list", "-a", "-r", "-v", "--show-current", "--contains", "--merged", "--sort")
    return _operand(args) and not any(_has(args, flag) for flag in reads)


def _git_tag(args: Sequence[str]) -> bool:
    reads = ("-l", "--list", "-n", "-v", "--verify", "--contains", "--merged", "--sort")
    return _operand(args) and not any(_has(args, flag) for flag in (*reads, "--points-at"))


def _hub_api(args: Sequence[str]) -> bool:
    """A request that changes something, by its method or for having fields."""
    if "graphql" in args:
        return any("mutation" in arg for arg in args)
    method = re.search(r"(?:-X|--method)[ =]?(\w+)", " ".join(args))
    if method is not None:
        return method[1].upper() in ("POST", "PATCH", "PUT", "DELETE")
    return any(_has(args, flag) for flag in ("-f", "-F", "--field", "--raw-field", "--input"))


_SQL = re.compile(
    r"""(?ix) \b (?: insert \s+ (?:or \s+ \w+ \s+)? into | update \s+ \S+ \s+ set | delete \s+ from
      | (?:create|alter|drop|truncate) \s+ (?:\w+ \s+){0,2}?
        (?:table|index|view|database|schema|trigger)
      | replace \s+ into ) \b | \.(?:import|save|backup|restore)\b
      | \.(?:insert|update|replace|delete)(?:One|Many)\s?\( """
)
_SQL_TEXT = re.compile(r"'[^'\n]*'|--\s[^\n]*")


def sql_writes(text: str) -> bool:
    """Whether a query changes what is stored: SQL, or a document store's own."""
    read = text[:MAX_TEXT]
    return _SQL.search(read) is not None and _SQL.search(_SQL_TEXT.sub("''", read)) is not None


_DRY = ("--dry-run", "--dryrun", "--help", "--version", "-WhatIf")
_ANYHOW = _Writes(unless=_DRY)
_CHECKS = ("--check", "-check", "--diff", "--check-only", *_DRY)

_Rule = Callable[[Sequence[str]], bool]


def _first(*verbs: str) -> _Rule:
    """A program that writes where its first operand is one of these verbs."""
    return lambda args: _ANYHOW(args) and any(arg in verbs for arg in _operands(args)[:1])


def _named(args: Sequence[str]) -> bool:
    """A program that writes what its arguments name, and nothing without any."""
    return bool(args) and _ANYHOW(args)


_FILES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        "mv cp rm mkdir rmdir touch ln unlink truncate install scp shred split csplit unrar zip "
        "ed ex sponge wkhtmltopdf cookiecutter new-item set-content add-content clear-content "
        "out-file tee-object export-csv export-clixml remove-item copy-item move-item rename-item "
        "expand-archive compress-archive del copy move ren xcopy md rd".split(),
        _named,
    ),
    **dict.fromkeys("patch apply_patch applypatch".split(), _ANYHOW),
    **dict.fromkeys(("rsync", "rename"), _Writes(unless=("-n", *_DRY))),
    **dict.fromkeys("gzip bzip2 xz zstd gunzip bunzip2 unxz unzstd".split(), _packs),
    **dict.fromkeys(("invoke-webrequest", "iwr"), _Writes(when=("-OutFile", "-outfile"))),
    # what makes a file of another
    **dict.fromkeys("convert qpdf weasyprint sox".split(), _into),
    "magick": lambda args: "identify" not in args and _into(args),
    **dict.fromkeys("mogrify pdflatex xelatex lualatex".split(), _operand),
    **dict.fromkeys(("soffice", "libreoffice"), _Writes(when=("--convert-to",))),
    **dict.fromkeys("mmdc rsvg-convert gpg".split(), _Writes(when=("-o", "--output"))),
    "inkscape": _Writes(when=("-o", "--export-filename")),
    **dict.fromkeys(("vi", "vim", "nvim"), lambda args: any(map(_QUITTING.match, args))),
    "dot": lambda args: any(arg.startswith(("-o", "-O")) for arg in args),
    "jupyter nbconvert": _Writes(unless=("--stdout", *_DRY)),
    "openssl": _Writes(when=("-out", "-keyout")),
    "ssh-keygen": _Writes(when=("-f",), unless=("-l", "-y", "-F", *_DRY)),
    "pg_dump": _Writes(when=("-f", "--file")),
    "mysqldump": _Writes(when=("-r", "--result-file")),
    # what begins a project, or adds to one
    **dict.fromkeys(
        (
            *"npm create,yarn create,pnpm create,bun create,flutter create,vue create".split(","),
            *"cargo new,cargo init,poetry new,poetry init,hatch new,pdm init,uv init".split(","),
            *"npm init,yarn init,pnpm init,bun init,deno init,rails new,rails generate".split(","),
            *"rails g,dotnet new,ng new,ng generate,ng g,nest new,nest generate,nest g".split(","),
            *"mix new,composer create-project,laravel new,symfony new,hugo new".split(","),
            "manage.py startapp",
        ),
        _ANYHOW,
    ),
    "tsc": _Writes(when=("--init",)),
    # what copies out of, or into, another place
    **dict.fromkeys(("docker cp", "podman cp", "kubectl cp"), _named),
    "aws s3": lambda args: _first("cp", "mv", "rm", "sync", "mb", "rb")(args) and "-" not in args,
    **dict.fromkeys(("gsutil", "s3cmd", "rclone"), _first("cp", "mv", "rm", "put", "copy", "sync")),
    "terraform plan": _Writes(when=("-out",)),
    **dict.fromkeys(("hg", "svn"), _first("commit", "ci", "add", "mv", "rm")),
    "redis-cli": _redis,
    "unzip": _Writes(unless=("-l", "-p", "-t", "-Z", "-v", *_DRY)),
    "7z": _Writes(when=("x", "e", "a", "d", "u")),
    "tar": _tar,
    "bsdtar": _tar,
    "dd": lambda args: any(arg[:3] == "of=" and _durable(arg[3:]) for arg in args),
    "tee": _tee,
    "sed": _Writes(when=("-i", "--in-place")),
    "gsed": _Writes(when=("-i", "--in-place")),
    **dict.fromkeys(
        ("perl", "ruby"),
        lambda args: any(re.match(r"-[acnlpswtTuUW\d]*i", arg) for arg in args),
    ),
    "yq": _Writes(when=("-i", "--inplace")),
    "awk": _awk,
    "gawk": _awk,
    "sort": _Writes(when=("-o", "--output")),
    "find": _Writes(when=("-delete",)),
    "curl": _curl,
    "wget": _wget,
    "pandoc": _Writes(when=("-o", "--output")),
    "ffmpeg": _ffmpeg,
    "dos2unix": _operand,
    "go mod": _first("tidy", "init", "edit", "vendor"),
    "npm version": _named,
    "npm pkg": _first("set", "delete"),
    "django-admin": _first("startproject", "startapp"),
    "alembic": _first("revision", "init"),
}

_GIT: Mapping[str, _Rule] = {
    **dict.fromkeys(
        "commit am mv rm merge rebase cherry-pick revert reset restore init clone pull add".split(),
        _Writes(unless=_DRY),
    ),
    "apply": _Writes(unless=("--check", "--stat", "--numstat", "--summary", *_DRY)),
    "clean": _Writes(unless=("-n", *_DRY)),
    "checkout": _git_checkout,
    "switch": _Writes(when=("-c", "-C", "--create", "--orphan")),
    "stash": _git_stash,
    "branch": _git_branch,
    "tag": _git_tag,
    "notes": _first("add", "append", "edit", "copy", "remove"),
    "worktree": _first("add", "remove", "move"),
    "submodule": _first("add", "update"),
    "bundle": _first("create"),
    "archive": _Writes(when=("-o", "--output")),
    **dict.fromkeys(("diff", "log", "show"), _Writes(when=("--output",))),
    "format-patch": _Writes(unless=("--stdout", *_DRY)),
}

_HUB: Mapping[str, _Rule] = {
    "pr": _first("create", "merge", "comment", "close", "edit", "review", "reopen"),
    "issue": _first("create", "comment", "close", "edit", "reopen", "delete"),
    "release": _first("create", "edit", "delete", "upload", "download"),
    "repo": _first("create", "fork", "clone", "delete", "edit"),
    "run": _first("download"),
    "label": _first("create", "edit", "delete"),
    "api": _hub_api,
    "gist": _first("create", "edit", "delete"),
}

_FORMATTERS: Mapping[str, _Rule] = {
    "black": _Writes(unless=_CHECKS),
    "isort": _Writes(unless=("-c", *_CHECKS)),
    "ruff": lambda args: (
        _has(args, "--fix") or _has(args, "--fix-only") or args[:1] == ["format"] and _format(args)
    ),
    "autopep8": _Writes(when=("-i", "--in-place")),
    "autoflake": _Writes(when=("-i", "--in-place")),
    "docformatter": _Writes(when=("-i", "--in-place")),
    "yapf": _Writes(when=("-i", "--in-place")),
    "pyupgrade": _operand,
    "prettier": _Writes(when=("-w", "--write")),
    "eslint": _Writes(when=("--fix",)),
    "stylelint": _Writes(when=("--fix",)),
    "standard": _Writes(when=("--fix",)),
    "biome": _Writes(when=("--write", "--fix", "--apply", "--apply-unsafe")),
    "gofmt": _Writes(when=("-w",)),
    "goimports": _Writes(when=("-w",)),
    "go fmt": _ANYHOW,
    "rustfmt": _Writes(unless=_CHECKS),
    "cargo fmt": _Writes(unless=_CHECKS),
    "cargo fix": _ANYHOW,
    "cargo clippy": _Writes(when=("--fix",)),
    "clang-format": _Writes(when=("-i",)),
    "shfmt": _Writes(when=("-w",)),
    "terraform fmt": _Writes(unless=_CHECKS),
    "deno fmt": _Writes(unless=_CHECKS),
    "dprint fmt": _Writes(unless=_CHECKS),
    "rubocop": _Writes(when=("-a", "-A", "--autocorrect", "--autocorrect-all")),
    "sqlfluff fix": _Writes(unless=("-", *_DRY)),
    "sqlfluff format": _Writes(unless=("-", *_DRY)),
    "manage.py makemigrations": _Writes(unless=_CHECKS),
}


def _format(args: Sequence[str]) -> bool:
    return not any(_has(args, flag) for flag in _CHECKS)


CLIENTS = frozenset(
    "sqlite3 psql mysql mariadb duckdb sqlcmd clickhouse-client cqlsh mongosh mongo".split()
)
"""Programs that are handed queries."""
_INTERPRETERS = re.compile(
    r"(?:python|pypy)[\d.]*\Z|(?:py|ipython|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php)\Z"
)
_INLINE = re.compile(r"-[a-zA-Z0-9]*[ceE]\Z|--eval\Z|-[pr]\Z|eval\Z")
_SUFFIX = re.compile(r"\.(?:py|sh|js|mjs|ts|rb|pl|ps1)\Z")
_OPTION_WITH_VALUE = frozenset(["-W", "-X", "-I", "-r", "--require", "--import", "--loader"])


def leaves(simple: Simple) -> str:
    """The rule by which a command leaves something behind; empty where it leaves nothing.

    `redirect`, `file:<program>`, `git:<verb>`, `hub:<noun>`, `format:<program>`, `sql` or `code`.
    """
    if any(_durable(target) for target in simple.targets):
        return "redirect"
    words = simple.words
    if not words or any(word in ("--help", "--version") for word in words[1:3]):
        return ""
    if simple.program in ("git", "gh", "hub"):
        return _forge(words)
    return _by_table(words) or _by_text(simple)


def _durable(target: str) -> bool:
    return not re.match(r"/dev/(?:null|std\w+|tty|fd/.*)\Z|nul\Z|\$null\Z|\Z", target, re.I)


def _forge(words: Sequence[str]) -> str:
    git = words[0] == "git"
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-C", "-c", "-R", "--repo", "--git-dir", "--work-tree") else 1
    verb = words[at] if at < len(words) else ""
    rule = (_GIT if git else _HUB).get(verb)
    if rule is None or not rule(words[at + 1 :]):
        return ""
    return f"git:{verb}" if git else f"hub:{verb}"


def _by_table(words: Sequence[str]) -> str:
    if len(words) > 1 and words[1].endswith("manage.py") and _INTERPRETERS.match(words[0]):
        words = ("manage.py", *words[2:])
    name = words[0].lower() if words[0] not in _FILES else words[0]
    for key, args in ((f"{name} {''.join(words[1:2])}", words[2:]), (name, words[1:])):
        if key in _FILES:
            return f"file:{key}" if _FILES[key](args) else ""
        if key in _FORMATTERS:
            return f"format:{key}" if _FORMATTERS[key](list(args)) else ""
    return "file:create" if name.startswith("create-") and _named(words[1:]) else ""


def _by_text(simple: Simple) -> str:
    if simple.program in CLIENTS:
        return "sql" if sql_writes(" ".join((*simple.words[1:], simple.stdin))) else ""
    code = inline(simple)
    if code:
        return "code" if code_writes(code) or _spawns(code) else ""
    return "code" if _DOTNET.search(simple.program) else ""


# What PowerShell calls by its type: `[System.IO.File]::WriteAllText(…)`.
_DOTNET = re.compile(
    r"\]::(?:Write|Append)All\w*\Z|(?:File|Directory)\]::(?:Copy|Move|Delete|Create)"
)


def inline(simple: Simple) -> str:
    """The program text that an interpreter is handed by `-c`, `-e` or on its standard input."""
    if not _INTERPRETERS.match(simple.program):
        return ""
    words = simple.words
    for i, word in enumerate(words[1:-1], 1):
        if _INLINE.match(word):
            return words[i + 1]
    return simple.stdin if not script(simple) else ""


def script(simple: Simple) -> str:
    """The file that is run (`python fix.py`, `./fix.sh`), as it was named; empty where none is."""
    if _SUFFIX.search(simple.program):
        return simple.program
    if not _INTERPRETERS.match(simple.program) and simple.program not in SHELLS:
        return ""
    words = [word for word in simple.words[1:] if word != "run"]
    named = operands(words, _OPTION_WITH_VALUE)
    options = words[: len(words) - len(named)]
    if any(_INLINE.match(word) or word == "-" for word in options):
        return ""
    return named[0] if named else ""


# --- program text -------------------------------------------------------------------------------

# A call is looked through up to the next call of its kind, so that a text is gone over once.
_CODE = re.compile(
    r"""(?x)
    # Python
      \bopen \( (?: (?!\bopen\() [^\n] ){0,300}? , \s{0,80}+ (?:mode \s{0,8} = \s{0,8})?
        [rbu]?['"] [rbtU]* [wax+]
    | \. write_ [a-z]+ \(
    | \. to_(?:csv|parquet|excel|json|pickle|feather|hdf|html|sql|stata|markdown|file)
        \( \s* (?: [fru]{0,2}['"] | \w*(?:path|file|out|dest)\w* | os\. | Path\b)
    | \. save(?:fig|_pretrained|txt|z|z_compressed)?
        \( \s* (?: [fru]{0,2}['"] | \w*(?:path|file|out|dest)\w* )
    | \b(?:json|pickle|joblib|dill|toml|tomli_w) \. dump \(
    | \b os \. (?:rename|replace|remove|unlink|rmdir|removedirs|mkdir|makedirs|symlink|link
        |truncate) \(
    | \b shutil \. (?:copy\w*|move|rmtree|make_archive|unpack_archive) \(
    | \. (?:unlink|rmdir|mkdir|touch|symlink_to|extractall|imwrite|imsave) \(
    | \b Path \( [^()\n]{0,200} \) \. (?:rename|replace) \(
    | \b (?:ZipFile|TarFile|h5py\.File) \( [^()\n]{0,200} , \s{0,80}+ (?:mode\s?=\s?)? ['"][wxa]
    | \b ExcelWriter \(
    | \b (?:urlretrieve|np\.save\w*|torch\.save) \(
    | \b fileinput\. (?: (?!fileinput\.) [^\n] ){0,200} inplace
    # JavaScript
    | \b (?:writeFile|appendFile|writeFileSync|appendFileSync|createWriteStream|renameSync
        |unlinkSync|rmSync|rmdirSync|mkdirSync|copyFileSync|cpSync|writeTextFile|writeTextFileSync
        |outputFile) \(
    | \b (?:fs|fsp|promises|Deno) \. (?:rename|unlink|rm|rmdir|mkdir|copyFile|cp|symlink|truncate
        |remove) \(
    | \b Bun \. write \(
    # Ruby, Perl, PHP
    | \b File \. (?: write | delete | rename
        | open \( (?: (?!File\.open) [^\n] ){0,200} , \s{0,80}+ ['"][wa] )
    | \b FileUtils \. \w | \b IO \. write \b
    | \b open [\s(]{1,8} (?:my\s{1,8})? [$\w]{1,80} \s{0,8} , \s{0,8} ['"] \s{0,8} \+? >
    | \b file_put_contents \( | \b fopen \( (?: (?!\bfopen\() [^\n] ){0,200} , \s{0,80}+ ['"][wax]
    """
)
_FLEETING = re.compile(
    r"\bTemporaryDirectory\(|\bNamedTemporaryFile\((?![^\n]{0,200}delete\s{0,8}=\s{0,8}False)"
)


# A notebook's cell that is written to a file, or handed to a shell as a whole or by the line.
_CELL = re.compile(r"\s{0,20}%%(?:writefile|file)\b")
_SHELL_CELL = re.compile(r"\s{0,20}%%(?:bash|sh|script bash)\b[^\n]{0,100}\n")
_BANG = re.compile(r"^[ \t]{0,40}!(?!=)([^\n]{1,2000})", re.M)
_SPAWNING = re.compile(r"\b(?:os\.(?:system|popen)|subprocess\.\w{1,20}|exec(?:File)?Sync)\(")
FIRST_TEXT = re.compile(
    r"""\s{0,40}(?:\w{1,20}\s?=\s?)?[rf]?(?:\"{3}|'{3}|"|')([^\n]{0,2000}?)(?:\"{3}|'{3}|"|')"""
)
"""The text that a call is handed first, from behind its parenthesis."""
_LIST = re.compile(r"\s{0,40}\[([^\]\n]{0,1000})\]")
_LISTED = re.compile(r"""'([^'\n]{0,500})'|"([^"\n]{0,500})\"""")
MAX_SPAWNED = 100
"""Commands that are read of one program text."""


def spawned(code: str) -> Iterator[str]:
    """The commands that a program text has a shell, or the system, run."""
    return islice(_spawned(code), MAX_SPAWNED)


def _spawned(code: str) -> Iterator[str]:
    cell = _SHELL_CELL.match(code)
    if cell is not None:
        yield code[cell.end() :]
    if "!" in code:
        yield from (line[1] for line in _BANG.finditer(code))
    for spawn in _SPAWNING.finditer(code):
        listed = _LIST.match(code, spawn.end())
        text = FIRST_TEXT.match(code, spawn.end())
        if listed is not None:
            words = (word[0] or word[1] for word in _LISTED.findall(listed[1]))
            yield " ".join(map(quoted, words))
        elif text is not None:
            yield text[1]


def _spawns(code: str) -> bool:
    """Whether a program text that a command runs has another one write."""
    room = Room(text=2000, pieces=60)
    spawns = (_SPAWNING.search(code) and spawned(code)) or ()
    return any(any(map(leaves, commands(room.take(one), room))) for one in spawns)


_EXECUTED = re.compile(
    r"""\.execute\w{0,10}\(\s{0,40}(?i:[fru]{0,2}["']{1,3}\s{0,80}(?:insert|update|delete|create|drop|alter"""
    r"""|replace)\s)"""
)
_KEPT = re.compile(r"\.commit\(|\bautocommit\b|\.begin\(")


def code_writes(code: str) -> bool:
    """Whether a program text of some scripting language writes what stays when it ends: files, or
    rows that it commits.
    """
    read = code[:MAX_TEXT]
    if _CELL.match(read):
        return True
    if _CODE.search(read) is not None:
        return _FLEETING.search(read) is None
    if ".execute" not in read or ":memory:" in read:
        return False
    return _EXECUTED.search(read) is not None and _KEPT.search(read) is not None


# --- what a command does otherwise --------------------------------------------------------------

_PLAIN = frozenset(
    "cat bat head tail less more nl tac grep egrep fgrep zgrep rg ag ack sed gsed awk gawk "
    "find fd ls dir tree wc sort uniq cut tr diff cmp comm column paste join file stat du "
    "df which whereis type pwd date printenv id whoami uname hostname ps top free lsof "
    "echo printf test [ [[ true false : cd pushd popd export set unset shopt ulimit umask "
    "source . alias jq yq xmllint od xxd hexdump strings md5sum sha1sum sha256sum cksum "
    "basename dirname realpath readlink seq sleep wait history man read local declare "
    "return exit break continue shift trap jobs kill pkill killall for case select "
    "function done fi esac } in tee git gh hub curl wget open code xdg-open clear mv cp rm "
    "mkdir rmdir touch ln chmod chown unlink truncate mktemp rename split tar zip unzip "
    "gzip gunzip xz dd patch rsync scp apply_patch "
    "zcat bzcat xzcat zless rev fold fmt expand shuf tsort eza exa batcat fdfind zipinfo size nm "
    "objdump readelf pdfinfo pdftotext exiftool ffprobe identify json.tool tokei cloc scc "
    "dmesg last w who groups uptime nproc lscpu lsblk mount ip ifconfig ss netstat dig nslookup "
    "host getent tput tty stty locale getconf vmstat bc expr findstr where tasklist systeminfo "
    "get-content get-childitem get-item get-process get-command get-date select-string "
    "select-object where-object sort-object measure-object format-table format-list foreach-object "
    "out-string out-null out-host test-path resolve-path write-output write-host "
    "set-location".split()
)
_LISTING: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("pip", "pip3"), frozenset({"list", "show", "freeze", "index"})),
    "uv": frozenset({"list", "show", "freeze", "tree"}),
    "poetry": frozenset({"show", "env"}),
    "conda": frozenset({"list", "env", "info"}),
    "npm": frozenset({"ls", "list", "view", "config", "root", "prefix", "info", "search"}),
    **dict.fromkeys(("yarn", "pnpm"), frozenset({"list", "ls", "why", "info", "config"})),
    "cargo": frozenset({"tree", "metadata", "search"}),
    "go": frozenset({"env", "list", "version", "doc"}),
    **dict.fromkeys(("docker", "podman"), frozenset({"ps", "logs", "images", "inspect"})),
    "docker-compose": frozenset({"ps", "logs", "config"}),
    **dict.fromkeys(("kubectl", "oc"), frozenset({"get", "describe", "logs", "top", "explain"})),
    "helm": frozenset({"list", "status", "get", "template", "show"}),
    "terraform": frozenset({"show", "output", "state"}),
    **dict.fromkeys("heroku fly flyctl vercel railway pm2".split(), frozenset({"logs"})),
    "adb": frozenset({"logcat", "devices"}),
    "aws": frozenset({"logs"}),
    "gcloud": frozenset({"logging", "logs"}),
    **dict.fromkeys(("apt", "apt-cache", "brew"), frozenset({"list", "show", "search", "info"})),
    "journalctl": frozenset(),
    "systemctl": frozenset({"status", "list-units", "cat", "show", "is-active"}),
}


def plain(simple: Simple) -> bool:
    """Whether a command only moves files or shows text that is there.

    Error words in what it prints are not its own. Programs, tests and builds are not plain.
    """
    listing = _LISTING.get(simple.program)
    if listing is not None:
        return not listing or any(word in listing for word in simple.words[1:3])
    if simple.program == "git":
        return not any(word in ("commit", "push") for word in simple.words[1:4])
    if simple.program in _PLAIN or not simple.words or simple.program.lower() in _PLAIN:
        return True
    return bool(handed(simple))


# Commands that hardly ever fail where they are put before `&&`.
_SAFE = frozenset(
    "cd pushd popd export set unset source . echo printf true : mkdir touch sleep".split()
)


def harmless(simple: Simple) -> bool:
    """Whether a failure is not to be looked for in this command."""
    return simple.program in _SAFE or (simple.program == "cat" and bool(simple.stdin))
