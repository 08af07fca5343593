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
  local policy = {rule, false, ARGV[at + 1] + 0, ARGV[at + 2] + 0, ARGV[at + 3] + 0, ARGV[at + 4] + 0, penalty}
  policies[index] = policy
  at = at + 5
  if ARGV[at] == 'hours' then
    policy[2] = ARGV[at + 1]
    at = at + 2
  end
end

-- Decides on the charge of this key and on the later ones, to the last of the request. `place` is the index of the
-- charge in ARGV, and `allowed` says whether no earlier charge denies. Returns whether none of all denies, and the
-- text of the charges. It decides the later charges before it writes, and keeps its values in locals until then.
local function decide(index, last, place, allowed)
  local policy, key, cost = policies[ARGV[place] + 0], KEYS[index], ARGV[place + 1] + 0
  local rule, penalty = policy[1], policy[7]
  local state, marks, text, changed, blocked, own, leased, limit, a, b, c, longest = open(policy, key, now, true)
  if leased > 0 then
    own = marking().text_of({lease = marks.lease}) .. '|' .. own
  end
  local fits = limit > 0 and cost <= limit
    and (cost == 0 or leased + cost <= limit and rule.admits(state, now, leased + cost, limit, a, b, c))
  if blocked ~= '0' and ARGV[place + 2] ~= '2' or not fits and ARGV[place + 2] == '0' then
    allowed = false
  end
  local behind = ''
  if index < last then
    allowed, behind = decide(index + 1, last, place + 3, allowed)
  end

  local verdict = fits and ';1;' or ';0;'
  if penalty and cost > 0 and purpose == 'charge' and ARGV[place + 2] == '0' and (blocked ~= '0' or not fits) then
    marks = marks or {}
    local noted, length = marking().penalize(marks, penalty, now)
    changed = changed or noted
    if length then
      verdict, blocked = ';2;', string.format('%d', length)
    end
  end
  local charged = allowed and fits and cost > 0 and blocked == '0'
  if charged then
    rule.charge(state, now, cost, limit, a, b, c)
  end
  if charged or changed or rule.words and text then
    text = (rule.words or words_of)(state, now, cost, limit, a, b, c, longest and policy[2])
  end
  -- A denial writes only what no request could have left (a state from the future), and repairs a time to live.
  if cost > 0 and purpose == 'charge'
    and (charged or changed or text and dies_wrongly(rule, key, state, now, longest, limit, a, b, c)) then
    save(rule, key, state, text, marks, now, shortest, longest, limit, a, b, c)
  end
  return allowed, verdict .. blocked .. ';' .. own .. (text or '') .. behind
end

local time, lines, line, first, count = string.format('%d', now), {}, 0, 1, #KEYS
while first <= count do
  local requests, charges = ARGV[at] + 0, ARGV[at + 1] + 0
  if charges == count then
    local _, text = decide(1, count, at + 2, purpose ~= 'deny')
    return time .. text
  end
  for _ = 1, requests do
    -- An error about data that no rule can read fails its own request alone.
    local is_decided, failed, text = pcall(decide, first, first + charges - 1, at + 2, purpose ~= 'deny')
    line, first = line + 1, first + charges
    if is_decided then
      lines[line] = time .. text
    else
      local message, is_of_all = report(failed)
      if is_of_all then
        return {err = message}
      end
      lines[line] = '-' .. message
    end
  end
  at = at + 2 + 3 * charges
end
return table.concat(lines, '\n')
