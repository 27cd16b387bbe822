"""What lies where in Redis, and the scripts that read and write it in one exchange.

    lethe:1:{root}:c:<conversation>  hash: v<link> verdict, s<link> head, d<outgoing> body,
                                     e<digest> entry, f first_at, l last_at, n turns, o scope,
                                     t link of the latest head, u grade, p padding, r<id> reply,
                                     k<key> which reply was kept under it, w<link> which reply was
                                     found for an echo, q<name> pin
    lethe:1:{root}:o:<conversation>  sorted set: outcomes by time, capped
    lethe:1:{root}:g                 sorted set: conversations grown from this root, by last_at
    lethe:1:{scope}:i, lethe:1:all   sorted sets: conversations by last_at, capped
    lethe:1:task:<digest>            sorted set: conversations that bore a label, the same way
    lethe:1:{scope}:h:<digest>       hint: where a record lies
    lethe:1:{scope}:p                the set policy; the only key without a TTL
    lethe:1:lesson:<digest>          a lesson, by its name
    lethe:1:id:<conversation>        its root

Digests are in hex in a key's name and raw in a field's. What settles one turn has the hash tag
`{root}`, so that one script does it on one node; a first request, whose conversation is its root,
shares the tag with what grows from it. Set policies and hints have the tag of their scope: the same
script reads them, but on a Cluster, where they are an exchange of their own. The `1` is the version
of this layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

Command = tuple[Any, ...]
HINT_VERSION = b"\x01"


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        # Redis names a script by its SHA-1; nothing is protected by it.
        sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", sha)

    def command(self, keys: Sequence[str], *arguments: Any) -> Command:
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)

    def in_full(self, command: Command) -> Command:
        """The same command for a server that does not hold the script."""
        return ("EVAL", self.text, *command[2:])


@dataclass(frozen=True, slots=True)
class Keys:
    prefix: str = "lethe"

    def conversation(self, root: bytes, conversation: bytes) -> str:
        return f"{self.prefix}:1:{{{root.hex()}}}:c:{conversation.hex()}"

    def outcomes(self, root: bytes, conversation: bytes) -> str:
        return f"{self.prefix}:1:{{{root.hex()}}}:o:{conversation.hex()}"

    def grown(self, root: bytes) -> str:
        return f"{self.prefix}:1:{{{root.hex()}}}:g"

    def index(self, scope: bytes | None) -> str:
        if scope is None:
            return f"{self.prefix}:1:all"
        return f"{self.prefix}:1:{{{scope.hex()}}}:i"

    def task(self, label: bytes) -> str:
        return f"{self.prefix}:1:task:{label.hex()}"

    def hint(self, scope: bytes, digest: bytes) -> str:
        return f"{self.prefix}:1:{{{scope.hex()}}}:h:{digest.hex()}"

    def policy(self, scope: bytes) -> str:
        return f"{self.prefix}:1:{{{scope.hex()}}}:p"

    def root_of(self, conversation: bytes) -> str:
        return f"{self.prefix}:1:id:{conversation.hex()}"

    def lesson(self, name: str) -> str:
        named = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16)
        return f"{self.prefix}:1:lesson:{named.hexdigest()}"

    def hint_value(self, root: bytes, conversation: bytes, link: bytes) -> bytes:
        """Version, link of the record, key of the conversation that holds it."""
        return HINT_VERSION + link + self.conversation(root, conversation).encode()

    def is_hint(self, value: bytes) -> bool:
        """Whether this leads to a conversation of ours."""
        return value[:1] == HINT_VERSION and value[17:].startswith(f"{self.prefix}:1:{{".encode())

    def all_of(self, root: bytes, conversation: bytes) -> list[str]:
        """The keys under `{root}` that hold one conversation, in the order of the scripts."""
        return [
            self.conversation(root, conversation),
            self.outcomes(root, conversation),
            self.conversation(root, root),
            self.outcomes(root, root),
            self.grown(root),
        ]


SETTLE = Script("""
-- KEYS: conversation, its outcomes, root [, policy, hint ...]
-- ARGV: ttl, outgoing digest of a record that the caller holds, a field that should be there,
--       policy under which the verdicts were judged, links deepest first, n, n values that count as
--       absent, m, m pairs of a step's links and its verdict (none: only asks)
--       [, m, m times an echo's link, its keys, the id of the reply that the caller has for it or
--       none, that reply or none, m, m pairs of a pin's name and value (none: only asks)]
-- Gives: policy or none, whether that field is there, verdicts, places of the links that bear them
--        (0: ours was put, -1: none), record or none, place of the hint to it (0: the chain has
--        it), the record that was sent last, where it is another [, for each echo what became of
--        it (0: it stood, 1: it was put, -1: nothing, the caller's reply is wanted), what stands,
--        the reply if the caller has another, for each pin what stood (none: ours was put, if any)]
local conversation, outcomes, root = KEYS[1], KEYS[2], KEYS[3]
local ttl, have, witness, judged, chain = unpack(ARGV, 1, 5)
local NONE, LINK, STRIDE, MOST = string.rep('\\0', 16), 16, 128, 256

local at = 7
local absent = {}
for i = 1, tonumber(ARGV[6]) do absent[ARGV[at]] = true; at = at + 1 end

local policy = KEYS[4] and redis.pcall('GET', KEYS[4]) or false
if type(policy) ~= 'string' or absent[policy] then policy = false end
local agreed = not KEYS[4] or (policy or '') == judged

local function fields(letter, links, first, last)
  local list = {}
  for i = first, last, LINK do list[#list + 1] = letter .. string.sub(links, i, i + LINK - 1) end
  return list
end

local function read(key, list)
  if #list == 0 then return {} end
  local got = redis.pcall('HMGET', key, unpack(list))
  if got.err then return {} end  -- a key of another type holds nothing of ours
  return got
end

-- The bodies of a record and of its parents, as far as the caller does not hold them.
local function bodies(key, outgoing)
  local found = {}
  while outgoing ~= have and outgoing ~= NONE do
    local body = redis.call('HGET', key, 'd' .. outgoing)
    if not body or #found == MOST then return nil end
    found[#found + 1] = body
    outgoing = string.sub(body, 1, LINK)
  end
  return found
end

local function record(key, links)
  for first = 1, #links, LINK * STRIDE do
    local last = math.min(first + LINK * STRIDE - 1, #links)
    local list = fields('s', links, first, last)
    local heads = read(key, list)
    for i = 1, #list do
      local found = heads[i] and bodies(key, string.sub(heads[i], 1, LINK))
      if found then return {string.sub(list[i], 2), heads[i], found} end
    end
  end
  return false
end

local kind = redis.call('TYPE', conversation).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', conversation) end

local witnessed = witness == '' or redis.call('HEXISTS', conversation, witness) == 1
local verdicts, places = {}, {}
if tonumber(ARGV[at]) > 16 then
  -- A small hash is a list, searched from its start for each field; a long value makes it a table.
  redis.call('HSETNX', conversation, 'p', string.rep(' ', 65))
end
for n = 1, tonumber(ARGV[at]) do
  local links, ours = ARGV[at + 1], ARGV[at + 2]
  at = at + 2
  local list = fields('v', links, 1, #links)
  local borne = read(conversation, list)
  verdicts[n], places[n] = false, -1
  for i = #list, 1, -1 do
    if borne[i] and not absent[borne[i]] then
      verdicts[n], places[n] = borne[i], i
      break
    end
  end
  if places[n] == -1 and ours ~= '' and agreed then
    redis.call('HSET', conversation, list[#list], ours)
    places[n] = 0
  end
end

local echoes, pins
if ARGV[at + 1] then
  -- A reference is a version, and the id of a reply (none: a miss).
  local REFERENCE, MISS, PUT, STOOD, WANTED = 17, '\\1', 1, 0, -1
  local function get(key, field)
    local value = redis.pcall('HGET', key, field)
    return type(value) == 'string' and not absent[value] and value
  end
  local function refers(value)
    return value and #value == REFERENCE and string.sub(value, 1, 1) == MISS
  end
  local function reply(key, reference)
    local value = get(key, 'r' .. string.sub(reference, 2))
    -- Whoever has it by its id does not look at it: it must be of a version that others can read.
    return value and string.find(value, '^[\\1\\2]') and value
  end

  local function standing(link)
    local reference = get(conversation, 'w' .. link)
    if reference == MISS then return reference end
    if not refers(reference) then return end
    return reference, reply(conversation, reference)
  end
  local function kept(keys)
    for i = 1, #keys, LINK do
      local field = 'k' .. string.sub(keys, i, i + LINK - 1)
      for _, key in ipairs({conversation, root}) do
        local reference = get(key, field)
        local value = refers(reference) and reply(key, reference)
        if value then return reference, value end
      end
    end
  end

  local function settled(link, keys, id, ours)
    local became = STOOD
    local reference, value = standing(link)
    if reference ~= MISS and not value then
      became, reference, value = PUT, kept(keys)
      if not value and id ~= '' then
        if ours == '' then return {WANTED, MISS, false} end
        reference, value = MISS .. id, ours
      end
      reference = value and reference or MISS
      if value and reply(conversation, reference) ~= value then
        redis.call('HSET', conversation, 'r' .. string.sub(reference, 2), value)
      end
      redis.call('HSET', conversation, 'w' .. link, reference)
    end
    return {became, reference, reference ~= MISS .. id and value or false}
  end

  local function pinned(name, ours)
    local value = get(conversation, 'q' .. name)
    if value then return value end
    value = get(root, 'q' .. name)
    if value or ours ~= '' then redis.call('HSET', conversation, 'q' .. name, value or ours) end
    return value
  end

  echoes, pins = {}, {}
  at = at + 1
  for n = 1, tonumber(ARGV[at]) do
    echoes[n] = settled(unpack(ARGV, at + 1, at + 4))
    at = at + 4
  end
  at = at + 1
  for n = 1, tonumber(ARGV[at]) do
    pins[n] = pinned(ARGV[at + 1], ARGV[at + 2])
    at = at + 2
  end
end
redis.call('EXPIRE', conversation, ttl)
redis.call('EXPIRE', outcomes, ttl)

local found, hint = record(conversation, chain), 0
if not found and root ~= conversation then
  found = record(root, string.sub(chain, -LINK * STRIDE))  -- these lie where the chain begins
end
for i = 5, #KEYS do
  if found then break end
  local value = redis.pcall('GET', KEYS[i])
  if type(value) == 'string' and string.sub(value, 1, 1) == '\\1' then
    found, hint = record(string.sub(value, 2 + LINK), string.sub(value, 2, 1 + LINK)), i - 4
  end
end
if not found then hint = 0 end
local latest, tip = redis.call('HGET', conversation, 't'), false
if latest and #latest == LINK and not (found and hint == 0 and found[1] == latest) then
  tip = record(conversation, latest)
end
return {policy, witnessed and 1 or 0, verdicts, places, found, hint, tip, echoes, pins}
""")

KEEP = Script("""
-- KEYS: conversation
-- ARGV: ttl, id of a reply, the reply, keys that it is kept under where no other is
local conversation = KEYS[1]
local ttl, id, reply = unpack(ARGV, 1, 3)
local REFERENCE, VERSION = 17, '\\1'
local kind = redis.call('TYPE', conversation).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', conversation) end
local function leads(reference)
  return reference and #reference == REFERENCE and string.sub(reference, 1, 1) == VERSION
    and redis.call('HEXISTS', conversation, 'r' .. string.sub(reference, 2)) == 1
end
for i = 4, #ARGV do
  if not leads(redis.call('HGET', conversation, 'k' .. ARGV[i])) then
    redis.call('HSETNX', conversation, 'r' .. id, reply)
    redis.call('HSET', conversation, 'k' .. ARGV[i], VERSION .. id)
  end
end
redis.call('EXPIRE', conversation, ttl)
return 1
""")

REMEMBER = Script("""
-- KEYS: conversation, its outcomes, root, its outcomes, what grew
-- ARGV: ttl, cap, at, outcome, scope, link of the conversation, parent's outgoing digest or none,
--       field and value of the head, then fields and values that stay once they are there
-- Gives 0 where the parent is not there: the caller then writes the record whole.
local conversation, outcomes, root, first_turns, grown = unpack(KEYS)
local ttl, cap, at, outcome, scope, link, parent = unpack(ARGV, 1, 7)
local MOST_FIRST, MOST_PINS = 4000, 100
local kind = redis.call('TYPE', conversation).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', conversation) end
-- A first message that many begin with is no conversation, and bears no verdict: it may go, but for
-- what is pinned. A reply that is still to be echoed is told again by the worker that kept it.
if conversation == root and redis.call('HLEN', root) > MOST_FIRST then
  local pins = {}
  for _, name in ipairs(redis.call('HKEYS', root)) do
    if string.sub(name, 1, 1) == 'q' and #pins < 2 * MOST_PINS then
      pins[#pins + 1] = name
      pins[#pins + 1] = redis.call('HGET', root, name)
    end
  end
  redis.call('DEL', root)
  if #pins > 0 then redis.call('HSET', root, unpack(pins)) end
end
if parent ~= '' and redis.call('HEXISTS', conversation, 'd' .. parent) == 0 then return 0 end

-- The account of a first turn, under the root, goes over to the conversation that it grew into.
if conversation ~= root then
  if redis.call('HEXISTS', conversation, 'f') == 0 then
    local first = redis.call('ZREVRANGE', first_turns, 0, 0, 'WITHSCORES')
    if first[1] then
      redis.call('ZREM', first_turns, first[1])
      redis.call('HINCRBY', root, 'n', -1)
      redis.call('ZADD', outcomes, first[2], first[1])
      redis.call('HSET', conversation, 'f', first[2], 'n', 1)
      local grade = redis.call('HGET', root, 'u')
      if grade then
        redis.call('HDEL', root, 'u')
        redis.call('HSET', conversation, 'u', grade)
      end
    end
  end
  redis.call('ZADD', grown, at, link)
  redis.call('ZREMRANGEBYRANK', grown, 0, -cap - 1)
  for _, key in ipairs({root, first_turns, grown}) do redis.call('EXPIRE', key, ttl) end
end
redis.call('HSETNX', conversation, 'f', at)
redis.call('HSET', conversation, 'l', at, 'o', scope, 't', string.sub(ARGV[8], 2), ARGV[8], ARGV[9])
for i = 10, #ARGV, 2 do redis.call('HSETNX', conversation, ARGV[i], ARGV[i + 1]) end
if redis.call('ZADD', outcomes, at, outcome) == 1 then
  redis.call('HINCRBY', conversation, 'n', 1)
  redis.call('ZREMRANGEBYRANK', outcomes, 0, -cap - 1)
end
redis.call('EXPIRE', conversation, ttl)
redis.call('EXPIRE', outcomes, ttl)
return 1
""")

INDEX = Script("""
-- KEYS: index [, hint ...]
-- ARGV: ttl, cap, at, member, a member to take out or none, time before which members are gone,
--       value of the hints
local index = KEYS[1]
local ttl, cap, at, member, out, before, value = unpack(ARGV)
redis.call('ZADD', index, at, member)
if out ~= '' then redis.call('ZREM', index, out) end
redis.call('ZREMRANGEBYSCORE', index, '-inf', '(' .. before)
redis.call('ZREMRANGEBYRANK', index, 0, -cap - 1)
redis.call('EXPIRE', index, ttl)
for i = 2, #KEYS do redis.call('SET', KEYS[i], value, 'EX', ttl) end
return 1
""")

FORGET = Script("""
-- KEYS: conversation, its outcomes, root, its outcomes, what grew
-- ARGV: link of the conversation
-- What the root holds goes with the last conversation that grew from it.
local conversation, outcomes, root, first_turns, grown = unpack(KEYS)
local names = redis.pcall('HKEYS', conversation)
for _, name in ipairs(names.err and {} or names) do
  -- Its first reply was kept under the root.
  if #name == 17 and string.sub(name, 1, 1) == 'r' then redis.pcall('HDEL', root, name) end
end
local gone = redis.call('DEL', conversation, outcomes)
redis.call('ZREM', grown, ARGV[1])
if redis.call('ZCARD', grown) == 0 then gone = gone + redis.call('DEL', root, first_turns) end
return gone
""")

GRADE = Script("""
-- KEYS: conversation
-- ARGV: the grade, the scope that it must be of or none
local conversation = KEYS[1]
local grade, scope = unpack(ARGV)
local owner = redis.pcall('HGET', conversation, 'o')
if type(owner) ~= 'string' or (scope ~= '' and owner ~= scope) then return 0 end
redis.call('HSET', conversation, 'u', grade)
return 1
""")

SCRIPTS = (SETTLE, REMEMBER, INDEX, FORGET, KEEP, GRADE)


def told(
    echoes: Sequence[tuple[bytes, bytes, bytes, bytes]], pins: Sequence[tuple[bytes, bytes]]
) -> list[Any]:
    """What SETTLE is told of echoes (link, keys, id, reply) and pins (name, value); nothing where
    there are none.
    """
    if not echoes and not pins:
        return []
    return [len(echoes), *chain(*echoes), len(pins), *chain(*pins)]
