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
  local hours = ARGV[at + 5] ~= '' and ARGV[at + 5]
  policies[index] = {rules[ARGV[at]], hours, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0}
  at = at + 6
end

-- Settles a charge of this key; `place` is its index in ARGV.
local function settle(key, place)
  local policy, amount = policies[ARGV[place] + 0], ARGV[place + 1] + 0
  -- A window that has ended since has nothing to give back.
  if amount < 0 and now >= ARGV[place + 2] + 0 then
    return
  end
  local rule = policy[1]
  local state, marks, found, _, _, _, _, limit, a, b, c, longest = open(policy, key, now, false)
  -- The time to live can stay if the state lasts no longer than before.
  local can_stay = found and not (marks or rule.save) and (amount < 0 or not rule.is_slower)
  local lasts = can_stay and (longest or {limit, a, b, c})
  local before = can_stay and amount >= 0 and rule.reset_after(state, now, unpack(lasts))
  if amount < 0 then
    if not found then
      return
    end
    rule.refund(state, now, -amount, limit, a, b, c)
  elseif limit > 0 then
    rule.settle(state, now, amount, limit, a, b, c)
  else
    return
  end
  if can_stay then
    local left = rule.reset_after(state, now, unpack(lasts))
    if left > 0 and (amount < 0 or left <= before) then
      -- A server takes half as long if it sets no time to live.
      redis.call('SET', key, words_of(state), 'KEEPTTL')
      return
    end
  end
  save(rule, key, state, not rule.save and words_of(state), marks, now, shortest, longest, limit, a, b, c)
end

local lines = {}
for index = 1, #KEYS do
  -- An error about data that no rule can read fails its own settlement alone.
  local is_settled, failed = pcall(settle, KEYS[index], at)
  at = at + 3
  if is_settled then
    lines[index] = '1'
  else
    local message, is_of_all = report(failed)
    if is_of_all then
      return {err = message}
    end
    lines[index] = '-' .. message
  end
end
return table.concat(lines, '\n')
