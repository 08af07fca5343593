-- A state is text: its words. Marks and a `;` may come before them:
-- - `!`: the beginning and the end of a block of the key;
-- - `=`: the beginning and the end of an override, and its four numbers;
-- - `*`: the number of blocks as penalties, until when they count, until when any of this counts, and the times of
--   refusals;
-- - `~`: the units that nodes hold: the longest life of a lease, the demand (a span of time, the demand of the span
--   before, and that of the span), and for each class of units its end and their number.

local functions_for_marks
-- Returns the functions for marks. Few keys have marks, and a server makes a function anew for each call, so these are made
-- when the first mark is found.
local function marking()
  if functions_for_marks then
    return functions_for_marks
  end
  local names = {['!'] = 'block', ['='] = 'own', ['*'] = 'offences', ['~'] = 'lease'}

  -- Returns the marks in this text: {block = {from, until}, own = {from, until, numbers …}, offences = {blocks, these
  -- until, all until, refused …}, lease = {life, moves, span, before, present, end, units …}}.
  local function of(text)
    local marks = {}
    for mark, numbers in string.gmatch(text, '([!=*~])([%d ]+)') do
      local read = {}
      for number in string.gmatch(numbers, '%d+') do
        read[#read + 1] = number + 0
      end
      local is_whole
      if mark == '*' then
        is_whole = #read >= 3
      elseif mark == '~' then
        is_whole = #read >= 5 and #read % 2 == 1
      else
        is_whole = #read == (mark == '!' and 2 or 6)
      end
      if not is_whole then
        error('no state has the marks ' .. text .. '; reset it')
      end
      marks[names[mark]] = read
    end
    return marks
  end

  local function list(mark, numbers)
    local words = {}
    for index, number in ipairs(numbers) do
      words[index] = string.format('%d', number)
    end
    return mark .. table.concat(words, ' ')
  end

  local function text_of(marks)
    local block, own, offences, lease = marks.block, marks.own, marks.offences, marks.lease
    return (block and string.format('!%d %d', unpack(block)) or '')
      .. (own and string.format('=%d %d %d %d %d %d', unpack(own)) or '')
      .. (offences and list('*', offences) or '') .. (lease and list('~', lease) or '')
  end

  -- Returns how much longer a mark holds, from one moment to another, and by how much it is from the future.
  local function left(mark, now)
    local back = math.max(mark[1] - now, 0)
    return math.max(mark[2] - back - now, 0), back
  end

  -- Applies the marks: drops those that have ended and, if it `moves` them, moves those from the future back as a
  -- whole. Returns in digits how much longer the key is blocked and the text about its override, whether anything has
  -- changed, and the numbers in force.
  local function apply_marks(rule, marks, now, moves, limit, a, b, c)
    local blocked, changed = 0, false
    for name, mark in pairs({block = marks.block, own = marks.own}) do
      local lasts, back = left(mark, now)
      if moves then
        mark[1], mark[2] = mark[1] - back, mark[2] - back
      end
      changed = changed or back > 0 or lasts == 0
      if name == 'block' then
        blocked = lasts
      end
      if lasts == 0 then
        marks[name] = nil
      end
    end
    if marks.offences and marks.offences[3] <= now then
      marks.offences, changed = nil, true
    end
    local own = marks.own
    if own then
      own.policys = {limit, a, b, c}
      limit = own[3]
      if not rule.present then
        -- The other numbers of a calendar are those of the present.
        a, b, c = own[4], own[5], own[6]
      end
    end
    local override = own and string.format('=%d %d %d %d %d|', own[2] - now, limit, a, b, c) or ''
    return string.format('%d', blocked), override, changed, limit, a, b, c
  end

  -- How many refusals count at the moment, as `Offences::counting`.
  local function refusals(marks, now, within)
    local offences, counting = marks.offences or {}, 0
    for index = 4, #offences do
      if now - math.min(offences[index], now) < within then
        counting = counting + 1
      end
    end
    return counting
  end

  -- Notes a refusal, as `Offences::note`. Returns whether a mark has changed, and how long the key is blocked from now
  -- on, if it is for this one. The numbers are those of `Penalty::numbers`.
  local function penalize(marks, numbers, now)
    local read = {}
    for number in string.gmatch(numbers, '%d+') do
      read[#read + 1] = number + 0
    end
    local after, within, block, factor, most, memory, extends = unpack(read)
    local offences = marks.offences or {0, 0, 0}
    local blocks, refused = offences[1], {}
    local function length(before)
      local long = block
      for _ = 1, before do
        if factor == 1 or long >= most then
          break
        end
        long = math.min(long * factor, most)
      end
      return long
    end
    local function until_forgotten(long)
      return math.min(now + long + memory, 9007199254740991)
    end
    local function begin(long, had)
      local forgotten = until_forgotten(long)
      offences = {had, forgotten, math.max(forgotten, #refused > 0 and refused[#refused] + within or 0)}
      for _, at in ipairs(refused) do
        offences[#offences + 1] = at
      end
      marks.offences = offences
      if marks.block and left(marks.block, now) >= long then
        return true
      end
      marks.block = {now, now + long}
      return true, long
    end
    for index = 4, #offences do
      local at = math.min(offences[index], now)
      if now - at < within then
        refused[#refused + 1] = at
      end
    end
    if marks.block and left(marks.block, now) > 0 then
      if extends == 0 then
        return false
      end
      return begin(length(math.max(blocks - 1, 0)), blocks)
    end
    local forgotten = math.min(offences[2], until_forgotten(most))
    if forgotten <= now then
      blocks = 0
    end
    refused[#refused + 1] = now
    if #refused >= after then
      refused = {}
      return begin(length(blocks), math.min(blocks + 1, 64))
    end
    marks.offences = {blocks, forgotten, math.max(blocks > 0 and forgotten or 0, now + within), unpack(refused)}
    return true
  end

  -- Charges the units that nodes have held until their end, as `Leased::end` does. Returns how many they hold yet, and
  -- whether anything has changed.
  local function ending(rule, marks, state, now, limit, a, b, c)
    local lease = marks.lease
    if not lease then
      return 0, false
    end
    local leased, left = 0, {lease[1], lease[2], lease[3], lease[4], lease[5]}
    if #lease > 5 and lease[#lease - 1] > now + lease[1] then
      left[2] = left[2] + 1
    end
    for at = 6, #lease, 2 do
      -- An end that is further away is from before the clock has stepped back.
      local ends, units = math.min(lease[at], now + lease[1]), lease[at + 1]
      if ends <= now then
        rule.charge(state, math.max(ends - 1, 0), units, limit, a, b, c)
      else
        left[#left + 1], left[#left + 2] = ends, units
        leased = leased + units
      end
    end
    marks.lease = left
    return leased, #left < #lease or left[2] > lease[2]
  end

  -- How long a state and what is held of it last at most.
  local function lasting(rule, marks, state, now, limit, a, b, c)
    local lease, leased = marks.lease, 0
    if not lease or #lease < 7 then
      return 0
    end
    local to_the_end = lease[#lease - 1] - now
    if rule.load then
      return to_the_end + a
    end
    for at = 7, #lease, 2 do
      leased = leased + lease[at]
    end
    local all = {unpack(state)}
    rule.charge(all, now, leased, limit, a, b, c)
    return to_the_end + rule.reset_after(all, now, limit, a, b, c)
  end

  functions_for_marks = {
    of = of, text_of = text_of, left = left, apply_marks = apply_marks, penalize = penalize, refusals = refusals,
    ending = ending, lasting = lasting,
  }
  return functions_for_marks
end

-- Returns a state, its marks, and its words as text; no text, if there is none.
local function load(key)
  local text = redis.call('GET', key)
  if not text then
    return {0, 0, 0}
  end
  local first, second, third, fourth = string.match(text, '^(%d+) (%d+) (%d+) ?(%d*)$')
  if fourth == '' then
    return {first + 0, second + 0, third + 0}, nil, text
  elseif first then
    return {first + 0, second + 0, third + 0, fourth + 0}, nil, text
  end
  local marks, rest = string.match(text, '^([!=*~][^;]*);(.*)$')
  local words = {}
  for word in string.gmatch(rest or text, '%d+') do
    words[#words + 1] = word + 0
  end
  if #words < 3 or string.find(rest or text, '[^%d ]') then
    error('no state is under the key ' .. key .. '; reset it')
  end
  return words, marks and marking().of(marks), rest or text
end

-- Returns the words of a state as text.
local function words_of(state)
  if #state == 3 then
    return string.format('%d %d %d', state[1], state[2], state[3])
  elseif #state == 4 then
    return string.format('%d %d %d %d', state[1], state[2], state[3], state[4])
  end
  local words = {}
  for index, word in ipairs(state) do
    words[index] = string.format('%d', word)
  end
  return table.concat(words, ' ')
end

-- Returns the text of an error in an answer, and whether it fails the whole call, which has come to a server that does not
-- write.
local function report(failed)
  -- An error of the server itself begins with its name, except in Redis 6.2.
  local text = string.gsub(string.find(failed, '^%u+ ') and failed or 'ERR ' .. failed, '%c', ' ')
  return text, string.find(text, 'READONLY', 1, true)
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

-- Whether a state dies too soon or never. It dies too soon if it drains more slowly under the limit of now than under
-- that of its last charge. `longest` are the numbers under which it lasts the longest, if they are not those in force.
local function dies_wrongly(rule, key, state, now, longest, limit, a, b, c)
  if longest then
    limit, a, b, c = unpack(longest)
  end
  local left = redis.call('PTTL', key)
  return left == -1 or rule.is_slower and rule.is_slower(state, c)
    and (left + 1) * 1000 < rule.reset_after(state, now, limit, a, b, c)
end

-- Saves a state until it is as good as new, and for as long as it has marks. The numbers are those of `dies_wrongly`.
local function save(rule, key, state, text, marks, now, shortest, longest, limit, a, b, c)
  if longest then
    limit, a, b, c = unpack(longest)
  end
  local lasts = rule.reset_after(state, now, limit, a, b, c)
  local mark = ''
  if marks and marks.block then
    lasts = math.max(lasts, marks.block[2] - now)
  end
  if marks and marks.lease then
    lasts = math.max(lasts, marking().lasting(rule, marks, state, now, limit, a, b, c))
  end
  if marks and marks.own then
    -- It may last longer under the policy's own limit, which counts from then on.
    lasts = math.max(lasts, marks.own[2] - now, rule.reset_after(state, now, unpack(marks.own.policys)))
  end
  if marks and marks.offences then
    lasts = math.max(lasts, marks.offences[3] - now)
  end
  if lasts <= 0 then
    redis.call('DEL', key)
    return
  end
  -- What lasts for centuries may as well be forgotten after 285 years.
  local ttl = math.ceil(lasts < 9007199254740991 and lasts / 1000 or 9007199254740.991)
  if ttl < shortest then
    ttl = shortest
  end
  if marks then
    mark = marking().text_of(marks)
  end
  if rule.save then
    rule.save(state, key, mark, ttl)
    return
  end
  if mark ~= '' then
    text = mark .. ';' .. text
  end
  -- A number would be written by the server in 17 digits of a double, which takes longer.
  redis.call('SET', key, text, 'PX', string.format('%d', ttl))
end
