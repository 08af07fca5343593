-- The rule of `window.rs` and `step.rs`, function by function. A state is a window and its count: {number, used}.
local fixed_window = {}

function fixed_window.window_at(kept, now, period)
  local number = math.floor(now / period)
  if kept[1] == number then
    return number, kept[2]
  end
  return number, 0
end

function fixed_window.moved_back(kept, now, _, period)
  local number = math.floor(now / period)
  if kept[1] > number then
    return {number, kept[2], 0}
  end
end

function fixed_window.admits(kept, now, cost, limit, period)
  local _, used = fixed_window.window_at(kept, now, period)
  return used + cost <= limit
end

function fixed_window.charge(kept, now, cost, _, period)
  local number, used = fixed_window.window_at(kept, now, period)
  kept[1], kept[2] = number, used + cost
end

function fixed_window.settle(kept, now, units, _, period)
  local number, used = fixed_window.window_at(kept, now, period)
  kept[1], kept[2] = number, used + countable(units, used)
end

function fixed_window.refund(kept, now, units, _, period)
  local number, used = fixed_window.window_at(kept, now, period)
  kept[1], kept[2] = number, math.max(used - units, 0)
end

function fixed_window.reset_after(kept, now, _, period)
  local number, used = fixed_window.window_at(kept, now, period)
  if used == 0 then
    return 0
  end
  return (number + 1) * period - now
end

function fixed_window.remaining(kept, now, limit, period)
  local _, used = fixed_window.window_at(kept, now, period)
  return math.max(limit - used, 0)
end

function fixed_window.bin_end(kept, now, _, period)
  return (fixed_window.window_at(kept, now, period) + 1) * period
end
