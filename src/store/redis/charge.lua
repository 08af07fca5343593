-- Decides on requests, one after the other and each in one step, at one moment. KEYS: the state of each
-- charge. ARGV: the time, or nothing; `charge`, `peek` to write nothing, or `deny` to tell of requests that are
-- denied elsewhere; how many policies, and each one's rule and four numbers, the limit first; then for each
-- request how many charges, and each one's policy, its cost, and whether it is soft.
-- Returns a line for each request: the time and, for each charge, whether it fits, how long its key is blocked yet,
-- and the state, before which stand, if the key has a limit of its own, `=`, how long that lasts yet, its four
-- numbers and `|`; or what has failed, behind a `-`. All are one text, which a server is quicker to make than a list.
local now, shortest = moment(ARGV[1])
local time, purpose = string.format('%d', now), ARGV[2]
local policies, at = {}, 4
for index = 1, ARGV[3] + 0 do
  policies[index] = {rules[ARGV[at]], ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0}
  at = at + 5
end

-- On the request whose charges are of these keys, and stand from there in ARGV.
local function decide(first, last, from)
  local allowed = purpose ~= 'deny'
  local asked, reply = {}, {time}
  for index = first, last do
    local place = from + 3 * (index - first)
    local rule, limit, a, b, c = unpack(policies[ARGV[place] + 0])
    local cost = ARGV[place + 1] + 0
    local kept, marks, text = (rule.load or load)(KEYS[index])
    local blocked, changed = 0, false
    if marks then
      kept, blocked, changed, limit, a, b, c = marking().heed(rule, kept, marks, now, true, limit, a, b, c)
    end
    local moved = text and rule.moved_back(kept, now, limit, a, b, c)
    kept, moved = moved or kept, moved or changed
    local fits = limit > 0
    if fits and cost > 0 then
      fits = cost <= limit and rule.admits(kept, now, cost, limit, a, b, c)
    end
    if blocked > 0 or not fits and ARGV[place + 2] == '0' then
      allowed = false
    end
    asked[index] = {rule, cost, limit, a, b, c, kept, marks, blocked, text, moved, fits}
  end

  for index = first, last do
    local rule, cost, limit, a, b, c, kept, marks, blocked, text, moved, fits = unpack(asked[index], 1, 12)
    local charged = allowed and fits and cost > 0
    if charged then
      rule.charge(kept, now, cost, limit, a, b, c)
    end
    if charged or moved or rule.told and text then
      text = (rule.told or told)(kept, now, cost, limit, a, b, c)
    end
    local place = 3 * (index - first) + 2
    reply[place] = fits and '1' or '0'
    reply[place + 1] = blocked > 0 and string.format('%d', blocked) or '0'
    local own = marks and marks.own
    reply[place + 2] = (own and string.format('=%d %d %d %d %d|', own[2] - now, limit, a, b, c) or '') .. (text or '')
    -- A denial writes only what no request could have left: a state from the future, one that never dies.
    if cost > 0 and purpose == 'charge'
      and (charged or moved or text and redis.call('PTTL', KEYS[index]) == -1) then
      save(rule, KEYS[index], kept, text, marks, now, shortest, limit, a, b, c)
    end
  end
  return table.concat(reply, ';')
end

if ARGV[at] + 0 == #KEYS then
  return decide(1, #KEYS, at + 1)
end
local lines, first = {}, 1
while first <= #KEYS do
  local charges = ARGV[at] + 0
  -- What no rule can read fails its own request, and none of the others.
  local is_decided, line = pcall(decide, first, first + charges - 1, at + 1)
  if not is_decided then
    -- What the server itself says begins with its name of the error, but for Redis 6.2.
    local said = string.gsub(string.find(line, '^%u+ ') and line or 'ERR ' .. line, '%c', ' ')
    if string.find(said, 'READONLY', 1, true) then
      -- The whole call has come to the wrong server, where nobody was charged.
      return {err = said}
    end
    line = '-' .. said
  end
  lines[#lines + 1] = line
  first, at = first + charges, at + 1 + 3 * charges
end
return table.concat(lines, '\n')
