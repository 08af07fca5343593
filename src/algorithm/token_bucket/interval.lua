-- The rule of `interval.rs`, function by function. `refill` tokens arrive together, once in each
-- `period`. Kept is what was missing after the last refill: {its time, tokens}; if that is above the capacity, a
-- mark of the rule that has left it follows: {…, capacity, refill}.
local by_interval = {}

-- The time of the last refill, and what is missing since.
function by_interval.missing_at(kept, now, refill, period)
  local refills = math.floor((now - kept[1]) / period)
  local tokens = kept[2] - refills * refill
  if tokens <= 0 then
    return now, 0
  end
  return kept[1] + refills * period, tokens
end

function by_interval.moved_back(kept, now, capacity, refill, period)
  local most = capacity
  if kept[3] == capacity and kept[4] == refill then
    most = 2 * capacity
  end
  local possible = {math.min(kept[1], now), kept[2], kept[3], kept[4]}
  local refilled, tokens = by_interval.missing_at(possible, now, refill, period)
  if tokens > most then
    return {refilled, most, kept[3], kept[4]}
  end
  if possible[1] < kept[1] then
    return possible
  end
end

function by_interval.admits(kept, now, cost, capacity, refill, period)
  local _, tokens = by_interval.missing_at(kept, now, refill, period)
  return tokens + cost <= capacity
end

-- Keeps what is missing. Marks what is above the capacity.
function by_interval.keep(kept, refilled, tokens, capacity, refill)
  kept[1], kept[2], kept[3], kept[4] = refilled, tokens, 0, nil
  if tokens > capacity then
    kept[3], kept[4] = capacity, refill
  end
end

function by_interval.charge(kept, now, cost, capacity, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  by_interval.keep(kept, refilled, tokens + cost, capacity, refill)
end

function by_interval.settle(kept, now, units, capacity, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  by_interval.keep(kept, refilled, math.min(tokens + units, 2 * capacity), capacity, refill)
end

function by_interval.refund(kept, now, units, capacity, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  by_interval.keep(kept, refilled, math.max(tokens - units, 0), capacity, refill)
end

function by_interval.reset_after(kept, now, _, refill, period)
  local refilled, tokens = by_interval.missing_at(kept, now, refill, period)
  if tokens == 0 then
    return 0
  end
  return math.ceil(tokens / refill) * period - (now - refilled)
end
