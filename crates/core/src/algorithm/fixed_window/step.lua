-- The rule of `window.rs` and `step.rs`, function by function. A state is a window and its count: {number, used}.
local fixed_window = {}

function fixed_window.window_at(state, now, period)
  local number = math.floor(now / period)
  if state[1] == number then
    return number, state[2]
  end
  return number, 0
end

function fixed_window.moved_back(state, now, _, period)
  local number = math.floor(now / period)
  if state[1] > number then
    return {number, state[2], 0}
  end
end

function fixed_window.admits(state, now, cost, limit, period)
  local _, used = fixed_window.window_at(state, now, period)
  return used + cost <= limit
end

function fixed_window.charge(state, now, cost, _, period)
  local number, used = fixed_window.window_at(state, now, period)
  state[1], state[2] = number, used + cost
end

function fixed_window.settle(state, now, units, _, period)
  local number, used = fixed_window.window_at(state, now, period)
  state[1], state[2] = number, used + countable(units, used)
end

function fixed_window.refund(state, now, units, _, period)
  local number, used = fixed_window.window_at(state, now, period)
  state[1], state[2] = number, math.max(used - units, 0)
end

function fixed_window.reset_after(state, now, _, period)
  local number, used = fixed_window.window_at(state, now, period)
  if used == 0 then
    return 0
  end
  return (number + 1) * period - now
end

function fixed_window.remaining(state, now, limit, period)
  local _, used = fixed_window.window_at(state, now, period)
  return math.max(limit - used, 0)
end

function fixed_window.bin_end(state, now, _, period)
  return (fixed_window.window_at(state, now, period) + 1) * period
end
