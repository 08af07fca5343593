-- Settles the real costs of requests.
-- KEYS: the states of their keys.
-- ARGV: the time, or nothing; how many policies there are, and for each its rule, four numbers, the limit first, and
-- its hours or nothing; then for each key its policy, the amount, below 0 to give it back, and until when it can be
-- given back.
-- Returns a line for each key: `1`, or an error after a `-`.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])
local policies, at = {}, 3
for index = 1, ARGV[2] + 0 do
  policies[index] = {rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5]}
  at = at + 6
end

-- Settles a charge of this key; `place` is its index in ARGV.
local function settle(key, place)
  local policy, amount = policies[ARGV[place] + 0], ARGV[place + 1] + 0
  -- A window that has ended since has nothing to give back.
  if amount < 0 and now >= ARGV[place + 2] + 0 then
    return
  end
  local rule, limit, a, b, c = policy[1], policy[2], policy[3], policy[4], policy[5]
  if rule.present then
    a, b, c = rule.present(now, a, b, c)
  end
  local kept, marks, found = (rule.load or load)(key)
  local own = ''
  if marks then
    local _
    _, own, _, limit, a, b, c = marking().apply_marks(rule, marks, now, false, limit, a, b, c)
  end
  -- The numbers under which the state lasts longest.
  local lasts, lasts_a, lasts_b, lasts_c = limit, a, b, c
  if policy[6] ~= '' and own == '' then
    limit, a, b, c = in_force(rule, kept, now, policy[6])
  end
  if found then
    kept = rule.moved_back(kept, now, limit, a, b, c) or kept
  end
  if marks and marks.lease then
    marking().ending(rule, marks, kept, now, limit, a, b, c)
  end
  -- The time to live, if it can stay.
  local before = 0
  if amount > 0 and found and not (marks or rule.save or rule.is_slower) then
    before = rule.reset_after(kept, now, lasts, lasts_a, lasts_b, lasts_c)
  end
  if amount < 0 then
    if not found then
      return
    end
    rule.refund(kept, now, -amount, limit, a, b, c)
  elseif limit > 0 then
    rule.settle(kept, now, amount, limit, a, b, c)
  else
    return
  end
  if found and not (marks or rule.save) then
    local left = rule.reset_after(kept, now, lasts, lasts_a, lasts_b, lasts_c)
    if left > 0 and (amount < 0 or left <= before) then
      -- A server takes half as long if it sets no time to live.
      redis.call('SET', key, told(kept), 'KEEPTTL')
      return
    end
  end
  save(rule, key, kept, not rule.save and told(kept), marks, now, shortest, lasts, lasts_a, lasts_b, lasts_c)
end

local lines = {}
for index = 1, #KEYS do
  -- An error about data that no rule can read fails its own settlement alone.
  local is_settled, failed = pcall(settle, KEYS[index], at)
  at = at + 3
  if is_settled then
    lines[index] = '1'
  else
    -- An error of the server itself begins with its name, except in Redis 6.2.
    local said = string.gsub(string.find(failed, '^%u+ ') and failed or 'ERR ' .. failed, '%c', ' ')
    if string.find(said, 'READONLY', 1, true) then
      -- The whole call has come to the wrong server, where nothing was settled.
      return {err = said}
    end
    lines[index] = '-' .. said
  end
end
return table.concat(lines, '\n')
