-- The rule of `window.rs` and `step.rs`, function by function. A state is a window and its count: {begun, used}.
local anchored_window = {}

-- Returns the open window, or the one that would open now.
function anchored_window.window_at(kept, now, period)
  if kept[2] > 0 and now - kept[1] < period then
    return kept[1], kept[2]
  end
  return now, 0
end

function anchored_window.moved_back(kept, now)
  if kept[1] > now then
    return {now, kept[2], 0}
  end
end

function anchored_window.admits(kept, now, cost, limit, period)
  local _, used = anchored_window.window_at(kept, now, period)
  return used + cost <= limit
end

function anchored_window.charge(kept, now, cost, _, period)
  local begun, used = anchored_window.window_at(kept, now, period)
  kept[1], kept[2] = begun, used + cost
end

function anchored_window.settle(kept, now, units, _, period)
  local begun, used = anchored_window.window_at(kept, now, period)
  kept[1], kept[2] = begun, used + countable(units, used)
end

function anchored_window.refund(kept, now, units, _, period)
  local begun, used = anchored_window.window_at(kept, now, period)
  kept[1], kept[2] = begun, math.max(used - units, 0)
end

function anchored_window.reset_after(kept, now, _, period)
  local begun, used = anchored_window.window_at(kept, now, period)
  if used == 0 then
    return 0
  end
  return begun + period - now
end

function anchored_window.remaining(kept, now, limit, period)
  local _, used = anchored_window.window_at(kept, now, period)
  return math.max(limit - used, 0)
end

-- Only a request opens a window.
function anchored_window.bin_end(kept, now, _, period)
  local begun, used = anchored_window.window_at(kept, now, period)
  if used == 0 then
    return now
  end
  return begun + period
end
