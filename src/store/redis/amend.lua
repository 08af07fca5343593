-- Changes what is kept of keys, whatever they ask for. KEYS: their states. ARGV: the time, or nothing; the
-- verb; then for each key its rule, how much, a moment, and four numbers of the rule, the limit first.
local now, shortest = moment(ARGV[1])
local verb = ARGV[2]

for index = 1, #KEYS do
  local at = 7 * index - 4
  local key, rule, amount, departure = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0
  local limit, a, b, c = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
  local kept, block, found
  if verb == 'reset' then
    -- What no rule can read has no block, and goes as well.
    local is_read
    is_read, kept, block = pcall(rule.load or load, key)
    block = is_read and block or nil
    redis.call('DEL', key)
    kept = (rule.load or load)(key)
  else
    kept, block, found = (rule.load or load)(key)
    kept = found and rule.moved_back(kept, now, limit, a, b, c) or kept
  end
  local changes = true
  if verb == 'refund' then
    rule.refund(kept, now, amount, limit, a, b, c)
  elseif verb == 'settle' then
    changes = amount > 0 and limit > 0
    if changes then
      rule.settle(kept, now, amount, limit, a, b, c)
      found = true
    end
  elseif verb == 'give back' and rule.give_back then
    rule.give_back(kept, now, amount, departure, limit, a, b, c)
  elseif verb == 'block' and not (block and left({block[1], block[2]}, now) >= amount) then
    block = {now, now + amount}
  elseif verb == 'unblock' then
    block = nil
  end
  if changes and (found or block) then
    save(rule, key, kept, not rule.save and told(kept), block, now, shortest, limit, a, b, c)
  end
end
return now
