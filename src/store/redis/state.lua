-- A state is text: its words, and before them `!` and a moment, if the key is blocked until then.
local as_text = {}

-- What is kept, until when the key is blocked, and the text.
function as_text.load(key)
  local text = redis.call('GET', key)
  if not text then
    return {0, 0, 0}, 0, false
  end
  local words, blocked = {}, 0
  for word in string.gmatch(text, '%d+') do
    words[#words + 1] = tonumber(word)
  end
  if string.byte(text) == 33 then
    blocked = table.remove(words, 1)
  end
  for index = #words + 1, 3 do
    words[index] = 0
  end
  return words, blocked, true
end

function as_text.told(kept)
  if #kept == 3 then
    return string.format('%.0f %.0f %.0f', kept[1], kept[2], kept[3])
  end
  local words = {}
  for index, word in ipairs(kept) do
    words[index] = string.format('%.0f', word)
  end
  return table.concat(words, ' ')
end

function as_text.save(kept, blocked, key, told, ttl)
  if blocked > 0 then
    told = string.format('!%.0f ', blocked) .. told
  end
  redis.call('SET', key, told, 'PX', ttl)
end

-- The moment of this call, and the shortest time to live in milliseconds. Tests say what time it is, and
-- then a key must not die by the server's own clock.
local function moment(said)
  if said ~= '' then
    return tonumber(said), 600000
  end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2], 1
end

-- Keeps a state until it is as good as new, and until its key is not blocked any more.
local function save(rule, key, kept, told, blocked, now, shortest, limit, a, b)
  local lasts = rule.reset_after(kept, now, limit, a, b)
  if blocked > now then
    lasts = math.max(lasts, blocked - now)
  else
    blocked = 0
  end
  if lasts <= 0 then
    redis.call('DEL', key)
  else
    local ttl = math.max(math.ceil(math.min(lasts, 9007199254740991) / 1000), shortest)
    rule.save(kept, blocked, key, told, ttl)
  end
end

-- Rules, whose state is text unless they say otherwise.
local function by_name(rules)
  for _, rule in pairs(rules) do
    if not rule.load then
      rule.load, rule.told, rule.save = as_text.load, as_text.told, as_text.save
    end
  end
  return rules
end
