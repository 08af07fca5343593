-- Decides on requests, one after the other and each in one step, at one moment.
-- KEYS: the state of each charge.
-- ARGV:
-- - the time, or nothing;
-- - `charge`, `peek` to write nothing, or `deny` for requests that are denied elsewhere;
-- - how many policies there are, and for each its rule and four numbers, the limit first. After the rule of a policy
--   with a penalty come `|` and the numbers of the penalty. If the limit depends on the hour, `hours` and its numbers
--   follow;
-- - for consecutive requests with the same policies: how many requests, how many charges each has, and for each
--   charge its policy, its cost, and whether it is soft: 1, or 2 if a block of its key does not deny it either.
-- Returns a line for each request, or an error after a `-`. A line has the time and, for each charge,
-- - whether it fits: 1, 0, or 2 if its key is blocked for it from now on;
-- - how much longer its key is blocked;
-- - the state. If nodes hold units of the key, `~`, the contents of that mark and `|` come before it. If the key has
--   an override, `=`, the time that is left of it, its four numbers and `|` come before it.
-- All lines are one text, because a server makes a text faster than a list.
local KEYS, ARGV = KEYS, ARGV
local now, shortest = moment(ARGV[1])
local purpose = ARGV[2]
local policies, at = {}, 4
for index = 1, ARGV[3] + 0 do
  local rule, penalty = rules[ARGV[at]], nil
  if not rule then
    local name, numbers = string.match(ARGV[at], '^([^|]*)|(.*)$')
    rule, penalty = rules[name], numbers
  end
  local policy = {rule, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, penalty}
  if rule.present then
    local is_present, from, ends, longest = pcall(rule.present, now, policy[3], policy[4], policy[5])
    if is_present then
      policy[3], policy[4], policy[5] = from, ends, longest
    else
      -- An error of the requests of this policy, and of no other request.
      policy[8] = from
    end
  end
  policies[index] = policy
  at = at + 5
  if ARGV[at] == 'hours' then
    policy[7] = ARGV[at + 1]
    at = at + 2
  end
end

-- Decides on the charge of this key and on the later ones, to the last of the request. `place` is the index of the
-- charge in ARGV, and `allowed` says whether no earlier charge denies. Returns whether none of all denies, and the
-- text of the charges. It decides the later charges before it writes, and keeps its values in locals until then: a
-- table for each charge would take longer.
local function decide(index, last, place, allowed)
  local policy = policies[ARGV[place] + 0]
  local rule, limit, a, b, c = policy[1], policy[2], policy[3], policy[4], policy[5]
  if policy[8] then
    error(policy[8], 0)
  end
  local key, cost = KEYS[index], ARGV[place + 1] + 0
  local kept, marks, text = (rule.load or load)(key)
  local blocked, own, moved, held = '0', '', false, 0
  if marks then
    blocked, own, moved, limit, a, b, c = marking().apply_marks(rule, marks, now, true, limit, a, b, c)
  end
  -- The numbers under which the state lasts longest.
  local lasts, lasts_a, lasts_b, lasts_c = limit, a, b, c
  local hours = own == '' and policy[7]
  if hours then
    limit, a, b, c = in_force(rule, kept, now, hours)
  end
  local possible = text and rule.moved_back(kept, now, limit, a, b, c)
  if possible then
    kept, moved = possible, true
  end
  if marks and marks.lease then
    local ended
    held, ended = marking().ending(rule, marks, kept, now, limit, a, b, c)
    moved = moved or ended
    if held > 0 then
      own = marking().text_of({lease = marks.lease}) .. '|' .. own
    end
  end
  local fits = limit > 0 and cost <= limit
    and (cost == 0 or held + cost <= limit and rule.admits(kept, now, held + cost, limit, a, b, c))
  if blocked ~= '0' and ARGV[place + 2] ~= '2' or not fits and ARGV[place + 2] == '0' then
    allowed = false
  end
  local behind = ''
  if index < last then
    allowed, behind = decide(index + 1, last, place + 3, allowed)
  end

  local verdict = fits and ';1;' or ';0;'
  if policy[6] and cost > 0 and purpose == 'charge' and ARGV[place + 2] == '0' and (blocked ~= '0' or not fits) then
    marks = marks or {}
    local changed, length = marking().penalize(marks, policy[6], now)
    moved = moved or changed
    if length then
      verdict, blocked = ';2;', string.format('%d', length)
    end
  end
  local charged = allowed and fits and cost > 0 and blocked == '0'
  if charged then
    rule.charge(kept, now, cost, limit, a, b, c)
  end
  if charged or moved or rule.told and text then
    text = (rule.told or told)(kept, now, cost, limit, a, b, c, hours)
  end
  -- A denial writes only what no request could have left (a state from the future), and repairs a time to live.
  if cost > 0 and purpose == 'charge'
    and (charged or moved or text and dies_wrongly(rule, key, kept, now, lasts, lasts_a, lasts_b, lasts_c)) then
    save(rule, key, kept, text, marks, now, shortest, lasts, lasts_a, lasts_b, lasts_c)
  end
  return allowed, verdict .. blocked .. ';' .. own .. (text or '') .. behind
end

local time, lines, line, first, count = string.format('%d', now), {}, 0, 1, #KEYS
while first <= count do
  local requests, charges = ARGV[at] + 0, ARGV[at + 1] + 0
  if charges == count then
    local _, told = decide(1, count, at + 2, purpose ~= 'deny')
    return time .. told
  end
  for _ = 1, requests do
    -- An error about data that no rule can read fails its own request alone.
    local is_decided, failed, told = pcall(decide, first, first + charges - 1, at + 2, purpose ~= 'deny')
    line, first = line + 1, first + charges
    if is_decided then
      lines[line] = time .. told
    else
      -- An error of the server itself begins with its name, except in Redis 6.2.
      local said = string.gsub(string.find(failed, '^%u+ ') and failed or 'ERR ' .. failed, '%c', ' ')
      if string.find(said, 'READONLY', 1, true) then
        -- The whole call has come to the wrong server, where nothing was charged.
        return {err = said}
      end
      lines[line] = '-' .. said
    end
  end
  at = at + 2 + 3 * charges
end
return table.concat(lines, '\n')
