"""What a command or a program text leaves behind, by tables.

A program that no table knows leaves nothing, however it is called: a write that is missed keeps a
step's reasoning, one that is made up drops it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.core.shell import MAX_TEXT, SHELLS, Simple, handed, operands


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


def _operand(args: Sequence[str]) -> bool:
    return any(not arg.startswith("-") for arg in args)


def _tar(args: Sequence[str]) -> bool:
    mode = args[0] if args else ""
    if mode.startswith("--"):
        return any(arg in ("--extract", "--create", "--append", "--update") for arg in args)
    return bool(re.match(r"-?[a-zA-Z]*[xcru]", mode)) and "O" not in mode


def _awk(args: Sequence[str]) -> bool:
    return "inplace" in args or any(re.search(r">>?\s*\"[\w./]", arg) for arg in args)


def _tee(args: Sequence[str]) -> bool:
    return any(_durable(arg) for arg in args if not arg.startswith("-"))


def _git_checkout(args: Sequence[str]) -> bool:
    """A path, or a new branch; changing to a branch that is there leaves nothing new."""
    if any(_has(args, flag) for flag in ("-b", "-B", "--orphan", "--", "--theirs", "--ours")):
        return True
    operands = [arg for arg in args if not arg.startswith("-")]
    return len(operands) > 1 or any(re.search(r"\.\w{1,5}\Z|\A\.|/\Z", arg) for arg in operands)


def _git_stash(args: Sequence[str]) -> bool:
    return not args or args[0] not in ("list", "show")


def _git_listing(args: Sequence[str]) -> bool:
    """`git branch` and `git tag` with a name, not as a list."""
    reads = ("-l", "--list", "-a", "-r", "-v", "--show-current", "--contains", "--merged", "--sort")
    return _operand(args) and not any(_has(args, flag) for flag in reads)


_SQL = re.compile(
    r"""(?ix) \b (?: insert \s+ (?:or \s+ \w+ \s+)? into | update \s+ \S+ \s+ set | delete \s+ from
      | (?:create|alter|drop|truncate) \s+ (?:\w+ \s+){0,2}?
        (?:table|index|view|database|schema|trigger)
      | replace \s+ into ) \b | \.(?:import|save|backup|restore)\b"""
)


def sql_writes(text: str) -> bool:
    """Whether an SQL text changes what is stored."""
    return _SQL.search(text[:MAX_TEXT]) is not None


_DRY = ("--dry-run", "--help", "--version")
_ANYHOW = _Writes(unless=_DRY)
_CHECKS = ("--check", "--diff", "--check-only", *_DRY)

_Rule = Callable[[Sequence[str]], bool]


def _named(args: Sequence[str]) -> bool:
    """A program that writes what its arguments name, and nothing without any."""
    return bool(args) and _ANYHOW(args)


_FILES: Mapping[str, _Rule] = {
    **dict.fromkeys(
        "mv cp rm mkdir rmdir touch ln unlink truncate install rsync scp rename shred "
        "split csplit gunzip bunzip2 unxz unrar zip ed ex sponge wkhtmltopdf New-Item "
        "Set-Content Add-Content Out-File Remove-Item Copy-Item Move-Item Rename-Item del "
        "copy move ren xcopy md rd".split(),
        _named,
    ),
    **dict.fromkeys("patch apply_patch applypatch".split(), _ANYHOW),
    **dict.fromkeys("gzip bzip2 xz zstd".split(), _Writes(unless=("-c", "-l", "-t", *_DRY))),
    "unzip": _Writes(unless=("-l", "-p", "-t", "-Z", "-v", *_DRY)),
    "7z": _Writes(when=("x", "e", "a", "d", "u")),
    "tar": _tar,
    "bsdtar": _tar,
    "dd": lambda args: any(re.match(r"of=(?!/dev/null)", arg) for arg in args),
    "tee": _tee,
    "sed": _Writes(when=("-i", "--in-place")),
    "gsed": _Writes(when=("-i", "--in-place")),
    "perl": _Writes(when=("-i",)),
    "ruby": _Writes(when=("-i",)),
    "yq": _Writes(when=("-i", "--inplace")),
    "awk": _awk,
    "gawk": _awk,
    "sort": _Writes(when=("-o", "--output")),
    "find": _Writes(when=("-delete",)),
    "curl": _Writes(when=("-o", "-O", "--output", "--remote-name"), unless=("/dev/null", *_DRY)),
    "wget": _Writes(unless=("--spider", "/dev/null", "-", "-qO-", "-O-", *_DRY)),
    "pandoc": _Writes(when=("-o", "--output")),
    "ffmpeg": _operand,
    "dos2unix": _operand,
    "go mod": _Writes(when=("tidy", "init", "edit", "vendor")),
    "cargo new": _ANYHOW,
    "cargo init": _ANYHOW,
    "npm init": _ANYHOW,
    "npm version": _named,
    "npm pkg": _Writes(when=("set", "delete")),
    "django-admin": _Writes(when=("startproject", "startapp")),
    "alembic": _Writes(when=("revision", "init")),
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
    "branch": _git_listing,
    "tag": _git_listing,
    "notes": _Writes(when=("add", "append", "edit", "copy", "remove")),
    "worktree": _Writes(when=("add", "remove", "move")),
    "submodule": _Writes(when=("add", "update")),
    "archive": _Writes(when=("-o", "--output")),
    "format-patch": _Writes(unless=("--stdout", *_DRY)),
}

_HUB: Mapping[str, _Rule] = {
    "pr": _Writes(when=("create", "merge", "comment", "close", "edit", "review", "reopen")),
    "issue": _Writes(when=("create", "comment", "close", "edit", "reopen", "delete")),
    "release": _Writes(when=("create", "edit", "delete", "upload", "download")),
    "repo": _Writes(when=("create", "fork", "clone", "delete", "edit")),
    "api": _Writes(when=("POST", "PATCH", "PUT", "DELETE", "-f", "-F", "--field", "--raw-field")),
    "gist": _Writes(when=("create", "edit", "delete")),
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
}


def _format(args: Sequence[str]) -> bool:
    return not any(_has(args, flag) for flag in _CHECKS)


_CLIENTS = frozenset("sqlite3 psql mysql mariadb duckdb sqlcmd".split())
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
    pair = " ".join(words[:2])
    for key, args in ((pair, words[2:]), (words[0], words[1:])):
        if key in _FILES:
            return f"file:{key}" if _FILES[key](args) else ""
        if key in _FORMATTERS:
            return f"format:{key}" if _FORMATTERS[key](list(args)) else ""
    return ""


def _by_text(simple: Simple) -> str:
    if simple.program in _CLIENTS:
        return "sql" if sql_writes(" ".join((*simple.words[1:], simple.stdin))) else ""
    code = inline(simple)
    return "code" if code and code_writes(code) else ""


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


def code_writes(code: str) -> bool:
    """Whether a program text of some scripting language writes files that stay when it ends."""
    read = code[:MAX_TEXT]
    return _CODE.search(read) is not None and _FLEETING.search(read) is None


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
    "gzip gunzip xz dd patch rsync scp apply_patch Get-Content Get-ChildItem Select-String "
    "Write-Output Write-Host Set-Location".split()
)
_LISTING: Mapping[str, frozenset[str]] = {
    "pip": frozenset({"list", "show", "freeze", "index"}),
    "pip3": frozenset({"list", "show", "freeze", "index"}),
    "npm": frozenset({"ls", "list", "view", "config", "root", "prefix"}),
    "docker": frozenset({"ps", "logs", "images", "inspect"}),
    "kubectl": frozenset({"get", "describe", "logs"}),
    "journalctl": frozenset(),
    "systemctl": frozenset({"status", "list-units"}),
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
    return simple.program in _PLAIN or not simple.words or bool(handed(simple))


# Commands that hardly ever fail where they are put before `&&`.
_SAFE = frozenset(
    "cd pushd popd export set unset source . echo printf true : mkdir touch sleep".split()
)


def harmless(simple: Simple) -> bool:
    """Whether a failure is not to be looked for in this command."""
    return simple.program in _SAFE or (simple.program == "cat" and bool(simple.stdin))
