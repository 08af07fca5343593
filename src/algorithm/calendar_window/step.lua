-- The rule of `step.rs`, function by function. Kept is {until, used, last}; `a`, `b` and `c` are where two windows begin
-- and end that lie side by side around now.
local calendar_window = {}

-- `c` is in seconds, times 16,384, and the longest window in hours.
function calendar_window.present(now, a, b, c)
  local hours = c % 16384
  c = (c - hours) / 16384 * 1000000
  if now < a or now >= c then
    error('the clock of the node differs by more than half a window of its calendar')
  end
  if now < b then
    return a, b, hours * 3600000000
  end
  return b, c, hours * 3600000000
end

function calendar_window.counted(kept, now, a, b, c)
  local from, ends = calendar_window.present(now, a, b, c)
  if kept[3] >= from and kept[2] > 0 then
    return math.max(kept[1], ends), kept[2], kept[3]
  end
  if kept[1] > now and kept[2] > 0 then
    return kept[1], kept[2], kept[3]
  end
  return ends, 0, now
end

-- What counts now, and until when a charge counts at least.
function calendar_window.counted_with_a_charge(kept, now, a, b, c)
  local _, ends = calendar_window.present(now, a, b, c)
  local counts, used, last = calendar_window.counted(kept, now, a, b, c)
  return math.max(counts, ends), used, math.max(last, now)
end

function calendar_window.moved_back(kept, now, _, a, b, c)
  local _, ends, longest = calendar_window.present(now, a, b, c)
  if kept[3] >= ends or kept[1] > ends and kept[1] - now > longest then
    return {ends, kept[2], math.min(kept[3], now)}
  end
end

function calendar_window.admits(kept, now, cost, limit, a, b, c)
  local _, used = calendar_window.counted(kept, now, a, b, c)
  return used + cost <= limit
end

function calendar_window.charge(kept, now, cost, _, a, b, c)
  local ends, used, last = calendar_window.counted_with_a_charge(kept, now, a, b, c)
  kept[1], kept[2], kept[3] = ends, used + cost, last
end

function calendar_window.settle(kept, now, units, _, a, b, c)
  local ends, used, last = calendar_window.counted_with_a_charge(kept, now, a, b, c)
  kept[1], kept[2], kept[3] = ends, used + countable(units, used), last
end

function calendar_window.refund(kept, now, units, _, a, b, c)
  local ends, used, last = calendar_window.counted(kept, now, a, b, c)
  kept[1], kept[2], kept[3] = ends, math.max(used - units, 0), last
end

function calendar_window.reset_after(kept, now, _, a, b, c)
  local ends, used = calendar_window.counted(kept, now, a, b, c)
  if used == 0 then
    return 0
  end
  return ends - now
end

function calendar_window.remaining(kept, now, limit, a, b, c)
  local _, used = calendar_window.counted(kept, now, a, b, c)
  return math.max(limit - used, 0)
end
