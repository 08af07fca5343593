-- Opens a key for an operation. A policy is its rule, its hours if its limit depends on them, and its four numbers, the limit
-- first. If it `moves` marks, marks from the future are moved back. Returns
-- - the state, its marks and its text, as `load` does, and whether any of these has changed by the time that has passed;
-- - in digits how much longer the key is blocked, and the text about its override;
-- - how many units nodes hold;
-- - the numbers in force;
-- - the numbers under which the state lasts the longest, if these are others.
-- All are values, since a server takes longer for tables.
local function open(policy, key, now, moves)
  local rule, hours, limit, a, b, c = policy[1], policy[2], policy[3], policy[4], policy[5], policy[6]
  if rule.present then
    a, b, c = rule.present(now, a, b, c)
  end
  local state, marks, text = (rule.load or load)(key)
  local changed, blocked, own, leased, longest = false, '0', '', 0, nil
  if marks then
    blocked, own, changed, limit, a, b, c = marking().apply_marks(rule, marks, now, moves, limit, a, b, c)
  end
  if hours and own == '' then
    longest = {limit, a, b, c}
    limit, a, b, c = in_force(rule, state, now, hours)
  end
  local possible = text and rule.moved_back(state, now, limit, a, b, c)
  if possible then
    state, changed = possible, true
  end
  if marks and marks.lease then
    local ended
    leased, ended = marking().ending(rule, marks, state, now, limit, a, b, c)
    changed = changed or ended
  end
  return state, marks, text, changed, blocked, own, leased, limit, a, b, c, longest
end
