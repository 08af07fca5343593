-- Renews the slots that requests of a node hold.
-- KEYS: the sets; behind a set whose slots are divided among tenants, these.
-- ARGV: the time, or nothing; the rule; how long a slot lasts; then for each set the number of its slots, and the field of the tenant
-- that holds them, or nothing; if there is one, the three numbers of its scale; and the member of each slot, the latest first.
-- Returns how many slots were lost and are taken again.
local now, shortest = moment(ARGV[1])
local rule, life, at, lost, some, failed = rules[ARGV[2]], ARGV[3] + 0, 4, 0, {}, nil
local ttl = math.max(math.ceil(life / 1000), shortest)
-- A server that is full refuses a script at a write that needs memory, unless another write came before it. A renewal needs
-- none, so that slots taken before the server was full last as long as their requests.
redis.pcall('ZREM', KEYS[1], '')

-- Lets the tenants of a set last as long as its slots, some of which may have been lost and are taken again.
local function follow(set, key, scale, field, lost)
  if lost > 0 then
    local it = holders.load(key, set, scale, field)
    holders.catch_up(it, now, rule.taken(rule.load(set), now))
    holders.count_anew(it, now)
    holders.save(it, now, life, shortest)
  elseif redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, string.format('%d', 2 * ttl))
  end
end

local key = 1
while key <= #KEYS do
  local set, slots, field, first, tenants, scale = KEYS[key], ARGV[at] + 0, ARGV[at + 1], at + 2, nil, nil
  if field ~= '' then
    scale = {limit = ARGV[at + 2] + 0, active_for = ARGV[at + 3] + 0, tenants = ARGV[at + 4] + 0}
    key, first, tenants = key + 1, at + 5, KEYS[key + 1]
  end
  -- An error about a set that cannot be read does not keep the other slots from renewal.
  local is_renewed, result = pcall(rule.renew, set, first, first + slots - 1, now + life, ttl, some)
  if is_renewed then
    lost = lost + result
    if scale then
      is_renewed, result = pcall(follow, set, tenants, scale, field, result)
    end
  end
  if not is_renewed then
    failed = result
  end
  key, at = key + 1, first + slots
end
if failed then
  local message = report(failed)
  return {err = message}
end
return lost
