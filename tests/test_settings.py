from __future__ import annotations

import dataclasses
import pickle
import re
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from proxy import loading, reading, settings
from proxy.core import artifact
from proxy.errors import SettingsError
from proxy.loading import load, overridable, variable_of
from proxy.settings import KeySettings, Settings, UpstreamSettings
from tests.shared import ROOT

FILE = ROOT / "config" / "lethe.toml"
URL = "https://api.example.com/v1"


def of_file(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "lethe.toml"
    file.write_text(text)
    return load({}, environ, file, serving=False)


def refusal(tmp_path: Path, text: str = "", argv: Any = None, **environ: str) -> str:
    """What is said of settings that cannot be used, with the file's folder left out."""
    file = tmp_path / "lethe.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load({"upstream": URL} | (argv or {}), environ, file)
    return str(refused.value).replace(f"{tmp_path}/", "")


# Precedence


def test_without_anything_said_the_defaults_hold() -> None:
    assert Settings() == load({}, {}, None, serving=False)


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text('host = "10.0.0.1"\nport = 1\nworkers = 1\n[ledger]\nttl = 60\n')
    environ = {"LETHE_HOST": "10.0.0.2", "LETHE_PORT": "2", "LETHE_LEDGER_TTL": "120.5"}

    found = load({"host": "10.0.0.3", "port": None}, environ, file, serving=False)

    assert ("10.0.0.3", 2, 1) == (found.host, found.port, found.workers)
    assert 120.5 == found.ledger.ttl


def test_the_command_line_may_bring_texts_or_values() -> None:
    as_texts = load({"upstream": URL, "port": "8080", "policy": "drop"}, {}, None)
    as_values = load({"upstream": URL, "port": 8080, "policy": "drop"}, {}, None)

    assert as_values == as_texts
    assert 8080 == as_texts.port


def test_shadows_and_what_is_to_come_are_read_from_file_and_variables(tmp_path: Path) -> None:
    text = 'policy = "observe"\nshadow = ["keep_latest", "random:.5"]\n[horizon]\nremaining = 40\n'

    found = of_file(tmp_path, text, LETHE_HORIZON_EXCHANGE_RATE="24000")

    assert ("observe", ("keep_latest:1", "random:0.5")) == (found.policy, found.shadow)
    assert (40, 24_000, "auto") == (
        found.horizon.remaining,
        found.horizon.exchange_rate,
        found.horizon.by,
    )
    assert ("drop",) == of_file(tmp_path, text, LETHE_SHADOW="drop").shadow
    assert of_file(tmp_path, text, LETHE_HORIZON_REMAINING="").horizon.remaining == 40


def test_an_empty_variable_counts_as_unset() -> None:
    assert 4100 == load({}, {"LETHE_PORT": ""}, None, serving=False).port


def test_an_empty_option_takes_away_what_the_file_set(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text('[ledger]\nredis = "redis://store:6379/0"\n')

    assert load({"redis": ""}, {}, file, serving=False).ledger.redis is None


def test_every_kind_of_value_is_read_from_a_variable() -> None:
    environ = {
        "LETHE_REDIS": "rediss://:pass@store:6380/1",
        "LETHE_WORKERS": "4",
        "LETHE_METRICS_GEN_AI": "true",
        "LETHE_LEDGER_HISTORY": "digests",
        "LETHE_ADMIN_ALLOWED_HOSTS": "proxy, metrics.internal",
        "LETHE_SCOPE_HEADER": "x-user",
    }

    found = load({}, environ, None, serving=False)

    assert "rediss://:pass@store:6380/1" == found.ledger.redis
    assert (4, True, "digests") == (found.workers, found.metrics.gen_ai, found.ledger.history)
    assert ("proxy", "metrics.internal") == found.admin.allowed_hosts
    assert "x-user" == found.scope_header


@pytest.mark.parametrize(
    "url",
    [
        "redis://store",
        "unix:///run/redis.sock?db=1",
        "redis+sentinel://:pass@one:26379,two:26379/lethe/0",
        "rediss+cluster://one:6379,two:6379",
    ],
)
def test_every_shape_of_a_store_is_taken(url: str) -> None:
    assert url == load({"redis": url}, {}, None, serving=False).ledger.redis


def test_each_variable_and_each_option_has_one_name_of_its_own() -> None:
    paths = overridable()

    assert len(paths) == len({variable_of(path) for path in paths})
    assert len(paths) == len({loading.option_of(path) for path in paths})


# Upstreams and keys


def test_the_url_of_the_default_upstream_comes_from_outside_with_or_without_v1() -> None:
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1", "https://[::1]:8443/v1"):
        assert (UpstreamSettings(url=url),) == load({"upstream": url + "/"}, {}, None).upstreams
        assert (UpstreamSettings(url=url),) == load({}, {"LETHE_UPSTREAM": url}, None).upstreams


def test_a_url_from_outside_is_that_of_the_default_upstream_and_makes_it_the_first(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lethe.toml"
    file.write_text(
        '[[upstream]]\nname = "engine"\nurl = "http://engine:8000"\nmodels = ["qwen*"]\n'
        '[[upstream]]\ncontract = "vllm"\n'
    )

    first, second = load({"upstream": URL}, {}, file).upstreams

    assert ("default", URL, "vllm") == (first.name, first.url, first.contract)
    assert ("engine", ("qwen*",)) == (second.name, second.models)


def test_rows_are_read_in_their_order(tmp_path: Path) -> None:
    found = of_file(
        tmp_path,
        '[[upstream]]\nname = "a"\nurl = "http://a"\n[[upstream]]\nname = "b"\nurl = "http://b"\n'
        f'keys = ["alice"]\n[[key]]\nalias = "alice"\nkey_sha256 = "{"AB" * 32}"\npolicy = "keep"\n'
        '[model_policies]\n"deepseek-*" = "drop"\n"*" = "random:0.50"\n',
    )

    assert ["a", "b"] == [up.name for up in found.upstreams]
    assert (
        KeySettings("alice", key_sha256="ab" * 32, sha256="ab" * 32, policy="keep"),
    ) == found.keys
    assert (("deepseek-*", "drop"), ("*", "random:0.50")) == found.model_policies


def test_a_key_held_by_a_variable_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    text = '[[key]]\nalias = "alice"\nkey_env = "LETHE_KEY_ALICE"\n'

    (key,) = of_file(tmp_path, text, LETHE_KEY_ALICE="sk-alice\n").keys

    assert sha256(b"sk-alice").hexdigest() == key.sha256
    assert "sk-alice" not in repr(dataclasses.asdict(key))


# Secrets


def test_secrets_come_from_the_variables_that_are_named_and_show_in_no_repr(tmp_path: Path) -> None:
    text = (
        '[ledger]\nredis = "redis://:hidden@store"\nencryption_key_env = "AT_REST"\n'
        '[admin]\ntoken_env = "TOKEN"\n[[upstream]]\nurl = "http://a"\napi_key_env = "UP"\n'
        '[[key]]\nalias = "alice"\nkey_env = "ALICE"\n'
    )
    hidden = dict.fromkeys(("LETHE_SECRET", "AT_REST", "TOKEN", "UP", "ALICE"), "hidden")

    found = of_file(tmp_path, text, **hidden)

    assert "hidden" == found.secret == found.ledger.encryption_key == found.admin.token
    assert "hidden" == found.upstreams[0].api_key
    assert "hidden" not in repr(found)
    assert sha256(b"hidden").hexdigest() not in repr(found)


def test_a_variable_that_is_named_has_to_be_there(tmp_path: Path) -> None:
    text = '[ledger]\nencryption_key_env = "AT_REST"\n[[upstream]]\napi_key_env = "UP"\n'

    said = refusal(tmp_path, text, UP=" ")

    assert "lethe.toml: [ledger] encryption_key_env: the environment has no AT_REST" in said
    assert "lethe.toml: [[upstream]] 1 api_key_env: the environment has no UP" in said


@pytest.mark.parametrize(
    "text",
    [
        'secret = "sk-hidden"',
        '[admin]\ntoken = "sk-hidden"',
        '[ledger]\nredis = "http://:sk-hidden@store"',
        '[ledger]\nredis = "redis://:sk-hidden@store:port"',
        '[ledger]\nredis = "redis://:sk-hidden@"',
        '[ledger]\nencryption_key = "sk-hidden"',
        '[ledger]\nencryption_key_env = "sk-hidden"',
        '[[upstream]]\nurl = "https://sk-hidden@api.example.com"',
        '[[upstream]]\nurl = "ftp://user:sk-hidden@api.example.com"',
        '[[upstream]]\napi_key = "sk-hidden"',
        '[[upstream]]\napi_key_env = "sk-hidden"',
        '[[key]]\nalias = "a"\nkey = "sk-hidden"',
        '[[key]]\nalias = "a"\nkey_env = "sk-hidden"',
        '[[key]]\nalias = "a"\nkey_sha256 = "sk-hidden"',
    ],
)
def test_what_may_be_a_secret_is_refused_and_not_repeated(tmp_path: Path, text: str) -> None:
    assert "sk-hidden" not in refusal(tmp_path, text, argv={"upstream": None})


def test_a_secret_in_the_file_is_told_where_it_belongs(tmp_path: Path) -> None:
    said = refusal(tmp_path, '[admin]\ntoken = "x"')

    assert "[admin] token: a secret does not stand here: name its variable with token_env" in said


# Refusals


def test_all_complaints_come_at_once_each_with_its_place_what_came_and_what_is_known(
    tmp_path: Path,
) -> None:
    text = """
        prot = 1
        policy = "kep"
        workers = 0
        [ledger]
        history = "ful"
        ttl = -1
        [[upstream]]
        name = "a"
        url = "api.example.com"
        [[key]]
        alias = "two words"
    """

    said = refusal(tmp_path, text, argv={"max_body_bytes": 0}, LETHE_ADMIN_PORT="http")

    for complaint in (
        "lethe.toml: prot: is unknown; did you mean port? known: host, port,",
        "lethe.toml: policy: policy 'kep' is unknown; known: keep, drop, after_artifact,",
        "did you mean keep?",
        "lethe.toml: workers: got 0; wanted a whole number from 1 to 256",
        "lethe.toml: [ledger] history: got 'ful'; did you mean full? known: full, digests",
        "lethe.toml: [ledger] ttl: got -1; wanted a number of seconds above 0",
        "lethe.toml: [[upstream]] 1 url: got 'api.example.com'; wanted an http or https URL",
        "lethe.toml: [[key]] 1 alias: got 'two words'; wanted a name of up to 64 letters",
        "[[key]] 1 (): wanted either key_env or key_sha256",
        "LETHE_ADMIN_PORT: got 'http'; wanted a whole number from 0 to 65535",
        "--max-body-bytes: got 0; wanted a whole number from 1",
    ):
        assert complaint in said
    assert said.startswith("10 settings cannot be used:\n  ")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("port = true", "port: got True; wanted a whole number from 0 to 65535"),
        ('port = "4100"', "port: got '4100'; wanted a whole number"),
        ("port = 70000", "port: got 70000; wanted a whole number from 0 to 65535"),
        ("drain_timeout = inf", "drain_timeout: got inf; wanted a number of seconds above 0"),
        ("drain_timeout = nan", "drain_timeout: got nan; wanted a number of seconds above 0"),
        ('virtual_keys = "yes"', "virtual_keys: got 'yes'; wanted true or false"),
        ('host = ""', "host: got ''; wanted a host name or address"),
        ('scope_header = "X-User"', "scope_header: got 'X-User'; wanted a header name in lower"),
        ('session_headers = "x-a"', "session_headers: got 'x-a'; wanted a list"),
        ('session_headers = ["a b"]', "session_headers: got 'a b'; wanted a header name"),
        ('policy = "keep_latest:0"', "policy: policy 'keep_latest:0': want a whole number"),
        ('policy = "random:2"', "policy: policy 'random:2': want a share from 0 to 1"),
        ('policy = "drop:1"', "policy: policy 'drop:1': drop takes no value"),
        ("policy = 1", "policy: got 1; wanted one of keep, drop"),
        ('shadow = "drop"', "shadow: got 'drop'; wanted a list"),
        ('shadow = ["dorp"]', "shadow: policy 'dorp' is unknown;"),
        ('shadow = ["observe"]', "shadow: got 'observe'; wanted a policy that drops something"),
        ('shadow = ["keep"]', "shadow: got 'keep'; wanted a policy that drops something"),
        ('shadow = ["off"]', "shadow: got 'off'; wanted a policy that drops something"),
        ('shadow = ["drop", "drop"]', "shadow: drop stands twice; each policy is looked at once"),
        (
            f"shadow = {[f'keep_latest:{n}' for n in range(1, 10)]}",
            "shadow: got 9 policies; wanted 8 at most",
        ),
        ('[horizon]\nby = "money"', "[horizon] by: got 'money'; known: auto, bill, operations"),
        ("[horizon]\nremaining = 0", "[horizon] remaining: got 0; wanted a whole number from 1"),
        ("[horizon]\nexchange_rate = 1.5", "[horizon] exchange_rate: got 1.5; wanted a whole"),
        (
            'log = "no/such/folder/log"',
            "log: got 'no/such/folder/log', whose folder does not exist",
        ),
        ('log = ""', "log: got ''; wanted stdout, stderr, off or the path of a file"),
        (
            '[artifact]\nerror_patterns = ["("]',
            "[artifact] error_patterns: got '('; wanted a regular",
        ),
        (
            '[artifact]\nerror_patterns = [""]',
            "[artifact] error_patterns: got ''; wanted a regular",
        ),
        ("ledger = 3", "[ledger]: got 3; wanted a table"),
        ("model_policies = []", "model_policies: got a list; wanted a table"),
        ('[model_policies]\n"a*" = "dorp"', "model_policies: policy 'dorp' is unknown;"),
        ("[[upstream]]\nurl = 3", "[[upstream]] 1 url: got 3; wanted an http or https URL"),
        (
            '[[upstream]]\nurl = "http://[::1"',
            "url: got 'http://[::1'; wanted an http or https URL",
        ),
        ("upstream = 3", "upstream: got 3; wanted tables, each below its own [[upstream]]"),
        ("upstream = [3]", "[[upstream]] 1: got 3; wanted a table"),
        ('[[upstream]]\nurl = "http://"', "[[upstream]] 1 url: got 'http://'; wanted an http"),
        ('[[upstream]]\nurl = "http://a?b"', "and no query or fragment"),
        ('[[upstream]]\nurl = "http://a:0"', "[[upstream]] 1 url: got 'http://a:0'; wanted"),
        (
            '[[upstream]]\nca_file = "none.pem"',
            "ca_file: got 'none.pem'; wanted a file that can be",
        ),
        ('[[upstream]]\nstream_usage = "never"', "stream_usage: got 'never'; known: ask, always,"),
        ('[[key]]\nkey_env = "A"', "[[key]] 1 alias: got ''; wanted a name"),
        (
            "[ledger]\nmax_bytes = {}",
            "[ledger] max_bytes: got a table; wanted a whole number from 1",
        ),
        ("port = ", "lethe.toml: is not TOML: Invalid value (at end of document)"),
    ],
)
def test_a_bad_value_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in refusal(tmp_path, text)


def test_a_long_value_is_cut_where_it_is_repeated(tmp_path: Path) -> None:
    said = refusal(tmp_path, f'log = "{"x/" * 400}"')

    assert len(said) < 300


@pytest.mark.parametrize(
    ("text", "argv", "complaint"),
    [
        ("", {"workers": 4}, "4 workers without Redis"),
        ("", {"workers": 4}, "give --redis URL (LETHE_REDIS, [ledger] redis), or run 1 worker"),
        ("", {"upstream": "api.example.com"}, "--upstream: got 'api.example.com'; wanted an http"),
        ("", {"upstream": None}, "no upstream: give --upstream URL, set LETHE_UPSTREAM or write"),
        ('[[upstream]]\nname = "a"', {}, "[[upstream]] 2 (a): url is wanted"),
        ("", {"admin_host": "0.0.0.0"}, "there is no token: set LETHE_ADMIN_TOKEN, or listen on"),
        ("", {"admin_host": "::"}, "[admin] host :: can be reached from outside"),
        ("", {"admin_host": "metrics.example"}, "can be reached from outside"),
        ("port = 4101", {}, "port and [admin] port are both 4101; each listener wants its own"),
        (
            '[[upstream]]\nname = "a"\nurl = "http://a"\n[[upstream]]\nname = "a"\nurl = "http://b"',
            {},
            "[[upstream]] 3 (a): another upstream has this name",
        ),
        (
            f'[[upstream]]\nclient_key = "{FILE}"',
            {},
            "[[upstream]] 1 (default): client_key without client_cert",
        ),
        ('[[upstream]]\nkeys = ["bob"]', {}, "no [[key]] has the alias bob; known: none"),
        ('[[key]]\nalias = "a"', {}, "[[key]] 1 (a): wanted either key_env or key_sha256"),
        (
            f'[[key]]\nalias = "a"\nkey_sha256 = "{"0" * 64}"\nupstream = "defualt"',
            {},
            "no [[upstream]] is named defualt; did you mean default? known: default",
        ),
        (
            f'[[key]]\nalias = "a"\nkey_sha256 = "{"0" * 64}"\n' * 2,
            {},
            "[[key]]: the alias a stands twice",
        ),
        (
            f'[[key]]\nalias = "a"\nkey_sha256 = "{"0" * 64}"\n'
            f'[[key]]\nalias = "b"\nkey_sha256 = "{"0" * 64}"\n',
            {},
            "[[key]]: a, b are one and the same key",
        ),
        (
            f'[[key]]\nalias = "a"\nkey_sha256 = "{"0" * 64}"\nvirtual = true',
            {},
            "[[key]] 1 (a): is virtual, and no api_key_env gives the key of default",
        ),
        ("virtual_keys = true", {}, "no [[key]] has virtual = true: nobody could get in"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_way_out(
    tmp_path: Path, text: str, argv: dict[str, Any], complaint: str
) -> None:
    assert complaint in refusal(tmp_path, text, argv)


def test_a_bad_value_is_complained_of_once_not_again_for_what_it_was_to_fit(tmp_path: Path) -> None:
    said = refusal(tmp_path, '[ledger]\nredis = "localhost"', {"workers": 4})

    assert said.startswith("1 setting cannot be used:\n  lethe.toml: [ledger] redis: wanted redis:")


def test_a_token_or_loopback_makes_the_admin_listener_good() -> None:
    token = {"LETHE_ADMIN_TOKEN": "t0ken"}

    assert "t0ken" == load({"admin_host": "0.0.0.0"}, token, None, serving=False).admin.token
    for host in ("localhost", "127.0.0.9", "::1"):
        assert host == load({"admin_host": host}, {}, None, serving=False).admin.host


def test_two_listeners_may_both_let_the_system_choose_a_port() -> None:
    found = load({"port": 0, "admin_port": 0}, {}, None, serving=False)

    assert (0, 0) == (found.port, found.admin.port)


def test_an_unknown_variable_or_option_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, argv={"polcy": "drop"}, LETHE_POLCY="drop")

    assert "LETHE_POLCY: is unknown; did you mean LETHE_POLICY?" in said
    assert "polcy: is unknown; did you mean policy?" in said


def test_variables_of_others_are_let_be() -> None:
    environ = {
        "LETHE_CONFIG": "lethe.toml",
        "LETHE_VENV": ".venv",
        "PATH": "/bin",
        "LETHE_PORT": "tcp://10.0.0.7:4100",
        "LETHE_PORT_4100_TCP": "tcp://10.0.0.7:4100",
        "LETHE_PORT_4100_TCP_ADDR": "10.0.0.7",
        "LETHE_SERVICE_HOST": "10.0.0.7",
        "LETHE_SERVICE_PORT_HTTP": "4100",
    }

    assert Settings() == load({}, environ, None, serving=False)


@pytest.mark.parametrize("content", [None, b'host = "\xff"'])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "lethe.toml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(SettingsError, match="lethe.toml: cannot be read: "):
        load({}, {}, file)


# Artifact rules


def test_without_a_word_the_built_in_tables_hold() -> None:
    assert artifact.DEFAULT == settings.artifact_rules(Settings())


def test_a_tool_that_is_named_leaves_the_built_in_tables(tmp_path: Path) -> None:
    found = of_file(tmp_path, '[artifact]\nnever_writing_tools = ["Write_File", "remember"]\n')

    rules = settings.artifact_rules(found)

    assert {
        "writefile",
        "remember",
    } == rules.never_writing_tools - artifact.DEFAULT.never_writing_tools
    assert {"writefile"} == artifact.DEFAULT.writing_tools - rules.writing_tools
    assert artifact.DEFAULT.shell_tools == rules.shell_tools


def test_a_key_adds_to_what_is_set_for_all_and_has_the_last_word(tmp_path: Path) -> None:
    text = (
        '[artifact]\nwriting_tools = ["publish", "note"]\nerror_patterns = ["^E[0-9]+"]\n'
        f'[[key]]\nalias = "a"\nkey_sha256 = "{"0" * 64}"\nartifact.reading_tools = ["note"]\n'
        'artifact.error_patterns = ["(?i)denied"]\nartifact.writing_patterns = ["make deploy"]\n'
    )
    found = of_file(tmp_path, text)

    rules = settings.artifact_rules(found, found.keys[0])

    assert {"publish"} == rules.writing_tools & {"publish", "note"}
    assert "note" in rules.reading_tools
    assert ["^E[0-9]+", "(?i)denied"] == [pattern.pattern for pattern in rules.error_patterns]
    assert ["make deploy"] == [pattern.pattern for pattern in rules.writing_patterns]
    assert "note" in settings.artifact_rules(found).writing_tools


def test_prices_stand_in_a_file_of_their_own_whose_complaints_come_with_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "prices.toml").write_text('[[price]]\nmodel = "v4*"\ninput = -1\n')

    told = refusal(tmp_path, f'port = -1\nprices = "{tmp_path}/prices.toml"\n')

    for place in ("lethe.toml: port:", "prices.toml: [[price]] 1 input:", "[[price]] 1 output:"):
        assert place in told


def test_a_file_of_prices_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "prices: got 'nowhere.toml'; wanted a file" in refusal(
        tmp_path, 'prices = "nowhere.toml"'
    )


# The value


def test_settings_are_frozen_and_travel_to_worker_processes(tmp_path: Path) -> None:
    found = of_file(tmp_path, '[[upstream]]\nurl = "http://a"\n[model_policies]\n"a" = "drop"\n')

    assert found == pickle.loads(pickle.dumps(found))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.port = 1  # type: ignore[misc]


# The file


def settings_in(text: str) -> str:
    """The file with every key that stands in it taken at its default."""
    return re.sub(r'^#(?=[a-z0-9_.]+ = |"|\[)', "", text, flags=re.MULTILINE)


def test_the_file_as_shipped_loads_to_the_defaults() -> None:
    assert Settings() == load({}, {}, FILE, serving=False)


def test_the_file_holds_every_key_at_its_default_and_no_other() -> None:
    raw = tomllib.loads(settings_in(FILE.read_text(encoding="utf-8")))

    assert_holds(Settings, raw)


EXAMPLES = {"url", "alias", "model_policies"}


def assert_holds(cls: type, raw: dict[str, Any]) -> None:
    assert sorted(reading.keys_of(cls)) == sorted(raw)
    for name, shape in reading.shapes(cls).items():
        given: Any = raw.get(reading.key_of(name, shape))
        match shape:
            case reading.Table():
                assert_holds(shape.of, given)
            case reading.Rows():
                (row,) = given
                assert_holds(shape.of, row)
            case reading.Kind() if name not in EXAMPLES:
                assert reading.default_of(cls, name) == shape.accept(given), name


def test_every_key_of_the_file_has_words_above_it() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.match(r"#?\[|#[a-z0-9_.]+ = ", line):
            above = lines[number - 1]
            assert re.match(r"# |#[a-z0-9_.]+ = ", above), f"line {number + 1}: {line}"


def test_the_examples_of_the_file_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "lethe.toml"
    text = settings_in(FILE.read_text(encoding="utf-8"))
    file.write_text(text.replace('key_env = ""\nkey_sha256', 'key_env = "ALICE"\nkey_sha256', 1))

    found = load({}, {"ALICE": "sk"}, file)

    assert ("https://api.example.com/v1", "example") == (
        found.upstreams[0].url,
        found.keys[0].alias,
    )
