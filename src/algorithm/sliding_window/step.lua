-- The rule of `step.rs`, function by function. A state is the window that was last charged, and two counts: {number,
-- count of the window before it, its own count}.
local sliding_window = {}

function sliding_window.windows_at(kept, now, period)
  local number = math.floor(now / period)
  if kept[1] == number then
    return number, kept[2], kept[3]
  elseif kept[1] == number - 1 then
    return number, kept[3], 0
  end
  return number, 0, 0
end

function sliding_window.moved_back(kept, now, _, period)
  local number = math.floor(now / period)
  if kept[1] > number then
    return {number, kept[2], kept[3]}
  end
end

-- Returns how many requests the two windows use, rounded up.
function sliding_window.used(kept, now, period)
  local number, previous, current = sliding_window.windows_at(kept, now, period)
  local weight = (number + 1) * period - now
  local weighted, rest = divided(previous, weight, period)
  if rest > 0 then
    weighted = weighted + 1
  end
  return weighted + current
end

function sliding_window.admits(kept, now, cost, limit, period)
  return sliding_window.used(kept, now, period) + cost <= limit
end

function sliding_window.charge(kept, now, cost, _, period)
  local number, previous, current = sliding_window.windows_at(kept, now, period)
  kept[1], kept[2], kept[3] = number, previous, current + cost
end

function sliding_window.settle(kept, now, units, _, period)
  local number, previous, current = sliding_window.windows_at(kept, now, period)
  kept[1], kept[2], kept[3] = number, previous, current + countable(units, current)
end

function sliding_window.refund(kept, now, units, _, period)
  local number, previous, current = sliding_window.windows_at(kept, now, period)
  local of_previous = math.max(units - current, 0)
  kept[1], kept[2], kept[3] = number, math.max(previous - of_previous, 0), math.max(current - units, 0)
end

function sliding_window.reset_after(kept, now, _, period)
  local number, previous, current = sliding_window.windows_at(kept, now, period)
  local to_the_next = (number + 1) * period - now
  if current > 0 then
    return to_the_next + period
  elseif previous > 0 then
    return to_the_next
  end
  return 0
end

function sliding_window.remaining(kept, now, limit, period)
  return math.max(limit - sliding_window.used(kept, now, period), 0)
end

function sliding_window.bin_end(_, now, _, period)
  return (math.floor(now / period) + 1) * period
end
