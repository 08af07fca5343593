-- The rule of `window.rs` and `step.rs`, function by function. A state is a window and its count: {begun, used}.
local anchored_window = {}

-- Returns the open window, or the one that would open now.
function anchored_window.window_at(state, now, period)
  if state[2] > 0 and now - state[1] < period then
    return state[1], state[2]
  end
  return now, 0
end

function anchored_window.moved_back(state, now)
  if state[1] > now then
    return {now, state[2], 0}
  end
end

function anchored_window.admits(state, now, cost, limit, period)
  local _, used = anchored_window.window_at(state, now, period)
  return used + cost <= limit
end

function anchored_window.charge(state, now, cost, _, period)
  local begun, used = anchored_window.window_at(state, now, period)
  state[1], state[2] = begun, used + cost
end

function anchored_window.settle(state, now, units, _, period)
  local begun, used = anchored_window.window_at(state, now, period)
  state[1], state[2] = begun, used + countable(units, used)
end

function anchored_window.refund(state, now, units, _, period)
  local begun, used = anchored_window.window_at(state, now, period)
  state[1], state[2] = begun, math.max(used - units, 0)
end

function anchored_window.reset_after(state, now, _, period)
  local begun, used = anchored_window.window_at(state, now, period)
  if used == 0 then
    return 0
  end
  return begun + period - now
end

function anchored_window.remaining(state, now, limit, period)
  local _, used = anchored_window.window_at(state, now, period)
  return math.max(limit - used, 0)
end

-- Only a request opens a window.
function anchored_window.bin_end(state, now, _, period)
  local begun, used = anchored_window.window_at(state, now, period)
  if used == 0 then
    return now
  end
  return begun + period
end
