"""What a tool call does, by its name and arguments: edits, runs a command or code, reads.

Names come in every spelling and under every namespace; tools that no table knows are told by a verb
of writing and a place or a record that it writes to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from proxy.core.calls import Call
from proxy.core.effects import sql_writes
from proxy.core.shell import Room, quoted

WRITING_TOOLS = frozenset(
    # editors of coding agents
    "write write_file write_to_file write_new_file create_file create_new_file create_text_file "
    "new_file save_file file_write overwrite_file append append_file append_to_file edit edit_file "
    "multi_edit file_edit file_editor editor text_editor str_replace str_replace_editor "
    "str_replace_file str_replace_based_edit_tool str_replace_edit_tool replace replace_in_file "
    "search_replace search_and_replace find_and_replace single_find_and_replace replace_lines "
    "replace_content replace_file_content replace_string_in_file multi_replace_string_in_file "
    "replace_text_in_file edit_existing_file insert insert_line insert_lines insert_content "
    "insert_edit_into_file delete_lines apply_diff apply_patch patch patch_file apply_edit "
    "apply_edits edit_block line_edit write_files edit_files reapply fs_write fs_append "
    "file_writer file_writer_tool write_file_tool "
    # notebooks, files and folders
    "notebook_edit edit_notebook edit_notebook_file notebook_edit_cell create_new_jupyter_notebook "
    "delete_file remove_file move_file rename_file copy_file create_directory make_directory mkdir "
    "delete_directory file_delete file_move download_file "
    # code by symbol
    "replace_symbol_body insert_after_symbol insert_before_symbol replace_regex rename_symbol "
    # version control, records
    "git_commit git_add git_init git_clone git_merge git_pull create_or_update_file push_files "
    "create_branch "
    "create_pull_request create_issue add_issue_comment merge_pull_request write_query "
    "create_entities create_relations add_observations delete_entities delete_relations "
    "delete_observations save_memory write_memory memory memory_write update_memory "
    "delete_memory append_insight apply_migration".split()
)
NEVER_WRITING_TOOLS = frozenset(
    "todo_write todowrite write_todos todo todo_read update_plan plan set_todo_list "
    "manage_todo_list update_todo_list add_tasks update_tasks create_plan task_create "
    "task_update task think sequential_thinking finish submit final_answer attempt_completion "
    "complete report write_stdin send_input interact_with_process ask_user "
    "exit_plan_mode".split()
)
SHELL_TOOLS = frozenset(
    "bash shell sh terminal zsh cmd command exec console powershell ssh run system "
    "run_command run_commands execute_command execute_bash execute_shell "
    "execute_shell_command run_shell run_shell_command run_bash run_bash_command "
    "run_in_terminal run_terminal_cmd run_terminal_command exec_command "
    "execute_in_terminal shell_exec shell_command local_shell bash_command start_process "
    "terminal_command execute_terminal_command".split()
)
CODE_TOOLS = frozenset(
    "python python_interpreter execute_python run_python python_exec ipython jupyter "
    "run_code execute_code execute_ipython_cell code_interpreter code_execution execute "
    "python_repl python_repl_ast python_repl_tool run_python_code execute_python_code run_cell "
    "run_javascript execute_javascript node repl code".split()
)
READING_TOOLS = frozenset(
    "read read_file read_files read_many_files read_multiple_files read_text_file read_resource "
    "file_read fs_read view view_file view_file_outline open open_file cat "
    "get_file get_file_contents grep glob search ls list list_files list_dir "
    "list_directory find find_files search_files grep_search codebase_search web_search "
    "web_fetch fetch search_file_content".split()
)


def bare(name: str) -> str:
    """A tool's name without its namespace, in lower case and without separators.

    `mcp__fs__write_file`, `functions.WriteFile` and `write-file` are all `writefile`.
    """
    return re.sub(r"[\W_]", "", _own_name(name).lower())


def _own_name(name: str) -> str:
    return re.split(r"__|[./:]", name.rstrip("_./:"))[-1]


@dataclass(frozen=True, slots=True)
class Rules:
    """The tables that a key can have of its own; names are compared as `bare` gives them.

    `never_writing_tools` goes before `writing_tools`. `writing_patterns` are searched in the
    command text of shell calls: a hit is a write. `error_patterns` are searched in both ends of
    every result (`failure.WINDOW`): a hit is an error.
    """

    writing_tools: frozenset[str] = WRITING_TOOLS
    never_writing_tools: frozenset[str] = NEVER_WRITING_TOOLS
    shell_tools: frozenset[str] = SHELL_TOOLS
    code_tools: frozenset[str] = CODE_TOOLS
    reading_tools: frozenset[str] = READING_TOOLS
    writing_patterns: tuple[re.Pattern[str], ...] = ()
    error_patterns: tuple[re.Pattern[str], ...] = ()

    def __post_init__(self) -> None:
        for field in _TOOL_FIELDS:
            object.__setattr__(self, field, frozenset(map(bare, getattr(self, field))))


_TOOL_FIELDS = (
    "writing_tools",
    "never_writing_tools",
    "shell_tools",
    "code_tools",
    "reading_tools",
)
DEFAULT = Rules()

# --- tools that write ---------------------------------------------------------------------------

_LOOKING = frozenset("view read open list search find get show cat preview".split())
_ASKING = _LOOKING | frozenset(
    "check is has can should fetch query describe count watch wait validate verify test plan "
    "simulate estimate compare explain".split()
)
_SHOWING = frozenset("view read list search find cat grep glob lookup".split())
_ANSWERING = frozenset(
    "fetch webfetch websearch scrape browse research ask summarize translate agent task tavily "
    "brave serper exa perplexity".split()
)
_MODES = ("command", "operation", "action", "op")
_SQL = ("sql", "query", "statement")
_VERBS = frozenset(
    "write create edit update delete remove move rename copy append insert replace save patch "
    "modify add set put upload export generate convert format merge split apply fill download "
    "make overwrite post store remember draft restore reply schedule".split()
)
_RECORDS = frozenset(
    "file files directory folder memory memories record row rows issue comment branch commit "
    "entity entities relation relations observation observations cell cells note notes event "
    "events ticket card contact page pages block blocks review repository memo email emails "
    "milestone label labels".split()
)
_PLACES = frozenset(
    "path file filename filepath outputpath outputfilename outputfile output destination dest "
    "target targetfile notebookpath savepath outputdir directory dir folder targetpath "
    "destinationpath destinationfilename newpath absolutepath relativeworkspacepath".split()
)
_TRIALS = frozenset("dryrun preview previewonly validateonly checkonly whatif".split())
_TOKENS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def writes(call: Call, rules: Rules, room: Room) -> str:
    """The rule by which a tool other than a shell writes; empty where it does not.

    `tool:<name in the table>`, `tool:suffix`, `tool:sql` or `tool:verb`.
    """
    name = bare(call.name)
    modes = [text(call.arguments, key)[:MAX_SAID] for key in _MODES]
    if name in rules.reading_tools or any(mode.lower() in _LOOKING for mode in modes):
        return ""
    if _tried(call.arguments):
        return ""
    if name in rules.writing_tools:
        return f"tool:{name}"
    if _suffixed(call.name, rules.writing_tools):
        return "tool:suffix"
    if _states(call, room):
        return "tool:sql"
    named = any(_acts(said, call.arguments) for said in (_own_name(call.name), *modes))
    return "tool:verb" if named else ""


def text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key)
    return value if isinstance(value, str) else ""


def _suffixed(name: str, names: frozenset[str]) -> bool:
    """`mcp_filesystem_write_file`: a namespace that is joined with the sign that joins words."""
    tokens = re.split(r"[_-]", name.lower())
    return tokens[0] == "mcp" and any("".join(tokens[-n:]) in names for n in (2, 3))


def _states(call: Call, room: Room) -> bool:
    """Whether a tool is handed a statement that changes what is stored, to carry it out."""
    given = [room.take(text(call.arguments, key)) for key in _SQL]
    if not any(_STATEMENT.match(one) and sql_writes(one) for one in given):
        return False
    return not _TALKING.intersection(_tokens(_own_name(call.name)))


# A question that is put in words does not begin like a statement.
_STATEMENT = re.compile(
    r"(?i)(?:[\s(;]++|--[^\n]*+|/\*[^*]*+\*/)*+(?:with|insert|update|delete|create|alter|drop"
    r"|truncate|replace|merge|begin|start|set|use|pragma|select|do|call|db\.)"
)
_TALKING = frozenset(
    "search find check checker validate validator explain lookup retrieve docs describe format "
    "parse lint suggest".split()
)


def _tried(arguments: Mapping[str, Any]) -> bool:
    """Whether a call is a trial that is to leave nothing."""
    on = (key for key, value in islice(arguments.items(), MAX_KEYS) if value is True)
    return any(bare(key) in _TRIALS for key in on if len(key) <= MAX_SAID)


def _tokens(said: str) -> list[str]:
    return [token.lower() for token in _TOKENS.findall(said[:MAX_SAID])]


def _acts(said: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a name has a verb of writing, and there is a place or a record to write to.

    The verb comes first, last, or between the name of a service and that of a record.
    """
    tokens = _tokens(said)
    if not tokens or tokens[0] in _ASKING:
        return False
    if _VERBS.intersection((tokens[0], tokens[-1])):
        return bool(_RECORDS.intersection(tokens)) or _placed(arguments)
    rest = tokens[2:]
    served = len(tokens) > 1 and tokens[1] in _VERBS and _RECORDS.intersection(rest)
    return bool(served) and not _ASKING.intersection(rest)


def shows(name: str) -> bool:
    """Whether a tool that no table knows shows what is there, by its first or last word."""
    tokens = _tokens(_own_name(name))
    return bool(tokens) and not _SHOWING.isdisjoint((tokens[0], tokens[-1]))


def answers(name: str) -> bool:
    """Whether a tool hands on what somebody says: the web, a person, another agent."""
    tokens = _tokens(_own_name(name))
    return not _ANSWERING.isdisjoint(tokens) or {"web", "search"}.issubset(tokens)


def places(call: Call) -> bool:
    """Whether a call names a place, and not to look there."""
    tokens = _tokens(_own_name(call.name))
    return bool(tokens) and tokens[0] not in _ASKING and _placed(call.arguments)


def _placed(arguments: Mapping[str, Any]) -> bool:
    """Whether an argument names a place to write to."""
    keys = (key for key in islice(arguments, MAX_KEYS) if len(key) <= MAX_SAID)
    return any(bare(key) in _PLACES for key in keys)


MAX_SAID = 100
"""Characters in which a verb or a place is looked for."""

MAX_KEYS = 200
"""Arguments whose names are looked at."""

# --- tools that run commands and code -----------------------------------------------------------

_COMMANDS = (
    "command",
    "cmd",
    "commands",
    "script",
    "bash_command",
    "shell_command",
    "command_line",
    "commandLine",
    "CommandLine",
    "code",
    "input",
    "keystrokes",
    "action",
)
_CODES = ("code", "source", "script", "input", "python_code", "query", "__arg1")
_SHELL_LANGUAGES = frozenset("shell bash sh zsh powershell cmd".split())
_RUNNING = re.compile(
    r"run|exec|test|check|lint|build|compile|process|output|stdin|send_?input", re.I
)
MAX_LISTED = 50
"""Entries that are read of a list of commands."""


def command(call: Call, rules: Rules) -> str:
    """The command text of a shell call; empty where the call is none.

    A tool that no table knows is a shell where it has a `command` and no place to edit.
    """
    name = bare(call.name)
    language = text(call.arguments, "language")[:MAX_SAID].lower()
    if name in rules.shell_tools or language in _SHELL_LANGUAGES:
        return next(filter(None, map(_listed, _values(call.arguments, _COMMANDS))), "")
    if name in rules.writing_tools or name in rules.reading_tools:
        return ""
    if _placed(call.arguments) or _acts(_own_name(call.name), call.arguments):
        return ""
    return next(filter(None, map(_listed, _values(call.arguments, ("command", "cmd")))), "")


def _values(arguments: Mapping[str, Any], keys: Sequence[str]) -> Iterator[Any]:
    return (arguments[key] for key in keys if key in arguments)


def _listed(value: Any) -> str:
    """A command, an argument vector or a list of commands, as one text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    entries = [_entry(entry) for entry in value[:MAX_LISTED]]
    if entries and not re.search(r"\s", entries[0]):
        return " ".join(quoted(entry) for entry in entries)
    return "\n".join(entries)


def _entry(entry: Any) -> str:
    return entry if isinstance(entry, str) else text(entry, "command") if _is_map(entry) else ""


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def code(call: Call, rules: Rules) -> str:
    """The program text of a call that runs one; empty where the call is none."""
    if bare(call.name) not in rules.code_tools:
        return ""
    return next(filter(None, (text(call.arguments, key) for key in _CODES)), "")


def runs(call: Call) -> bool:
    """Whether what a tool prints is likely to be the output of a program."""
    return not call.name or _RUNNING.search(call.name) is not None
