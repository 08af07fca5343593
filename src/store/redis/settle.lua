-- Settles what requests have really cost. KEYS: the states of their keys. ARGV: the time, or nothing; the verb; then for
-- each key its rule, how much, below 0 to give it back, until when it can be given back, four numbers of the rule, the
-- limit first, and its hours or nothing. Returns a line for each: `1`, or what has failed, behind a `-`.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])

local function settle(index)
  local at = 8 * index - 5
  local key, rule, amount = KEYS[index], rules[ARGV[at]], ARGV[at + 1] + 0
  local limit, a, b, c = ARGV[at + 3] + 0, ARGV[at + 4] + 0, ARGV[at + 5] + 0, ARGV[at + 6] + 0
  -- Of what has ended since, nothing is left to give back.
  if amount < 0 and now >= ARGV[at + 2] + 0 then
    return
  end
  local kept, marks, found = (rule.load or load)(key)
  local own = ''
  if marks then
    local _
    _, own, _, limit, a, b, c = marking().heed(rule, marks, now, false, limit, a, b, c)
  end
  -- Those under which the state lasts the longest.
  local lasts, lasts_a, lasts_b, lasts_c = limit, a, b, c
  if ARGV[at + 7] ~= '' and own == '' then
    limit, a, b, c = in_force(rule, kept, now, ARGV[at + 7])
  end
  if found then
    kept = rule.moved_back(kept, now, limit, a, b, c) or kept
  end
  if marks and marks.lease then
    marking().ending(rule, marks, kept, now, limit, a, b, c)
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
  save(rule, key, kept, not rule.save and told(kept), marks or {}, now, shortest, lasts, lasts_a, lasts_b, lasts_c)
end

if #KEYS == 1 then
  settle(1)
  return '1'
end
local lines = {}
for index = 1, #KEYS do
  -- What no rule can read fails its own settlement, and none of the others.
  local is_settled, failed = pcall(settle, index)
  if is_settled then
    lines[index] = '1'
  else
    -- What the server itself says begins with its name of the error, but for Redis 6.2.
    local said = string.gsub(string.find(failed, '^%u+ ') and failed or 'ERR ' .. failed, '%c', ' ')
    if string.find(said, 'READONLY', 1, true) then
      -- The whole call has come to the wrong server, where nothing was settled.
      return {err = said}
    end
    lines[index] = '-' .. said
  end
end
return table.concat(lines, '\n')
