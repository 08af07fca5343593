-- The numbers in force now of a policy whose limit depends on the hour: here stand the moments from which on each limit
-- holds, in order, with the numbers of its rule. A debt that was stated before a switch is stated as of it, since what
-- drained until then drained at the rate of that time.
local function in_force(rule, state, now, hours)
  local limit, a, b, c
  for from, next_limit, next_a, next_b, next_c in string.gmatch(hours, '(%d+) (%d+) (%d+) (%d+) (%d+)') do
    from = from + 0
    if from > now and limit then
      break
    end
    if limit and rule.is_slower and state[1] < from then
      rule.refund(state, from, 0, limit, a, b, c)
    end
    limit, a, b, c = next_limit + 0, next_a + 0, next_b + 0, next_c + 0
  end
  if rule.present then
    return limit, rule.present(now, a, b, c)
  end
  return limit, a, b, c
end

