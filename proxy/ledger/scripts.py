"""What lies where in Redis, and the scripts that read and write it in one exchange.

    lethe:1:{root}:c:<conversation>  hash: v<link> verdict, s<link> head, d<outgoing> body,
                                     e<digest> entry, f first_at, l last_at, n turns, o scope,
                                     t link of the latest head, p padding
    lethe:1:{root}:o:<conversation>  sorted set: outcomes by time, capped
    lethe:1:{root}:g                 sorted set: conversations grown from this root, by last_at
    lethe:1:{scope}:i, lethe:1:all   sorted sets: conversations by last_at, capped
    lethe:1:{scope}:h:<digest>       hint: where a record lies
    lethe:1:{scope}:p                the set policy; the only key without a TTL
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

    def hint(self, scope: bytes, digest: bytes) -> str:
        return f"{self.prefix}:1:{{{scope.hex()}}}:h:{digest.hex()}"

    def policy(self, scope: bytes) -> str:
        return f"{self.prefix}:1:{{{scope.hex()}}}:p"

    def root_of(self, conversation: bytes) -> str:
        return f"{self.prefix}:1:id:{conversation.hex()}"

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
-- ARGV: ttl, outgoing digest of a record that the caller holds, a link that should bear a verdict,
--       policy under which the verdicts were judged, links deepest first, n, n values that count as
--       absent, m, m pairs of a step's links and its verdict (none: only asks)
-- Gives: policy or none, whether that link bears one, verdicts, places of the links that bear them
--        (0: ours was put, -1: none), record or none, place of the hint to it (0: the chain has
--        it), the record that was sent last, where it is another
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

local witnessed = witness == '' or redis.call('HEXISTS', conversation, 'v' .. witness) == 1
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
return {policy, witnessed and 1 or 0, verdicts, places, found, hint, tip}
""")

REMEMBER = Script("""
-- KEYS: conversation, its outcomes, root, its outcomes, what grew
-- ARGV: ttl, cap, at, outcome, scope, link of the conversation, parent's outgoing digest or none,
--       field and value of the head, then fields and values that stay once they are there
-- Gives 0 where the parent is not there: the caller then writes the record whole.
local conversation, outcomes, root, first_turns, grown = unpack(KEYS)
local ttl, cap, at, outcome, scope, link, parent = unpack(ARGV, 1, 7)
local MOST_FIRST = 4000
local kind = redis.call('TYPE', conversation).ok
if kind ~= 'hash' and kind ~= 'none' then redis.call('DEL', conversation) end
-- A first message that many begin with is no conversation, and bears no verdict: it may go.
if conversation == root and redis.call('HLEN', root) > MOST_FIRST then redis.call('DEL', root) end
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
local gone = redis.call('DEL', conversation, outcomes)
redis.call('ZREM', grown, ARGV[1])
if redis.call('ZCARD', grown) == 0 then gone = gone + redis.call('DEL', root, first_turns) end
return gone
""")

SCRIPTS = (SETTLE, REMEMBER, INDEX, FORGET)
