# SPDX-License-Identifier: Apache-2.0
"""What is peculiar to a ledger on a Redis server: what its configuration may lose, its script, the version of its layout."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator

import pytest
import redis
from redis.crc import key_slot
from support.servers import RedisServer

from genai_processor.errors import LedgerUnavailableError
from genai_processor.ledger import Claim, Granted, Outcome, Sighting, State, open_ledger
from genai_processor.ledger.redis import RedisLedger


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex}"


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_server.url())
    yield client
    client.close()


@pytest.fixture
def other_server() -> Iterator[Callable[..., RedisServer]]:
    servers: list[RedisServer] = []

    def start(**options: str) -> RedisServer:
        servers.append(RedisServer(**options))
        servers[-1].start()
        return servers[-1]

    yield start
    for server in servers:
        server.remove()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_server_that_keeps_what_it_is_told_is_not_warned_of(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    RedisLedger(redis_server.url()).counts()
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"appendonly": "no"}, "appendonly yes"),
        ({"appendfsync": "everysec"}, "appendfsync always"),
        ({"appendfsync": "no"}, "appendfsync always"),
        ({"maxmemory-policy": "allkeys-lru"}, "maxmemory-policy noeviction"),
    ],
)
def test_a_setting_that_loses_data_is_named_with_its_remedy_once(
    other_server: Callable[..., RedisServer], options: dict[str, str], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = RedisLedger(other_server(**options).url())
    ledger.counts()
    ledger.close()
    ledger.counts()
    (warning,) = warnings(caplog)
    assert f"set {named}" in warning


def test_only_keys_that_may_vanish_vanish(
    other_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = other_server(**{"maxmemory-policy": "volatile-lru"})
    ledger = RedisLedger(server.url())
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_1x"))
    client = redis.Redis.from_url(server.url())
    assert {client.ttl(key) for key in client.scan_iter()} == {-1}
    assert warnings(caplog) == []


def test_a_server_that_forgets_when_it_is_full_is_not_used(other_server: Callable[..., RedisServer]) -> None:
    server = other_server(maxmemory="4mb", **{"maxmemory-policy": "allkeys-lru"})
    ledger = RedisLedger(server.url())
    for _ in range(2):
        with pytest.raises(LedgerUnavailableError, match="set maxmemory-policy noeviction"):
            ledger.claim(Claim("s", "pay"))
    redis.Redis.from_url(server.url()).config_set("maxmemory-policy", "noeviction")
    assert isinstance(ledger.claim(Claim("s", "pay")), Granted)


def test_a_replica_is_named(
    other_server: Callable[..., RedisServer], redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    replica = other_server(replicaof=f"127.0.0.1 {redis_server.port}")
    ledger = RedisLedger(replica.url())
    with pytest.raises(LedgerUnavailableError, match="refuses"):
        ledger.claim(Claim("s", "pay"))
    (warning,) = warnings(caplog)
    assert "replica" in warning
    assert "master" in warning


def test_who_may_not_ask_for_the_configuration_is_told_so(
    redis_server: RedisServer, client: redis.Redis, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.acl_setuser(prefix, enabled=True, passwords=["+pass"], keys=["*"], categories=["+@all"], commands=["-config"])
    ledger = RedisLedger(redis_server.url().replace("://", f"://{prefix}:pass@"), prefix=prefix)
    assert isinstance(ledger.claim(Claim("s", "pay")), Granted)
    (warning,) = warnings(caplog)
    assert "CONFIG is not allowed here" in warning
    assert "appendfsync always" in warning


def test_a_wrong_password_is_told_without_it(redis_server: RedisServer) -> None:
    ledger = open_ledger(redis_server.url().replace("://", "://bob:hunter2@"))
    with pytest.raises(LedgerUnavailableError) as caught:
        ledger.counts()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_server_that_forgot_the_script_is_told_it_again(
    redis_server: RedisServer, client: redis.Redis, prefix: str
) -> None:
    ledger = RedisLedger(redis_server.url(), prefix=prefix)
    answer = ledger.claim(Claim("s", "pay"))
    assert isinstance(answer, Granted)
    client.script_flush()
    assert ledger.finish(answer.entry, Outcome.RETURNED).state is State.COMPLETED


def test_a_layout_of_a_later_version_is_left_alone(redis_server: RedisServer, client: redis.Redis, prefix: str) -> None:
    ledger = RedisLedger(redis_server.url(), prefix=prefix)
    ledger.counts()
    assert client.hget(f"{{{prefix}}}:meta", "layout") == b"1"
    client.hset(f"{{{prefix}}}:meta", "layout", "99")
    with pytest.raises(LedgerUnavailableError, match="later version"):
        RedisLedger(redis_server.url(), prefix=prefix).record(Sighting("s", "pay", State.QUARANTINED))
    assert len(list(client.scan_iter(f"{{{prefix}}}:*"))) == 1


def test_a_server_that_is_full_changes_nothing(other_server: Callable[..., RedisServer]) -> None:
    server = other_server(maxmemory="3mb")
    ledger = RedisLedger(server.url())

    def fill() -> None:
        for number in range(10_000):
            ledger.record(Sighting("s" * 1_000, "pay", State.QUARANTINED, f"toolu_{number}x"))

    with pytest.raises(LedgerUnavailableError, match="maxmemory"):
        fill()
    waiting = ledger.pending(limit=10_000).entries
    assert len(waiting) == ledger.counts()[State.QUARANTINED] > 0


def test_an_entry_that_a_full_server_dropped_is_not_taken_for_a_call_that_never_was(
    redis_server: RedisServer, client: redis.Redis, prefix: str
) -> None:
    ledger = RedisLedger(redis_server.url(), prefix=prefix)
    seen = ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_1x", "d1", "t1"))
    assert seen is not None
    client.delete(f"{{{prefix}}}:e:{seen.entry_id}")
    with pytest.raises(LedgerUnavailableError, match="has lost what"):
        RedisLedger(redis_server.url(), prefix=prefix).claim(Claim("s", "pay", "toolu_new1", "d1", "t2"))


def test_a_replica_that_lagged_is_not_taken_for_its_master(
    other_server: Callable[..., RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = other_server()
    ledger, client = RedisLedger(server.url()), redis.Redis.from_url(server.url())
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_1x", "d1"))
    before = {key: client.dump(key) for key in client.scan_iter()}
    ledger.record(Sighting("s", "pay", State.QUARANTINED, "toolu_2x", "d2"))
    for key, value in before.items():
        client.restore(key, 0, value, replace=True)
    for key in set(client.scan_iter()) - set(before):
        client.delete(key)
    with pytest.raises(LedgerUnavailableError, match="has lost what"):
        ledger.claim(Claim("s", "pay", "toolu_new1", "d2", "t2"))


def test_all_keys_are_in_one_slot_and_none_is_left_by_what_expired(
    redis_server: RedisServer, client: redis.Redis, prefix: str
) -> None:
    now = [10**18]
    ledger = RedisLedger(redis_server.url(), prefix=prefix, max_age_days=1, clock=lambda: now[0])
    ledger.counts()
    before = set(client.scan_iter(f"{{{prefix}}}:*"))
    answer = ledger.claim(Claim("s", "pay", "call_0", "d", "t", lease_ns=10**9))
    assert isinstance(answer, Granted)
    slots = {key_slot(key) for key in client.scan_iter(f"{{{prefix}}}:*")}
    assert len(slots) == 1
    ledger.finish(answer.entry, Outcome.RETURNED)
    now[0] += 2 * 24 * 3600 * 10**9
    ledger.record(Sighting("", "", State.QUARANTINED))
    left = set(client.scan_iter(f"{{{prefix}}}:*")) - before
    assert left == {f"{{{prefix}}}:{name}".encode() for name in ("counts", "expired")}
    assert client.ttl(f"{{{prefix}}}:expired") == -1
