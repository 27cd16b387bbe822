"""The judgement of a step, rule by rule, in tables of our own text."""

from __future__ import annotations

import json
import re
import string
import sys
from collections.abc import Iterator
from dataclasses import replace
from re import _constants as sre_constants  # type: ignore[attr-defined]
from re import _parser as sre_parse  # type: ignore[attr-defined]
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.core import artifact, calls, effects, failure, printed, shell, tools
from proxy.core.artifact import DEFAULT, Judgement, Rules, judge
from proxy.core.calls import Call, Result, done, ends, from_repr, share, text_of, unescaped
from proxy.core.failure import Kind, outcome

NOTHING = (False, False)
WROTE = (True, False)
ERRED = (False, True)
BOTH = (True, True)


def called(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}


def assistant(*calls: dict[str, Any], content: Any = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(content: Any, call_id: str = "c1", **extra: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **extra}


def said(content: str, answer: str) -> tuple[bool, bool]:
    """The judgement of a message without calls that is answered by a user message."""
    found = judge({"role": "assistant", "content": content}, [{"role": "user", "content": answer}])
    return found.wrote, found.errored


def did(name: str, arguments: Any, answer: Any = "", rules: Rules = DEFAULT) -> tuple[bool, bool]:
    found = judge(assistant(called(name, arguments)), [result(answer)], rules)
    return found.wrote, found.errored


def ran(command: str, answer: str = "") -> tuple[bool, bool]:
    return did("bash", {"command": command}, answer)


# --- tools by name ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "write_file",
        "Write",
        "WriteFile",
        "str_replace",
        "StrReplaceFile",
        "MultiEdit",
        "apply_patch",
        "functions.write_file",
        "mcp__files__write_file",
        "mcp_files_write_file",
        "developer__text_editor",
        "files/edit-file",
        "NotebookEdit",
        "save_memory",
        "file_writer_tool",
        "fs_append",
    ],
)
def test_a_tool_that_writes_is_known_in_every_spelling(name):
    assert WROTE == did(name, {"path": "a.txt", "content": "x"}, "ok")


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("str_replace_editor", {"command": "view", "path": "/a"}, NOTHING),
        ("str_replace_editor", {"command": "create", "path": "/a"}, WROTE),
        ("my_editor", {"command": "insert", "path": "/a"}, WROTE),
        ("my_editor", {"command": "view", "path": "/a"}, NOTHING),
        ("memory", {"command": "view", "path": "/a"}, NOTHING),
        ("read_file", {"path": "/a"}, NOTHING),
        ("add_heading_to_document", {"filename": "a.docx", "text": "x"}, WROTE),
        ("createInvoicePdf", {"outputPath": "a.pdf"}, WROTE),
        ("create_presentation", {"title": "x"}, NOTHING),
        ("create_note", {"text": "x"}, WROTE),
        ("add_numbers", {"a": 1, "b": 2}, NOTHING),
        ("get_last_update", {"path": "a"}, NOTHING),
        ("get_weather", {"city": "Oslo"}, NOTHING),
        ("__", {}, NOTHING),
        ("db_call", {"sql": "INSERT INTO t VALUES (1)"}, WROTE),
        ("db_call", {"sql": "SELECT * FROM t"}, NOTHING),
        ("db_call", {"query": "-- x\n(insert into t values (1))"}, WROTE),
        ("db_call", {"query": "SELECT * FROM t WHERE a = 'drop table t'"}, NOTHING),
        ("db_call", {"query": "how do I insert into a table"}, NOTHING),
        ("db_checker", {"query": "INSERT INTO t VALUES (1)"}, NOTHING),
        ("brave_web_search", {"query": "create table or insert into"}, NOTHING),
        ("mongo_call", {"query": "db.a.insertOne({})"}, WROTE),
        ("edit_file", {"path": "a", "dryRun": True}, NOTHING),
        ("edit_file", {"path": "a", "dryRun": False}, WROTE),
        ("edit_file", {"path": "a", "x" * 200: True}, WROTE),
        ("git_checkout", {"repo_path": "a", "branch_name": "b"}, NOTHING),
        ("git_create_branch", {"branch_name": "b"}, WROTE),
        ("git_init", {"path": "a"}, WROTE),
        ("jira_create_issue", {"summary": "x"}, WROTE),
        ("API-post-page", {"parent": {}}, WROTE),
        ("API-post-search", {"query": "page"}, NOTHING),
        ("API-post-page-search", {"query": "x"}, NOTHING),
        ("notion-update-page", {"page_id": "x", "command": "update_content"}, WROTE),
        ("validate_create_issue", {"summary": "x"}, NOTHING),
        ("jira_add", {"summary": "x"}, NOTHING),
        ("browser_click", {"element": "create page"}, NOTHING),
        ("memory__remember_memory", {"data": "x"}, WROTE),
        ("overwrite_cell_source", {"cell_index": 1}, WROTE),
        ("draft_email", {"to": "x"}, WROTE),
        ("mcp_files_read_file", {"path": "a"}, NOTHING),
        ("TodoWrite", {"todos": []}, NOTHING),
        ("update_plan", {"file": "x"}, NOTHING),
        ("write_stdin", {"session": 1}, NOTHING),
    ],
)
def test_other_tools_are_told_by_mode_verb_and_place(name, arguments, expected):
    assert expected == did(name, arguments, "fine")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Successfully wrote 3 bytes to a.txt", WROTE),
        ("The file has been edited:\n  1 raise NotFound('not found')", WROTE),
        ("", WROTE),
        ("Error: a.txt is a directory", ERRED),
        ("old_string was not found in the file", ERRED),
        ("No changes were made: both texts are the same", ERRED),
        ("There was nothing that no changes to report", ERRED),
        ("Found 3 matches; the text is not unique", ERRED),
        ("The user rejected this edit", ERRED),
        ("Ran into [Errno 2] No such file or directory: '/x/a.txt'", ERRED),
        ("Exit code: 1\npatch does not apply", ERRED),
        ('{"success": false, "reason": "locked"}', ERRED),
        ('{"ok": true, "bytes": 3}', WROTE),
        ("File updated. No changes needed elsewhere", NOTHING),
        ("Could not find the text in /saved/updated.txt", ERRED),
        ("No replacement was made: `x = updated` did not appear", ERRED),
        ("Multiple occurrences of `created`", ERRED),
        ("old_str `was applied` is not in the file", ERRED),
        ("The file was not updated", ERRED),
        ("The file already exists", ERRED),
        ("The target must be absolute", ERRED),
        ("File has been modified since read, by a linter. Read it again", ERRED),
        ("Claude requested permissions to write to a.txt, but you have not granted it", ERRED),
        ("Your proposed edit has introduced new syntax error(s), if applied", ERRED),
        ("The LLM did not conform to the edit format.", ERRED),
        ("Found 3 matches of the string to replace, but replace_all is false", ERRED),
        ("The tool call returned the following error:\n-32603: it is not there", ERRED),
        ("<error_details>\nNo sufficiently similar match", ERRED),
        ("Operation aborted", ERRED),
        ("Skipped because of a new message", ERRED),
        ("No result provided", ERRED),
        ("1 of 2 blocks are in", WROTE),
    ],
)
def test_an_edit_counts_unless_its_result_speaks_against_it(answer, expected):
    assert expected == did("edit", {"path": "a.txt"}, answer)


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "expected"),
    [
        ("take_shot", {"filename": "a.png"}, "Took it and saved it as /tmp/a.png", WROTE),
        ("speak", {"output_path": "a.mp3"}, "Saved to a.mp3", WROTE),
        ("speak", {"text": "x"}, "Saved to a.mp3", NOTHING),
        ("speak", {"output_path": "a.mp3"}, "Error: not saved to a.mp3", ERRED),
        ("speak", {"output_path": "a.mp3"}, "It is said.\nSaved to a.mp3", NOTHING),
        ("get_shot", {"filename": "a.png"}, "It was saved to a.png", NOTHING),
        ("read_file", {"path": "a"}, "saved to a.png", NOTHING),
        ("edit", {"path": "a"}, "The apply model did not make any changes to it.", NOTHING),
    ],
)
def test_a_tool_may_say_first_of_all_that_it_saved_a_file(name, arguments, answer, expected):
    assert expected == did(name, arguments, answer)


def test_an_unanswered_write_is_none():
    assert Judgement(False, False, "") == judge(assistant(called("write", {"path": "a"})), [])


def test_parallel_calls_are_paired_by_id_and_one_failure_is_enough():
    message = assistant(called("read", {"path": "x"}, "a"), called("write", {"path": "y"}, "b"))
    answers = [result("wrote it", "b"), result("ENOENT: no such file, open 'x'", "a")]

    assert Judgement(True, True, "tool:write+error_text") == judge(message, answers)
    assert Judgement(False, True, "error_text") == judge(message, answers[1:])


def test_calls_without_ids_take_the_results_in_order():
    message = {
        "role": "assistant",
        "tool_calls": [
            {"name": "search", "arguments": {"query": "x"}},
            {"name": "write_file", "arguments": {"path": "x"}},
        ],
    }
    answers = [{"role": "tool", "content": "nothing"}, {"role": "tool", "content": "Error: full"}]

    assert Judgement(False, True, "error_text") == judge(message, answers)
    assert Judgement(False, False, "") == judge(message, answers[:1])


def test_the_wire_itself_may_say_that_a_call_failed():
    message = assistant(called("write", {"path": "y"}))

    assert "is_error" == judge(message, [result("x", is_error=True)]).why
    assert "is_error" == judge(message, [result("x", isError=True)]).why
    assert "is_error" == judge(message, [result("x", status="error")]).why
    assert "tool:write" == judge(message, [result("x", status="success")]).why


def test_custom_and_legacy_calls_and_content_parts_are_read():
    custom = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "*** Begin"}}
    legacy = {"role": "assistant", "function_call": {"name": "write_file", "arguments": "{}"}}
    text = {"type": "text", "text": "hm"}
    part = {"type": "tool_use", "id": "t", "name": "Write", "input": {"file_path": "a"}}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "k"}]}

    assert judge(assistant(custom), [result("Success. Updated the following files:\nM a")]).wrote
    assert not judge(assistant(custom), [result("verification failed: no such line")]).wrote
    assert judge(legacy, [{"role": "function", "name": "write_file", "content": "ok"}]).wrote
    assert judge(
        {"role": "assistant", "content": [text, part]}, [{"role": "user", "content": [answer]}]
    ).wrote


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("execute-tool", {"tool_name": "write_file", "params": {"path": "a"}}, WROTE),
        ("tool_call", {"name": "edit", "arguments": '{"path": "a"}'}, WROTE),
        ("tool_call", {"name": "edit", "arguments": "no json"}, NOTHING),
        ("batch", {"tool_calls": [{"tool": "read", "parameters": {}}, 3]}, NOTHING),
        ("batch", {"tool_calls": [{"tool": "write"}, {"parameters": {"path": "a"}}]}, NOTHING),
        ("batch", {"tool_calls": [{"tool": "write", "parameters": {"path": "a"}}]}, WROTE),
        (
            "multi_tool_use.parallel",
            {"tool_uses": [{"recipient_name": "functions.bash", "parameters": {"cmd": "rm a"}}]},
            WROTE,
        ),
        ("run_commands", {"commands": ["ls -la", "touch a"]}, WROTE),
        ("run_commands", {"commands": [{"command": "touch a"}, 7]}, WROTE),
        ("run_commands", {"commands": [7]}, NOTHING),
        ("shell", {"command": ["bash", "-lc", "echo it\\'s > a"]}, WROTE),
        ("shell", {"command": ["grep", ">", "it's"]}, NOTHING),
        ("shell", {"command": 7, "cmd": "rm a"}, WROTE),
        ("sandbox", {"command": "rm a"}, WROTE),
        ("sandbox", {"cmd": "rm a"}, WROTE),
        ("run_command", {"CommandLine": "rm a", "Cwd": "/x"}, WROTE),
        ("Python_REPL", {"query": "open('a', 'w')"}, WROTE),
        ("Python_REPL", {"__arg1": "open('a')"}, NOTHING),
        ("execute", {"language": "shell", "code": "rm a"}, WROTE),
        ("execute", {"language": "python", "code": "open('a', 'w')"}, WROTE),
    ],
)
def test_calls_inside_calls_and_lists_of_commands_are_unwrapped(name, arguments, expected):
    assert expected == did(name, arguments, "done")


def test_calls_are_unwrapped_to_a_depth():
    call: dict[str, Any] = {"name": "write", "arguments": {"path": "a"}}
    for _ in range(6):
        call = {"name": "call_tool", "arguments": call}

    assert NOTHING == did("call_tool", call, "ok")


# --- commands that write ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "echo hi > a.txt",
        "echo hi >> a.txt",
        "make &> build.log",
        "make >& build.log",
        "make 2> err.log",
        "cat > a.py <<'EOF'\nprint('x > y')\nEOF",
        "cat <<EOF | tee a.py\nx\nEOF",
        "cd src && cp a b",
        "mv a b; ls",
        "rm -rf build",
        "mkdir -p a/b",
        "touch a",
        "ln -s a b",
        "sed -i 's/a/b/' f",
        "sed -Ei.bak 's/a/b/' f",
        "sed --in-place=.bak 's/a/b/' f",
        "perl -pi -e 's/a/b/' f",
        "patch -p1 < fix.diff",
        "apply_patch <<'EOF'\n*** Begin Patch\nEOF",
        "tar -xzf a.tgz",
        "tar --extract -f a.tar",
        "tar czf a.tgz src",
        "dd if=a of=b",
        "awk '{ print > \"out.txt\" }' a",
        "awk '{ print $1 > $2 \".txt\" }' a",
        'awk \'{ printf("%s", $1) >> "a.log" }\' a',
        "gawk -i inplace '1' a",
        "sort -o a a",
        "find . -name '*.orig' -delete",
        "find . -name '*.orig' -exec rm {} \\;",
        "find . -name '*.py' | xargs sed -i 's/a/b/'",
        "curl -sSLo a.zip https://example.com/a.zip",
        "curl -sSOL https://example.com/a.zip",
        "curl --output=a.zip https://example.com/a.zip",
        "wget -qO a.zip https://example.com/a.zip",
        "curl -s https://example.com/a.tgz | tar xz",
        "tar -C out -xf a.tar",
        "tar --create --file=a.tar src",
        "gunzip a.gz",
        "rsync -av a/ b/",
        "ffmpeg -i a.mp4 b.gif",
        "convert a.png -resize 50% b.png",
        "pdflatex a.tex",
        "dot -Tpng a.dot -o a.png",
        "openssl req -x509 -keyout k.pem -out c.pem",
        "ssh-keygen -t ed25519 -f k -N ''",
        "npx create-vite@latest app",
        "npm create vite@latest app",
        "uv init",
        "rails generate model User",
        "python manage.py makemigrations",
        "python3 ./manage.py startapp blog",
        "docker cp box:/a a",
        "docker compose exec box sh -c 'echo x > a'",
        "aws s3 cp a s3://b/a",
        "terraform plan -out=a.plan",
        "redis-cli -h box set a 1",
        "mongosh --eval 'db.a.insertOne({b: 1})'",
        "find . -name '*.orig' | xargs rm",
        "npx prettier@3 --write .",
        "su - me -c 'touch a'",
        "cmd /c 'echo x > a'",
        "wsl bash -c 'rm a'",
        "flock a.lock rm a",
        "Get-Process | Export-Csv a.csv",
        "remove-item a",
        "Invoke-WebRequest https://example.com -OutFile a.zip",
        "[System.IO.File]::WriteAllText('a', 'x')",
        "vim -es -c '%s/a/b/g' -c wq a",
        "ex -sc '%s/a/b/|x' a",
        "inkscape a.svg --export-filename=a.png",
        "ruby -pi -e 'x' a",
        "svn commit -m x",
        "wget https://example.com/a.zip",
        "unzip a.zip",
        "git commit -am 'x'",
        "git -C repo commit -m x",
        "git --no-pager stash",
        "git stash pop",
        "git checkout -- a.py",
        "git checkout a.py",
        "git checkout HEAD a",
        "git checkout -b topic",
        "git apply fix.diff",
        "git tag v1",
        "git tag -a v1 -m x",
        "git diff --output=a.diff",
        "git worktree add ../b",
        "git branch topic",
        "gh pr create --title x",
        "gh api -X POST repos/a/b/issues",
        "gh api repos/a/b/issues -f title=x",
        "gh api graphql -f query='mutation { a }'",
        "gh run download 3",
        "npm version patch",
        "go mod tidy",
        "black src",
        "ruff check --fix .",
        "ruff format .",
        "npx prettier --write .",
        "cargo fmt",
        "sqlfluff fix a.sql --force",
        "sqlite3 a.db 'INSERT INTO t VALUES (1)'",
        "sqlite3 a.db <<EOF\nDELETE FROM t;\nEOF",
        "echo 'DROP TABLE t' | psql",
        "python3 - <<'EOF'\nopen('a', 'w').write('x')\nEOF",
        "python3 - a.py <<'EOF'\nopen('a', 'w').write('x')\nEOF",
        "python -c \"import pathlib; pathlib.Path('a').write_text('x')\"",
        "python -c \"import os; os.system('touch a')\"",
        'python -c \'import subprocess; subprocess.run(["touch", "a"])\'',
        'python -c \'Path("a").rename("b")\'',
        'python -c \'ZipFile("a.zip", "w")\'',
        "node -e \"require('child_process').execSync('touch a')\"",
        "echo \"open('a', 'w')\" | python3",
        "node -e \"require('fs').writeFileSync('a', 'x')\"",
        "ruby -e \"File.write('a', 'x')\"",
        "bash -lc 'rm a'",
        "bash <<'EOF'\nrm a\nEOF",
        "sudo -u me env A=1 timeout -s 9 5 mv a b",
        "docker exec -w /app box bash -c 'echo x > a'",
        "ssh box 'rm a'",
        'eval "rm a"',
        'pwsh -NoProfile -Command "Set-Content a x"',
        "python -m black src",
        "uv run --with x black src",
        "/usr/bin/rm a",
        "for f in *.py; do sed -i 's/a/b/' $f; done",
        "if true; then rm a; fi",
        "x=$(rm a)",
        'echo "`rm a`"',
        "echo `rm a`",
        "( cd x; rm a )",
        "cat a | sponge a",
        "tee -a log < a",
        "FOO=1 touch a",
        "mkdir a || true",
    ],
)
def test_commands_that_leave_something(command):
    assert WROTE == ran(command, "")


@pytest.mark.parametrize(
    "command",
    [
        "ls > /dev/null 2>&1",
        "ls 2>/dev/null",
        "ls 2>&1 | head",
        "ls >&2",
        "grep -n 'a -> b' f",
        'grep ">" f',
        "grep \\> f",
        "if [[ a > b ]]; then echo x; fi",
        "(( a > 3 )) && echo $((1 > 2))",
        'echo "$((1 > 2))"',
        "cat <<EOF\nrm a > b\nEOF",
        "cat <<-EOF\n\trm a > b\n\tEOF",
        "cat <<EOF\nrm a > b",
        "echo rm a",
        "# rm a",
        "echo $'a\\'b > c'",
        "cat <<< 'rm a > b'",
        'grep "a\\.b" f',
        'echo "a \\\n > b"',
        "echo a\\\nb",
        "bash -x run.sh -c 'rm a'",
        "nohup nohup nohup nohup nohup rm a",
        "tee /dev/null",
        "sed -n '1,5p' f",
        "perl -ne 'print' f",
        "perl -MFile::Find -e 'print 1'",
        "tar -tzf a.tgz",
        "tar --list -f a.tar",
        "tar -xOf a.tar",
        "dd if=a of=/dev/null",
        "awk '{ print $1 }' a",
        "awk '$1 > \"2024-01-01\" { print }' a",
        "awk '{ print $1 \" -> \" $2 }' a",
        "awk '{ print ($1 > 3) }' a",
        "awk 'END { print s > \"/dev/stderr\" }' a",
        "tar -cf - src | ssh box cat",
        "tar cz src | wc -c",
        "gunzip -c a.gz | head",
        "cat a.gz | gunzip | head",
        "rsync -avn a/ b/",
        "rename -n 's/a/b/' a",
        "ffmpeg -i a.mp4",
        "ffmpeg -i a.mp4 -f null -",
        "ffprobe a.mp4",
        "magick identify a.png",
        "convert a.png info:",
        "dd if=a of=/dev/stdout",
        "openssl x509 -in a.pem -noout -text",
        "redis-cli get a",
        "mongosh --eval 'db.a.find()'",
        "aws s3 ls",
        "aws s3 cp s3://b/a -",
        "aws s3 cp a s3://b/a --dryrun",
        "terraform plan",
        "terraform fmt -check",
        "python manage.py check",
        "python manage.py makemigrations --check",
        "docker compose exec box cat a",
        "Remove-Item a -WhatIf",
        "[System.IO.File]::ReadAllText('a')",
        "vim a.txt",
        "vim -es -c 'q!' a",
        "ruby -rfileutils -e 'puts 1'",
        "su - me",
        "cmd /k",
        "find . | xargs",
        "find . | xargs grep x",
        "sqlite3 a.db \"SELECT * FROM t WHERE a = 'drop table t'\"",
        "psql -c 'SELECT 1 -- insert into t'",
        "find . -name '*.py'",
        "curl -s https://example.com",
        "curl -o /dev/null https://example.com",
        "curl -fsSL -o- https://example.com | bash",
        "curl -so - https://example.com",
        "curl --output /dev/null https://example.com",
        "curl -do=x https://example.com",
        "wget -q -O - https://example.com",
        "wget --spider https://example.com",
        "curl -XPOST https://example.com",
        "wget -qO- https://example.com",
        "unzip -l a.zip",
        "git status",
        "git",
        "git diff HEAD~1",
        "git log --oneline",
        "git checkout main",
        "git stash list",
        "git tag -l",
        "git tag --points-at HEAD",
        "git tag -n5 v1",
        "git checkout v1.2.3",
        "git worktree list",
        "gh issue list --search create",
        "gh api -X GET search/issues -f q=x",
        "gh api graphql -f query='query { a }'",
        "gh pr create --dry-run",
        "git branch -a",
        "git branch",
        "git apply --check fix.diff",
        "git commit --dry-run",
        "gh pr view 3",
        "gh api repos/a/b",
        "echo 'select 1' | sqlfluff fix -",
        "pip install x",
        "npm install",
        "apt-get install -y x",
        "black --check src",
        "ruff check .",
        "ruff format --check .",
        "mv --help",
        "git --version",
        "rm",
        "sqlite3 a.db 'SELECT 1'",
        "python -c 'print(1)'",
        "python3 - <<'EOF'\nprint(open('a').read())\nEOF",
        "python -c \"with TemporaryDirectory() as d: open(d + '/a', 'w')\"",
        "python test_fix.py",
        'python -c \'import subprocess; subprocess.run(["ls", "a > b"])\'',
        "python -c 's.rename(\"b\")'",
        "python -c 'ZipFile(\"a.zip\")'",
        "python -m pytest",
        "python -X dev main.py",
        "bash run.sh",
        "bash -x",
        "ls || rm a",
        "code a.py",
        "ssh box",
        "pwsh -h",
        "export A=1",
        "A=1",
        "> ;",
        "",
        "\x0b\xa0",
    ],
)
def test_commands_that_leave_nothing(command):
    assert not ran(command, "x")[0]


@pytest.mark.parametrize(
    ("command", "answer", "expected"),
    [
        # heredoc plus a failing run is both
        ("cat > t.py <<'EOF'\nx\nEOF\npython t.py", "Exit code 1\nNameError: x", BOTH),
        ("cat > t.py <<'EOF'\nx\nEOF\nlint t.py", "bash: line 4: lint: command not found", BOTH),
        # a failed write is none
        (
            "cat > /no/t.py <<'EOF'\nx\nEOF",
            "bash: line 1: /no/t.py: No such file or directory",
            ERRED,
        ),
        ("sed -i 's/a/b/' f", "sed: can't read f: No such file or directory", ERRED),
        ("sed -i 's/a/b/' f && make", "sed: can't read f: No such file or directory", ERRED),
        ("cp a b", "Command exited with code 1", ERRED),
        ("cp a b && cp c d", "cp: cannot stat 'c': No such file or directory", BOTH),
        # what fails before && keeps the write from happening, before ; it does not
        ("pytest && git commit -m x", "1 failed, 3 passed in 0.10s", ERRED),
        ("pytest; git checkout -- a.py", "1 failed, 3 passed in 0.10s", BOTH),
        ("pytest; git checkout -- a.py", "1 failed in 0.1s\n[exit code: 1]", ERRED),
        ("cd x && mkdir a && python b.py", "Traceback (most recent call last):", BOTH),
        # a later command failed
        ("cp a b && grep x b", "Command exited with code 1", BOTH),
        ("cp a b | cat", "Command exited with code 1", ERRED),
        ("sed -i 's/a/b/' f && echo done", "Command exited with code 1", ERRED),
        # the whole line succeeded, a part of it did not
        ("pytest | tail; rm a", "<returncode>0</returncode>\n1 failed in 0.1s", BOTH),
        # the log of a failing program is there
        ("pytest > log.txt", "Command exited with code 1", BOTH),
        ("make 2>&1 | tee log", "make: *** [all] Error 2", BOTH),
        ("make > log", "make: *** [all] Error 2", BOTH),
        ("make > /no/log", "bash: line 1: /no/log: No such file or directory", ERRED),
        ("grep x a > b", "Command exited with code 2", ERRED),
        # program text that failed
        (
            "python - <<'E'\nopen('a','w')\nE",
            'Traceback (most recent call last):\n  File "<stdin>"',
            ERRED,
        ),
        # git
        ("git add -A && git commit -m x", "On branch main\nnothing to commit", NOTHING),
        ("git pull", "Already up to date.", NOTHING),
        ("git stash && git pull && git stash pop", "Saved state\nAlready up to date.", WROTE),
        ("git stash", "No local changes to save", NOTHING),
        ("git checkout a.b", "Switched to branch 'a.b'", NOTHING),
        ("git checkout a.b", "Updated 1 path from the index", WROTE),
        (
            "git checkout a.b && git checkout -b c",
            "Switched to branch 'a.b'\nSwitched to a new branch 'c'",
            WROTE,
        ),
        ("git commit -m x", "[main 1a2b3c] x\n 1 file changed", WROTE),
        ("git commit -m x && git push", "[main 1a] x\nfatal: no upstream", BOTH),
        ("git merge topic", "CONFLICT (content): Merge conflict in a", ERRED),
        # formatters
        ("black .", "All done!\n3 files left unchanged.", NOTHING),
        ("black .", "reformatted a.py\n1 file reformatted, 2 files left unchanged.", WROTE),
        ("npm run check", "Checked 3 files. Fixed 2 files.", WROTE),
        ("npm run check", "Checked 3 files. No fixes applied.", NOTHING),
        ("npm run check", "Checked 3 files. Fixed 2 files.\na.ts(1,1): error TS1: x", BOTH),
        ("pre-commit run", "x....Failed\n- files were modified by this hook", BOTH),
        ("prettier --write .", "a.ts 30ms (unchanged)", NOTHING),
        ("prettier --write .", "a.ts 30ms (unchanged)\nb.ts 9ms", WROTE),
        ("ruff check --fix .", "All checks passed!", NOTHING),
        ("ruff check --fix .", "Found 2 errors.", ERRED),
        ("ruff check --fix . && ruff format .", "All checks passed!\n1 file reformatted", WROTE),
        ("python manage.py makemigrations", "No changes detected", NOTHING),
        # databases
        ("psql -f a.sql", "CREATE TABLE\nINSERT 0 3", WROTE),
        ("psql -f a.sql", " id\n----\n  1", NOTHING),
        ("mysql x < a.sql", "Query OK, 1 row affected (0.01 sec)", WROTE),
        # scripts that rewrite
        ("python fix_imports.py", "", WROTE),
        ("python scripts/patch2.py", "", WROTE),
        ("./update_all.sh", "", WROTE),
        ("python work.py", "Report saved to out/report.csv", WROTE),
        ("python work.py", "File updated", WROTE),
        ("python work.py", "epoch 1\nModel saved to out/model.pt", WROTE),
        ("python work.py", "42", NOTHING),
        ("python fix_imports.py --dry-run", "File updated", NOTHING),
        ("python test_fix.py", "saved to out.csv", NOTHING),
        ("python fix_imports.py", "Traceback (most recent call last):", ERRED),
        ("bash -c 'python fix_it.py'", "", WROTE),
        ("make all", "Report saved to out/report.csv", NOTHING),
        ("cat fix_notes.py", "File updated", NOTHING),
        # nothing was executed
        ("rm a", "The user rejected this command", ERRED),
        ("rm a; ls", "Tool call timed out.", ERRED),
        ("rm a", "Error: command not allowed", ERRED),
        ("rm a", "Working directory /x does not exist", ERRED),
        ("rm a", "aborted by user after 3.2s", ERRED),
        # programs that say in their own words that they could not
        ("patch -p1 < a.diff", "patching file a\n1 out of 1 hunk FAILED", ERRED),
        ("wget https://x.example/a", "2024-01-01 ERROR 404: Not Found.", ERRED),
        ("wget https://x.example/a", "Connecting to x.example... failed: refused.", ERRED),
        ("git stash pop", "No stash entries found.", ERRED),
        ("zip -r a.zip b", "zip error: Nothing to do!", ERRED),
        ("git pull", "There is no tracking information for the current branch.", ERRED),
        ("gh pr create", "pull request create failed: GraphQL: No commits", ERRED),
        ("git commit -qm x && gh pr create", "pull request create failed: x", BOTH),
        ("touch a; docker cp x:/b b", "Error response from daemon: No such container: x", BOTH),
        ("sqlfluff fix a.sql", "==== no fixable linting errors found ====", NOTHING),
    ],
)
def test_a_command_line_that_failed_may_have_written_before(command, answer, expected):
    assert expected == ran(command, answer)


@pytest.mark.parametrize(
    ("code", "answer", "expected"),
    [
        ("open('a', mode='w')", "", WROTE),
        ("df.to_csv('a.csv')", "", WROTE),
        ("df.to_csv()", "", NOTHING),
        ("plt.savefig(out_path)", "", WROTE),
        ("json.dump(x, f)", "", WROTE),
        ("shutil.rmtree('a')", "", WROTE),
        ("os.replace('a', 'b')", "", WROTE),
        ("Path('a').mkdir()", "", WROTE),
        ("open('a').read()", "", NOTHING),
        ("with NamedTemporaryFile() as f: open(f.name, 'w')", "", NOTHING),
        ("open('a', 'w'); 1/0", "ZeroDivisionError: division by zero", ERRED),
        ("%%writefile a.py\nprint(1)", "Writing a.py", WROTE),
        ("%%bash\ntouch a", "", WROTE),
        ("x = 1\n!echo hi > a.txt", "", WROTE),
        ("!pip install x\n!ls > /dev/null", "", NOTHING),
        ("os.system('touch a')", "0", WROTE),
        ("subprocess.run(['git', \"commit\", '-m', 'x'])", "", WROTE),
        ("subprocess.run(['git', 'diff', 'a > b'])", "", NOTHING),
        ("subprocess.run(command)", "", NOTHING),
        ("execSync('rm a')", "", WROTE),
        ("c.execute('INSERT INTO t VALUES (1)')\nc.commit()", "", WROTE),
        ("c.execute('SELECT 1')\nc.commit()", "", NOTHING),
        ("c.execute('INSERT INTO t VALUES (1)')", "", NOTHING),
        ("c = connect(':memory:')\nc.execute('INSERT INTO t')\nc.commit()", "", NOTHING),
        ("write_file(path='a', content='x')", "", WROTE),
        ("run_shell('echo x > a')", "", WROTE),
        ("run_shell(command='ls')", "", NOTHING),
        ("run_shell(command)", "", NOTHING),
        ("print_it(1)", "", NOTHING),
        ("", "", NOTHING),
    ],
)
def test_program_text_writes_by_itself_or_by_the_tools_it_calls(code, answer, expected):
    assert expected == did("python", {"code": code}, answer)


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        "Command exited with code 1",
        "x\n\nCommand exited with code 1",
        "Exit code 2\nx",
        "Exit Code: 1",
        "x\nError: (none)\nExit Code: 1\nSignal: (none)\nProcess Group PGID: (none)",
        "Exit Code: (none)\nSignal: SIGTERM",
        "Chunk ID: 1\nWall time: 1 s\nProcess exited with code 1\nOutput:\nx",
        "x\n[The command completed with exit code 1.]\n[Command finished with exit code 1]",
        "<system>ERROR: Command failed with exit code: 1.</system>\nx",
        "<returncode>1</returncode>\n<output>\n</output>",
        "<exception>it was too slow</exception>\n<output>\n</output>",
        '{"returncode": 1, "output": "x"}',
        '{"output": "x", "metadata": {}, "exit_code": 2}',
        '{"output": "x", "metadata": {"exit_code": 2, "duration_seconds": 0.1}}',
        '{"returncode": 1, "output": ' + "[" * 5000,
        '[{"query": "x", "result": "x", "error": "", "success": false}]',
        '{"error": "RuntimeError: exit code 1"}',
        "x (exit code 3)",
        "Error: Command failed: make",
        "Error: RuntimeError - exit code 1",
        "An error occurred while running the tool. Please try again.",
        "x\n[An error occurred during execution.]",
        "Tool call timed out.",
        "x\nCommand timed out after 60 seconds",
        "x\nCommand was aborted by the user",
        "aborted by user after 3.2s",
        "Command executed in terminal  within '/x'. Exit code: 1\nOutput:\nx",
        'Command "make all" failed with exit code 101.\n\n```\nx\n```',
        "exec_command failed for `make`: SandboxDenied",
        "failed in sandbox LinuxSeccomp with execution error",
        "Operation 'vim a' is not supported by this environment.",
        "<meta>\nbash tool terminated command after exceeding timeout 120000 ms\n</meta>",
        "x\nUser aborted the command",
        "The system cannot find the file specified.",
        "Access is denied.",
        "A subdirectory or file out already exists.",
        "'foo' is not recognized as an internal or external command,\noperable program.",
        "foo : The term 'foo' is not recognized as the name of a cmdlet.",
        "x\nGet-Content : Cannot find path\n    + CategoryInfo          : ObjectNotFound",
    ],
)
@pytest.mark.parametrize("command", ["make", "cat a"])
def test_a_shell_result_that_tells_of_a_failure(command, answer):
    assert ERRED == ran(command, answer)


@pytest.mark.parametrize(
    "answer",
    [
        "Traceback (most recent call last):\n  File 'a'\nValueError: x",
        "Output: Traceback (most recent call last):",
        "x\nModuleNotFoundError: No module named 'x'\n</output>",
        "a.b.CustomError: x",
        "E   AssertionError",
        "== 1 failed, 2 passed in 0.12s ==",
        "1 error in 0.12s",
        "FAILED tests/a.py::b - x",
        "tests/a.py::b FAILED      [ 50%]",
        "FAILED (failures=1)",
        "FAIL: test_x",
        "--- FAIL: TestX (0.00s)",
        "FAILURES!\nTests: 2",
        "x\nE   assert 1 == 2",
        "== ERRORS ==",
        "ImportError while loading conftest '/a'.",
        "not ok 1 - x",
        "# fail 2",
        "3 examples, 1 failure",
        "Tests run: 3, Failures: 0, Errors: 1",
        "Tests:       1 failed, 2 passed",
        "  2 failing",
        "test result: FAILED. 1 passed",
        "Failed!  - Failed: 1",
        "  ✗ adds numbers",
        "❌ broken",
        "× it adds",
        "✖ 3 problems (1 error, 2 warnings)",
        "Found 2 errors in 1 file",
        "2 files would be reformatted",
        "ERROR: Could not find a version that satisfies x",
        "collecting ... ERROR: file or directory not found: a",
        "ERROR tests/a.py",
        "error[E0425]: cannot find value",
        "a.c:1:2: fatal error: x.h: No such file",
        "src/a.ts(3,4): error TS2345: x",
        "see error TS2345: x",
        "npm ERR! code 1",
        "make[1]: *** [all] Error 2",
        "BUILD FAILED",
        "E: Unable to locate package x",
        "error Command failed with exit code 1.",
        "it timed out after 30 s",
        "zsh: command not found: x",
        "/bin/sh: 1: x: not found",
        "tool: a: No such file or directory",
        "python3: can't open file 'a'",
        "/usr/bin/python: No module named x",
        "  SyntaxError: invalid syntax",
        "panic: runtime error",
        "thread 'main' panicked at a.rs",
        "Exception in thread main",
        "UnhandledPromiseRejection",
        "Uncaught TypeError: x",
        "TypeError: x is not a function\n    at a (b.js:1:2)",
        "Segmentation fault",
        "Aborted (core dumped)",
        "x\nexit code: 1",
        "x\nRC=2",
        "Error: x is missing",
        "------\nZeroDivisionError                Traceback (most recent call last)\n",
        "(fail) it adds [0.1ms]",
        " 2 pass\n 1 fail",
        "  1 failed\n    a.spec.ts",
        "<summary passed=3 failed=1 />",
        "67% tests passed, 1 tests failed out of 3",
        "00:03 +2 -1: Some tests failed.",
        "x-0.1: Test suite failed",
        "  py311: FAIL code 1 (0.3 seconds)",
        "1 failures, 0 errors.",
        "0 failures, 1 errors.",
        "Executed 3 tests, with 1 failure (0 unexpected)",
        "nox > Session tests failed.",
        "[warn] Code style issues found in the above file.",
        "1 file inspected, 2 offenses detected",
        "2 issues:\n* errcheck: 2",
        "1 issue found.",
        "3 errors, 0 warnings, 0 informations",
        "black....................Failed\n- files were looked at",
        "- hook id: x\n- exit code: 1",
        "psql:a.sql:3: ERROR:  no such relation",
        "ERROR 1064 (42000) at line 1: syntax",
        "ERROR in ./src/a.js",
        "collect2: error: ld returned 1",
        "prog.py: error: the following arguments are required: a",
        "Program.cs(3,5): error CS1002: ; expected",
        "Build FAILED.",
        "CMake Error at CMakeLists.txt:3",
        "# x\n./a.go:3:2: undefined: foo",
        "# x\nvet: ./a.go:3:2: undefined: foo",
        " ELIFECYCLE  Test failed.",
        " ERR_PNPM_NO_SCRIPT  Missing script",
        "Parse error: no such table: t",
        "PHP Parse error: x",
        "PHP Fatal error:  Uncaught Error: x",
        "fatal error: all goroutines are asleep",
        "(error) ERR unknown command",
        "webpack 5 compiled with 1 error in 30 ms",
        "Failed to compile.",
        "[error] (Test / test) Tests unsuccessful",
        "[ERROR] Failed to execute goal x",
        "fatal: [host]: UNREACHABLE!",
        "╷\n│ Error: Unsupported argument",
        "Killed",
        "bash: line 1: 12 Killed  python a.py",
        "a.sh: line 3: unexpected EOF while looking",
        "Error in foo() : no\nExecution halted",
        "Execution of a.pl aborted due to compilation errors.",
        "syntax error at a.pl line 3, near x",
        "a.rb:3:in `<main>': undefined local variable (NameError)",
        "NameError('x is not defined')",
        "django.core.exceptions.ImproperlyConfigured: x",
        "x: connect to host y port 22: No such file or directory",
        "✖ the stack failed to deploy",
        "***Test Failed*** 1 failures.",
        "No tests found, exiting with code 1",
        "cmd/main.go:10:2: no required module provides package x",
        "a.hs:3:5: error:\n    Variable not in scope",
        "ERROR! the playbook could not be found",
        "a.nim(3, 1) Error: undeclared identifier",
        "-- [E006] Not Found Error: a.scala:3:2",
        "Could not connect to Redis at 127.0.0.1:6379",
        "Coverage failure: total of 50 is less",
        "Diff in /x/src/main.rs:1:\n-x",
        "CSpell: Files checked: 3, Issues found: 1 in 1 file.",
        "Status: 1 ERROR",
        "** (CompileError) lib/a.ex:3: undefined function",
        "lua: a.lua:3: attempt to index a nil value",
        "run.sh: 3: Syntax error: unexpected",
    ],
)
def test_a_program_prints_its_failure_where_no_exit_code_is_shown(answer):
    assert ERRED == ran("make 2>&1 | tail -20", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "ok",
        "2 passed in 0.10s",
        "== 3 passed, 1 xfailed in 0.10s ==",
        "FAILED: 0",
        " 3 pass\n 0 fail",
        "  0 failed\n  3 passed",
        "passed=3 failed=0",
        "100% tests passed, 0 tests failed out of 3",
        "0 failures, 0 errors.",
        "3 offenses detected, 3 offenses corrected",
        "0 issues.",
        "0 errors, 2 warnings",
        "black....................Passed",
        "Build succeeded.\n    0 Error(s)",
        "webpack 5 compiled with 0 errors",
        "compiled with 1 warning",
        "Killed 3 birds",
        "a\nTraceback (most recent call last):\nBrokenPipeError: [Errno 32] Broken pipe",
        "ERROR:root:logged\nfine",
        "a.py:3:1: E501 in a comment",
        "fatal errors: none",
        "✖ it is missing (expected)",
        "==== finding violations ====\n== [a.sql] FAIL\n== [a.sql] PASS",
        "a.go:3: logged",
        "Issues found: 0",
        "print(ValueError('x'))\nfine",
        "test_error_words PASSED",
        "✗ it warns (expected)",
        "✖ 3 problems (0 errors, 3 warnings)",
        "Found 3 errors (3 fixed, 0 remaining).",
        "ERROR: pip's dependency resolver does not take x into account",
        "error: null",
        "Errors: {}",
        "done\nstatus: 200",
        "exit code: 0",
        "[exit code: 0]",
        "<returncode>0</returncode>\n<output>\nError: caught and printed\n</output>",
        '{"returncode": 0, "output": "x", "error": "(none)"}',
        '{"returncode": true, "success": true, "errors": []}',
        "Error: (none)\nfine",
    ],
)
def test_a_program_that_prints_error_words_has_not_failed(answer):
    assert NOTHING == ran("make 2>&1 | tail -20", answer)


@pytest.mark.parametrize(
    ("command", "answer", "expected"),
    [
        ("cat log.txt", "Traceback (most recent call last):\nValueError: x", NOTHING),
        ("cat a.md", "ERROR: write this in capitals\n1 failed in 0.1s", NOTHING),
        ("git diff", "+FAIL\n-error: x", NOTHING),
        ("git log | head", "fix: error: x", NOTHING),
        ("git show HEAD:a", "fatal: not a git repository", ERRED),
        ("cat a", "cat: a: No such file or directory", ERRED),
        ("grep x a | head", "grep: a: No such file or directory", ERRED),
        ("find . | head", "a\nfind: write error: Broken pipe", NOTHING),
        ("grep -r x .", "grep: a.pyc: binary file matches", NOTHING),
        ("grep -r x .", "a.py: cannot be", NOTHING),
        ("ls", "bash: line 1: ls: Permission denied", ERRED),
        ("ls", "bash: fine", NOTHING),
        ("cat a.json", '{"error": {"code": 1}, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5}', NOTHING),
        ("pip list | head", "FAILED x", NOTHING),
        ("pip install x", "ERROR: no matching distribution", ERRED),
        ("cat a.md", "Command line tools end with exit code 1", NOTHING),
        ("cat a.md", "Command finished. It is not so that it ends with exit code 1 here", NOTHING),
        ("journalctl -n 5", "Traceback (most recent call last):", NOTHING),
        ("dmesg | tail", "error: x", NOTHING),
        ("python -m json.tool a.json", '{"error": "x"}\nerror: x', NOTHING),
        ("python -m json.tool a.json", "Expecting value: line 1 column 1", ERRED),
        ("pip show x", "WARNING: Package(s) not found: x", ERRED),
        ("openssl x509 -in a.pem", "Unable to load certificate", ERRED),
        ("perl a.pl | head", "Can't locate A.pm in @INC", ERRED),
        ("docker compose logs", "Traceback (most recent call last):", NOTHING),
        ("helm template a", "error: x", NOTHING),
        ("Get-Content a | Select-Object", "Traceback (most recent call last):", NOTHING),
        ("bash -c 'cat log'", "Traceback (most recent call last):", NOTHING),
        ("git commit -m x", "hook\nFAIL a.test.ts", ERRED),
        ("gh pr view 9", "GraphQL: Could not resolve to a PullRequest", ERRED),
        ("gh issue view 9", "title: x\n--\ncould not start it", NOTHING),
        ("gh run view 9 --log", "test\tx\tfailed to start", NOTHING),
        ("kubectl get pod x", 'Error from server (NotFound): pods "x" not found', ERRED),
        ("kubectl logs x", "starting\nerror: no such key", NOTHING),
        ("docker logs x", "Error response from daemon: No such container: x", ERRED),
        ("docker logs x", "Error: connect refused\nTraceback (most recent call last):", NOTHING),
        ("ssh box ls", "ssh: connect to host box port 22: Connection refused", ERRED),
        ("ssh box ls", "me@box: Permission denied (publickey).", ERRED),
        ("aws s3 ls | head", "Unable to locate credentials. You can configure them", ERRED),
        ("jq . a.json", "parse error: Invalid numeric literal", ERRED),
        ("yq . a.yaml", "Error: bad file 'a.yaml'", ERRED),
        ("systemctl restart x", "Failed to restart x.service: Unit not found", ERRED),
        ("sudo cat a", "sudo: a password is required", ERRED),
        ("flake8 . | head", "./a.py:3:1: F401 'os' imported but unused", ERRED),
        ("pylint a.py", "a.py:3:0: W0611: Unused import", ERRED),
        ("shellcheck a.sh", "In a.sh line 3:\nSC2086", ERRED),
        ("sqlfluff lint a.sql | head", "== [a.sql] FAIL\nL: 1", ERRED),
        ("sqlfluff fix a.sql", "== finding ==\n== [a.sql] FAIL\n== [a.sql] PASS", NOTHING),
        ("aws logs tail x", "ERROR Task timed out after 3.00 seconds", NOTHING),
        ("yamllint .", "a.yaml\n  3:1       error    wrong indentation", ERRED),
        ("cat lint.txt", "./a.py:3:1: F401 'os' imported but unused", NOTHING),
        ("hatch run test", "1 failed in 0.1s", ERRED),
    ],
)
def test_error_words_in_text_that_was_merely_shown_do_not_count(command, answer, expected):
    assert expected[1] == ran(command, answer)[1]


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("read_file", "ENOENT: no such file or directory, open 'a'", ERRED),
        ("read_file", "File not found: /a", ERRED),
        ("read_file", "Invalid `path` parameter: it must be absolute", ERRED),
        ("read_file", "Error: EACCES", ERRED),
        ("read_file", "Offset 90 is beyond the end of the file", ERRED),
        ("read_file", "FileNotFoundError: [Errno 2] a", ERRED),
        ("read_file", '{"error": "FileNotFoundError: a"}', ERRED),
        ("read_file", "a\n[An error occurred during execution.]", ERRED),
        ("read_file", "error: message,\nresult: null,", NOTHING),
        ("read_file", "exitCode: result.exitCode,\ncancelled: false,", NOTHING),
        ("read_file", "# Errors\n\nCommand exited with code 1", NOTHING),
        ("read_file", "x = 1\nTraceback (most recent call last):", NOTHING),
        ("read_file", "Invalid input is refused.\n" + "more\n" * 10, NOTHING),
        ("read_file", "Invalid input. " * 40, NOTHING),
        ("read_file", '{"success": false, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5}', NOTHING),
        ("lookup", "Unknown tool: lookup", ERRED),
        ("lookup", "The user denied the call", ERRED),
        ("lookup", "Failed to launch\n" + "x" * 2000, NOTHING),
        ("lookup", "Error executing tool lookup: x\n" + "x" * 2000, ERRED),
        ("lookup", "1 validation error for lookupArguments", ERRED),
        ("lookup", "Request failed with status code 404", ERRED),
        ("lookup", "Database error: no such table: t", ERRED),
        ("lookup", "# Page\nError: what it means", NOTHING),
        ("lookup", "no error: all fine", NOTHING),
        ("lookup", "### Result\nError: page.goto: net::ERR_NAME", ERRED),
        ("lookup", 'Results for "python file not found"', NOTHING),
        ("lookup", '"x.txt" not found', ERRED),
        ("lookup", '"the file was not found"', ERRED),
        ("lookup", '{"status": "error", "message": "x"}', ERRED),
        ("lookup", '{"status": "failed", "reason": "x"}', ERRED),
        ("lookup", '{"status": "failed"}', ERRED),
        ("lookup", '{"order_id": 3, "status": "failed"}', NOTHING),
        ("lookup", '[{"title": "x", "status": "failed"}]', NOTHING),
        ("run_job", '{"job_id": 3, "status": "failed"}', ERRED),
        ("lookup", '{"found": [{"path": "a", "why": "File not found"}]}', ERRED),
        ("lookup", '{"status": "ok"}', NOTHING),
        ("lookup", '{"isError": true, "content": []}', ERRED),
        ("lookup", '{"errors": [{"message": "x"}]}', ERRED),
        ("lookup", '{"results": [{"status": "failed"}]}', NOTHING),
        ("lookup", '{"result": "{\\"error\\": \\"x\\"}"}', ERRED),
        ("lookup", "3", NOTHING),
        ("lookup", "[1, 2]", NOTHING),
        ("lookup", "{not json", NOTHING),
        ("run_tests", "1 failed, 2 passed in 0.1s", ERRED),
        ("run_tests", '{"passed": 3, "failed": 1}', ERRED),
        ("run_tests", '{"passed": 3, "failed": 0, "errors": []}', NOTHING),
        ("lookup", '{"passed": 3, "failed": 1}', NOTHING),
        ("write_stdin", "Process exited with code 1\nOutput:\nx", ERRED),
        ("write_stdin", "Process exited with code 0\nOutput:\nx", NOTHING),
        ("shell", "failed to parse function arguments: missing field `command`", ERRED),
        ("web_fetch", "A page. " * 200, NOTHING),
        ("read_text_file", "Invalid input is refused.\n" + "more\n" * 10, NOTHING),
        ("fs_view", "Invalid input is refused.\n" + "more\n" * 10, NOTHING),
        ("docs_search", "Invalid input is refused.\n" + "more\n" * 10, NOTHING),
        ("docs_search", "Error: rate limit exceeded", ERRED),
        ("web_fetch", "The page says: an error means that a page is not found.", NOTHING),
        ("web_fetch", "Failed to fetch https://x.example: 403", ERRED),
        ("task", "Nothing of the kind: permission denied was said once.", NOTHING),
        ("read_file", "The content exceeds maximum allowed tokens", ERRED),
        ("deploy", "Deployment failed: no space", ERRED),
        ("python_repl", "Observation: ZeroDivisionError('division by zero')", ERRED),
        ("think", "Error: x", ERRED),
        ("finish", "fine", NOTHING),
    ],
)
def test_results_of_other_tools(name, answer, expected):
    assert expected == did(name, {"q": "x"}, answer)


def mcp(text: str, error: bool = False, quote: str = "'") -> str:
    inner = f"TextContent(type='text', text={quote}{text}{quote}, annotations=None)"
    return f"meta=None content=[{inner}] isError={error}"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (mcp("fine"), NOTHING),
        (mcp("fine", error=True), ERRED),
        (mcp("Error executing tool x: y"), ERRED),
        (mcp('{\\n "content": [{"type": "text", "text": "y"}], "isError": true}'), ERRED),
        (mcp('{"content": [{"text": "{\\\\"error\\\\": \\\\"x\\\\"}"}], "isError": false}'), ERRED),
        (mcp("it\\x27s \\u00e9 fine", quote='"'), NOTHING),
        ("meta=None content=[TextContent(type='text')] isError=True", ERRED),
        ("[TextContent(type='text', text='cut off", NOTHING),
        (mcp("x" * 300_000), NOTHING),
    ],
)
def test_results_in_the_repr_of_a_tool_server(answer, expected):
    assert expected == did("lookup", {"q": "x"}, answer)


def test_a_result_may_be_parts_or_any_value():
    parts = [{"type": "text", "text": "fine"}, {"type": "text", "text": "[exit code: 1]"}]

    assert ERRED == did("bash", {"command": "ls"}, parts)
    assert ERRED == did("lookup", {"q": 1}, {"error": "x"})
    assert NOTHING == did("lookup", {"q": 1}, None)
    assert NOTHING == did("lookup", {"q": 1}, [{"output": "1. a page about an Error: x"}])


def test_long_results_are_read_at_both_ends():
    filler = "x\n" * 50_000

    assert ERRED == ran("make", "Traceback (most recent call last):\n" + filler)
    assert ERRED == ran("make", filler + "1 failed in 0.1s\n")
    assert NOTHING == ran("make", filler + "1 failed in 0.1s\n" + filler)
    assert NOTHING == did("lookup", {"q": 1}, "[" + "1," * 200_000)


# --- protocols in text --------------------------------------------------------------------------

SEARCH = "a.py\n<<<<<<< SEARCH\nx\n=======\ny\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("content", "answer", "expected"),
    [
        ("I do.\n```bash\nrm a\n```", "<returncode>0</returncode>\n<output></output>", WROTE),
        ("I do.\n```bash\nls\n```", "<returncode>1</returncode>\n<output></output>", ERRED),
        ("You could run\n```bash\nrm a\n```", "Thanks, and now?", NOTHING),
        ("```python\nopen('a', 'w')\n```", "Observation: fine", WROTE),
        ("```text\nrm a\n```", "Observation: fine", NOTHING),
        ("<code>\nopen('a', 'w')\n</code>", "Observation:\nExecution logs:\nfine", WROTE),
        ("<think>```bash\nrm a\n```</think>hello", "<returncode>0</returncode>", NOTHING),
        (SEARCH, "I committed the changes.", WROTE),
        (SEARCH, "# 1 SEARCH/REPLACE block failed to match!", ERRED),
        (SEARCH, "I didn't see any properly formatted edits in your reply?!", ERRED),
        (SEARCH, " ", NOTHING),
        (
            '<tool_call>\n{"name": "write_file", "arguments": {"path": "a"}}\n</tool_call>',
            "<tool_response>\nok\n</tool_response>",
            WROTE,
        ),
        (
            '<tool_call>{"name": "ls", "arguments": {}}</tool_call>'
            '<tool_call>{"name": "write", "arguments": {"path": "a"}}</tool_call>',
            "<tool_response>\nAn error occurred when calling tool\n</tool_response>",
            ERRED,
        ),
        ("<tool_call>no json</tool_call>", "<tool_response>x</tool_response>", NOTHING),
        (
            "<function=bash>\n<parameter=command>\nrm a\n</parameter>\n</function>",
            "EXECUTION RESULT of [bash]:\n[exit code: 0]",
            WROTE,
        ),
        (
            "Calling tools:\n[{'id': 'c', 'function': {'name': 'write', 'arguments': "
            "{'path': 'it\\'s', 'all': True, 'n': None, 't': \"a\\tb\"}}}]",
            "Observation:\nok",
            WROTE,
        ),
        ("Calling tools:\n[{'name': 'write', 'arguments': {'path': 'a'}}]", "ok", WROTE),
        ("Calling tools:\nnothing", "ok", NOTHING),
        ("Running it.", "Error:\nError executing tool 'x' with arguments {}: y", ERRED),
        ("Running it.", "Error:\nCode execution failed at line 1", ERRED),
        ("Done.", "Error: I see a traceback when I start it", NOTHING),
        ("Done.", "Now check it.", NOTHING),
        ('Action: write_file\nAction Input: {"path": "a"}\n', "Observation: ok", WROTE),
        ('Action: Write File\nAction Input: {"path": "a"}\n', "Observation: ok", WROTE),
        (
            'Action:\n```json\n{"action": "write_file", "action_input": {"path": "a"}}\n```',
            "Observation: ok",
            WROTE,
        ),
        ('{"action_input": 1}', "Observation: ok", NOTHING),
        (
            '<invoke name="bash">\n<parameter name="command">rm a</parameter>\n</invoke>',
            "<function_results>\nok\n</function_results>",
            WROTE,
        ),
        (
            "<tool_call>sh\n<arg_key>cmd</arg_key>\n<arg_value>rm a</arg_value>\n</tool_call>",
            "<tool_response>\nok\n</tool_response>",
            WROTE,
        ),
        (
            "<use_mcp_tool>\n<server_name>x</server_name>\n<tool_name>write_file</tool_name>\n"
            '<arguments>\n{"path": "a"}\n</arguments>\n</use_mcp_tool>',
            "[use_mcp_tool for 'x'] Result:\n\nok",
            WROTE,
        ),
        (
            "<use_mcp_tool>\n<tool_name>read_file</tool_name>\n"
            '<arguments>{"path": "a"}</arguments>\n</use_mcp_tool>',
            "[use_mcp_tool for 'x'] Result:\n\nError: ENOENT: no such file",
            ERRED,
        ),
        ("```python\n1/0\n```", "exitcode: 1 (execution failed)\nCode output: x", ERRED),
        ("```sh\nrm a\n```", "exitcode: 0 (execution succeeded)\nCode output: ", WROTE),
        ("```python\nopen('a', 'w')\n```", "The script ran but produced no output.", WROTE),
        ("a.py\n```\nx\n```", "I committed the changes with git hash 1a & commit msg: x", WROTE),
        ("```diff\n-x\n```", "I updated the files.", WROTE),
        ("Nothing to do.", "I updated the files.", NOTHING),
        ("I edit.\n```\nedit 1:2\nx > y\nend_of_edit\n```", "[File: a]\nx\nbash-$ ", WROTE),
        ("I look.\n```\ncat a\n```", "Traceback (most recent call last):\nbash-$", NOTHING),
        ("I look.\n```\nrm a\n```", "Fine, do that.", NOTHING),
        ("<write_to_file>\n<path>a</path>\n</write_to_file>", "[write_to_file] Result: ok", WROTE),
        (
            "<execute_command>\n<command>rm a</command>\n</execute_command>",
            "[execute_command for 'rm a'] Result: ok",
            WROTE,
        ),
        (
            "<execute_command>\n<command>rm a</command>\n</execute_command>",
            "[execute_command for 'rm a'] Result:\n\nThe user denied this operation.",
            ERRED,
        ),
        (
            "<read_file>\n<path>a</path>\n</read_file>",
            "[read_file for 'a'] Result:\n\nThe tool execution failed with the following error:\nx",
            ERRED,
        ),
        (
            SEARCH,
            "[replace_in_file for 'a.py'] Result:\n\nThe tool execution failed with this error: x",
            ERRED,
        ),
        (
            '{"commands": [{"keystrokes": "rm a\\n"}, {"keystrokes": 3}]}',
            "New Terminal Output:\n$",
            WROTE,
        ),
        ('"keystrokes" are no commands', "New Terminal Output:\n$", NOTHING),
        ('{"commands": [], "x": "keystrokes"}', "New Terminal Output:\n$", NOTHING),
        ('{"commands": [], "x": {"keystrokes": 1}}', "New Terminal Output:\n$", NOTHING),
    ],
)
def test_agents_that_write_their_calls_as_text(content, answer, expected):
    assert expected == said(content, answer)


def test_text_without_an_answer_is_nothing():
    message = {"role": "assistant", "content": SEARCH}

    assert Judgement(False, False, "") == judge(message, [])
    assert Judgement(False, False, "") == judge(message, [{"role": "assistant", "content": "x"}])


def test_answers_that_are_no_messages_are_passed_over():
    message = assistant(called("write", {"path": "a"}))
    answers: Any = ["x", None, result("ok")]

    assert judge(message, answers).wrote


# --- rules of a key -----------------------------------------------------------------------------


def test_the_tables_can_be_configured():
    rules = replace(
        DEFAULT,
        writing_tools=DEFAULT.writing_tools | {"Deploy_It"},
        never_writing_tools=DEFAULT.never_writing_tools | {"save_memory"},
        shell_tools=DEFAULT.shell_tools | {"box"},
        writing_patterns=(re.compile(r"\bdeploy\b"),),
        error_patterns=(re.compile("KAPUTT"),),
    )

    assert NOTHING == did("deploy_it", {"x": 1}, "ok")
    assert WROTE == did("deploy_it", {"x": 1}, "ok", rules)
    assert WROTE == did("save_memory", {"x": 1}, "ok")
    assert NOTHING == did("save_memory", {"x": 1}, "ok", rules)
    assert WROTE == did("box", {"input": "rm a"}, "ok", rules)
    assert WROTE == did("bash", {"command": "make deploy"}, "ok", rules)
    assert ERRED == did("bash", {"command": "make deploy"}, "[exit code: 1]", rules)
    assert ERRED == did("deploy_it", {"x": 1}, "KAPUTT", rules)


def test_why_names_rules_and_no_text():
    found = judge(
        assistant(called("bash", {"command": "cat > secret.py <<'E'\nx\nE\npython secret.py"})),
        [result("Exit code 1\nNameError: secret")],
    )

    assert "shell:redirect+exit_code" == found.why


# --- odd shapes ---------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
keys = st.sampled_from(
    "role content tool_calls function_call function custom id type name arguments input text "
    "tool_call_id command commands code path output error is_error status".split()
)
words = st.sampled_from(
    "assistant tool user function write_file bash python tool_call tool_use tool_result text a b "
    '{} [ {"command":"rm ```bash <tool_call> <function= Error: $( << \' " ` > | && exit'.split()
)
likely = st.recursive(
    words | anything,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=6),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.dictionaries(keys, likely, max_size=6), st.lists(likely, max_size=4))
def test_any_shape_is_judged_and_none_raises(message, answers):
    assert isinstance(judge(message, answers), Judgement)


shellish = st.lists(
    st.sampled_from(
        [*"abc \t\n\r'\"`$(){}<>|&;#\\*=-2", "$(", "<<", "<<-E", "\nE\n", "&&", "||", ">>", "rm a"]
        + ["[[", "]]", "((", "))", "2>&1", "bash -c ", "eval ", "find . -exec ", "$'", "${"]
    ),
    max_size=40,
).map("".join)


@settings(deadline=None)
@given(shellish | st.text(string.printable), st.text(max_size=200))
def test_any_command_is_read_and_none_raises(command, answer):
    found = judge(assistant(called("bash", {"command": command})), [result(answer)])

    assert isinstance(found, Judgement)


def test_deep_and_large_shapes_end():
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]

    assert NOTHING == did("lookup", "[" * 100_000, "[" * 100_000)
    assert NOTHING == did("lookup", {"q": 1}, deep)
    assert "" == text_of({"x": deep})
    assert "[1, 2]" == text_of([[1, 2]])
    assert NOTHING == did("bash", {"command": "$(" * 1000 + "rm a"}, "ok")
    assert NOTHING == did("bash", {"command": "ls;" * 1000 + "rm a"}, "ok")
    assert NOTHING == did("bash", {"command": "eval " * 20 + "rm a"}, "ok")
    assert NOTHING == did("bash", {"command": "$($($($(`rm a`))))"}, "ok")
    nested = "Error: x"
    for _ in range(7):
        nested = f"[TextContent(type='text', text={nested!r}, annotations=None)]"
    assert NOTHING == did("lookup", {"q": "x"}, nested)


def test_small_readers():
    assert "a'\n\x27é" == unescaped(r"a\'\n\x27\u00e9")
    assert None is from_repr("{'a': (1, 2)}")
    assert {"a": [True, None, "x'y"]} == from_repr("{'a': [True, None, \"x'y\"]}")
    assert (Call("w", {"input": [1]}),) == tuple(
        one.call for one in done({"tool_calls": [{"name": "w", "arguments": [1]}]}, [])
    )
    assert "exit_code" == outcome(Result("[exit code: 1]"), Kind.WRITE).rule


# --- what a step may cost ------------------------------------------------------------------------


def lines_run(work: Any) -> int:
    """Lines of `core` that a piece of work runs: a cost that no machine sways."""
    ran = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal ran
        ran += event == "line"
        return count if "core" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return ran


MOST_LINES = 400_000
LONG = 60_000
SHELLISH = [
    "a<",
    ">a ",
    "''",
    "`",
    "$a",
    "$(",
    "${",
    "((",
    "<<a ",
    "<<a\n",
    "\n",
    "a;",
    "a=1 ",
    "if ",
    "mkdir a && ",
    "./fix.py;",
    "find . -exec a -exec b;",
    "bash <<E | bash\n",
    "git branch -a;",
    "python -c 'os.system(\"$a;$a;\")';",
    "python -c '!a;!a';",
]


@pytest.mark.parametrize("unit", SHELLISH)
@pytest.mark.parametrize("lead", ["", "[[ ", "eval eval eval eval "])
@pytest.mark.parametrize("answer", ["saved a", "Exit code: 1\n" + "bash: a: not found\n" * 1000])
def test_a_command_costs_little_whatever_it_is_made_of(unit, lead, answer):
    command = lead + unit * (LONG // len(unit))

    assert MOST_LINES > lines_run(lambda: ran(command, answer))


def test_many_calls_cost_no_more_than_a_few():
    many = [called("bash", {"command": "$a;" * 9000}, f"c{i}") for i in range(900)]
    answers = [result("saved x\n" * 2000, f"c{i}") for i in reversed(range(900))]

    assert 64 == len(done(assistant(*many), answers))
    assert MOST_LINES > lines_run(lambda: judge(assistant(*many), answers))


def test_calls_inside_calls_are_read_up_to_a_number():
    inner = {"tool": "batch", "args": {"a": [{"tool": "ls", "args": {"path": "a"}}] * 50}}
    message = assistant(called("batch", {"calls": [inner] * 50}))

    assert 64 == len(done(message, [result("ok")]))


def test_a_result_far_behind_others_is_not_looked_for():
    answers = [result("x", "other")] * 1500

    assert None is done(assistant(called("edit", {})), [*answers, result("ok")])[0].result
    assert Result("ok") == done(assistant(called("edit", {})), [result("ok"), *answers])[0].result


def test_arguments_that_are_too_long_leave_the_name():
    long = json.dumps({"path": "a", "text": "x" * 1_100_000})
    message = assistant(called("write_file", long), called("edit", {"path": "b"}, "c2"))

    found = done(message, [result("ok")])

    assert [{}, {"path": "b"}] == [one.call.arguments for one in found]
    assert judge(message, [result("ok")]).wrote


def test_texts_share_a_budget_and_short_ones_leave_theirs():
    assert 100 == share([], 100)
    assert 100 == share([40, 60], 100)
    assert 50 == share([80, 80], 100)
    assert 45 == share([10, 80, 80], 100)
    assert 25 == share([400, 400, 400, 400], 100)


def test_a_step_reads_no_more_commands_than_there_is_room_for():
    first = called("bash", {"command": "#" * 100_000}, "a")
    second = called("bash", {"command": "rm a"}, "b")

    assert not judge(assistant(first, second), [result("", "a"), result("", "b")]).wrote
    assert judge(assistant(second, first), [result("", "a"), result("", "b")]).wrote
    assert () == shell.commands("rm a", shell.Room(pieces=0))
    assert (shell.Simple(("ab",)),) == shell.commands("a'b'c; ls", shell.Room(pieces=2))
    assert (shell.Simple(("ab",)),) == shell.commands('a"b$c"; ls', shell.Room(pieces=3))
    assert ["ls"] == [one.program for one in shell.commands("ls;" * 9, shell.Room(pieces=2))]
    assert ["ls"] == [
        one.program for one in shell.commands("ls <<E\na\nb\nE\nrm a", shell.Room(pieces=5))
    ]


def test_results_longer_than_what_a_step_reads_are_read_at_both_ends():
    assert ERRED == did("lookup", {"q": 1}, "Error: x\n" + "y" * 500_000)
    assert BOTH == ran("touch a; make", "y\n" * 300_000 + "make: *** [all] Error 1")
    assert "ab\n…\nef" == ends("abcdef", 2)


@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_repr_without_an_end_is_none_and_is_gone_over_once(quote):
    assert None is from_repr(f"{quote}a")
    assert None is from_repr(f"[{quote}a\\{quote}")
    assert None is from_repr(quote + f"\\{quote}" * 40_000)
    assert None is from_repr("[" + "''," * 40_000 + "1]")
    assert None is from_repr("[" + "''," * 20_000 + "1]")


def test_contents_that_hold_too_much_are_not_read():
    assert "" == text_of({"image": "x" * 300_000})
    assert "" == text_of({"rows": [1] * 300})
    assert '{"rows": [1]}' == text_of({"rows": [1]})


REPEATS = (sre_constants.MAX_REPEAT, sre_constants.MIN_REPEAT)


def unbounded(tree: Any, inside: bool = False) -> Iterator[str]:
    """Repeats without a limit inside another one that could give back what it took."""
    for op, value in tree:
        here = op in REPEATS and value[1] == sre_constants.MAXREPEAT
        if here and inside:
            yield str(value)
        for part in value if isinstance(value, tuple | list) else ():
            for inner in part if isinstance(part, list) else [part]:
                if isinstance(inner, sre_parse.SubPattern):
                    yield from unbounded(inner, inside or here)


ROOMS = (artifact, calls, effects, failure, printed, shell, tools)


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for room in ROOMS:
        for name, value in vars(room).items():
            if isinstance(value, re.Pattern):
                yield name, value
    yield from ((needle, pattern) for needle, pattern, _ in printed._PRINTED)


def test_no_pattern_repeats_without_limit_what_repeats_without_limit():
    assert {} == {
        name: found
        for name, pattern in patterns()
        if (found := list(unbounded(sre_parse.parse(pattern.pattern, pattern.flags))))
    }
