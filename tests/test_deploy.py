"""What ships beside the code fits it: image, compose file, Prometheus, Grafana; by reading them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.loading import load
from tests.deploy.boards import ALERTS, DASHBOARDS, DEPLOY, promtool
from tests.shared import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())
GRAFANA = ROOT / "deploy" / "grafana"

each_service = pytest.mark.parametrize("name", SERVICES)


# Dockerfile


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [
        (head, rest)
        for head, _, rest in (line.partition(" ") for line in joined.split("\n"))
        if head
    ]


def values(name: str) -> list[str]:
    return [rest for head, rest in instructions() if head == name]


def test_every_stage_starts_from_one_pinned_image() -> None:
    bases = {base.split(" AS ")[0] for base in values("FROM")}

    assert 2 == len(values("FROM"))
    assert {"python:3.13-slim-trixie"} == bases


def test_the_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    (user,) = values("USER")

    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    heads = [head for head, _ in instructions()]
    assert heads.index("USER") > max(i for i, head in enumerate(heads) if head in ("RUN", "COPY"))


def test_commands_are_in_exec_form_so_that_signals_arrive() -> None:
    for name in ("ENTRYPOINT", "CMD"):
        (value,) = values(name)
        assert all(isinstance(word, str) for word in json.loads(value))
    assert ["lethe"] == json.loads(values("ENTRYPOINT")[0])


def test_the_image_says_which_ports_it_has_and_holds_no_secret() -> None:
    assert ["4100 4101"] == values("EXPOSE")
    words = " ".join(values("ENV") + values("ARG")).upper()
    assert not re.search(r"TOKEN|SECRET|PASSWORD|API_KEY", words)


def test_steps_leave_no_package_cache_and_install_nothing_unasked() -> None:
    for step in values("RUN"):
        assert not re.search(r"apt-get|apk add|curl|wget|sudo", step)
        for pip in re.findall(r"pip (?:wheel|install)[^&]*", step):
            assert "--no-cache-dir" in pip
    assert not values("ADD")


def test_what_the_image_sets_loads_as_settings() -> None:
    environ = dict(re.findall(r"(LETHE_\w+)=(\S+)", " ".join(values("ENV"))))

    found = load({}, environ, ROOT / "config" / "lethe.toml", serving=False)

    assert ("0.0.0.0", "127.0.0.1") == (found.host, found.admin.host)


def test_the_build_context_holds_what_is_copied_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = {word.removeprefix("./") for rest in values("COPY") for word in rest.split()[:-1]}

    assert "*" == next(line for line in ignored if line and not line.startswith("#"))
    assert copied == let_in
    for name in copied:
        assert (ROOT / name).exists()


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" and self.server.well else 503)  # type: ignore[attr-defined]
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Health)
    with found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def exit_code_of_healthcheck(port: int) -> int:
    (value,) = values("HEALTHCHECK")
    python, *arguments = json.loads(value.partition("CMD ")[2])
    assert "python" == python
    # A proxy of the environment must not stand between the check and its own container.
    environ = {"LETHE_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environ, capture_output=True, check=False).returncode


def test_the_healthcheck_tells_well_from_ill_from_gone(server: ThreadingHTTPServer) -> None:
    server.well = True  # type: ignore[attr-defined]
    assert 0 == exit_code_of_healthcheck(server.server_port)

    server.well = False  # type: ignore[attr-defined]
    assert 0 != exit_code_of_healthcheck(server.server_port)

    assert 0 != exit_code_of_healthcheck(1)


# Compose


SERVICE_KEYS = set(
    "build cap_drop command depends_on environment extra_hosts healthcheck image init networks "
    "ports read_only restart secrets security_opt stop_grace_period tmpfs volumes".split()
)
HEALTHCHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def test_the_compose_file_has_known_parts_only() -> None:
    assert {"name", "services", "networks", "volumes", "secrets"} == set(COMPOSE)
    assert {"proxy", "redis", "prometheus", "grafana"} == set(SERVICES)


@each_service
def test_a_service_has_known_keys_of_the_right_shape(name: str) -> None:
    service = SERVICES[name]

    assert set(service) <= SERVICE_KEYS
    assert ("build" in service) != ("image" in service)
    for key in ("networks", "ports", "secrets", "security_opt", "tmpfs", "volumes", "command"):
        assert all(isinstance(item, str) for item in service.get(key, [])), key
    for value in service.get("environment", {}).values():
        assert isinstance(value, str), "YAML made a number or a truth value of it: put it in quotes"
    assert "unless-stopped" == service["restart"]


@each_service
def test_an_image_is_pinned_to_a_version(name: str) -> None:
    image = SERVICES[name].get("image")

    assert image is None or re.fullmatch(r"[a-z/]+:v?\d+\.\d+(\.\d+)?(-alpine)?", image)


@each_service
def test_a_service_can_be_asked_whether_it_is_well(name: str) -> None:
    service = SERVICES[name]
    if "build" in service:
        assert values("HEALTHCHECK")
        return
    check = service["healthcheck"]
    assert set(check) == HEALTHCHECK_KEYS
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    for key in ("interval", "timeout", "start_period"):
        assert re.fullmatch(r"\d+s", check[key])


@each_service
def test_a_service_waits_until_what_it_needs_is_well(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        assert {"condition": "service_healthy"} == how
        assert how["condition"] in CONDITIONS


@each_service
def test_what_a_service_names_is_declared_or_there(name: str) -> None:
    service = SERVICES[name]

    assert set(service["networks"]) <= set(COMPOSE["networks"])
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
    for volume in service.get("volumes", []):
        source, _, target = volume.partition(":")
        assert target.startswith("/")
        if source.startswith("./"):
            assert (ROOT / source).exists()
            assert target.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_every_network_volume_and_secret_is_used() -> None:
    used = {word.partition(":")[0] for s in SERVICES.values() for word in s.get("volumes", [])}
    assert set(COMPOSE["volumes"]) == {source for source in used if not source.startswith("./")}
    assert set(COMPOSE["networks"]) == {n for s in SERVICES.values() for n in s["networks"]}
    assert set(COMPOSE["secrets"]) == {n for s in SERVICES.values() for n in s.get("secrets", [])}


@each_service
def test_ports_are_published_on_this_machine_alone(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)


def test_redis_is_reached_by_the_proxy_alone() -> None:
    assert ["ledger"] == SERVICES["redis"]["networks"]
    assert {"internal": True} == COMPOSE["networks"]["ledger"]
    assert ["proxy", "redis"] == sorted(n for n, s in SERVICES.items() if "ledger" in s["networks"])
    assert "ports" not in SERVICES["redis"]


def test_redis_keeps_a_log_within_bounds_and_evicts_what_was_idle_longest() -> None:
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))

    assert "redis-server" == command[0]
    assert ("yes", "everysec") == (options["--appendonly"], options["--appendfsync"])
    assert re.fullmatch(r"\d+mb", options["--maxmemory"])
    assert "volatile-ttl" == options["--maxmemory-policy"]


def interpolated(text: str, environ: dict[str, str]) -> str:
    """`${NAME:-default}` and `${NAME:?complaint}` as Compose reads them."""

    def value(match: re.Match[str]) -> str:
        name, sign, word = match.groups()
        if not environ.get(name) and sign == ":?":
            raise KeyError(f"{name}: {word}")
        return environ.get(name) or word

    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, text)


def proxy_environment(**environ: str) -> dict[str, str]:
    given = SERVICES["proxy"]["environment"]
    return {name: interpolated(value, environ) for name, value in given.items()}


DOT_ENV = {"LETHE_UPSTREAM": "http://host.docker.internal:8080", "LETHE_ADMIN_TOKEN": "t0ken"}


def test_the_proxy_starts_on_what_the_compose_file_gives_it() -> None:
    environ = {"LETHE_HOST": "0.0.0.0"} | proxy_environment(**DOT_ENV)

    found = load({}, environ, ROOT / "config" / "lethe.toml")

    assert (2, "redis://redis:6379/0") == (found.workers, found.ledger.redis)
    assert ("0.0.0.0", "t0ken") == (found.admin.host, found.admin.token)
    assert found.policy is None


def test_the_proxy_has_time_to_drain_before_it_is_killed() -> None:
    grace = int(SERVICES["proxy"]["stop_grace_period"].removesuffix("s"))

    assert grace > load({}, {}, None, serving=False).drain_timeout


@pytest.mark.parametrize("missing", sorted(DOT_ENV))
def test_compose_refuses_to_start_without_upstream_or_token(missing: str) -> None:
    given = {name: value for name, value in DOT_ENV.items() if name != missing}

    with pytest.raises(KeyError, match=f"{missing}: set it in .env"):
        proxy_environment(**given)


def test_the_example_names_every_variable_that_compose_asks_for_and_gives_none_away() -> None:
    text = (ROOT / "deploy" / "env.example").read_text(encoding="utf-8")
    asked = set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))

    assert asked == set(re.findall(r"^#?(LETHE_\w+)=", text, re.MULTILINE))
    assert {""} == set(re.findall(r"^LETHE_\w+=(.*)$", text, re.MULTILINE))


# Prometheus


def test_prometheus_scrapes_the_admin_listener_with_the_token_that_compose_hands_over() -> None:
    (job,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "lethe"]
    ((target,),) = [each["targets"] for each in job["static_configs"]]
    host, _, port = target.partition(":")
    (secret,) = SERVICES["prometheus"]["secrets"]

    assert f"/run/secrets/{secret}" == job["authorization"]["credentials_file"]
    assert {"environment": "LETHE_ADMIN_TOKEN"} == COMPOSE["secrets"][secret]
    assert host in SERVICES
    assert host in SERVICES["proxy"]["environment"]["LETHE_ADMIN_ALLOWED_HOSTS"].split(",")
    assert int(port) == load({}, {}, None, serving=False).admin.port
    assert set(SERVICES["prometheus"]["networks"]) & set(SERVICES[host]["networks"])


def test_promtool_accepts_the_configuration() -> None:
    promtool("check", "config", "--syntax-only", str(DEPLOY / "prometheus.yml"))


def test_the_alerts_lie_where_prometheus_looks_for_them_here_and_in_the_container() -> None:
    (named,) = PROMETHEUS["rule_files"]
    volumes = [volume.split(":") for volume in SERVICES["prometheus"]["volumes"]]
    config = next(target for source, target, *_ in volumes if source.endswith("prometheus.yml"))

    assert ALERTS == DEPLOY / named
    mounted_at = next(t for source, t, *_ in volumes if ALERTS == (ROOT / source).resolve())
    assert str(Path(config).parent / named) == mounted_at


# Grafana


def provisioned(kind: str) -> dict[str, Any]:
    (file,) = (GRAFANA / "provisioning" / kind).glob("*.yml")
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert 1 == found["apiVersion"]
    return found


def mounted(path: str) -> str:
    """Where a path of the repository stands in Grafana's container."""
    volumes: list[str] = SERVICES["grafana"]["volumes"]
    parts = [volume.removesuffix(":ro").partition(":") for volume in volumes]
    return next(target for source, _, target in parts if source == path)


def test_the_datasource_is_the_prometheus_of_the_compose_file() -> None:
    (source,) = provisioned("datasources")["datasources"]

    assert ("prometheus", "http://prometheus:9090") == (source["type"], source["url"])
    assert PROMETHEUS["global"]["scrape_interval"] == source["jsonData"]["timeInterval"]
    assert set(SERVICES["grafana"]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_dashboards_are_read_from_the_folder_that_is_mounted() -> None:
    (provider,) = provisioned("dashboards")["providers"]
    environ = SERVICES["grafana"]["environment"]

    assert mounted("./deploy/grafana/dashboards") == provider["options"]["path"]
    assert "/etc/grafana/provisioning" == mounted("./deploy/grafana/provisioning")
    home = Path(environ["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert provider["options"]["path"] == str(home.parent)
    assert home.name in [path.name for path in DASHBOARDS]


def test_whoever_looks_needs_no_password_and_changes_nothing() -> None:
    environ = SERVICES["grafana"]["environment"]

    assert ("true", "Viewer") == (
        environ["GF_AUTH_ANONYMOUS_ENABLED"],
        environ["GF_AUTH_ANONYMOUS_ORG_ROLE"],
    )
    assert "true" == environ["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"]


def test_the_licence_is_mit_and_names_its_holders() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")

    assert text.startswith("MIT License\n\nCopyright (c) 2026 The Lethe authors\n")
    assert 'THE SOFTWARE IS PROVIDED "AS IS"' in text


# The Makefile


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_serve_says_what_it_lacks_before_it_installs_anything(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "UPSTREAM"}
    venv = tmp_path / "venv"
    typed = ["make", "-C", str(ROOT), "serve", f"VENV={venv}"]
    ended = subprocess.run(typed, capture_output=True, text=True, env=environ)

    assert (2, False) == (ended.returncode, venv.exists())
    assert "make serve UPSTREAM=https://" in ended.stderr
