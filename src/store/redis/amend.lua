-- Changes what is kept of keys, whatever they ask for. KEYS: their states. ARGV: the time, or nothing; the
-- verb; then for each key its rule, how much, a moment, and three numbers of the rule, the limit first.
local now, shortest = moment(ARGV[1])
local verb = ARGV[2]

for index, key in ipairs(KEYS) do
  local at = 6 * index - 3
  local rule, amount, departure = rules[ARGV[at]], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local limit, a, b = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local kept, blocked, found = rule.load(key)
  kept = found and rule.moved_back(kept, now, limit, a, b) or kept
  if verb == 'refund' then
    rule.refund(kept, now, amount, limit, a, b)
  elseif verb == 'give back' and rule.give_back then
    rule.give_back(kept, now, amount, departure, limit, a, b)
  elseif verb == 'block' then
    blocked = math.max(blocked, now + amount)
  elseif verb == 'unblock' then
    blocked = 0
  elseif verb == 'reset' then
    redis.call('DEL', key)
    if blocked > now then
      kept = rule.load(key)
    else
      found = false
    end
  end
  if found or blocked > now then
    local told = rule.told(kept, now, 0, limit, a, b)
    save(rule, key, kept, told, blocked, now, shortest, limit, a, b)
  end
end
return now
