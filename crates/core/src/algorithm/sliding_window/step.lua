-- The rule of `step.rs`, function by function. A state is the window that was last charged, and two counts: {number,
-- count of the window before it, its own count}.
local sliding_window = {}

function sliding_window.windows_at(state, now, period)
  local number = math.floor(now / period)
  if state[1] == number then
    return number, state[2], state[3]
  elseif state[1] == number - 1 then
    return number, state[3], 0
  end
  return number, 0, 0
end

function sliding_window.moved_back(state, now, _, period)
  local number = math.floor(now / period)
  if state[1] > number then
    return {number, state[2], state[3]}
  end
end

-- Returns how many requests the two windows use, rounded up.
function sliding_window.used(state, now, period)
  local number, previous, current = sliding_window.windows_at(state, now, period)
  local weight = (number + 1) * period - now
  local weighted, rest = divided(previous, weight, period)
  if rest > 0 then
    weighted = weighted + 1
  end
  return weighted + current
end

function sliding_window.admits(state, now, cost, limit, period)
  return sliding_window.used(state, now, period) + cost <= limit
end

function sliding_window.charge(state, now, cost, _, period)
  local number, previous, current = sliding_window.windows_at(state, now, period)
  state[1], state[2], state[3] = number, previous, current + cost
end

function sliding_window.settle(state, now, units, _, period)
  local number, previous, current = sliding_window.windows_at(state, now, period)
  state[1], state[2], state[3] = number, previous, current + countable(units, current)
end

function sliding_window.refund(state, now, units, _, period)
  local number, previous, current = sliding_window.windows_at(state, now, period)
  local of_previous = math.max(units - current, 0)
  state[1], state[2], state[3] = number, math.max(previous - of_previous, 0), math.max(current - units, 0)
end

function sliding_window.reset_after(state, now, _, period)
  local number, previous, current = sliding_window.windows_at(state, now, period)
  local to_the_next = (number + 1) * period - now
  if current > 0 then
    return to_the_next + period
  elseif previous > 0 then
    return to_the_next
  end
  return 0
end

function sliding_window.remaining(state, now, limit, period)
  return math.max(limit - sliding_window.used(state, now, period), 0)
end

function sliding_window.bin_end(_, now, _, period)
  return (math.floor(now / period) + 1) * period
end
