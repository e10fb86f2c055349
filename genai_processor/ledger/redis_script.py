# SPDX-License-Identifier: Apache-2.0
"""How a Redis server holds a ledger, and the one script that asks and changes it.

All keys begin with one prefix, whose hash tag keeps them in one slot:

- ``…e:ID``: an entry: its version, who wrote it, and a JSON object;
- ``…p:NUMBER``: what stands in a place (`genai_processor.ledger.questions`): a sorted set of ``CREATED:ID``, in that order
  or, of what has a lease, in the order in which the leases run out;
- ``…q``, ``…q:state:…``, ``…q:tool:…``, ``…q:scope:…``: the queue of what waits for a person, whole and by what it is
  filtered by: sorted sets of ``CREATED:ID``;
- ``…leases``, ``…ages``: sorted sets of ids: of what has a lease, of what may expire;
- ``…counts``: how many entries are in each state; ``…expired``, ``…unknown``: sets of marks;
- ``…meta``: the version of this; a random name of the ledger, and how often it was changed, by which those who use it see
  that it was emptied or has gone back.

The script knows none of the rules, and of the layout only how an entry begins and how an id is found in a sorted set.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import Any, Final

import orjson

from genai_processor.ledger.entries import EXPIRING, PENDING, Entry, State
from genai_processor.ledger.questions import Kind, Question, Remembered, places_of
from genai_processor.ledger.rows import entry_of_document, json_of
from genai_processor.ledger.snapshot import Answers, Request, mark_of_tool

LAYOUT: Final = 1
"""Version of the layout; kept in the store, too."""

_DIGITS: Final = 20  # of a time in front of an id, so that texts are in the order of time

SCRIPT: Final = """
local prefix, look, questions, first = KEYS[1], ARGV[3] == 'look', tonumber(ARGV[4]), 5
local time, held, answers, at = redis.call('TIME'), not look, {}, first
local meta = redis.call('HMGET', prefix .. 'meta', 'ledger', 'changes')
local changes = tonumber(meta[2] or '0')
if meta[1] ~= ARGV[1] or changes < tonumber(ARGV[2]) then return {2, time[1], time[2]} end
for q = 1, questions do
  local kind, key, bound, expected = ARGV[at], prefix .. ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local found
  if kind == 'm' then
    found = '0'
    for mark in string.gmatch(bound, '%S+') do
      if redis.call('SISMEMBER', key, mark) == 1 then found = '1' end
    end
  else
    local members
    if kind == 'e' then members = {key}
    elseif kind == 'd' then members = redis.call('ZRANGEBYSCORE', key, '-inf', bound)
    else members = redis.call('ZRANGE', key, bound, -1) end
    local ids = {}
    for _, member in ipairs(members) do
      local id = kind == 'e' and ARGV[at + 1]:sub(3) or member:sub(22)
      local entry = redis.call('GET', prefix .. 'e:' .. id)
      if entry then ids[#ids + 1] = id .. ':' .. entry:match('^%d+')
      elseif kind ~= 'e' then return {2, time[1], time[2]} end
    end
    found = table.concat(ids, ' ')
  end
  answers[q] = found
  if found ~= expected then held = false end
  at = at + 4
end
if not held then
  local rows, seen = {}, {}
  for q = 1, questions do
    if ARGV[first + (q - 1) * 4] ~= 'm' then
      for id in answers[q]:gmatch('(%S+):%d+') do
        if not seen[id] then
          seen[id] = true
          rows[#rows + 1] = redis.call('GET', prefix .. 'e:' .. id)
        end
      end
    end
  end
  return {0, time[1], time[2], changes, answers, rows}
end
if at <= #ARGV then changes = redis.call('HINCRBY', prefix .. 'meta', 'changes', 1) end
while at <= #ARGV do
  local last = at + 1 + tonumber(ARGV[at])
  redis.call(ARGV[at + 1], prefix .. ARGV[at + 2], unpack(ARGV, at + 3, last))
  at = last + 1
end
return {1, time[1], time[2], changes}
"""
"""Asks its questions; if they are answered as expected, does some commands, and else returns the answers.

The answer begins with 1 if that was done, 0 if not, and 2 if the ledger has lost something: it is another one, or has been
changed less often than the caller knows, or an entry is missing from where it should stand.
"""

SCRIPT_SHA: Final = sha1(SCRIPT.encode(), usedforsecurity=False).hexdigest()

QUEUE: Final = """
local prefix, rows = KEYS[1], {}
local members = redis.call('ZRANGEBYLEX', prefix .. ARGV[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
for _, member in ipairs(members) do
  rows[#rows + 1] = redis.call('GET', prefix .. 'e:' .. member:sub(22)) or ''
end
return {members[#members] or '', rows}
"""
"""Returns the last place, and the entries, of a part of the queue."""

BY_SCORE: Final = """
local prefix, rows = KEYS[1], {}
local members = redis.call('ZRANGEBYSCORE', prefix .. ARGV[1], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
for _, id in ipairs(members) do
  rows[#rows + 1] = redis.call('GET', prefix .. 'e:' .. id) or ''
end
return rows
"""
"""Returns the entries of a sorted set of ids, up to a score."""


def member(created_ns: int, entry_id: str) -> str:
    """Return how an entry stands in a sorted set whose order is that of time."""
    return f"{max(0, created_ns):0{_DIGITS}d}:{entry_id}"


def arguments_of(request: Request) -> list[Any]:
    """Return the arguments of the script for a request, that follow the ledger's name and how often it was changed."""
    questions = [*request.expected, *request.marks]
    arguments: list[Any] = ["look" if request.look else "do", len(questions)]
    for question, expected in request.expected.items():
        if question.place is None:
            arguments += ("e", f"e:{question.entry_id}", "", expected)
        elif question.place.kind is Kind.LEASED:
            arguments += ("d", f"p:{question.place.number}", question.until_ns, expected)
        else:
            arguments += ("s", f"p:{question.place.number}", -question.newest, expected)
    for remembered, there in request.marks.items():
        name = "expired" if remembered.expired else "unknown"
        arguments += ("m", name, " ".join(remembered.marks), "1" if there else "0")
    if not request.look:
        for command in _commands(request):
            arguments.append(len(command) - 1)
            arguments += command
    return arguments


def _commands(request: Request) -> Iterator[Sequence[Any]]:
    """Return the commands that change what a request changes; the second word of each is the key."""
    for old, new in request.writes:
        yield "SET", f"e:{new.entry_id}", b"%d %s %s" % (new.version, request.writer.encode() or b"-", json_of(new))
        yield from _moves(old, new)
    for entry in request.drops:
        yield "DEL", f"e:{entry.entry_id}"
        yield from _moves(entry, None)
    if request.expired:
        yield "SADD", "expired", *request.expired
    if request.unknown:
        yield "SADD", "unknown", *(mark_of_tool(scope, tool) for scope, tool in request.unknown)


def _moves(old: Entry | None, new: Entry | None) -> Iterator[Sequence[Any]]:
    before = {} if old is None else _standings(old)
    after = {} if new is None else _standings(new)
    for key, (name, _) in before.items():
        if key not in after:
            yield "ZREM", key, name
    for key, (name, score) in after.items():
        if before.get(key) != (name, score):
            yield "ZADD", key, score, name
    states = (None if old is None else old.state, None if new is None else new.state)
    if states[0] is not states[1]:
        for state, step in zip(states, (-1, 1), strict=True):
            if state is not None:
                yield "HINCRBY", "counts", state.value, step


def _standings(entry: Entry) -> dict[str, tuple[str, int]]:
    """Return the sorted sets that an entry stands in: by key, as what and with which score."""
    name = member(entry.created_ns, entry.entry_id)
    lease = entry.lease_expires_ns or 0
    standings = {f"p:{place.number}": (name, lease if place.kind is Kind.LEASED else 0) for place in places_of(entry)}
    if entry.lease_expires_ns is not None:
        standings["leases"] = (entry.entry_id, lease)
    if entry.state in PENDING:
        for key in ("q", *queues(entry.state, entry.tool, entry.scope)):
            standings[key] = (name, 0)
    elif entry.state in EXPIRING:
        standings["ages"] = (entry.entry_id, entry.updated_ns)
    return standings


def queues(state: State | None, tool: str | None, scope: str | None) -> list[str]:
    """Return the keys of the parts of the queue that hold all with this state, this tool, this scope."""
    named = (("state", state), ("tool", tool), ("scope", scope))
    return [f"q:{name}:{value}" for name, value in named if value is not None]


def entry_from(row: bytes) -> tuple[Entry, str]:
    """Return the entry that a value holds, and who wrote it."""
    _, writer, document = row.split(b" ", 2)
    return entry_of_document(orjson.loads(document)), writer.decode()


def answers_from(request: Request, answers: Sequence[bytes], rows: Sequence[bytes]) -> Answers:
    """Return what the script answered."""
    found = Answers()
    for row in rows:
        entry, writer = entry_from(row)
        found.entries[entry.entry_id] = entry
        found.writers[entry.entry_id] = writer
    questions: list[Question | Remembered] = [*request.expected, *request.marks]
    for question, answer in zip(questions, answers, strict=True):
        if isinstance(question, Remembered):
            found.marks[question] = answer == b"1"
        else:
            found.ids[question] = [one.rpartition(":")[0] for one in answer.decode().split(" ") if one]
    return found
