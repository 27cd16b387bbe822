"""The ledger in a Redis elsewhere: in a Cluster, at the master that Sentinel names, behind TLS."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
import redis

from proxy.core.verdict import DROP, KEEP
from proxy.ledger.contract import Entry, Grade
from proxy.ledger.in_redis import InRedis
from proxy.ledger.scripts import Keys
from tests.doors.redis_server import PATIENCE, Server, binaries, free_port, running
from tests.doors.test_redis import a_conversation, failures, opened, until
from tests.ledger.words import (
    NOW,
    SCOPE,
    ask,
    digest,
    echo,
    elements,
    kept,
    links,
    offer,
    record,
    reply,
    settled,
    written,
)  # fmt: skip


@pytest.fixture(params=binaries(), scope="module")
def binary(request: pytest.FixtureRequest) -> str | None:
    found: str | None = request.param
    return found


# Cluster.


@pytest.fixture(scope="module")
def cluster(binary: str | None) -> Iterator[list[Server]]:
    """Two nodes that share the slots between them. It takes them seconds to agree on that."""
    with ExitStack() as stack:
        buses = [free_port(), free_port()]
        servers = [
            stack.enter_context(
                running(binary, ["--cluster-enabled", "yes", "--cluster-port", str(bus)], tcp=True)
            )
            for bus in buses
        ]
        servers[0].ask("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
        servers[1].ask("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
        servers[0].ask("CLUSTER", "MEET", "127.0.0.1", str(servers[1].port), str(buses[1]))
        deadline = time.monotonic() + PATIENCE
        while not all(_whole(server) for server in servers):
            if time.monotonic() > deadline:
                raise RuntimeError("the cluster did not form")
            time.sleep(0.02)
        yield servers


@pytest.fixture
def nodes(cluster: list[Server]) -> list[Server]:
    for node in cluster:
        node.flush()
    return cluster


def _whole(server: Server) -> bool:
    with redis.Redis.from_url(server.url) as client:
        state = client.execute_command("CLUSTER INFO")
        return bool(state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "2")


def cluster_url(nodes: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


async def test_cluster_settles_and_remembers_across_nodes(nodes: list[Server]) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        for number in range(8):
            await a_conversation(one, text="text", name=f"c{number}")
        chains = [links(7, f"c{number}") for number in range(8)]

        answers = [await other.settle(ask(c, offer(c, 1, 3, KEEP))) for c in chains]
        listed = await other.conversations(SCOPE, 20)
        found = await other.conversation(chains[0][0].hex())
        recalled = await other.recall(chains[0][1], [digest("c0", 0), digest("c0", 3)])

        assert [{chain[1]: DROP} for chain in chains] == [answer.verdicts for answer in answers]
        assert all(answer.shared for answer in answers)
        assert all(
            answer.last_sent and elements(*range(7)) == answer.last_sent.elements
            for answer in answers
        )
        assert {chain[1].hex() for chain in chains} == {summary.id for summary in listed}
        assert found is not None
        assert [0, 1, 2, 3] == [outcome["turn"] for outcome in found.outcomes]
        assert 4 == len(found.entries)
        assert {digest("c0", 0), digest("c0", 3)} == set(recalled)
        assert {} == failures(one) == failures(other)


async def test_cluster_finds_by_hint_what_lies_on_another_node(nodes: list[Server]) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        for number in range(8):
            chain = links(3, f"c{number}")
            hints = [digest("session", number)]
            one.remember(record(chain, elements(number), hints=hints))
        await written(one)

        for number in range(8):
            hints = [digest("none"), digest("session", number)]
            found = await other.settle(ask(links(3, f"edited {number}"), hints=hints))

            assert found.by_hint
            assert found.last_sent is not None
            assert elements(number) == found.last_sent.elements


async def test_cluster_grades_and_finds_by_label_on_whatever_node(nodes: list[Server]) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        chains = [links(3, f"c{number}") for number in range(8)]
        for number, chain in enumerate(chains):
            one.remember(record(chain, elements(1), NOW + number, {"task": "mend", "n": number}))
        await written(one)
        ids = [chain[1].hex() for chain in chains]

        taken = [await other.grade(SCOPE, id, Grade(True)) for id in ids]
        found = await other.labelled(None, "mend", 20)
        accounts = await other.accounts(ids)
        forgotten = await other.forget(ids[0])

        assert ids == taken
        assert list(reversed(ids)) == [it.id for it in found]
        assert {Grade(True)} == {it.grade for it in found}
        assert list(range(8)) == [it["n"] for own in accounts for it in own]
        assert forgotten
        assert ids[0] not in {it.id for it in await one.labelled(None, "mend", 20)}
        assert {} == failures(one) == failures(other)


async def test_cluster_puts_nothing_that_was_judged_under_another_set_policy(
    nodes: list[Server],
) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        chain = links(5)
        await one.settle(ask(chain, offer(chain, 1, 3, DROP)))
        assert await one.set_policy(SCOPE, "keep")

        stale = await other.settle(ask(chain, offer(chain, 1, 3, KEEP), offer(chain, 3, 5, DROP)))
        anew = await other.settle(ask(chain, offer(chain, 3, 5, KEEP), setting="keep"))

        assert ({chain[1]: DROP}, 0, "keep") == (stale.verdicts, stale.won, stale.setting)
        assert ({chain[3]: KEEP}, 1) == (anew.verdicts, anew.won)


async def test_cluster_has_one_winner_and_forgets(nodes: list[Server]) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        chain = links(3)
        asks = [ask(chain, offer(chain, 1, 3, verdict)) for verdict in (DROP, KEEP) * 10]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task((one, other)[number % 2].settle(question))
                for number, question in enumerate(asks)
            ]
        one.remember(record(chain, elements(1), NOW, entries=[Entry(digest(1), b"text")]))
        await written(one)
        forgotten = await one.forget(chain[1].hex())

        assert 1 == sum(task.result().won for task in tasks)
        assert forgotten
        assert await other.conversation(chain[1].hex()) is None
        assert [] == await other.conversations(None, 10)


async def test_cluster_that_goes_away_and_comes_back(nodes: list[Server]) -> None:
    chain = links(5)
    async with opened(cluster_url(nodes), timeout=0.5) as ledger:
        await settled(ledger, ask(chain, offer(chain, 1, 3, DROP)))
        for node in nodes:
            node.pause()
        alone = await ledger.settle(ask(chain, offer(chain, 3, 5, KEEP)))
        for node in nodes:
            node.resume()
        await until(ledger, "up")
        await written(ledger)
        after = await settled(ledger, ask(chain, offer(chain, 3, 5, DROP)))

        assert (False, {chain[3]: KEEP}) == (alone.shared, alone.verdicts)
        assert {chain[3]: KEEP} == after.verdicts


async def test_cluster_finds_replies_pins_and_lessons_on_whatever_node(
    nodes: list[Server],
) -> None:
    async with opened(cluster_url(nodes)) as one, opened(cluster_url(nodes)) as other:
        for number in range(8):
            chain = links(3, f"c{number}")
            first = await one.keep(kept(chain[:1], reply(number), "ids", "text"))
            await one.settle(ask(chain[:1], pins={"encoding": b"empty"}))
            learned = await one.learn(f"lesson {number}", b"value", 60)

            found = await other.settle(
                ask(
                    chain, offer(chain, 1, 3, DROP), echoes=[echo(chain, 1, "none", "text")],
                    pins={"encoding": b"absent"},
                )
            )  # fmt: skip

            assert (True, True) == (first, learned)
            assert {chain[1]: reply(number)} == found.echoes
            assert ({"encoding": b"empty"}, 1) == (found.pins, found.won)
            assert b"value" == await other.lesson(f"lesson {number}")
        assert {} == failures(one) == failures(other)


async def test_cluster_that_does_not_answer_holds_up_no_reply(nodes: list[Server]) -> None:
    chain = links(3)
    async with opened(cluster_url(nodes), timeout=0.5) as one, opened(cluster_url(nodes)) as other:
        await settled(one, ask(chain))
        for node in nodes:
            node.pause()
        taken = await one.keep(kept(chain[:1], reply(1), "ids"))
        for node in nodes:
            node.resume()
        await until(one, "up")
        await written(one)
        found = await settled(other, ask(chain, echoes=[echo(chain, 1, "ids")]))

        assert not taken
        assert {chain[1]: reply(1)} == found.echoes


# Sentinel.


@asynccontextmanager
async def watched(binary: str | None, tmp_path: Path) -> AsyncIterator[tuple[str, list[Server]]]:
    """A master and its replica, and the URL of the Sentinel that watches them."""
    config = tmp_path / "sentinel.conf"
    with ExitStack() as stack:
        at_once = ["--repl-diskless-sync-delay", "0"]
        master = stack.enter_context(running(binary, at_once, tcp=True))
        replica = stack.enter_context(
            running(binary, [*at_once, "--replicaof", "127.0.0.1", str(master.port)], tcp=True)
        )
        config.write_text(
            f"sentinel monitor thread 127.0.0.1 {master.port} 1\n"
            "sentinel down-after-milliseconds thread 300\n"
            "sentinel failover-timeout thread 1000\n"
        )
        sentinel = stack.enter_context(running(binary, ["--sentinel"], tcp=True, config=config))
        async with asyncio.timeout(PATIENCE):
            while not _has_replica(sentinel):  # noqa: ASYNC110  (it is polled)
                await asyncio.sleep(0.05)
        yield f"redis+sentinel://127.0.0.1:{sentinel.port}/thread/0", [master, replica]


def _has_replica(sentinel: Server) -> bool:
    with redis.Redis.from_url(sentinel.url) as client:
        return bool(client.sentinel_slaves("thread"))


async def test_successor_that_sentinel_names_is_used(binary: str | None, tmp_path: Path) -> None:
    chain = links(5)
    async with watched(binary, tmp_path) as (url, (master, replica)):
        async with opened(url) as one, opened(url) as other:
            first = await settled(one, ask(chain, offer(chain, 1, 3, DROP)))
            one.remember(record(chain[:3], elements(1, 2)))
            assert await one.keep(kept(chain[:3], reply(1), "ids"))
            await written(one)
            with redis.Redis.from_url(master.url, socket_timeout=2 * PATIENCE) as client:
                # What a connection waits for is its own last write, and all before it.
                client.set("written", "last")
                assert 1 == client.wait(1, int(PATIENCE * 1_000))
            master.kill()
            after = await settled(one, ask(chain, offer(chain, 3, 5, KEEP)))
            await settled(other, ask(chain))
            shared = await settled(
                other, ask(chain, offer(chain, 1, 3, KEEP), echoes=[echo(chain, 3, "ids")])
            )
            await written(one)

            assert ({chain[1]: DROP}, True) == (first.verdicts, first.shared)
            assert {chain[3]: KEEP} == after.verdicts
            assert {chain[1]: DROP} == shared.verdicts
            assert {chain[3]: reply(1)} == shared.echoes
            with redis.Redis.from_url(replica.url) as client:
                assert client.exists(Keys().conversation(chain[0], chain[1]))


# TLS.


@asynccontextmanager
async def behind_tls(server: Server, folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """The server behind a listener that speaks TLS: its port, and its certificate."""
    certificate = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(server.socket))
        async with asyncio.TaskGroup() as group:
            group.create_task(_pipe(reader, inner_writer))
            group.create_task(_pipe(inner_reader, writer))

    listener = await asyncio.start_server(pass_on, "127.0.0.1", 0, ssl=context)
    async with listener:
        yield listener.sockets[0].getsockname()[1], certificate


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


def _certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 and its key, in one file."""
    pytest.importorskip("cryptography", reason="the optional extra is not installed")
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lethe test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36_500))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(pem, form, serialization.NoEncryption()) + made.public_bytes(pem)
    )
    return path


async def test_by_tls_with_the_certificate_checked(binary: str | None, tmp_path: Path) -> None:
    with running(binary) as server:
        async with behind_tls(server, tmp_path) as (port, certificate):
            checked = f"rediss://127.0.0.1:{port}?ssl_check_hostname=true"
            async with opened(f"{checked}&ssl_ca_certs={certificate}") as ledger:
                await a_conversation(ledger)
                trusted = ledger.health()
            async with opened(checked) as stranger:
                refused = await _first(stranger)

    assert ("up", {}) == (trusted.state, dict(trusted.failures))
    assert not refused


async def _first(ledger: InRedis) -> bool:
    return (await ledger.settle(ask(links(3)))).shared
