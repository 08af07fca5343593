-- The rule of `interval.rs`, function by function. `refill` tokens arrive together, once in each
-- `period`. Kept is what was missing after the last refill: {its time, tokens}.
local by_interval = {}

-- When the last refill was, and what is missing since.
function by_interval.missing_at(kept, now, refill, period)
  local refills = math.floor((now - kept[1]) / period)
  local tokens = kept[2] - refills * refill
  if tokens <= 0 then
    return now, 0
  end
  return kept[1] + refills * period, tokens
end

function by_interval.moved_back(kept, now, capacity, refill, period)
  local possible = {math.min(kept[1], now), kept[2], 0}
  local refilled, tokens = by_interval.missing_at(possible, now, refill, period)
  if tokens > capacity then
    return {refilled, capacity, 0}
  end
  if possible[1] < kept[1] then
    return possible
  end
end

function by_interval.admits(kept, now, cost, capacity, refill, period)
  local _, tokens = by_interval.missing_at(kept, now, refill, period)
  return tokens + cost <= capacity
end

function by_interval.charge(kept, now, cost, _, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  kept[1], kept[2] = refilled, tokens + cost
end

function by_interval.refund(kept, now, units, _, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  kept[1], kept[2] = refilled, math.max(tokens - units, 0)
end

function by_interval.reset_after(kept, now, _, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  if tokens == 0 then
    return 0
  end
  return math.ceil(tokens / refill) * period - (now - refilled)
end
