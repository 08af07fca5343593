-- Renews the slots that requests of a node hold.
-- KEYS: the sets.
-- ARGV: the time, or nothing; the rule; how long a slot lasts; then for each key the number of its slots, and the
-- member of each, the latest first.
-- Returns how many slots were lost and are taken again.
local now, shortest = moment(ARGV[1])
local rule, life, at, lost, some, failed = rules[ARGV[2]], ARGV[3] + 0, 4, 0, {}, nil
local ttl = math.max(math.ceil(life / 1000), shortest)
-- A server that is full refuses a script at a write that needs memory, unless another write came before it. A renewal needs
-- none, so that slots taken before the server was full last as long as their requests.
redis.pcall('ZREM', KEYS[1], '')
for index = 1, #KEYS do
  local slots = ARGV[at] + 0
  -- An error about a set that cannot be read does not keep the other slots from renewal.
  local is_renewed, result = pcall(rule.renew, KEYS[index], at + 1, at + slots, now + life, ttl, some)
  if is_renewed then
    lost = lost + result
  else
    failed = result
  end
  at = at + 1 + slots
end
if failed then
  local message = report(failed)
  return {err = message}
end
return lost
