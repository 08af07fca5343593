-- A state is text: its words, and before them, if the key is blocked, `!` and two moments: from and until
-- when.

-- From and until when the key is blocked, of what stands behind the `!`.
local function block_of(text)
  local from, till = string.match(text, '(%d+) (%d+)')
  return {from + 0, till + 0}
end

-- What is kept, the block, and the words as text; no text, if there is no state.
local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {0, 0, 0}
  end
  local first, second, third = string.match(text, '^(%d+) (%d+) (%d+)$')
  if first then
    return {first + 0, second + 0, third + 0}, nil, text
  end
  local block, rest = string.match(text, '^!(%d+ %d+) (.*)$')
  local words = {}
  for word in string.gmatch(rest or text, '%d+') do
    words[#words + 1] = word + 0
  end
  if #words < 3 or string.find(rest or text, '[^%d ]') then
    error('no state is under the key ' .. key .. '; reset it')
  end
  return words, block and block_of(block), rest or text
end

-- The words as text.
local function told(kept)
  if #kept == 3 then
    return string.format('%d %d %d', kept[1], kept[2], kept[3])
  end
  local words = {}
  for index, word in ipairs(kept) do
    words[index] = string.format('%d', word)
  end
  return table.concat(words, ' ')
end

-- The moment of this call, and the shortest time to live in milliseconds. Tests say what time it is, and
-- then no key may die by the server's own clock.
local function moment(said)
  if said ~= '' then
    return said + 0, 600000
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], 1
end

-- How long the key is blocked yet, and whether the block has to be written anew: it has ended, or is from the
-- future and is moved back as a whole.
local function left(block, now)
  local back = math.max(block[1] - now, 0)
  block[1], block[2] = block[1] - back, block[2] - back
  return math.max(block[2] - now, 0), back > 0 or block[2] <= now
end

-- Keeps a state until it is as good as new, and until its key is not blocked any more.
local function save(rule, key, kept, text, block, now, shortest, limit, a, b, c)
  local lasts = rule.reset_after(kept, now, limit, a, b, c)
  if block and block[2] <= now then
    block = nil
  elseif block then
    lasts = math.max(lasts, block[2] - now)
  end
  if lasts <= 0 then
    redis.call('DEL', key)
    return
  end
  -- What lasts for centuries may as well be forgotten after 285 years.
  local ttl = math.max(math.ceil(math.min(lasts, 9007199254740991) / 1000), shortest)
  block = block and string.format('!%d %d', block[1], block[2])
  if rule.save then
    rule.save(kept, key, block or '', ttl)
    return
  end
  if block then
    text = block .. ' ' .. text
  end
  redis.call('SET', key, text, 'PX', ttl)
end
