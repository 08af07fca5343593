-- Renews the slots that requests of a node hold. KEYS: the sets. ARGV: the time, or nothing; the rule; how long a slot
-- lasts; then for each key how many slots of it are held, and the member of each, the latest first. Returns how many slots
-- were lost and are taken again.
local now, shortest = moment(ARGV[1])
local rule, life, at, lost, some, failed = rules[ARGV[2]], ARGV[3] + 0, 4, 0, {}, nil
local ttl = math.max(math.ceil(life / 1000), shortest)
for index = 1, #KEYS do
  local slots = ARGV[at] + 0
  -- A set that cannot be read lets no slot of the others end.
  local is_renewed, told = pcall(rule.renew, KEYS[index], at + 1, at + slots, now + life, ttl, some)
  if is_renewed then
    lost = lost + told
  else
    failed = told
  end
  at = at + 1 + slots
end
if failed then
  -- What the server itself says begins with its name of the error, but for Redis 6.2.
  return {err = string.gsub(string.find(failed, '^%u+ ') and failed or 'ERR ' .. failed, '%c', ' ')}
end
return lost
