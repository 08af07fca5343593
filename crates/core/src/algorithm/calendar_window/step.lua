-- The rule of `step.rs`, function by function. A state is {until, used, last}, with times in seconds, because a
-- server takes less time for fewer digits. `a`, `b` and `c` are numbers that a node sends. `present` converts them to
-- `from`, `ends` and `longest`, in seconds too, once for all functions.
local calendar_window = {}

-- Returns the beginning and the end of the present window, and the length of the longest one. `a` and `b` are the
-- beginnings of two consecutive windows around now; `c` is the end of the second, times 16,384, plus the longest
-- window in hours.
function calendar_window.present(now, a, b, c)
  local hours = c % 16384
  c = (c - hours) / 16384
  if now < a * 1000000 or now >= c * 1000000 then
    error('the clock of the node differs by more than half a window of its calendar')
  end
  if now < b * 1000000 then
    return a, b, hours * 3600
  end
  return b, c, hours * 3600
end

-- Returns how much counts now.
function calendar_window.used(state, now, from)
  if state[3] >= from or state[1] * 1000000 > now then
    return state[2]
  end
  return 0
end

function calendar_window.moved_back(state, now, _, _, ends, longest)
  local counts, last = state[1], state[3]
  if last >= ends or counts > ends and (counts - longest) * 1000000 > now then
    return {ends, state[2], math.min(last, math.floor(now / 1000000))}
  end
end

function calendar_window.admits(state, now, cost, limit, from)
  return calendar_window.used(state, now, from) + cost <= limit
end

-- A charge counts to the end of the present window at least.
function calendar_window.charge(state, now, cost, _, from, ends)
  local used, second = calendar_window.used(state, now, from), (now - now % 1000000) / 1000000
  if used == 0 or state[1] < ends then
    state[1] = ends
  end
  if used == 0 or state[3] < second then
    state[3] = second
  end
  state[2] = used + cost
end

function calendar_window.settle(state, now, units, _, from, ends)
  local used = calendar_window.used(state, now, from)
  calendar_window.charge(state, now, countable(units, used), 0, from, ends)
end

function calendar_window.refund(state, now, units, _, from, ends)
  local used = calendar_window.used(state, now, from)
  if used == 0 then
    state[1], state[3] = ends, math.floor(now / 1000000)
  elseif state[3] >= from and state[1] < ends then
    state[1] = ends
  end
  state[2] = math.max(used - units, 0)
end

function calendar_window.reset_after(state, now, _, from, ends)
  if calendar_window.used(state, now, from) == 0 then
    return 0
  elseif state[3] >= from and state[1] < ends then
    return ends * 1000000 - now
  end
  return state[1] * 1000000 - now
end

function calendar_window.remaining(state, now, limit, from)
  return math.max(limit - calendar_window.used(state, now, from), 0)
end
