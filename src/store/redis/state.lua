-- A state is text: its words, and before them `!` and a moment, if the key is blocked until then.

-- What is kept, until when the key is blocked, and the words as text; no text, if there is no state.
local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {0, 0, 0}, 0
  end
  local first, second, third = string.match(text, '^(%d+) (%d+) (%d+)$')
  if first then
    return {first + 0, second + 0, third + 0}, 0, text
  end
  local blocked, rest = string.match(text, '^!(%d+) (.*)$')
  local words = {}
  for word in string.gmatch(rest or text, '%d+') do
    words[#words + 1] = word + 0
  end
  return words, (blocked or 0) + 0, rest or text
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

-- Keeps a state until it is as good as new, and until its key is not blocked any more.
local function save(rule, key, kept, text, blocked, now, shortest, limit, a, b)
  local lasts = rule.reset_after(kept, now, limit, a, b)
  if blocked <= now then
    blocked = 0
  elseif blocked - now > lasts then
    lasts = blocked - now
  end
  if lasts <= 0 then
    redis.call('DEL', key)
    return
  end
  local ttl = math.ceil(lasts / 1000)
  if ttl < shortest then
    ttl = shortest
  end
  if rule.save then
    rule.save(kept, key, blocked, ttl)
    return
  end
  if blocked > 0 then
    text = string.format('!%d %s', blocked, text)
  end
  redis.call('SET', key, text, 'PX', ttl)
end
