-- Numbers are doubles: whole numbers are exact below 2^53.

-- Returns how many of these units a window counts that has counted `counted`.
local function countable(units, counted)
  return math.max(math.min(units, 4294967295 - counted), 0)
end

-- The quotient and the remainder of a * b / divisor, for `b` below 2^49 and divisors below 2^45. A quotient
-- of 2^53 or more is not exact.
local function divided(a, b, divisor)
  local product = a * b
  -- From here to 2^53 a remainder by `%` may be one of the next quotient.
  if product < 4503599627370496 then
    local rest = product % divisor
    return (product - rest) / divisor, rest
  end
  -- By long multiplication, seven bits of `b` at a time: no number below is over 255 * divisor.
  local rest_of_a = math.fmod(a, divisor)
  local quotient, rest = 0, 0
  local digits = 562949953421312
  for _ = 1, 7 do
    digits = digits / 128
    local step = rest * 128 + rest_of_a * (math.floor(b / digits) % 128)
    rest = math.fmod(step, divisor)
    quotient = quotient * 128 + (step - rest) / divisor
  end
  return (a - rest_of_a) / divisor * b + quotient, rest
end
